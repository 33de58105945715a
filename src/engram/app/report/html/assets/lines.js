// Lines over places, with a band of one standard deviation. A hollow point is that of the seeds that
// did not diverge.

const LETTER = 7; // pixels

function drawLines(plot, chart, section) {
  const shown = chart.series.filter((series) => section.shown[series.line]);
  const width = plot.clientWidth, height = width < 480 ? 260 : 340;
  const box = { left: 46, right: width - 10, top: 24, bottom: height - 40 };
  const lows = shown.flatMap((s) => s.mean.map((m, i) => (m === null ? [] : floor(m, s.std[i]))).flat());
  const highs = shown.flatMap((s) => s.mean.map((m, i) => (m === null ? [] : m + s.std[i])).flat());
  const range = shown.length ? [Math.min(...lows), Math.max(...highs)] : [0, 1];
  const marks = ticks(...range, height / 60);
  const low = Math.min(range[0], marks.places[0]), high = marks.places.at(-1);
  const y = scale([low, high], [box.bottom, box.top]);
  const x = scale([0, Math.max(1, chart.x.length - 1)], [box.left + 8, box.right - 8]);
  const root = frame(chart, box, width, height, x, y, marks);
  const groups = shown.map((series) => drawSeries(series, section.lines[series.line], chart, x, y));
  const cross = svg("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
  root.append(...groups, cross);
  plot.replaceChildren(root);
  follow(root, plot, chart, section, shown, { x, y, box, cross });
}

// The lower edge of a band: what cannot be negative has none below 0.
function floor(mean, std) {
  return Math.max(mean - std, Math.min(mean, 0));
}

function frame(chart, box, width, height, x, y, marks) {
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0,
    role: "img", "aria-label": `${chart.title}. Arrow keys read the values.` });
  for (const place of marks.places) {
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(place), y2: y(place) }));
    root.append(svg("text", { class: "tick end", x: box.left - 6, y: y(place) + 4 }, marks.text(place)));
  }
  const longest = Math.max(...chart.x.map((text) => text.length));
  const every = Math.ceil((chart.x.length * Math.max(30, LETTER * longest + 4)) / (box.right - box.left));
  chart.x.forEach((text, place) => {
    if (place % every) return;
    const cut = x(place) + (LETTER * text.length) / 2 > width;
    const where = cut ? { class: "tick end", x: width } : { class: "tick middle", x: x(place) };
    root.append(svg("text", { ...where, y: box.bottom + 16 }, text));
  });
  root.append(svg("text", { class: "tick", x: 0, y: 11 }, chart.value));
  const middle = (box.left + box.right) / 2;
  root.append(svg("text", { class: "tick middle", x: middle, y: height - 6 }, chart.over));
  return root;
}

function drawSeries(series, line, chart, x, y) {
  const group = paint(svg("g", { class: line.leading ? "series leading" : "series" }), line);
  group.dataset.line = series.line;
  const places = series.level ? [0, chart.x.length - 1] : series.mean.map((_, place) => place);
  const at = (place) => (series.level ? 0 : place);
  const known = places.filter((place) => series.mean[at(place)] !== null);
  const upper = (place) => `${x(place)},${y(series.mean[at(place)] + series.std[at(place)])}`;
  const lower = (place) => `${x(place)},${y(floor(series.mean[at(place)], series.std[at(place)]))}`;
  const wide = known.filter((place) => series.std[at(place)] !== null);
  const outline = [...wide.map(upper), ...wide.map(lower).reverse()].join(" ");
  const path = known.map((place) => `${x(place)},${y(series.mean[at(place)])}`).join(" ");
  group.append(svg("polygon", { class: "band", points: outline }));
  group.append(svg("polyline", { class: "line", points: path }));
  if (!series.level) {
    for (const place of known) {
      const look = series.partial[place] ? { class: "dot partial", r: 3.5 } : { class: "dot", r: 2.5 };
      const dot = svg("circle", { ...look, cx: x(place), cy: y(series.mean[place]) });
      dot.dataset.place = place;
      group.append(dot);
    }
  }
  return group;
}

// A line whose name says how many seeds a point is of, where some diverged.
function named({ series, point }, section) {
  const line = section.lines[series.line], partial = series.partial[point];
  return partial ? { ...line, name: `${line.name} (${partial})` } : line;
}

// The pointer, a finger or the arrow keys choose a place; all methods there are listed.
function follow(root, plot, chart, section, shown, { x, y, box, cross }) {
  let place = -1;
  const tell = (chosen, pointer) => {
    place = Math.max(0, Math.min(chart.x.length - 1, chosen));
    const rows = shown
      .map((series) => ({ series, point: series.level ? 0 : place }))
      .filter(({ series, point }) => (series.mean[point] ?? null) !== null)
      .sort((a, b) => b.series.mean[b.point] - a.series.mean[a.point]);
    if (!rows.length) return;
    const area = root.getBoundingClientRect();
    const py = pointer ? pointer.clientY - area.top : (box.top + box.bottom) / 2;
    const gap = ({ series, point }) => Math.abs(y(series.mean[point]) - py);
    const near = pointer && rows.reduce((best, row) => (gap(row) < gap(best) ? row : best));
    cross.setAttribute("visibility", "visible");
    cross.setAttribute("x1", x(place));
    cross.setAttribute("x2", x(place));
    section.light(near ? near.series.line : null);
    showTip(`${chart.over}: ${chart.x[place]}`, rows.map((row) => ({
      line: named(row, section), lit: row === near,
      text: spread(row.series, row.point, chart.digits) })), area.left + x(place), area.top + py);
  };
  const leave = () => {
    cross.setAttribute("visibility", "hidden");
    section.light(null);
    hideTip();
    place = -1;
  };
  const nearest = (event) => {
    const px = event.clientX - root.getBoundingClientRect().left;
    return Math.round(((px - x(0)) / (x(1) - x(0))) || 0);
  };
  root.addEventListener("pointermove", (event) => tell(nearest(event), event));
  root.addEventListener("pointerdown", (event) => tell(nearest(event), event));
  root.addEventListener("pointerleave", leave);
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step) return;
    event.preventDefault();
    tell(place + step, null);
  });
}

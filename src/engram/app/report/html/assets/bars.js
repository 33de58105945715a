// A bar for each method, a whisker of one standard deviation, a diamond for the paper's number.
// A hollow bar is that of the seeds that did not diverge.

const ROW = 22;
const LETTERS = "11.5px"; // as the style sheet has names and values
const pen = document.createElement("canvas").getContext("2d");

function drawBars(plot, chart, section) {
  const shown = chart.series.filter((series) => section.shown[series.line]);
  const width = plot.clientWidth, height = ROW * shown.length + 26;
  pen.font = `${LETTERS} ${getComputedStyle(plot).fontFamily}`;
  const names = Math.min(width / 2, widest(shown.map((s) => section.lines[s.line].name)) + 12);
  const right = width - widest(shown.map((s) => valueOf(s, chart))) - 12;
  const ends = shown.flatMap((s) => [s.mean[0] + s.std[0], s.paper ? s.paper[0] : 0]);
  const lows = shown.map((s) => Math.min(0, s.mean[0] - s.std[0]));
  const marks = ticks(Math.min(0, ...lows), Math.max(...ends, 1e-9), 4);
  const x = scale([Math.min(0, ...lows), marks.places.at(-1)], [names, right]);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${chart.title}: ${shown.map((s) => describe(s, chart, section)).join("; ")}` });
  for (const place of marks.places) {
    if (x(place) < names - 1 || x(place) > right + 1) continue;
    root.append(svg("line", { class: "grid", x1: x(place), x2: x(place), y1: 0, y2: height - 20 }));
    root.append(svg("text", { class: "tick middle", x: x(place), y: height - 5 }, marks.text(place)));
  }
  shown.forEach((series, row) => root.append(drawBar(series, row, chart, section, x, names, width)));
  plot.replaceChildren(root);
}

function drawBar(series, row, chart, section, x, names, width) {
  const line = section.lines[series.line], top = row * ROW, middle = top + ROW / 2;
  const [mean, std] = [series.mean[0], series.std[0]];
  const kind = series.partial[0] ? "series bar partial" : "series bar";
  const group = paint(svg("g", { class: kind }), { ...line, dashes: "" });
  group.dataset.line = series.line;
  group.append(svg("rect", { class: "hit", x: 0, y: top, width, height: ROW }));
  const name = shortened(line.name, names - 8);
  group.append(svg("text", { class: "tick end name", x: names - 6, y: middle + 4 }, name));
  const left = Math.min(x(0), x(mean));
  group.append(svg("rect", { class: "fill", x: left, y: top + 4, height: ROW - 8, rx: 2,
    width: Math.max(1, Math.abs(x(mean) - x(0))) }));
  group.append(svg("line", { class: "whisker", x1: x(mean - std), x2: x(mean + std), y1: middle, y2: middle }));
  if (series.paper) {
    const px = x(series.paper[0]);
    group.append(svg("path", { class: "paper", d: `M${px - 4},${middle}l4,-4 4,4 -4,4z` }));
  }
  const end = Math.max(x(mean + std), series.paper ? x(series.paper[0]) + 4 : 0);
  group.append(svg("text", { class: "tick value", x: end + 5, y: middle + 4 }, valueOf(series, chart)));
  group.addEventListener("pointermove", (event) => {
    section.light(series.line);
    const rows = [{ line, text: spread(series, 0, chart.digits), lit: true }];
    if (series.paper) rows.push({ line: { ...line, name: "in the paper" }, text: papers(series, chart) });
    const seeds = `${series.seeds} ${series.seeds === 1 ? "seed" : "seeds"}`;
    showTip(`${chart.title}, ${series.partial[0] ?? seeds}`, rows, event.clientX, event.clientY);
  });
  group.addEventListener("pointerleave", () => { section.light(null); hideTip(); });
  return group;
}

function papers({ paper: [mean, std] }, { digits }) {
  return mean.toFixed(digits) + (std === null ? "" : ` ± ${std.toFixed(digits)}`);
}

function describe(series, chart, section) {
  const partial = series.partial[0] ? ` (${series.partial[0]})` : "";
  return `${section.lines[series.line].name} ${spread(series, 0, chart.digits)}${partial}`;
}

function valueOf({ mean }, { digits }) {
  return mean[0].toLocaleString("en", fixed(digits));
}

function widest(texts) {
  return Math.max(0, ...texts.map((text) => pen.measureText(text).width));
}

// What is too long loses its middle: names of one method differ at their ends.
function shortened(text, room) {
  if (widest([text]) <= room) return text;
  let kept = text.length - 1;
  const cut = () => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
  while (kept > 2 && widest([cut()]) > room) kept -= 1;
  return cut();
}

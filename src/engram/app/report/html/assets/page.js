// Puts the figures into the page, switches methods on and off, copies tables.

const data = JSON.parse(document.getElementById("data").textContent);
document.body.append(tip);

for (const part of document.querySelectorAll("[data-section]")) {
  const found = data[part.dataset.section];
  if (found) startSection(part, found);
}
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button, button.nextElementSibling));
}

function startSection(part, { lines, charts }) {
  const plots = [...part.querySelectorAll("[data-chart]")];
  const section = { lines, shown: lines.map((line) => line.shown), light };
  const draw = (plot) => {
    const chart = charts[plot.dataset.chart];
    (chart.kind === "lines" ? drawLines : drawBars)(plot, chart, section);
  };
  const redraw = () => plots.forEach(draw);
  function light(line) {
    part.classList.toggle("lighting", line !== null);
    for (const node of part.querySelectorAll("[data-line]")) {
      node.classList.toggle("lit", line !== null && node.dataset.line === String(line));
    }
  }
  const drawn = new Set(Object.values(charts).flatMap((chart) => chart.series.map((s) => s.line)));
  legend(part.querySelector(".legend"), section, drawn, redraw);
  const widths = new Map();
  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (widths.get(target) === target.clientWidth) continue;
      widths.set(target, target.clientWidth);
      draw(target);
    }
  });
  plots.forEach((plot) => watch.observe(plot));
}

function legend(place, section, drawn, redraw) {
  const buttons = section.lines.map((line, number) => {
    const key = svg("svg", { width: 22, height: 10, "aria-hidden": "true" },
      paint(svg("line", { x1: 1, x2: 21, y1: 5, y2: 5 }), line));
    const button = html("button", line.leading ? "method leading" : "method", key, line.name);
    button.type = "button";
    button.dataset.line = number;
    button.addEventListener("click", () => change((shown) => { shown[number] = !shown[number]; }));
    for (const event of ["pointerenter", "focus"]) {
      button.addEventListener(event, () => section.shown[number] && section.light(number));
    }
    for (const event of ["pointerleave", "blur"]) {
      button.addEventListener(event, () => section.light(null));
    }
    return button;
  });
  const whole = [["All", true], ["None", false]].map(([name, value]) => {
    const button = html("button", "whole", name);
    button.type = "button";
    button.addEventListener("click", () => change((shown) => shown.fill(value)));
    return button;
  });
  function change(how) {
    how(section.shown);
    section.light(null);
    press();
    redraw();
  }
  const press = () => buttons.forEach((button, number) =>
    button.setAttribute("aria-pressed", section.shown[number]));
  press();
  place.append(...buttons.filter((_, number) => drawn.has(number)), ...whole);
}

async function copy(button, pre) {
  const name = button.textContent;
  try {
    await navigator.clipboard.writeText(pre.textContent);
    button.textContent = "Copied";
  } catch { // a browser that does not let pages copy: the reader can
    getSelection().selectAllChildren(pre);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = name; }, 2000);
}

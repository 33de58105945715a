"use strict";
// Small pieces that every figure is made of. Texts become text nodes, never markup.

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function html(name, className = "", ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

// A linear map from numbers to pixels.
function scale([from, to], [start, end]) {
  const slope = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * slope;
}

// Round numbers, about `count` of them, that cover low to high.
function ticks(low, high, count) {
  // What differs by rounding alone is one number: steps between the two could not be counted.
  const apart = high - low > 1e-9 * Math.max(1, Math.abs(low), Math.abs(high));
  const rough = apart ? (high - low) / count : 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const places = [];
  for (let n = Math.floor(low / step); n <= Math.ceil(high / step); n++) places.push(n * step);
  return { places, text: (value) => value.toFixed(digits) };
}

// Colours are left to the style sheet, which knows whether the page is dark.
function paint(node, line) {
  node.classList.add("painted");
  node.style.setProperty("--light", line.light);
  node.style.setProperty("--dark", line.dark);
  if (line.dashes) node.setAttribute("stroke-dasharray", line.dashes);
  return node;
}

// Of one seed the value alone, for it tells no spread.
function spread(series, point, digits) {
  const mean = series.mean[point].toLocaleString("en", fixed(digits));
  const std = series.std[point];
  return std === null ? mean : `${mean} ± ${std.toLocaleString("en", fixed(digits))}`;
}

function fixed(digits) {
  return { minimumFractionDigits: digits, maximumFractionDigits: digits };
}

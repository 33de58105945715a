// The box that shows values beside the pointer.

const tip = html("div", "tip");
tip.setAttribute("role", "status");
tip.hidden = true;

function showTip(title, rows, x, y) {
  const list = rows.map(({ line, text, lit }) => {
    const swatch = paint(html("span", "swatch"), line);
    return html("li", lit ? "lit" : "", swatch, html("span", "", line.name), html("b", "", text));
  });
  tip.replaceChildren(html("p", "", title), html("ul", "", ...list));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  if (innerWidth < 600) { // beside a finger it would hide the figure: the other half of the screen
    const far = y < innerHeight / 2 ? innerHeight - height - 6 : 6;
    tip.style.transform = `translate(${(innerWidth - width) / 2}px, ${far}px)`;
    return;
  }
  const left = x + 18 + width < innerWidth ? x + 18 : Math.max(4, x - width - 18);
  const top = Math.max(4, Math.min(y - height / 2, innerHeight - height - 4));
  tip.style.transform = `translate(${left}px, ${top}px)`;
}

function hideTip() {
  tip.hidden = true;
}

// A small plot of lines over the last minutes: its own SVG, and a sentence for who cannot see it.

import { el, fill, say, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [400, 130, 58, 8, 18];
const SPAN_MS = 120_000;

class LinePlot extends HTMLElement {
  #lines = new Map();
  #caption = el("figcaption", {});
  #legend = el("ul", { class: "legend" });
  #picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  #name = svg("title", {});

  connectedCallback() {
    fill(this, el("figure", {}, this.#caption, this.#picture, this.#legend));
  }

  /** `values`: name -> number or null; `show` writes a number with its unit. */
  add(name, at, values, show) {
    for (const [line, value] of Object.entries(values)) {
      if (!this.#lines.has(line)) this.#lines.set(line, []);
      this.#lines.get(line).push([at, value]);
    }
    for (const points of this.#lines.values()) while (points.length && points[0][0] < at - SPAN_MS) points.shift();
    for (const [line, points] of this.#lines) if (!points.length) this.#lines.delete(line);
    this.#draw(name, at, show);
  }

  #draw(name, now, show) {
    const lines = [...this.#lines];
    const all = lines.flatMap(([, points]) => points.map(([, value]) => value ?? 0));
    const most = nice(Math.max(...all, 0));
    const x = (at) => LEFT + (WIDTH - LEFT - 6) * (1 - (now - at) / SPAN_MS);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
    const latest = lines.map(([line, points]) => [line, points.at(-1)[1]]);
    say(this.#caption, name);
    fill(this.#legend, latest.map(([line, value], place) => el("li", { class: `hue${place % 6}` }, el("span", { class: `key dash${place % 6}`, "aria-hidden": "true" }),
      line && `${line} `, el("b", {}, value === null ? "–" : show(value)))));
    say(this.#name, `${name}, the last two minutes: ${latest.map(([line, value]) => `${line} ${value === null ? "nothing" : show(value)}`.trim()).join(", ")}`);
    fill(this.#picture, this.#name,
      [0, 0.5, 1].map((share) => [svg("line", { x1: LEFT, x2: WIDTH - 6, y1: y(share * most), y2: y(share * most), class: share ? "grid" : "axis" }),
        svg("text", { x: LEFT - 6, y: y(share * most) + 4, "text-anchor": "end" }, share === 0.5 && show(most / 2) === show(most) ? "" : show(share * most))]),
      [[2, "−2 min"], [1, "−1 min"], [0, "now"]].map(([minutes, text]) =>
        svg("text", { x: x(now - minutes * 60e3), y: HEIGHT - 3, "text-anchor": minutes === 2 ? "start" : minutes ? "middle" : "end" }, text)),
      lines.map(([, points], place) => svg("path", { d: path(points, x, y), class: `curve hue${place % 6} dash${place % 6}` })));
  }
}
customElements.define("line-plot", LinePlot);

function path(points, x, y) {
  let text = "";
  let isBroken = true;
  for (const [at, value] of points) {
    if (value === null) isBroken = true;
    else {
      text += `${isBroken ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      isBroken = false;
    }
  }
  return text;
}

/** The next round number, for the top of the scale. */
function nice(value) {
  if (!(value > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((one) => one * size).find((one) => one >= value);
}

// Elements from values. Text is always set as text: nothing that a client sent can become HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `on…` attributes are listeners, `false` and null leave an attribute out, children are nodes or text. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same, for a picture. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child != null && child !== false) element.append(child);
  }
}

/** Replaces what is in the element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets the text if it differs, so that the browser lays out only what has changed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Announces something to a screen reader. */
export function announce(text) {
  say(document.getElementById("said"), text);
}

const WHOLE = new Intl.NumberFormat("en");
export const whole = (number) => WHOLE.format(number);

export function bytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(number) >= 1000 && unit < units.length - 1) [number, unit] = [number / 1000, unit + 1];
  return `${unit && number < 100 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

export function rate(number, unit = "/s") {
  if (number == null || Number.isNaN(number)) return "–";
  return `${number >= 100 || number === 0 ? whole(Math.round(number)) : number.toFixed(1)}${unit}`;
}

export function clock(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const seconds = `${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  return `${two(at.getHours())}:${two(at.getMinutes())}:${seconds}`;
}

export function age(ms) {
  if (ms < 1000) return "now";
  for (const [unit, size] of [["d", 86400e3], ["h", 3600e3], ["min", 60e3], ["s", 1e3]]) {
    if (ms >= size) return `${Math.floor(ms / size)} ${unit}`;
  }
}

/** A table with a caption for screen readers; a column is [heading, class]. */
export function table(caption, columns, rows) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, columns.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)))),
      el("tbody", {}, rows)));
}

/** A button that copies a text, and says so. */
export function copier(label, text) {
  const button = el("button", { type: "button", class: "quiet", onclick: copy }, label);
  async function copy() {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      say(button, "copied");
      announce("copied");
    } catch {
      say(button, "the browser refuses");
    }
    setTimeout(() => say(button, label), 1500);
  }
  return button;
}

/** Has the browser save a text as a file. */
export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

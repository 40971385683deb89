// A producer's window as cells on a number line, and what a batch meant for it.

import { el } from "./dom.js";
import { range } from "./events.js";

const SEQUENCE_MAX = 2 ** 31 - 1;
const after = (sequence) => (sequence === SEQUENCE_MAX ? 0 : sequence + 1);

/**
 * `window`: first and last sequence of each remembered batch, oldest first. `batch`: {first, last, kind, word} of a
 * batch that was judged by it. `size`: how many batches the window has room for.
 */
export function numberLine(window, { batch = null, size = 5, isOver = false, isNewEpoch = false } = {}) {
  const cells = isNewEpoch
    ? window.map(([first, last]) => ({ kind: "over", first, last, under: "old epoch" }))
    : remembered(window, size, isOver);
  if (batch) place(cells, window, batch, isNewEpoch);
  else if (!isOver) cells.push({ kind: "next", first: window.length ? after(window.at(-1)[1]) : 0, under: "next" });
  return el("div", { class: "line", role: "img", "aria-label": spoken(cells) }, cells.map(drawn));
}

function remembered(window, size, isOver) {
  const kind = isOver ? "over" : "held";
  const free = Array.from({ length: Math.max(0, size - window.length) }, () => ({ kind: "free" }));
  return [...free, ...window.map(([first, last]) => ({ kind, first, last }))];
}

function place(cells, window, { first, last, kind, word }, isNewEpoch) {
  const same = cells.find((cell) => cell.kind === "held" && cell.first === first && cell.last === last);
  if (same) {
    Object.assign(same, { judged: kind, under: word });
    return;
  }
  const mine = { kind: "batch", judged: kind, first, last, under: word };
  const next = window.length ? after(window.at(-1)[1]) : 0;
  if (isNewEpoch || !window.length || first === next) cells.push(mine);
  else if (first > window.at(-1)[1]) {
    cells.push({ kind: "missing", first: next, last: first - 1, under: "missing" }, mine);
  } else {
    const before = cells.findIndex((cell) => cell.first !== undefined && cell.first > first);
    cells.splice(before < 0 ? cells.length : before, 0, mine);
    cells.push({ kind: "next", first: next, under: "next" });
  }
}

function drawn({ kind, judged, first, last, under }) {
  const count = last === undefined ? 1 : last - first + 1;
  const wide = `w${Math.max(1, Math.min(6, Math.round(Math.log2(count + 1))))}`;
  const text = first === undefined ? "" : range(first, last ?? first);
  return el("span", { class: `cell ${kind} ${wide}${judged ? ` is-${judged}` : ""}` },
    el("span", { class: "box" }, text || "·"), el("span", { class: "under" }, under ?? ""));
}

function spoken(cells) {
  const named = cells.filter((cell) => cell.first !== undefined);
  const said = named.map(({ kind, first, last, under }) =>
    `${under ?? (kind === "held" ? "stored" : kind)} ${range(first, last ?? first).replace("–", " to ")}`);
  return said.length ? said.join(", ") : "an empty window";
}

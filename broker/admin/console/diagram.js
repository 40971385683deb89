// Diagram: the last batches as arrows between producers and broker, drawn by the broker.

import { at, cluster, getText } from "./api.js";
import { el, fill, save, say } from "./dom.js";
import { events } from "./events.js";
import { oneAtATime } from "./looks.js";

const REDRAW_MS = 600;
const LAST = [20, 60, 200, 500];
/** The first one is the renderer's: what clients say is escaped. The policy allows style sheets, but not in the text. */
const STYLE = /<style>([^]*?)<\/style>/;

export const title = "Diagram";

const pictures = globalThis.trustedTypes?.createPolicy("picture", { createHTML: (text) => text });

/** An SVG in a place of its own, so that its style and ours do not meet. Nothing in it can run: the policy forbids it. */
class DrawnDiagram extends HTMLElement {
  #root = this.attachShadow({ mode: "open" });

  show(text) {
    const [style, rules] = STYLE.exec(text);
    const bare = text.replace(style, "");
    const parsed = new DOMParser().parseFromString(pictures ? pictures.createHTML(bare) : bare, "image/svg+xml");
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(rules);
    const picture = document.importNode(parsed.documentElement, true);
    this.#root.adoptedStyleSheets = [sheet];
    this.#root.replaceChildren(picture);
  }
}
customElements.define("drawn-diagram", DrawnDiagram);

export function open(page, query, go) {
  let isHeld = false;
  let since = Number(query.get("since_ms")) || 0;
  let timer = null;
  let drawnAt = 0;
  let broker = query.has("broker") ? Number(query.get("broker")) : cluster.self;
  const picture = el("drawn-diagram", {});
  const last = el("select", { "aria-label": "How many events", onchange: change },
    LAST.map((count) => el("option", { value: count, selected: count === (Number(query.get("last")) || 60) }, `last ${count}`)));
  const producer = el("input", { type: "text", inputmode: "numeric", size: 9, placeholder: "producer id", "aria-label": "Producer id", value: query.get("producer_id") ?? "", onchange: change });
  const topic = el("input", { type: "text", size: 14, placeholder: "topic", "aria-label": "Topic", value: query.get("topic") ?? "", onchange: change });
  const brokers = cluster.brokers.length > 1 && el("select", { "aria-label": "Broker", onchange: (event) => {
    broker = Number(event.target.value);
    change();
  } }, cluster.brokers.map(({ broker_id: id }) => el("option", { value: id, selected: id === broker }, `broker ${id}`)));
  const hold = el("button", { type: "button", "aria-pressed": "false", "aria-keyshortcuts": "Space", onclick: toggle }, "Hold");
  const record = el("button", { type: "button", "aria-pressed": String(since > 0), onclick: mark }, since ? "All again" : "From now on");
  const trouble = el("p", { class: "error", role: "alert" });
  const empty = el("div", { class: "empty" }, el("h2", {}, "Nothing to draw yet"), el("p", {}, "An arrow appears with the first batch of an idempotent producer."));
  const saver = (label, name, type, read) => el("button", { type: "button", class: "quiet", onclick: async () => save(name, type, await read()) }, label);

  fill(page, el("div", { class: "bar" }, el("h1", {}, title), brokers, last, topic, producer, record, hold,
    el("span", { class: "push buttons" }, el("span", { class: "dim" }, "Save as"),
      saver("SVG", "echoless.svg", "image/svg+xml", () => getText(path("trace.svg"))),
      saver("Mermaid", "echoless.mmd", "text/plain", () => getText(path("trace.mmd"))),
      saver("JSON lines", "echoless.jsonl", "application/x-ndjson", () => getText(path("trace.jsonl"))))),
  trouble, empty, el("div", { class: "picture", tabindex: 0, role: "region", "aria-label": "Sequence diagram" }, picture));

  function parameters() {
    const found = new URLSearchParams({ last: last.value });
    if (/^\d+$/.test(producer.value)) found.set("producer_id", producer.value);
    if (topic.value) found.set("topic", topic.value);
    if (topic.value && query.get("partition")) found.set("partition", query.get("partition"));
    if (since) found.set("since_ms", since);
    return found;
  }

  const path = (name, more = "") => at(broker, `${name}?${parameters()}${more}`);

  function change() {
    const found = parameters();
    if (broker !== cluster.self) found.set("broker", broker);
    go.rewrite(`#/diagram?${found}`);
    draw();
  }

  function toggle() {
    isHeld = !isHeld;
    hold.setAttribute("aria-pressed", isHeld);
    say(hold, isHeld ? "Go on" : "Hold");
    if (!isHeld) draw();
  }

  function mark() {
    since = since ? 0 : Date.now();
    record.setAttribute("aria-pressed", String(since > 0));
    say(record, since ? "All again" : "From now on");
    change();
  }

  const draw = oneAtATime(async () => {
    drawnAt = performance.now();
    const theme = getComputedStyle(document.documentElement).colorScheme;
    const isDark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    try {
      const text = await getText(path("trace.svg", `&theme=${isDark ? "dark" : "light"}`));
      const frame = picture.parentElement;
      const isAtEnd = frame.scrollTop + frame.clientHeight > frame.scrollHeight - 40;
      picture.show(text);
      if (isAtEnd) frame.scrollTop = frame.scrollHeight;
      const isEmpty = !picture.shadowRoot.querySelector(".life ~ .life, .remark, .bolt");
      empty.hidden = !isEmpty;
      picture.parentElement.hidden = isEmpty;
      say(trouble, "");
    } catch (error) {
      say(trouble, error.message);
    }
  });

  function later() {
    if (isHeld || timer) return;
    timer = setTimeout(() => {
      timer = null;
      if (!isHeld) draw();
    }, Math.max(0, drawnAt + REDRAW_MS - performance.now()));
  }

  events.addEventListener("added", later);
  addEventListener("theme", draw);
  draw();
  return {
    close: () => {
      events.removeEventListener("added", later);
      removeEventListener("theme", draw);
      clearTimeout(timer);
    },
    keys: { " ": toggle, "/": () => topic.focus() },
  };
}

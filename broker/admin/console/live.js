// Live: every decision and fault as it happens, and the window each was judged by.

import { clock, copier, el, fill, say, whole } from "./dom.js";
import { KEPT, batchesOf, events, outcomeOf, range, reasonOf } from "./events.js";
import { numberLine } from "./window.js";

const ROW = 26;
const SPARE = 6;
const ANNOUNCE_MS = 5000;
const SHOWN = {
  all: ["everything", () => true],
  odd: ["all but stored", (event) => event.decision !== "append"],
  refused: ["only refusals", (event) => event.decision === "reject"],
  transaction: ["only transactions", (event) => event.event === "transaction"],
  fault: ["only faults", (event) => event.event === "fault"],
};
const COLUMNS = [["Time", "time"], ["Outcome", "outcome"], ["Client", "client"], ["Partition", "place"],
  ["Producer", "producer"], ["Batch", "batch"], ["Reason", "reason"]];

/** The list: as many rows as are in view, whatever the number of events. Draws once per frame. */
class EventList extends HTMLElement {
  #items = [];
  #rows = [];
  #selected = null;
  #frame = 0;
  #top = el("tr", { class: "space", "aria-hidden": "true" }, el("td", { colspan: COLUMNS.length }));
  #bottom = this.#top.cloneNode(true);
  #body = el("tbody", {}, this.#top, this.#bottom);
  #table = el("table", { class: "events" }, el("caption", { class: "unseen" }, "Decisions and faults, newest first"),
    el("thead", {}, el("tr", { "aria-rowindex": 1 }, COLUMNS.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)))),
    this.#body);

  connectedCallback() {
    this.tabIndex = 0;
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Decisions and faults; arrow keys choose one");
    fill(this, this.#table);
    this.addEventListener("scroll", () => this.#later(), { passive: true });
    this.addEventListener("keydown", (key) => this.#move(key));
    this.addEventListener("click", ({ target }) => this.select(target.closest("tr")?.event ?? null));
    this.resized = new ResizeObserver(() => this.#later());
    this.resized.observe(this);
  }

  disconnectedCallback() {
    this.resized.disconnect();
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
  }

  /** Shows these, the oldest first in the list and the newest at the top; keeps what the reader looks at in place. */
  show(items, added = 0) {
    this.#items = items;
    if (added && this.scrollTop > 0) this.scrollTop += added * ROW;
    this.#later();
  }

  select(event) {
    if (!event) return;
    this.#selected = event;
    this.#later();
    this.dispatchEvent(new CustomEvent("choose", { detail: event }));
  }

  #move(key) {
    const steps = { ArrowDown: -1, ArrowUp: 1, PageDown: -15, PageUp: 15 };
    if (!(key.key in steps) || !this.#items.length) return;
    key.preventDefault();
    const now = this.#items.indexOf(this.#selected);
    const wanted = now < 0 ? this.#items.length - 1 : now + steps[key.key];
    const index = Math.max(0, Math.min(this.#items.length - 1, wanted));
    const y = (this.#items.length - 1 - index) * ROW;
    const room = this.clientHeight - 2 * ROW;
    if (y < this.scrollTop) this.scrollTop = y;
    else if (y > this.scrollTop + room) this.scrollTop = y - room;
    this.select(this.#items[index]);
  }

  #later() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const count = this.#items.length;
    const inView = Math.ceil(this.clientHeight / ROW) + 2 * SPARE;
    const start = Math.max(0, Math.min(Math.floor(this.scrollTop / ROW) - SPARE, count - inView));
    const end = Math.min(count, start + inView);
    this.#table.setAttribute("aria-rowcount", count + 1);
    while (this.#rows.length < end - start) {
      this.#rows.push(newRow());
      this.#bottom.before(this.#rows.at(-1));
    }
    while (this.#rows.length > end - start) this.#rows.pop().remove();
    this.#rows.forEach((row, place) => {
      const event = this.#items[count - 1 - start - place];
      if (row.event !== event) describe(row, event);
      row.setAttribute("aria-rowindex", start + place + 2);
      const isSelected = event === this.#selected;
      if (row.isSelected !== isSelected) {
        row.isSelected = isSelected;
        row.classList.toggle("selected", isSelected);
        row.toggleAttribute("aria-current", isSelected);
      }
    });
    this.#top.style.height = `${start * ROW}px`;
    this.#bottom.style.height = `${(count - end) * ROW}px`;
  }
}
customElements.define("event-list", EventList);

function newRow() {
  const row = el("tr", {}, COLUMNS.map(([, kind]) => el("td", { class: kind })));
  row.sign = el("span", { class: "sign", "aria-hidden": "true" });
  row.word = el("span", {});
  row.children[1].append(row.sign, row.word);
  return row;
}

function describe(row, event) {
  row.event = event;
  const { word, sign, kind } = outcomeOf(event);
  const [time, , client, place, producer, batch, reason] = row.children;
  row.dataset.kind = kind;
  say(time, event.time_ms ? clock(event.time_ms) : "");
  say(row.sign, sign);
  say(row.word, word);
  say(client, event.client_id ?? "");
  const batches = batchesOf(event);
  const [first] = batches;
  const more = batches.length > 1 ? ` +${batches.length - 1}` : "";
  if (event.event === "transaction") {
    say(place, placesOf(event));
    say(producer, event.producer_id >= 0 ? `${event.producer_id}·${event.producer_epoch}` : "");
  } else {
    say(place, first ? `${first.topic}-${first.partition}${more}` : "");
    say(producer, first ? `${first.producer_id}·${first.producer_epoch}` : "");
  }
  say(batch, first ? range(first.base_sequence, first.last_sequence) : "");
  const text = reasonOf(event);
  say(reason, text);
  reason.title = text;
}

/** The partitions of a step of a transaction. */
function placesOf({ partitions, more }) {
  const [first] = partitions;
  const rest = partitions.length - 1 + more;
  return first ? `${first.topic}-${first.partition}${rest > 0 ? ` +${rest}` : ""}` : "";
}

const haystacks = new WeakMap();

function haystack(event) {
  let text = haystacks.get(event);
  if (text === undefined) {
    const places = batchesOf(event).map((one) => `${one.topic}-${one.partition} id=${one.producer_id}`);
    if (event.event === "transaction") places.push(...event.partitions.map((one) => `${one.topic}-${one.partition}`), `id=${event.producer_id}`);
    text = [event.client_id, event.address, event.principal, ...places, outcomeOf(event).word, reasonOf(event)].join(" ").toLowerCase();
    haystacks.set(event, text);
  }
  return text;
}

export const title = "Live";

export function open(page, query, go) {
  let isPaused = false;
  let items = [];
  let behind = 0;
  let spoken = 0;
  const list = el("event-list", {});
  const details = el("aside", { class: "details", "aria-label": "The chosen event" });
  const filter = el("input", {
    type: "search", placeholder: "filter: client, topic-0, id=7, reason …", "aria-label": "Filter", "aria-keyshortcuts": "/",
    value: query.get("filter") ?? "", oninput: refilter,
  });
  const kinds = el("select", { "aria-label": "Which events", onchange: refilter },
    Object.entries(SHOWN).map(([name, [text]]) => el("option", { value: name, selected: query.get("show") === name }, text)));
  const pause = el("button", { type: "button", "aria-pressed": "false", "aria-keyshortcuts": "Space", onclick: toggle }, "Pause");
  const counts = el("p", { class: "counts" });
  const said = el("span", { class: "unseen", "aria-live": "polite" });
  const hint = el("div", { class: "empty" }, el("h2", {}, "Nothing has been decided yet"),
    el("p", {}, "Each batch of an idempotent producer appears here as soon as it arrives. Point one at this broker, or run "),
    el("pre", {}, "echo hello | echoless produce orders"));

  fill(page, el("div", { class: "bar" }, el("h1", {}, title), filter, kinds, pause,
    el("button", { type: "button", class: "quiet", onclick: () => events.clear() }, "Clear"), counts, said),
  el("div", { class: "split" }, el("div", { class: "grow" }, list, hint), details));

  list.addEventListener("choose", ({ detail }) => {
    details.hidden = false;
    fill(details, explained(detail));
  });
  details.hidden = true;

  const wanted = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const [, isShown] = SHOWN[kinds.value];
    return (event) => isShown(event) && words.every((word) => haystack(event).includes(word));
  };

  function refilter() {
    const parameters = new URLSearchParams();
    if (filter.value) parameters.set("filter", filter.value);
    if (kinds.value !== "all") parameters.set("show", kinds.value);
    go.rewrite(`#/live${parameters.size ? `?${parameters}` : ""}`);
    items = events.items.filter(wanted());
    behind = 0;
    list.show(items);
    draw();
  }

  function toggle() {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", isPaused);
    if (!isPaused) refilter();
    draw();
  }

  let frame = 0;
  let fresh = 0;
  function added({ detail }) {
    if (!detail.length) return refilter();
    if (isPaused) behind += detail.length;
    else fresh += detail.length;
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      const isWanted = wanted();
      const news = fresh ? events.items.slice(-fresh).filter(isWanted) : [];
      fresh = 0;
      if (news.length) {
        items = [...items, ...news].slice(-KEPT);
        list.show(items, news.length);
      }
      draw();
    });
  }

  function draw() {
    const { total, stored, repeat, divergent, refused, transaction, fault, lost } = events.counts;
    say(pause, isPaused ? `Continue${behind ? ` (${whole(behind)} new)` : ""}` : "Pause");
    const parts = [[stored, "stored"], [repeat, repeat === 1 ? "repeat" : "repeats", "repeat"], [divergent, "other bytes", "divergent"],
      [refused, "refused", "refused"], [transaction, transaction === 1 ? "step of a transaction" : "steps of transactions", "transaction"], [fault, fault === 1 ? "fault" : "faults", "fault"], [lost, "not seen", "note"]];
    fill(counts, parts.filter(([count], place) => count || place === 0).map(([count, word, kind]) =>
      el("span", { "data-kind": kind }, el("b", {}, whole(count)), ` ${word}`)));
    hint.hidden = events.items.length > 0;
    list.hidden = !hint.hidden;
    if (performance.now() - spoken > ANNOUNCE_MS) {
      spoken = performance.now();
      say(said, total ? `${refused} refused, ${repeat + divergent} repeats, ${fault} faults` : "");
    }
  }

  events.addEventListener("added", added);
  refilter();
  return {
    close: () => {
      events.removeEventListener("added", added);
      cancelAnimationFrame(frame);
    },
    keys: { "/": () => filter.focus(), " ": toggle },
  };
}

/** Everything about one event, for the panel beside the list. */
function explained(event) {
  const { word, sign, kind } = outcomeOf(event);
  const heading = el("h2", { "data-kind": kind }, el("span", { class: "sign", "aria-hidden": "true" }, sign), ` ${word}`);
  return [heading, el("p", { class: "why" }, reasonOf(event)),
    batchesOf(event).map((batch) => judged(event, batch)),
    event.event === "transaction" && event.transactional_id && el("p", {}, el("a", { href: `#/transactions/${encodeURIComponent(event.transactional_id)}` }, `Transactional id ${event.transactional_id} now`)),
    facts(event),
    el("p", { class: "buttons" }, copier("Copy as JSON", () => JSON.stringify(event, null, 2)))];
}

function judged(event, batch) {
  const place = `${batch.topic}-${batch.partition}`;
  const window = event.window ?? null;
  const { word, kind } = outcomeOf(event);
  const first = batch.base_sequence;
  const isNewEpoch = event.decision === "append" && first === 0 && window?.length > 0 && (window.at(-1)[1] + 1) % 2 ** 31 !== 0;
  const link = `#/producers/${encodeURIComponent(batch.topic)}/${batch.partition}?id=${batch.producer_id}`;
  return el("section", {},
    el("h3", {}, event.event === "fault" ? `The batch of ${place} that was hit` : `The window of ${place} it was judged by`),
    event.event === "fault"
      ? numberLine([], { size: 0, batch: { first, last: batch.last_sequence, kind, word } })
      : window === null
        ? el("p", { class: "dim" }, "The window was not looked up: the batch was stored while no one followed.")
        : numberLine(window, { isNewEpoch, batch: { first, last: batch.last_sequence, kind, word } }),
    el("p", {}, el("a", { href: link }, `The window of producer ${batch.producer_id} now`)));
}

const FACTS = [["broker_id", "broker"], ["number", "event"], ["address", "address"], ["principal", "principal"],
  ["connection_id", "connection"], ["correlation_id", "correlation"], ["producer_id", "producer id"],
  ["producer_epoch", "epoch"], ["base_offset", "offset"], ["rule", "rule"], ["error", "error"]];

function facts(event) {
  const rows = FACTS.filter(([name]) => event[name] != null && event[name] !== "");
  return el("dl", { class: "facts" }, rows.flatMap(([name, text]) => [el("dt", {}, text), el("dd", {}, String(event[name]))]));
}

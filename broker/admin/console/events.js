// The latest decisions and faults: kept in one list, shared by the pages of this tab.

export const KEPT = 2000;

/** What an outcome is called, and the sign that says the same without colour. */
export const OUTCOMES = {
  append: { word: "stored", sign: "✓", kind: "stored" },
  duplicate: { word: "repeat", sign: "↺", kind: "repeat" },
  divergent_duplicate: { word: "other bytes", sign: "≠", kind: "divergent" },
  reject: { word: "refused", sign: "✕", kind: "refused" },
  fault: { word: "fault", sign: "⚡", kind: "fault" },
  lost: { word: "not seen", sign: "…", kind: "note" },
  skipped: { word: "stored", sign: "⋯", kind: "note" },
  note: { word: "note", sign: "·", kind: "note" },
};
const STEPS = new Map([["session", "▸"], ["begin", "⊢"], ["add", "+"], ["offsets", "+"], ["commit", "✓"], ["abort", "✗"],
  ["time_out", "⏱"], ["fence", "⊘"], ["marker", "⚑"], ["complete", "⊣"], ["refuse", "✕"]]);
const stepped = new Map();

/** How a step of a transaction is shown. */
function outcomeOfStep(step) {
  if (!STEPS.has(step)) return undefined;
  if (!stepped.has(step)) stepped.set(step, { word: step === "refuse" ? "refused" : step.replace("_", " "), sign: STEPS.get(step), kind: step === "refuse" ? "refused" : "transaction" });
  return stepped.get(step);
}

/** The outcomes of decisions; the others are events of their own. */
const DECISIONS = new Set(["append", "duplicate", "divergent_duplicate", "reject"]);

/** How an event is shown; undefined for a kind that this page does not know. */
export const outcomeOf = (event) => {
  if (event.event === "transaction") return outcomeOfStep(event.step);
  const isDecision = event.event === "decision";
  const name = isDecision ? event.decision : event.event;
  const isKnown = Object.hasOwn(OUTCOMES, name) && DECISIONS.has(name) === isDecision;
  return isKnown ? OUTCOMES[name] : undefined;
};

/** Decisions, faults and notes in the order of their arrival, the oldest first; at most `KEPT`. */
export class Events extends EventTarget {
  items = [];
  /** How many have come in all, by outcome; `lost` counts those that the broker could not deliver. */
  counts = { total: 0, stored: 0, repeat: 0, divergent: 0, refused: 0, transaction: 0, fault: 0, lost: 0 };
  #latest = new Map();
  #unknown = new Set();

  /** Adds what is new and known; a reconnected stream repeats what it had sent before. */
  add(events) {
    const fresh = events.filter((event) => this.#isKnown(event) && this.#isNew(event));
    if (!fresh.length) return;
    for (const event of fresh) this.#count(event);
    this.items.push(...fresh);
    if (this.items.length > KEPT) this.items.splice(0, this.items.length - KEPT);
    this.dispatchEvent(new CustomEvent("added", { detail: fresh }));
  }

  note(text) {
    this.add([{ event: "note", time_ms: Date.now(), text }]);
  }

  clear() {
    this.items = [];
    for (const name of Object.keys(this.counts)) this.counts[name] = 0;
    this.dispatchEvent(new CustomEvent("added", { detail: [] }));
  }

  /** Whether this page can show it: a newer broker may tell of more. Says once for each kind that it cannot. */
  #isKnown(event) {
    if (outcomeOf(event)) return true;
    const part = { decision: event.decision, transaction: event.step }[event.event];
    const kind = part === undefined ? `${event.event}` : `${event.event} ${part}`;
    if (!this.#unknown.has(kind)) {
      this.#unknown.add(kind);
      this.note(`events of the kind "${kind}" are not shown: this page does not know them. Load it again`);
    }
    return false;
  }

  #isNew(event) {
    if (event.number === undefined) return true;
    const latest = this.#latest.get(event.broker_id);
    // A restarted broker counts from 1 again, but its clock goes on.
    if (latest && event.number <= latest.number && event.time_ms <= latest.time_ms) return false;
    this.#latest.set(event.broker_id, event);
    return true;
  }

  #count(event) {
    if (event.event === "lost") this.counts.lost += event.count;
    else if (event.event === "skipped") {
      this.counts.total += event.count;
      this.counts.stored += event.count;
    }
    else if (event.event !== "note") {
      this.counts.total += 1;
      this.counts[outcomeOf(event).kind] += 1;
    }
  }
}

export const events = new Events();

/** The batches that an event is about. */
export const batchesOf = (event) => (event.event === "decision" ? [event] : event.batches ?? []);

/** First and last sequence, as the diagrams write them. */
export const range = (first, last) => (first === last ? `${first}` : `${first}–${last}`);

/** What an event says in one line. */
export function reasonOf(event) {
  switch (event.event) {
    case "decision":
      if (event.decision === "append") return `at offset ${event.base_offset}`;
      return event.error ? `${event.error}: ${event.reason}` : event.reason;
    case "fault":
      return `${event.action}${event.detail ? ` ${event.detail}` : ""}${event.api ? ` on ${event.api}` : ""}${event.about ? ` of ${event.about}` : ""} by rule ${event.rule}`;
    case "transaction":
      return [event.transactional_id, event.step === event.result ? "" : event.result, event.base_offset >= 0 ? `at offset ${event.base_offset}` : "",
        event.error ? `${event.error} on ${event.api}` : "", event.reason].filter(Boolean).join(", ");
    case "skipped":
      return `${event.count} more batches: too many at once to show each`;
    case "lost":
      return `${event.count} events went by faster than this page could read them`;
    default:
      return event.text;
  }
}

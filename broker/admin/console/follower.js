// Follows /decisions for all tabs of this browser that show the same principal's view: one reads, the others are told.
//
// The tabs speak over a BroadcastChannel. A tab that hears no reader becomes it; of two readers the one with
// the smaller name stays. Timers of hidden tabs hardly run, but messages do: so the others ask, and the reader answers.

import { ask, Refused } from "./api.js";

const CHANNEL = "echoless decisions";
const LOOK_BACK = 200;
const ANSWER_MS = 400;
const ASK_EVERY_MS = 3000;
const GATHER_MS = 50;
const RETRY_MS = [300, 600, 1200, 2500, 5000];

export class Follower extends EventTarget {
  /** `connecting`, `live`, `away` (with `reason`), or `refused`. */
  state = "connecting";
  reason = "";
  isReader = false;
  #events;
  #name = crypto.getRandomValues(new Uint32Array(2)).join("-");
  #channel = null;
  #heard = 0;
  #abort = null;
  #timer = null;
  #isStopped = false;

  constructor(events) {
    super();
    this.#events = events;
    addEventListener("pagehide", () => this.stop());
    addEventListener("pageshow", (shown) => shown.persisted && this.start());
  }

  /** Begins, or goes on; `principal`: who looks, if the broker has said so. */
  start(principal) {
    this.#isStopped = false;
    if (principal !== undefined || !this.#channel) this.#join(`${CHANNEL} of ${principal ?? "someone"}`);
    this.#askForReader();
  }

  /** Speaks with the tabs of the same principal alone: others may see less. */
  #join(name) {
    if (this.#channel?.name === name) return;
    if (this.isReader) this.#resign();
    this.#channel?.close();
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => this.#hear(data);
  }

  stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    if (this.isReader) this.#channel.postMessage({ kind: "bye" });
    this.#resign();
  }

  // --- which tab reads

  #askForReader() {
    if (this.#isStopped || this.isReader) return;
    const asked = performance.now();
    this.#channel.postMessage({ kind: "who", name: this.#name, isNew: !this.#events.items.length });
    this.#timer = setTimeout(() => {
      if (this.#heard >= asked) this.#timer = setTimeout(() => this.#askForReader(), ASK_EVERY_MS);
      else this.#read();
    }, ANSWER_MS);
  }

  #hear(message) {
    if (this.#isStopped) return;
    if (message.kind === "who" && this.isReader) {
      this.#tell({ kind: "reader", state: this.state, reason: this.reason });
      if (message.isNew) this.#tell({ kind: "past", to: message.name, events: this.#events.items });
    } else if (message.kind === "bye") {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#askForReader(), Math.random() * 100);
    } else if (message.name !== undefined && message.kind !== "who") this.#hearReader(message);
  }

  #hearReader(message) {
    this.#heard = performance.now();
    if (this.isReader && message.name < this.#name) {
      this.#resign();
      this.#askForReader();
    } else if (this.isReader) return;
    if (message.kind === "events" || (message.kind === "past" && message.to === this.#name)) this.#events.add(message.events);
    else if (message.kind === "reader") this.#become(message.state, message.reason);
  }

  #tell(message) {
    this.#channel.postMessage({ ...message, name: this.#name });
  }

  #become(state, reason = "") {
    if (this.isReader) this.#tell({ kind: "reader", state, reason });
    if (state === this.state && reason === this.reason) return;
    [this.state, this.reason] = [state, reason];
    this.dispatchEvent(new Event("change"));
  }

  // --- reading

  #resign() {
    this.isReader = false;
    this.#abort?.abort();
  }

  async #read() {
    this.isReader = true;
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    for (let failures = 0; !signal.aborted; failures += 1) {
      try {
        const response = await ask(`decisions?follow=true&reader=console&brokers=all&n=${LOOK_BACK}`, { signal });
        this.#become("live");
        failures = 0;
        await this.#take(response.body, signal);
        if (!signal.aborted) this.#become("away", "the broker has ended the stream");
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused) {
          this.#become("refused", error.message);
          if (error.status === 401) return this.#resign();
        } else this.#become("away", "the broker cannot be reached");
      }
      await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));
    }
  }

  async #take(body, signal) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let gathered = [];
    let sharing = null;
    const share = () => {
      sharing = null;
      if (!signal.aborted) this.#tell({ kind: "events", events: gathered });
      gathered = [];
    };
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      const events = lines.filter(Boolean).map((line) => JSON.parse(line));
      this.#events.add(events);
      gathered.push(...events);
      sharing ??= setTimeout(share, GATHER_MS);
    }
  }
}

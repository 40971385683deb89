// Transactions: ids by the age of what they have open, who holds readers of committed records back, and the end of one.

import { at, cluster, get, getFromAll, send } from "./api.js";
import { age, announce, el, fill, say, table, whole } from "./dom.js";
import { repeated } from "./looks.js";

export const title = "Transactions";

const since = (ms) => (ms === null || ms === undefined ? "–" : age(Math.max(0, Date.now() - ms)));
const seconds = (ms) => (ms < 1000 ? `${ms} ms` : `${ms / 1000} s`);
const isOpen = (one) => one.start_ms !== null && !one.state.startsWith("Complete") && one.state !== "Empty";
const link = (name) => el("a", { href: `#/transactions/${encodeURIComponent(name)}` }, name);

/** The ids of all brokers, the oldest open transaction first; and the partitions that hold readers back. */
async function looked() {
  const [lists, topics] = await Promise.all([getFromAll("transactions"), getFromAll("topics")]);
  const ids = lists.flatMap(({ brokerId, document }) => (document?.transactions ?? []).map((one) => ({ brokerId, ...one })));
  ids.sort((one, other) => isOpen(other) - isOpen(one) || (isOpen(one) ? one.start_ms - other.start_ms : one.transactional_id.localeCompare(other.transactional_id)));
  const rows = topics.flatMap(({ brokerId, document }) => (document?.topics ?? []).flatMap((topic) =>
    topic.partitions.filter((part) => part.leader === brokerId).map((part) => ({ topic: topic.name, ...part }))));
  const missing = lists.filter(({ document }) => !document?.complete).map(({ brokerId }) => brokerId);
  return { ids, rows, missing };
}

/** What holds the last stable offset of a partition back, and for how long, in the words of one cell. */
function holder(row, ids) {
  const held = row?.held_back_by;
  if (!held) return "–";
  const found = ids.find((one) => one.producer_id === held.producer_id);
  if (!found) return `producer ${held.producer_id}, of no id known here`;
  return [link(found.transactional_id), ` for ${since(found.start_ms)}`];
}

const KINDS = { Ongoing: "good", PrepareCommit: "odd", PrepareAbort: "odd" };
const pill = (state) => el("span", { class: `pill ${KINDS[state] ?? ""}` }, state);

export function open(page, query, go, [chosen]) {
  const state = el("span", { class: "dim", role: "status" });
  const list = el("div", {});
  const abort = chosen === undefined ? null : aborter(chosen, () => looks.now());
  fill(page, el("div", { class: "bar" }, el("h1", {}, chosen ?? title), chosen !== undefined && el("a", { href: "#/transactions" }, "all transactional ids"), state),
    abort?.element, list);

  async function look() {
    try {
      const found = await looked();
      say(state, found.missing.length ? `broker ${found.missing.join(", ")} cannot say everything now` : "");
      if (chosen === undefined) return fill(list, overview(found));
      const one = found.ids.find((row) => row.transactional_id === chosen);
      abort.show(one);
      if (!one) return fill(list, el("p", { class: "dim" }, `No coordinator knows the transactional id ${chosen}.`));
      const document = await get(at(one.brokerId, `transactions/${encodeURIComponent(chosen)}`));
      fill(list, details({ ...one, ...document }, found));
    } catch (error) {
      say(state, error.message);
    }
  }

  const looks = repeated(look);
  return { close: looks.stop };
}

function overview({ ids, rows }) {
  if (!ids.length) return el("p", { class: "dim" }, "No transactional id is known. One appears with the first producer that has a transactional.id.");
  const held = rows.filter((row) => row.held_back_by);
  return [
    table("Transactional ids, the oldest open transaction first", [["Transactional id"], ["State"], ["Open for", "n"], ["Timeout", "n"], ["Producer"], ["Partitions", "n"], ["Coordinator", "n"]],
      ids.map((one) => el("tr", {}, el("th", { scope: "row" }, link(one.transactional_id)), el("td", {}, pill(one.state)),
        el("td", { class: "n" }, isOpen(one) ? since(one.start_ms) : "–"), el("td", { class: "n" }, seconds(one.timeout_ms)),
        el("td", { class: "id" }, `${one.producer_id}·${one.producer_epoch}`), el("td", { class: "n" }, whole(one.partitions)), el("td", { class: "n" }, one.brokerId)))),
    el("h2", { class: "below" }, "Where readers of committed records wait"),
    held.length
      ? table("Partitions with open transactions", [["Partition"], ["First open offset", "n"], ["Last stable offset", "n"], ["High watermark", "n"], ["Behind", "n"], ["Held back by"]],
        held.map((row) => el("tr", {}, el("th", { scope: "row", class: "id" }, `${row.topic}-${row.partition}`), el("td", { class: "n id" }, whole(row.held_back_by.first_offset)),
          el("td", { class: "n id" }, whole(row.last_stable_offset)), el("td", { class: "n id" }, whole(row.high_watermark)),
          el("td", { class: "n" }, el("b", {}, whole(row.high_watermark - row.last_stable_offset))), el("td", {}, holder(row, ids)))))
      : el("p", { class: "dim" }, "Nowhere: no transaction is open in any partition."),
  ];
}

function details(one, { ids, rows }) {
  const row = (part) => rows.find((found) => found.topic === part.topic && found.partition === part.partition);
  const first = (part) => {
    const held = row(part)?.held_back_by;
    return part.first_offset ?? (held?.producer_id === one.producer_id ? held.first_offset : null);
  };
  const number = (value) => (value === null || value === undefined ? "–" : whole(value));
  return [el("p", {}, pill(one.state), isOpen(one) ? ` open for ${since(one.start_ms)}, timeout ${seconds(one.timeout_ms)}` : ` timeout ${seconds(one.timeout_ms)}`,
    `, producer ${one.producer_id} in epoch ${one.producer_epoch}, coordinated by broker ${one.brokerId}`),
  one.partitions.length
    ? table("Partitions of the transaction", [["Partition"], ["First open offset", "n"], ["Last stable offset", "n"], ["Held back by"], ["Marker"]],
      one.partitions.map((part) => el("tr", {}, el("th", { scope: "row", class: "id" }, `${part.topic}-${part.partition}`), el("td", { class: "n id" }, number(first(part))),
        el("td", { class: "n id" }, number(row(part)?.last_stable_offset ?? part.last_stable_offset)), el("td", {}, holder(row(part), ids)),
        el("td", {}, one.state.startsWith("Prepare") ? (part.has_marker ? "written" : "missing") : "–"))))
    : el("p", { class: "dim" }, "It has no partition in a transaction."),
  !one.is_complete && el("p", { class: "dim" }, "It has more partitions than are shown.")];
}

/** A button that asks once more before it fences a producer. */
function aborter(name, done) {
  const said = el("span", { class: "error", role: "alert" });
  const ask = el("button", { type: "button", onclick: () => confirm(true) }, "Abort …");
  const yes = el("button", { type: "button", class: "first", onclick: abort }, "Abort, and fence its producer");
  const no = el("button", { type: "button", onclick: () => confirm(false) }, "Keep it");
  const question = el("span", { role: "group", "aria-label": `Abort the transaction of ${name}?`, hidden: true }, "Its records are lost, and the producer has to start again. ", yes, " ", no);
  const why = el("span", { class: "dim" });
  const element = el("p", { class: "buttons" }, ask, question, why, said);

  function confirm(isAsked) {
    question.hidden = !isAsked;
    ask.hidden = isAsked;
    (isAsked ? no : ask).focus();
  }

  async function abort() {
    say(said, "");
    try {
      await send("POST", `transactions/${encodeURIComponent(name)}/abort`);
      announce(`the transaction of ${name} is aborted`);
    } catch (error) {
      say(said, error.message);
    }
    confirm(false);
    done();
  }

  /** Why it cannot be aborted from here; empty if it can. */
  function refusal(one) {
    if (!one || one.state !== "Ongoing") return "nothing is open that could be aborted";
    if (one.brokerId !== cluster.self) return `to be aborted on the console of broker ${one.brokerId}, its coordinator`;
    if (!cluster.overview?.caller.may_change) return "your token is for reading only";
    return "";
  }

  return {
    element,
    show: (one) => {
      const reason = refusal(one);
      ask.disabled = reason !== "";
      say(why, reason);
      if (reason && !question.hidden) confirm(false);
    },
  };
}

// Producers: what a partition remembers of each, as a window on a number line.

import { at, cluster, get, getFromAll } from "./api.js";
import { age, clock, el, fill, say, table, whole } from "./dom.js";
import { batchesOf, events, outcomeOf, range, reasonOf } from "./events.js";
import { repeated } from "./looks.js";
import { numberLine } from "./window.js";

const PAGE_ROWS = 50;
const SOON_MS = 400;
const HISTORY = 30;

export const title = "Producers";

export function open(page, query, go, [topic, partition]) {
  const looks = repeated(topic === undefined ? overTopics(page, query) : overPartition(page, query, topic, Number(partition)));
  let soon = null;
  const later = () => {
    soon ??= setTimeout(() => {
      soon = null;
      looks.now();
    }, SOON_MS);
  };
  events.addEventListener("added", later);
  return {
    close: () => {
      events.removeEventListener("added", later);
      looks.stop();
      clearTimeout(soon);
    },
  };
}

const pathTo = (topic, partition, id) =>
  `#/producers/${encodeURIComponent(topic)}/${partition}${id === undefined ? "" : `?id=${id}`}`;

// --- all partitions, and the producers of one client

function overTopics(page, query) {
  const client = query.get("client") ?? "";
  const form = el("form", {
    class: "inline", onsubmit: (event) => {
      event.preventDefault();
      location.hash = `#/producers${field.value ? `?client=${encodeURIComponent(field.value)}` : ""}`;
    },
  });
  const field = el("input", { type: "search", value: client, placeholder: "client id", "aria-label": "Client id" });
  form.append(field, el("button", { type: "submit" }, "Find its producers"));
  const recent = el("div", {});
  const partitions = el("div", {});
  fill(page, el("div", { class: "bar" }, el("h1", {}, title), form), el("div", { class: "columns" },
    el("section", { class: "card" }, el("h2", {}, client ? `Producers of ${client}` : "Latest producers"), recent),
    el("section", { class: "card" }, el("h2", {}, "Remembered, by partition"), partitions)));

  return async () => {
    const [answers, topics] = await Promise.all([
      getFromAll(`producers?limit=${PAGE_ROWS}${client ? `&client_id=${encodeURIComponent(client)}` : ""}`), getFromAll("topics")]);
    const found = answers.flatMap(({ document: one }) => one?.producers ?? []).sort((one, other) => other.time_ms - one.time_ms);
    fill(recent, found.length ? table("Producers, by their last batch", [["Producer"], ["Client"], ["Last batch to"], ["Address"], ["Age", "n"]],
      found.slice(0, PAGE_ROWS).map((one) => el("tr", {},
        el("td", {}, el("a", { class: "id", href: pathTo(one.topic, one.partition, one.producer_id) }, `${one.producer_id}·${one.producer_epoch}`)),
        el("td", {}, el("a", { href: `#/producers?client=${encodeURIComponent(one.client_id ?? "")}` }, one.client_id ?? "–")),
        el("td", { class: "id" }, `${one.topic}-${one.partition}`), el("td", { class: "id" }, one.address),
        el("td", { class: "n" }, age(Date.now() - one.time_ms)))))
      : el("p", { class: "dim" }, client ? "No batch of this client is remembered." : "No producer has sent a batch since the broker started."));
    const rows = topics.flatMap(({ brokerId, document: one }) => (one?.topics ?? []).flatMap((found) => found.partitions
      .filter((part) => part.leader === brokerId && part.producers).map((part) => ({ topic: found.name, ...part }))));
    fill(partitions, rows.length ? table("Partitions with producers", [["Partition"], ["Producers", "n"]], rows.map((row) => el("tr", {},
      el("td", {}, el("a", { class: "id", href: pathTo(row.topic, row.partition) }, `${row.topic}-${row.partition}`)),
      el("td", { class: "n" }, whole(row.producers)))))
      : el("p", { class: "dim" }, "No partition remembers a producer yet."));
  };
}

// --- one partition

function overPartition(page, query, topic, partition) {
  const after = Number(query.get("after") ?? -1);
  const wanted = query.get("id");
  const count = el("span", { class: "dim" });
  const list = el("div", {});
  const chosen = el("section", { class: "card chosen" });
  chosen.hidden = wanted === null;
  fill(page, el("div", { class: "bar" }, el("h1", {}, `${topic}-${partition}`), count,
    el("a", { href: "#/producers" }, "all partitions"),
    el("a", { href: `#/diagram?topic=${encodeURIComponent(topic)}&partition=${partition}` }, "diagram")), chosen, list);
  const base = `producers/${encodeURIComponent(topic)}/${partition}`;

  return async () => {
    const leader = await leaderOf(topic, partition);
    let document;
    try {
      document = await get(at(leader, `${base}?limit=${PAGE_ROWS}&after=${after}`));
      if (wanted !== null) {
        const one = await get(at(leader, `${base}?producer_id=${Number(wanted)}`));
        fill(chosen, closeUp(one.producers[0], wanted, topic, partition, one.retained));
      }
    } catch (error) {
      return fill(list, el("p", { class: "error", role: "alert" }, error.message));
    }
    const { producers, retained } = document;
    say(count, `${whole(document.count)} producer${document.count === 1 ? "" : "s"} remembered${cluster.brokers.length > 1 ? ` by broker ${leader}` : ""}`);
    fill(list, table(`Producers of ${topic}-${partition}`, [["Producer"], ["Client"], ["Last sequence", "n"], ["Window"], ["Last append", "n"]],
      producers.map((one) => el("tr", { class: String(one.producer_id) === wanted ? "selected" : null },
        el("th", { scope: "row" }, el("a", { class: "id", href: pathTo(topic, partition, one.producer_id) }, `${one.producer_id}·${one.producer_epoch}`)),
        el("td", {}, one.client_id ?? "–"),
        el("td", { class: "n id" }, one.last_sequence),
        el("td", { class: "wide" }, numberLine(one.window.map((batch) => [batch.base_sequence, batch.last_sequence]), { size: retained })),
        el("td", { class: "n", title: clock(one.last_append_ms) }, age(Date.now() - one.last_append_ms))))),
    el("p", { class: "buttons" }, after >= 0 && el("a", { href: pathTo(topic, partition) }, "first producers"),
      producers.length === PAGE_ROWS && el("a", { href: `${pathTo(topic, partition)}?after=${producers.at(-1).producer_id}` }, "next producers")));
  };
}

async function leaderOf(topic, partition) {
  if (cluster.brokers.length < 2) return cluster.self;
  for (const { brokerId, document } of await getFromAll("topics")) {
    const found = document?.topics.find((one) => one.name === topic)?.partitions.find((one) => one.partition === partition);
    if (found?.leader === brokerId) return brokerId;
  }
  return cluster.self;
}

/** One producer: its window large, its older epochs beside it, and what was decided about it lately. */
function closeUp(one, id, topic, partition, retained) {
  const mine = events.items.flatMap((event) => batchesOf(event)
    .filter((batch) => batch.producer_id === Number(id) && batch.topic === topic && batch.partition === partition)
    .map((batch) => ({ event, batch })));
  const older = olderEpochs(mine, one?.producer_epoch ?? Infinity);
  return [el("h2", {}, `Producer ${id}`, one?.client_id && el("span", { class: "dim" }, ` · ${one.client_id}${one.address ? ` · ${one.address}` : ""}`)),
    el("div", { class: "epochs" },
      older.map(({ epoch, window }) => el("section", {}, el("h3", {}, `epoch ${epoch}, fenced`), numberLine(window, { size: 0, isOver: true }))),
      el("section", { class: "grow" }, el("h3", {}, one ? `epoch ${one.producer_epoch}, now` : "not remembered (any more)"),
        one && numberLine(one.window.map((batch) => [batch.base_sequence, batch.last_sequence]), { size: retained }))),
    one && el("details", {}, el("summary", {}, "The batches of the window"),
      table("Batches of the window", [["Sequences"], ["Offsets"], ["Timestamp"], ["CRC"]], one.window.map((batch) => el("tr", { class: "id" },
        el("td", {}, range(batch.base_sequence, batch.last_sequence)), el("td", {}, range(batch.base_offset, batch.last_offset)),
        el("td", {}, batch.timestamp < 0 ? "–" : new Date(batch.timestamp).toISOString()),
        el("td", {}, batch.crc === null ? "–" : batch.crc.toString(16).padStart(8, "0")))))),
    mine.length > 0 && el("details", { open: true }, el("summary", {}, `Lately (${mine.length})`),
      el("ol", { class: "history" }, mine.slice(-HISTORY).reverse().map(({ event, batch }) => {
        const { word, sign, kind } = outcomeOf(event);
        return el("li", { "data-kind": kind }, el("time", {}, clock(event.time_ms)),
          el("span", { class: "outcome" }, el("span", { class: "sign", "aria-hidden": "true" }, sign), word),
          el("span", { class: "id" }, `${range(batch.base_sequence, batch.last_sequence)} (epoch ${batch.producer_epoch})`),
          el("span", {}, reasonOf(event)));
      }))),
    el("p", {}, el("a", { href: `#/diagram?topic=${encodeURIComponent(topic)}&partition=${partition}&producer_id=${id}` }, "As a diagram"))];
}

/** The last known window of each epoch before the present one, as far as this page has seen it. */
function olderEpochs(mine, present) {
  const found = new Map();
  for (const { event, batch } of mine) {
    if (event.event !== "decision" || batch.producer_epoch >= present) continue;
    if (event.decision === "append") {
      const window = found.get(batch.producer_epoch) ?? event.window ?? [];
      const isFirst = batch.base_sequence === 0;
      found.set(batch.producer_epoch, [...(isFirst ? [] : window), [batch.base_sequence, batch.last_sequence]].slice(-5));
    }
  }
  return [...found].map(([epoch, window]) => ({ epoch, window }));
}

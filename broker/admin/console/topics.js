// Topics: partitions, leaders, replicas in sync, rates, and how far behind each group is.

import { cluster, getFromAll } from "./api.js";
import { lags } from "./groups.js";
import { bytes, el, fill, rate, say, table, whole } from "./dom.js";
import { repeated } from "./looks.js";

export const title = "Topics";

export function open(page, query, go, [chosen]) {
  const filter = el("input", { type: "search", placeholder: "filter", "aria-label": "Filter", "aria-keyshortcuts": "/", value: query.get("filter") ?? "", oninput: () => {
    go.rewrite(`#/topics${filter.value ? `?filter=${encodeURIComponent(filter.value)}` : ""}`);
    looks.now();
  } });
  const state = el("span", { class: "dim" });
  const list = el("div", {});
  fill(page, el("div", { class: "bar" }, el("h1", {}, chosen ?? title), chosen === undefined ? filter : el("a", { href: "#/topics" }, "all topics"), state), list);
  let before = null;

  async function look() {
    const [answers, behind] = await Promise.all([getFromAll("topics"), lags()]);
    const { topics, leaders } = merged(answers);
    const now = performance.now();
    const speed = (name, index) => {
      const old = before?.ends.get(`${name}-${index}`);
      return old === undefined ? null : (leaders.get(`${name}-${index}`) - old) / ((now - before.at) / 1000);
    };
    const wanted = topics.filter(({ name }) => (chosen === undefined ? name.includes(filter.value) : name === chosen));
    const failed = answers.filter((one) => one.error).map((one) => `broker ${one.brokerId}: ${one.error.message}`);
    const count = chosen === undefined ? `${whole(wanted.length)} topic${wanted.length === 1 ? "" : "s"}` : "";
    say(state, failed.join("; ") || count);
    const none = chosen !== undefined ? `There is no topic ${chosen}.` : filter.value ? `No topic has "${filter.value}" in its name.` : "There are no topics here yet.";
    fill(list, !wanted.length ? el("p", { class: "dim" }, none) : chosen === undefined
      ? overview(wanted, speed, behind) : partitions(wanted[0], speed, behind));
    if (!before || now - before.at > 1000) before = { at: now, ends: leaders };
  }

  const looks = repeated(look);
  return { close: looks.stop, keys: { "/": () => filter.focus() } };
}

/** The topics of all brokers, each partition as its leader sees it. */
function merged(answers) {
  const topics = new Map();
  const leaders = new Map();
  for (const { brokerId, document } of answers) {
    for (const topic of document?.topics ?? []) {
      if (!topics.has(topic.name)) topics.set(topic.name, { name: topic.name, parts: new Map() });
      const { parts } = topics.get(topic.name);
      for (const part of topic.partitions) {
        if (!parts.has(part.partition) || part.leader === brokerId) parts.set(part.partition, part);
      }
    }
  }
  const found = [...topics.values()].map(({ name, parts }) => ({ name, parts: [...parts.values()].sort((one, other) => one.partition - other.partition) }));
  for (const { name, parts } of found) for (const part of parts) leaders.set(`${name}-${part.partition}`, part.log_end_offset);
  return { topics: found.sort((one, other) => one.name.localeCompare(other.name)), leaders };
}

const sum = (values) => values.reduce((one, other) => one + other, 0);

function speeds(values) {
  const known = values.filter((one) => one !== null);
  return known.length ? rate(sum(known)) : "–";
}

function sync(parts) {
  const behind = sum(parts.map((part) => part.replicas.length - part.isr.length));
  const none = parts.filter((part) => part.leader < 0).length;
  if (none) return el("span", { class: "pill bad" }, `✕ ${none} without leader`);
  return behind ? el("span", { class: "pill odd" }, `▲ ${behind} not in sync`) : el("span", { class: "pill good" }, "✓ in sync");
}

function lagOf(behind, topic, partition) {
  const found = behind.filter((one) => one.topic === topic && (partition === undefined || one.partition === partition) && one.lag !== null);
  const groups = Map.groupBy ? Map.groupBy(found, (one) => one.group) : grouped(found);
  return [...groups].map(([group, rows]) => el("div", {}, el("a", { href: `#/groups/${encodeURIComponent(group)}` }, group), ` ${whole(sum(rows.map((one) => one.lag)))}`));
}

function grouped(rows) {
  const found = new Map();
  for (const row of rows) found.set(row.group, [...(found.get(row.group) ?? []), row]);
  return found;
}

function overview(topics, speed, behind) {
  return table("Topics", [["Topic"], ["Partitions", "n"], ["Replicas"], ["Records", "n"], ["Size", "n"], ["Records in", "n"], ["Producers", "n"], ["Lag of groups"]],
    topics.map(({ name, parts }) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: `#/topics/${encodeURIComponent(name)}` }, name)),
      el("td", { class: "n" }, whole(parts.length)), el("td", {}, sync(parts)),
      el("td", { class: "n", title: "offsets between the start and the end of the log" }, whole(sum(parts.map((part) => part.log_end_offset - part.log_start_offset)))),
      el("td", { class: "n" }, bytes(sum(parts.map((part) => part.size_bytes)))),
      el("td", { class: "n" }, speeds(parts.map((part) => speed(name, part.partition)))),
      el("td", { class: "n" }, whole(sum(parts.map((part) => part.producers)))), el("td", {}, lagOf(behind, name)))));
}

function partitions({ name, parts }, speed, behind) {
  const isMany = cluster.brokers.length > 1;
  return table(`Partitions of ${name}`, [["Partition"], ["Leader", "n"], ["Epoch", "n"], ...(isMany ? [["In sync"]] : []), ["Start", "n"], ["High watermark", "n"], ["End", "n"], ["Size", "n"], ["Records in", "n"], ["Producers", "n"], ["Lag of groups"]],
    parts.map((part) => el("tr", {}, el("th", { scope: "row" }, part.partition),
      el("td", { class: "n" }, part.leader < 0 ? el("span", { class: "pill bad" }, "✕ none") : part.leader), el("td", { class: "n" }, part.leader_epoch),
      isMany && el("td", {}, part.replicas.map((id) => el("span", { class: `pill ${part.isr.includes(id) ? "good" : "odd"}`, title: part.isr.includes(id) ? "in sync" : "not in sync" }, `${part.isr.includes(id) ? "✓" : "▲"} ${id}`))),
      el("td", { class: "n id" }, whole(part.log_start_offset)), el("td", { class: "n id", title: part.last_stable_offset < part.high_watermark ? `open transactions: readers of committed records stop at ${whole(part.last_stable_offset)}` : "" }, whole(part.high_watermark)), el("td", { class: "n id" }, whole(part.log_end_offset)),
      el("td", { class: "n" }, bytes(part.size_bytes)), el("td", { class: "n" }, speeds([speed(name, part.partition)])),
      el("td", { class: "n" }, el("a", { href: `#/producers/${encodeURIComponent(name)}/${part.partition}` }, whole(part.producers))),
      el("td", {}, lagOf(behind, name, part.partition)))));
}

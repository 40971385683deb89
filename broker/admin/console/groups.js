// Groups: their members, what each holds, and how far behind they are.

import { at, get, getFromAll } from "./api.js";
import { el, fill, say, table, whole } from "./dom.js";
import { repeated } from "./looks.js";

const DESCRIBED_MAX = 50;

export const title = "Groups";

/** The groups of all brokers, each described by its coordinator; of very many, the first. */
async function described() {
  const lists = await getFromAll("groups");
  const found = lists.flatMap(({ brokerId, document }) => (document?.groups ?? []).map((one) => ({ brokerId, ...one })));
  found.sort((one, other) => one.group.localeCompare(other.group));
  const groups = await Promise.all(found.map(async (one, place) => {
    if (place >= DESCRIBED_MAX) return one;
    try {
      return { ...one, ...(await get(at(one.brokerId, `groups/${encodeURIComponent(one.group)}`))) };
    } catch (error) {
      return { ...one, error: error.message };
    }
  }));
  const missing = groups.some((one) => one.partitions?.some((row) => row.end === null));
  if (missing) fillEnds(groups, await getFromAll("topics"));
  return { groups, isComplete: lists.every(({ document }) => document?.complete) };
}

/** The ends of partitions that the coordinator does not hold come from their leaders. */
function fillEnds(groups, answers) {
  const ends = new Map();
  for (const { brokerId, document } of answers) {
    for (const topic of document?.topics ?? []) {
      for (const part of topic.partitions) if (part.leader === brokerId) ends.set(`${topic.name}-${part.partition}`, part.high_watermark);
    }
  }
  for (const { partitions } of groups) {
    for (const row of partitions ?? []) {
      row.end ??= ends.get(`${row.topic}-${row.partition}`) ?? null;
      if (row.end !== null && row.committed !== null) row.lag = Math.max(0, row.end - row.committed);
    }
  }
}

/** How far each group is behind in each partition, for the page of topics. */
export async function lags() {
  try {
    const { groups } = await described();
    return groups.flatMap(({ group, partitions }) => (partitions ?? []).map((row) => ({ group, ...row })));
  } catch {
    return [];
  }
}

const lagOf = (group) => {
  const known = (group.partitions ?? []).filter((row) => row.lag !== null);
  return known.length ? known.reduce((sum, row) => sum + row.lag, 0) : null;
};

export function open(page, query, go, [chosen]) {
  const state = el("span", { class: "dim" });
  const list = el("div", {});
  fill(page, el("div", { class: "bar" }, el("h1", {}, chosen ?? title), chosen !== undefined && el("a", { href: "#/groups" }, "all groups"), state), list);

  async function look() {
    let found;
    try {
      found = await described();
    } catch (error) {
      return say(state, error.message);
    }
    say(state, found.isComplete ? "" : "some groups are being loaded");
    if (chosen === undefined) return fill(list, overview(found.groups));
    const group = found.groups.find((one) => one.group === chosen);
    fill(list, group ? details(group) : el("p", { class: "dim" }, `There is no group ${chosen}.`));
  }

  const looks = repeated(look);
  return { close: looks.stop };
}

const GOOD = new Set(["Stable"]);
const pill = (state) => el("span", { class: `pill ${GOOD.has(state) ? "good" : state === "Empty" || state === "Dead" ? "" : "odd"}` }, state);

function overview(groups) {
  if (!groups.length) return el("p", { class: "dim" }, "No consumer group is known. One appears with the first consumer that subscribes.");
  return table("Consumer groups", [["Group"], ["State"], ["Members", "n"], ["Partitions", "n"], ["Lag", "n"], ["Protocol"], ["Coordinator", "n"]],
    groups.map((one) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: `#/groups/${encodeURIComponent(one.group)}` }, one.group)), el("td", {}, pill(one.state)),
      el("td", { class: "n" }, one.members ? whole(one.members.length) : "–"), el("td", { class: "n" }, one.partitions ? whole(one.partitions.length) : "–"),
      el("td", { class: "n" }, lagOf(one) === null ? "–" : whole(lagOf(one))), el("td", {}, one.protocol ?? one.protocol_type), el("td", { class: "n" }, one.brokerId))));
}

function details(group) {
  if (group.error) return el("p", { class: "error", role: "alert" }, group.error);
  const named = new Map(group.members.map((one) => [one.member_id, one]));
  const name = (id) => (id === null ? "–" : named.get(id)?.group_instance_id ?? named.get(id)?.client_id ?? id);
  return [el("p", {}, pill(group.state), ` ${group.protocol ? `assigned by ${group.protocol}` : ""}`),
    el("div", { class: "columns" }, el("section", { class: "card" }, el("h2", {}, "Members"),
      group.members.length ? table("Members", [["Client"], ["Host"], ["Holds"], ["Member"]], group.members.map((one) => el("tr", {},
        el("th", { scope: "row" }, one.group_instance_id ?? one.client_id), el("td", { class: "id" }, one.host),
        el("td", { class: "id" }, one.partitions.map((part) => `${part.topic}-${part.partition}`).join(" ") || "nothing"), el("td", { class: "id dim" }, one.member_id))))
        : el("p", { class: "dim" }, "No member. The offsets are kept.")),
    el("section", { class: "card" }, el("h2", {}, "Offsets"),
      table("Offsets", [["Partition"], ["Committed", "n"], ["End", "n"], ["Lag", "n"], ["Held by"]], group.partitions.map((row) => el("tr", {},
        el("th", { scope: "row", class: "id" }, `${row.topic}-${row.partition}`), el("td", { class: "n id" }, row.committed === null ? "–" : whole(row.committed)),
        el("td", { class: "n id" }, row.end === null ? "–" : whole(row.end)), el("td", { class: "n" }, row.lag === null ? "–" : el("b", {}, whole(row.lag))),
        el("td", {}, name(row.member_id)))))))];
}

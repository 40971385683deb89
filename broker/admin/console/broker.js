// Broker: health, six plots, and who is connected with which software.

import { at, cluster, get, getText, getFromAll } from "./api.js";
import { age, bytes, el, fill, rate, table, whole } from "./dom.js";
import { byLabel, parse, perSecond, quantile, total } from "./metrics.js";
import { repeated } from "./looks.js";
import "./plot.js";

export const title = "Broker";

export function open(page) {
  const health = el("div", { class: "tiles facts-tiles" });
  const trouble = el("div", {});
  const names = ["Requests per second", "Appended per second", "Latency, p99", "Repeats per second", "Refused per second", "Producers remembered"];
  const plots = names.map(() => el("line-plot", {}));
  const clients = el("section", { class: "card" });
  fill(page, el("div", { class: "bar" }, el("h1", {}, title)), trouble, health, el("div", { class: "plots" }, plots), clients);
  const before = new Map();

  async function look() {
    const [answers, overviews, connections, healths] = await Promise.all([
      Promise.all((cluster.brokers.length ? cluster.brokers.map((one) => one.broker_id) : [cluster.self]).map(async (id) => {
        try {
          return [id, parse(await readMetrics(id))];
        } catch {
          return [id, null];
        }
      })), getFromAll("overview"), getFromAll("connections?limit=500"), getFromAll("health")]);
    const now = Date.now();
    draw(plots, names, now, answers, before);
    for (const [id, metrics] of answers) if (metrics) before.set(id, { at: now, metrics });
    drawHealth(health, trouble, overviews, healths);
    drawClients(clients, connections);
  }

  const looks = repeated(look);
  return { close: looks.stop };
}

async function readMetrics(id) {
  return id === cluster.self ? getText("metrics") : (await get(at(id, "metrics"))).text;
}

function draw(plots, names, now, answers, before) {
  const isMany = answers.length > 1;
  const values = names.map(() => ({}));
  for (const [id, metrics] of answers) {
    const old = before.get(id);
    const name = isMany ? `broker ${id}` : "";
    const grown = (counter) => (metrics && old ? perSecond(total(metrics, counter), total(old.metrics, counter), (now - old.at) / 1000) : null);
    values[0][name] = grown("echoless_requests_total");
    values[1][name] = grown("echoless_bytes_appended_total");
    for (const api of ["produce", "fetch"]) {
      const seconds = metrics && old ? quantile(metrics, old.metrics, "echoless_request_seconds", 0.99, (labels) => labels.api === api) : null;
      values[2][`${name} ${api}`.trim()] = seconds;
    }
    values[3][name] = grown("echoless_duplicates_total");
    const codes = metrics ? byLabel(metrics, "echoless_rejects_total", "error") : {};
    const codesBefore = old ? byLabel(old.metrics, "echoless_rejects_total", "error") : {};
    for (const [code, count] of Object.entries(codes)) {
      values[4][`${name} ${code}`.trim()] = old ? perSecond(count, codesBefore[code] ?? 0, (now - old.at) / 1000) : null;
    }
    if (!Object.keys(codes).length) values[4][name] = old ? 0 : null;
    values[5][name] = metrics ? total(metrics, "echoless_partition_producers") : null;
  }
  const shows = [rate, (one) => `${bytes(one)}/s`, milliseconds, rate, rate, (one) => whole(Math.round(one * 10) / 10)];
  plots.forEach((plot, place) => plot.add(names[place], now, values[place], shows[place]));
}

const milliseconds = (seconds) => `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;

function drawHealth(health, trouble, overviews, healths) {
  fill(health, overviews.map(({ brokerId, document: one, error }) => one
    ? el("section", { class: "card tile" }, el("h2", {}, `Broker ${brokerId} `, el("span", { class: `pill ${one.status === "ready" ? "good" : "bad"}` }, one.status === "ready" ? "✓ ready" : `✕ ${one.status}`),
      cluster.brokers.length > 1 && one.controller === brokerId && el("span", { class: "pill" }, "controller")),
    el("dl", { class: "facts" }, facts(one).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))))
    : el("section", { class: "card tile" }, el("h2", {}, `Broker ${brokerId} `, el("span", { class: "pill bad" }, "✕ not seen")), el("p", { class: "dim" }, error.message))));
  const found = healths.flatMap(({ brokerId, document: one }) => [
    ...(one?.strays ?? []).map((stray) => `Broker ${brokerId} has set aside ${stray.name}: ${stray.reason}`),
    ...(one?.damaged ?? []).map((damage) => `Broker ${brokerId} has found damage: ${JSON.stringify(damage)}`),
    ...(one?.unserved_groups ?? []).map((groups) => `Broker ${brokerId}: ${groups.reason}`),
    ...(one?.unserved_transactional_ids ?? []).map((ids) => `Broker ${brokerId}: ${ids.reason}`)]);
  fill(trouble, found.map((text) => el("p", { class: "error", role: "alert" }, text)));
}

const facts = (one) => [["cluster", one.cluster_id], ["version", one.version], ["up for", age(one.now_ms - one.started_ms)],
  ["memory", one.memory_bytes === null ? "–" : bytes(one.memory_bytes)], ["connections", whole(one.connections)],
  ["leads", `${whole(one.leading)} of ${whole(one.partitions)} partitions`], ["producers", whole(one.producers)],
  ["clients at", Object.entries(one.brokers.find((broker) => broker.broker_id === one.broker_id)?.listeners ?? {}).filter(([name]) => name !== "NATIVE").map(([, address]) => address).join(", ")],
  ["faults", one.faults.allowed ? `${one.faults.active} active` : "not allowed"]];

function drawClients(clients, answers) {
  const rows = answers.flatMap(({ brokerId, document: one }) => (one?.connections ?? []).map((connection) => ({ brokerId, ...connection })));
  const kinds = new Map();
  for (const one of rows) {
    const name = one.software_name ? `${one.software_name} ${one.software_version}` : one.protocol === "native" ? "native" : "says nothing";
    kinds.set(name, (kinds.get(name) ?? 0) + 1);
  }
  const isOpen = clients.querySelector("details")?.open;
  fill(clients, el("h2", {}, "Connections by client software"),
    rows.length ? table("Connections by client software", [["Software"], ["Connections", "n"]], [...kinds].sort(([, one], [, other]) => other - one)
      .map(([name, count]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "n" }, whole(count)))))
      : el("p", { class: "dim" }, "No client is connected."),
    rows.length > 0 && el("details", { open: isOpen }, el("summary", {}, `Each of the ${whole(rows.length)}`),
      table("Connections", [["Client"], ["Address"], ["Software"], ["Principal"], ["Listener"], ["TLS"], ["Silent for", "n"]], rows.map((one) => el("tr", {},
        el("td", {}, one.client_id ?? "–"), el("td", { class: "id" }, one.address), el("td", {}, [one.software_name, one.software_version].filter(Boolean).join(" ") || "–"),
        el("td", { class: "id" }, one.principal), el("td", {}, one.listener), el("td", {}, one.tls ? "yes" : "no"), el("td", { class: "n" }, age(one.idle_ms)))))));
}

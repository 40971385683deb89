// Faults: the rules in force and what they have hit; common ones at a click; each as curl, command and TOML.

import { cluster, get, getFromAll, origin, send } from "./api.js";
import { announce, copier, el, fill, say, table, whole } from "./dom.js";
import { repeated } from "./looks.js";

const LOOK_EVERY_MS = 1000;
const once = { times: 1 };
const produce = { api: "produce" };

/** The common ones. `later=send`: a client that matches answers by number gets those that follow. */
const COMMON = [
  { word: "Lose the next acknowledgement", says: "stored, and the producer never hears of it", rule: { name: "lose-next-ack", match: produce, schedule: once, action: { type: "drop_response", later: "wait" } } },
  { word: "Lose the next request", says: "it never arrives", rule: { name: "lose-next-request", match: produce, schedule: once, action: { type: "drop_request", later: "wait" } } },
  { word: "Delay answers by 500 ms", says: "for 30 s", rule: { name: "delay-500", match: produce, schedule: { duration_ms: 30000 }, action: { type: "delay_response", ms: 500 } } },
  { word: "Answer the next with an error", says: "NOT_LEADER_OR_FOLLOWER, after storing it", rule: { name: "error-after-next", match: produce, schedule: once, action: { type: "error_after", code: "NOT_LEADER_OR_FOLLOWER" } } },
  { word: "Close at the next batch", says: "stored, then the connection ends", rule: { name: "close-after-next", match: produce, schedule: once, action: { type: "close_after" } } },
  { word: "Lose the answer to the next commit", says: "decided, and its producer asks again", rule: { name: "lose-next-commit", match: { api: "end_txn", result: "commit" }, schedule: once, action: { type: "drop_response", later: "wait" } } },
  { word: "Keep markers back for 10 s", says: "readers of committed records wait", rule: { name: "no-markers-10s", match: { api: "write_markers" }, schedule: { duration_ms: 10000 }, action: { type: "error", code: "NOT_ENOUGH_REPLICAS" } } },
  { word: "Freeze for 5 s", says: "every request waits", rule: { name: "freeze-5s", match: {}, schedule: { duration_ms: 5000 }, action: { type: "freeze" } } },
];

const cut = (id) => ({ word: `Cut the link to broker ${id}`, says: "for 15 s", rule: { name: `cut-${id}`, match: {}, schedule: { duration_ms: 15000 }, action: { type: "cut_replica_link", broker_id: id } } });

export const title = "Faults";

export function open(page) {
  let hint = null;
  const state = el("p", { class: "dim" });
  const trouble = el("p", { class: "error", role: "alert" });
  const others = cluster.brokers.filter((one) => one.broker_id !== cluster.self).map((one) => cut(one.broker_id));
  const buttons = [...COMMON, ...others].map(({ word, says, rule }) => el("button", { type: "button", class: "fault", disabled: true, onclick: () => add(rule) },
    el("b", {}, word), el("span", {}, says)));
  const list = el("div", {});
  const clear = el("button", { type: "button", onclick: () => act(() => send("DELETE", "faults"), "all rules removed"), disabled: true }, "Remove all");
  const form = el("details", { class: "card" }, el("summary", {}, "A rule of your own"));
  fill(page, el("div", { class: "bar" }, el("h1", {}, title), state, el("span", { class: "push" }, clear)), trouble,
    el("div", { class: "tiles", role: "group", "aria-label": "Common faults" }, buttons), form, list);

  async function act(work, said) {
    try {
      await work();
      say(trouble, "");
      announce(said);
    } catch (error) {
      say(trouble, error.message);
    }
    await looks.now();
  }

  /** Adds the rule; one of the same name that is used up makes room for it. */
  async function add(rule) {
    await act(async () => {
      const { rules } = await get("faults");
      const old = rules.find((one) => one.name === rule.name);
      if (old?.exhausted) await send("DELETE", `faults/${encodeURIComponent(rule.name)}`);
      await send("POST", "faults", rule);
    }, `rule ${rule.name ?? ""} added`);
  }

  async function look() {
    const answers = await getFromAll("faults");
    const own = answers.find((one) => one.brokerId === cluster.self);
    if (own?.error) return say(trouble, own.error.message);
    const { allowed, reason, rules } = own.document;
    const mayChange = cluster.overview?.caller.may_change ?? true;
    const why = !allowed ? reason : mayChange ? null : "your token is for reading only";
    say(state, why ?? (rules.some((rule) => !rule.exhausted) ? "" : "No fault is active."));
    state.classList.toggle("error", why !== null);
    for (const button of buttons) {
      button.disabled = why !== null;
      button.title = why ?? "";
    }
    clear.disabled = why !== null || !rules.length;
    if (hint !== why || form.childElementCount < 2) {
      hint = why;
      await drawForm(form, why, (rule) => add(rule));
    }
    drawRules(answers, why);
  }

  let drawn = "";
  function drawRules(answers, why) {
    const rows = answers.flatMap(({ brokerId, document: one }) => (one?.rules ?? []).map((rule) => ({ brokerId, rule })));
    const unreachable = answers.filter((one) => one.error);
    const now = JSON.stringify([rows, why, unreachable.map((one) => [one.brokerId, one.error.message])]);
    if (now === drawn) return;
    drawn = now;
    const isOpen = new Set([...list.querySelectorAll("details[open]")].map((one) => one.dataset.rule));
    const isMany = cluster.brokers.length > 1;
    fill(list, unreachable.map((one) => el("p", { class: "dim" }, `Broker ${one.brokerId}: ${one.error.message}`)),
      rows.length ? table("Rules", [["Rule"], ...(isMany ? [["Broker"]] : []), ["What it does"], ["To"], ["When"], ["Seen", "n"], ["Hits", "n"], ["State"], ["To take or remove"]],
        rows.map(({ brokerId, rule }) => el("tr", {}, el("th", { scope: "row", class: "id" }, rule.name), isMany && el("td", {}, brokerId),
          el("td", {}, doesInWords(rule)), el("td", {}, inWords(rule.match) || "every request"), el("td", {}, inWords(rule.schedule) || "always"),
          el("td", { class: "n" }, whole(rule.seen)), el("td", { class: "n" }, el("b", {}, whole(rule.hits))),
          el("td", {}, el("span", { class: `pill ${rule.exhausted ? "" : "odd"}` }, rule.exhausted ? "used up" : "● active")),
          el("td", { class: "buttons" }, texts(rule, isOpen.has(rule.name)), brokerId === cluster.self && rule.held > 0 && el("button", {
            type: "button", disabled: why !== null, "aria-label": `Release what ${rule.name} holds`,
            onclick: () => act(() => send("POST", `faults/${encodeURIComponent(rule.name)}/release`, {}), `released what ${rule.name} held`),
          }, `Release ${rule.held}`), brokerId === cluster.self && el("button", {
            type: "button", class: "quiet", disabled: why !== null, "aria-label": `Remove ${rule.name}`,
            onclick: () => act(() => send("DELETE", `faults/${encodeURIComponent(rule.name)}`), `rule ${rule.name} removed`),
          }, "Remove")))))
        : el("p", { class: "dim empty" }, "There are no rules. Click one above, send a batch, and watch it under Live."));
  }

  const looks = repeated(look, LOOK_EVERY_MS);
  return { close: looks.stop };
}

/** The action, or the steps of a script. */
function doesInWords({ action, script }) {
  return script ? script.map((step) => inWords(step.action, "type")).join(", then ") : inWords(action, "type");
}

function inWords(fields, first) {
  const rest = Object.entries(fields).filter(([name]) => name !== first).map(([name, value]) => `${name}=${Array.isArray(value) ? value.join("-") : value}`);
  return [first && fields[first], ...rest].filter(Boolean).join(" ");
}

// --- one rule, to be taken elsewhere

const textOf = ({ name, match, schedule, action, script, optional }) => {
  const steps = script?.map((step) => textOf({ action: step.action, match: step.match, schedule: step.schedule }));
  const filled = { name, match, schedule, action, script: steps, optional };
  return Object.fromEntries(Object.entries(filled).filter(([, value]) => value !== undefined && (typeof value !== "object" || Object.keys(value).length)));
};

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function asCurl(rule) {
  return `curl -s --json ${quoted(JSON.stringify(textOf(rule)))} ${origin()}/faults`;
}

export function asCommand({ name, match, schedule, action, script, optional }) {
  const words = script ? script.flatMap((step, index) => [...(index ? ["then"] : []), ...stepWords(step, match ?? {})]) : stepWords({ action });
  const options = Object.entries(match ?? {}).flatMap(([key, value]) => ["--match", `${key}=${value}`]);
  for (const [key, value] of Object.entries(schedule ?? {})) options.push(`--${key.replaceAll("_", "-")}`, String(value));
  return ["echoless", "faults", "add", ...(name ? ["--name", name] : []), ...options, ...(optional ? ["--optional"] : []), ...words, "--admin", location.host].map(quoted).join(" ");
}

/** An action and its fields; of a step also its schedule, and the conditions that the script does not have. */
function stepWords({ action, match, schedule }, ofScript = {}) {
  const { type, ...fields } = action;
  const own = Object.entries(match ?? {}).filter(([key, value]) => ofScript[key] !== value);
  return [type, ...Object.entries(fields).map(([key, value]) => `${key}=${Array.isArray(value) ? value.join("-") : value}`),
    ...Object.entries(schedule ?? {}).map(([key, value]) => `${key}=${value}`), ...own.map(([key, value]) => `match.${key}=${value}`)];
}

export function asToml({ name, match, schedule, action, script, optional }) {
  const value = (one) => (typeof one === "string" ? JSON.stringify(one) : Array.isArray(one) ? `[${one.map(value).join(", ")}]` : one && typeof one === "object" ? inline(one) : String(one));
  const inline = (fields) => `{ ${Object.entries(fields).map(([key, one]) => `${key} = ${value(one)}`).join(", ")} }`;
  return ["[[rules]]", name && `name = ${value(name)}`, Object.keys(match ?? {}).length && `match = ${inline(match)}`,
    Object.keys(schedule ?? {}).length && `schedule = ${inline(schedule)}`, optional && "optional = true",
    script ? `script = ${value(textOf({ script }).script)}` : `action = ${inline(action)}`].filter(Boolean).join("\n");
}

function texts(rule, isOpen) {
  return el("details", { class: "texts", "data-rule": rule.name, open: isOpen }, el("summary", {}, "as text"),
    [["curl", asCurl(rule)], ["command", asCommand(rule)], ["TOML", asToml(rule)]].map(([word, text]) =>
      el("div", {}, el("div", { class: "bar" }, el("b", {}, word), copier("Copy", text)), el("pre", {}, text))));
}

// --- a rule of one's own

async function drawForm(form, why, add) {
  const { actions, match, schedule } = await get("faults/actions");
  const says = el("p", { class: "dim" });
  const fields = el("div", { class: "fields" });
  const kind = el("select", { "aria-label": "action", onchange: choose }, actions.map(({ type }) => el("option", { value: type, selected: type === "drop_response" }, type)));
  const input = (part, name, takes = "") => el("label", {}, el("span", {}, name), el("input", { "data-part": part, name, "aria-label": name, type: "text", size: 12, placeholder: takes, autocomplete: "off" }));
  const preview = el("pre", {});

  function choose() {
    const action = actions.find((one) => one.type === kind.value);
    say(says, `${action.says}.`);
    fill(fields, action.fields.map(({ name, takes, needed, choices }) => choices.length && choices.length < 30
      ? el("label", {}, el("span", {}, name), el("select", { "data-part": "action", name, "aria-label": name }, !needed && el("option", { value: "" }, "(as usual)"), choices.map((one) => el("option", { value: one }, one))))
      : el("label", { title: takes }, el("span", {}, needed ? `${name} *` : name), el("input", { "data-part": "action", name, "aria-label": name, type: "text", size: 16, placeholder: takes, required: needed, autocomplete: "off" }))));
    show();
  }

  function rule() {
    const found = { match: {}, schedule: {}, action: { type: kind.value } };
    for (const one of body.querySelectorAll("[data-part]")) {
      if (one.value !== "") found[one.dataset.part][one.name] = parsed(one.name, one.value);
    }
    return textOf(found);
  }

  const show = () => say(preview, asCommand(rule()));
  const body = el("form", { oninput: show, onsubmit: (event) => {
    event.preventDefault();
    add(rule());
  } }, el("fieldset", {}, el("legend", {}, "does"), el("label", {}, el("span", {}, "action"), kind), fields, says),
  el("fieldset", {}, el("legend", {}, "to requests with"), match.map((name) => input("match", name))),
  el("fieldset", {}, el("legend", {}, "when"), schedule.map((name) => input("schedule", name))), preview,
  el("button", { type: "submit", class: "first", disabled: why !== null, title: why ?? "" }, "Add the rule"));
  fill(form, el("summary", {}, "A rule of your own"), body);
  choose();
}

const TEXTS = new Set(["topic", "client_id", "principal", "api", "path", "errno", "point", "right", "group", "transactional_id", "group_state", "transaction_state"]);

/** A number where one was typed, a range of milliseconds as two numbers. */
function parsed(name, text) {
  if (TEXTS.has(name)) return text;
  if (name === "nth" && /^\d+(,\d+)+$/.test(text)) return text.split(",").map(Number);
  if (name === "ms" && /^\d+-\d+$/.test(text)) return text.split("-").map(Number);
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

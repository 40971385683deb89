// The frame around the pages: which one is open, what holds for all of them, and the keys.

import { changes, cluster, get, getFromAll, logIn, token } from "./api.js";
import { announce, el, fill, say } from "./dom.js";
import { events } from "./events.js";
import { Follower } from "./follower.js";
import { oneAtATime, repeated } from "./looks.js";

const PAGES = { live: "Live", producers: "Producers", diagram: "Diagram", faults: "Faults", topics: "Topics", groups: "Groups", transactions: "Transactions", broker: "Broker" };
const THEMES = ["auto", "light", "dark"];

const main = document.getElementById("page");
const strip = document.getElementById("strip");
const follower = new Follower(events);
let opened = null;
let turn = 0;

// --- pages

const go = {
  /** Changes the address without opening anything. */
  rewrite: (hash) => hash !== location.hash && history.replaceState(null, "", hash),
};

/** A part of the address; one that is not encoded properly, as it is. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function open() {
  if (document.getElementById("login")) return;
  const mine = ++turn;
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decoded);
  const known = Object.hasOwn(PAGES, name) ? name : "live";
  const page = await import(`./${known}.js`);
  if (mine !== turn) return;
  opened?.close?.();
  document.title = `${page.title} · Echoless`;
  main.className = known;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === known) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  opened = page.open(main, new URLSearchParams(search), go, rest);
}

fill(document.getElementById("pages"), Object.entries(PAGES).map(([name, text]) =>
  el("a", { href: `#/${name}`, "data-page": name }, text)));

// --- what holds for every page

const look = oneAtATime(async () => {
  try {
    const overview = await get("overview");
    if (cluster.startedMs !== null && overview.started_ms !== cluster.startedMs) {
      events.note(`broker ${overview.broker_id} has restarted: its numbers begin again`);
    }
    Object.assign(cluster, { self: overview.broker_id, brokers: overview.brokers, startedMs: overview.started_ms, overview });
    drawPlace(overview);
    drawStrip(await getFromAll("faults"));
  } catch { /* the follower says so */ }
});

function drawPlace(overview) {
  const others = overview.brokers.length > 1 ? ` of ${overview.brokers.length}` : "";
  say(document.getElementById("where"), `broker ${overview.broker_id}${others} · ${overview.version}`);
}

function drawStrip(answers) {
  const active = answers.flatMap(({ brokerId, document: found }) =>
    (found?.rules ?? []).filter((rule) => !rule.exhausted).map((rule) => ({ brokerId, ...rule })));
  const isShown = active.length > 0;
  const text = `FAULTS ACTIVE: ${active.length}`;
  const names = active.map((rule) => (cluster.brokers.length > 1 ? `${rule.name} (broker ${rule.brokerId})` : rule.name)).join(", ");
  if (strip.hidden === isShown || strip.textContent !== `${text} ${names}Look`) {
    strip.hidden = !isShown;
    fill(strip, isShown && [el("b", {}, text), ` ${names}`, el("a", { href: "#/faults" }, "Look")]);
  }
}

const LINKS = {
  connecting: ["…", "connecting"],
  live: ["●", "live"],
  away: ["○", "away"],
  refused: ["✕", "refused"],
};

function drawLink() {
  const pill = document.getElementById("link");
  const [sign, word] = LINKS[follower.state];
  pill.dataset.state = follower.state;
  pill.title = follower.reason;
  fill(pill, el("span", { "aria-hidden": "true" }, sign), ` ${word}`);
}

let wasAway = 0;
follower.addEventListener("change", () => {
  drawLink();
  if (follower.state === "away" && !wasAway) {
    wasAway = Date.now();
    events.note(`the connection to the broker is lost: ${follower.reason}`);
  } else if (follower.state === "live" && wasAway) {
    events.note(`connected again after ${((Date.now() - wasAway) / 1000).toFixed(1)} s`);
    announce("connected again");
    wasAway = 0;
    look();
  }
});

// --- who may look

function showLogIn() {
  if (document.getElementById("login")) return;
  opened?.close?.();
  opened = null;
  const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const wrong = token() ? el("p", { class: "error", role: "alert" }, "The broker does not accept this token.") : null;
  fill(main, el("form", {
    id: "login", class: "card", onsubmit: (event) => {
      event.preventDefault();
      logIn(field.value.trim());
    },
  }, el("h1", {}, "This broker asks who you are"),
  el("p", {}, "Type a token of its ", el("code", {}, "admin_token_file"), ". It stays in this tab, until that is closed."),
  el("label", { for: "token" }, "Token"), field, wrong, el("button", { type: "submit", class: "first" }, "Log in")));
  field.focus();
}

changes.addEventListener("unauthorized", showLogIn);
changes.addEventListener("login", () => {
  main.replaceChildren();
  begin();
});

// --- keys and theme

addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, select, textarea, button, a, summary");
  if (event.key === "Escape" && isTyping) event.target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = opened?.keys?.[event.key];
  const page = Object.keys(PAGES)[Number(event.key) - 1];
  if (act) act();
  else if (page) location.hash = `#/${page}`;
  else return;
  event.preventDefault();
});

const themeButton = document.getElementById("theme");

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  say(themeButton, { auto: "◐ auto", light: "○ light", dark: "● dark" }[theme]);
  themeButton.setAttribute("aria-label", `Colours: ${theme}`);
  dispatchEvent(new Event("theme"));
}

themeButton.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("echoless theme") ?? "auto") + 1) % THEMES.length];
  localStorage.setItem("echoless theme", next);
  setTheme(next);
});

// --- begin

let looks = null;

async function begin() {
  drawLink();
  await look();
  if (document.getElementById("login")) return;
  follower.start(cluster.overview?.caller.principal);
  looks?.stop();
  looks = repeated(look);
  open();
}

addEventListener("hashchange", open);
setTheme(localStorage.getItem("echoless theme") ?? "auto");
begin();

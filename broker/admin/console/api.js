// What the page asks the broker: JSON from its own origin, with a token if the port wants one.

const TOKEN = "echoless token";
const TIMEOUT_MS = 10_000;

/** The brokers of the cluster as `/overview` lists them, and the one that serves this page. */
export const cluster = { self: null, brokers: [], startedMs: null };
export const changes = new EventTarget();

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const token = () => sessionStorage.getItem(TOKEN);

export function logIn(given) {
  sessionStorage.setItem(TOKEN, given);
  changes.dispatchEvent(new Event("login"));
}

/** A request to this port. Raises `Refused`, and `TypeError` if the broker cannot be reached. */
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const response = await fetch(path, { credentials: "omit", cache: "no-store", ...options, headers });
  if (response.ok) return response;
  let text = `${response.status} ${response.statusText}`;
  try {
    text = (await response.json()).error ?? text;
  } catch { /* it has no JSON: the status has to do */ }
  if (response.status === 401) changes.dispatchEvent(new Event("unauthorized"));
  throw new Refused(response.status, text);
}

const timed = () => ({ signal: AbortSignal.timeout(TIMEOUT_MS) });
export const get = async (path) => (await ask(path, timed())).json();
export const getText = async (path) => (await ask(path, timed())).text();

export async function send(method, path, body) {
  const options = { method, ...timed() };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  return (await ask(path, options)).json();
}

/** The path, asked of one broker of the cluster: this one answers by itself and asks the others. */
export function at(brokerId, path) {
  if (brokerId === cluster.self) return path;
  return `${path}${path.includes("?") ? "&" : "?"}broker=${brokerId}`;
}

/** The answers of all brokers to a path, as {brokerId, document} or {brokerId, error}. */
export async function getFromAll(path, read = get) {
  const ids = cluster.brokers.length ? cluster.brokers.map((one) => one.broker_id) : [cluster.self];
  return Promise.all(ids.map(async (brokerId) => {
    try {
      return { brokerId, document: await read(at(brokerId, path)) };
    } catch (error) {
      return { brokerId, error };
    }
  }));
}

/** The place of the port, for commands that are copied elsewhere. */
export const origin = () => location.origin;

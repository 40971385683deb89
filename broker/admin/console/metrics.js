// /metrics as values, and the rates between two looks at them.

const LINE = /^(\w+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Samples by name: {labels, value}; a name that is missing has none. */
export function parse(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line[0] === "#" ? null : LINE.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]));
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({ labels, value: Number(match[3]) });
  }
  return found;
}

/** The sum of a name's samples. */
export const total = (metrics, name) => (metrics.get(name) ?? []).reduce((sum, one) => sum + one.value, 0);

/** The same by the value of one label. */
export function byLabel(metrics, name, label) {
  const found = {};
  for (const { labels, value } of metrics.get(name) ?? []) found[labels[label]] = (found[labels[label]] ?? 0) + value;
  return found;
}

/** How fast a counter grew between two looks; null after a restart. */
export const perSecond = (now, before, seconds) => (before === undefined || now < before || seconds <= 0 ? null : (now - before) / seconds);

/** A quantile of what a histogram counted between two looks, in seconds; null if it counted nothing. */
export function quantile(now, before, name, share, wanted = () => true) {
  const counts = new Map();
  for (const [metrics, sign] of [[now, 1], [before, -1]]) {
    for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
      if (!wanted(labels)) continue;
      const edge = labels.le === "+Inf" ? Infinity : Number(labels.le);
      counts.set(edge, (counts.get(edge) ?? 0) + sign * value);
    }
  }
  const edges = [...counts].sort(([one], [other]) => one - other);
  const all = edges.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  let [lower, below] = [0, 0];
  for (const [edge, count] of edges) {
    if (count >= share * all) return edge === Infinity ? lower : lower + (edge - lower) * ((share * all - below) / Math.max(1e-9, count - below));
    [lower, below] = [edge, count];
  }
  return lower;
}

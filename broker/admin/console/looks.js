// Looks at the broker again and again, one look at a time.

const EVERY_MS = 2000;

/**
 * A function that does `work` at once, unless it is under way: then once more when that has ended. A broker that is slow
 * or stands still is so never asked twice at a time, and does not take up the browser's few connections.
 * Resolves when what it has asked for is done.
 */
export function oneAtATime(work) {
  let underWay = null;
  let next = null;
  async function run() {
    try {
      await work();
    } finally {
      [underWay, next] = [next, null];
    }
  }
  return () => {
    if (!underWay) return underWay = run();
    return next ??= underWay.catch(() => {}).then(run);
  };
}

/** Looks now, and again some time after each look has ended, until `stop`; `now` looks without waiting for that time. */
export function repeated(look, everyMs = EVERY_MS) {
  let timer = null;
  let isOver = false;
  const now = oneAtATime(async () => {
    clearTimeout(timer);
    if (isOver) return;
    try {
      await look();
    } finally {
      if (!isOver) timer = setTimeout(now, everyMs);
    }
  });
  now();
  return {
    now,
    stop: () => {
      isOver = true;
      clearTimeout(timer);
    },
  };
}

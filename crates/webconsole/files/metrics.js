// Metrics in the text format of Prometheus: values, rates between two samples, quantiles of histograms.

const LINE = /^([a-z_]+)(?:\{(.*)\})? (\S+)/i;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/gi;

/* Parses a sample: its time `at`, in seconds, and `rows(name)`, which returns the { labels, value } of a
   metric. */
export function parse(text) {
  const found = new Map();
  for (const line of text.split('\n')) {
    const match = line.startsWith('#') ? null : LINE.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...(match[2] ?? '').matchAll(LABEL)].map(([, name, value]) => [name, value]));
    const rows = found.get(match[1]) ?? [];
    rows.push({ labels, value: Number(match[3].replace('+Inf', 'Infinity')) });
    found.set(match[1], rows);
  }
  return { at: Date.now() / 1000, rows: (name) => found.get(name) ?? [] };
}

/* The value of a metric: the sum of the rows for whose labels `matches` returns true. */
export const value = (sample, name, matches = () => true) => sample.rows(name).filter(({ labels }) => matches(labels)).reduce((sum, row) => sum + row.value, 0);

/* Events per second between two samples; NaN without an earlier sample, or if the count was reset. */
export function rate(before, now, name, matches) {
  if (!before) return NaN;
  const more = value(now, name, matches) - value(before, name, matches);
  return more < 0 ? NaN : more / (now.at - before.at);
}

/* A quantile of the events between two samples: the smallest bound of a bucket that at least this share of
   the events does not exceed. Without `before`, all events since the start count. NaN if there were no
   events. */
export function quantile(before, now, name, share) {
  const buckets = (sample) => new Map(sample ? sample.rows(`${name}_bucket`).map(({ labels, value: count }) => [labels.le, count]) : []);
  const earlier = buckets(before);
  const counts = [...buckets(now)].map(([bound, count]) => [Number(bound.replace('+Inf', 'Infinity')), count - (earlier.get(bound) ?? 0)]);
  counts.sort(([a], [b]) => a - b);
  const all = counts.at(-1)?.[1] ?? 0;
  if (all <= 0) return NaN;
  const [bound] = counts.find(([, count]) => count >= all * share);
  return bound;
}

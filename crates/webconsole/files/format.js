// Numbers as people read them.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export const number = (value) => (Number.isFinite(Number(value)) ? whole.format(Number(value)) : '–');

export function bytes(value) {
  let [left, unit] = [Number(value), 0];
  if (!Number.isFinite(left)) return '–';
  while (left >= 1024 && unit < UNITS.length - 1) [left, unit] = [left / 1024, unit + 1];
  return `${Number.isInteger(left) || left >= 100 ? Math.round(left) : left.toFixed(1)} ${UNITS[unit]}`;
}

export function seconds(value) {
  const given = Number(value);
  if (!Number.isFinite(given)) return '–';
  if (given === 0) return '0 s';
  if (given < 1e-6) return '< 1 µs';
  if (given < 0.001) return `${Math.round(given * 1e6)} µs`;
  if (given < 1) return `${(given * 1e3).toFixed(given < 0.01 ? 2 : 0)} ms`;
  if (given < 120) return `${given < 10 ? given.toFixed(1) : Math.round(given)} s`;
  if (given < 7200) return `${Math.round(given / 60)} min`;
  if (given < 172800) return `${(given / 3600).toFixed(1)} h`;
  return `${Math.round(given / 86400)} d`;
}

/* The time to live of a key, in milliseconds; -1: no limit. */
export const ttl = (ms) => (Number(ms) < 0 ? '–' : seconds(Number(ms) / 1000));

export const time = (unixS) => (Number(unixS) > 0 ? new Date(Number(unixS) * 1000).toLocaleString() : 'never');

/* The time of day. */
export const clock = (date) => date.toLocaleTimeString('en-GB');

export const rate = (value) => (Number.isFinite(value) ? `${value < 10 && value > 0 ? value.toFixed(1) : number(value)}/s` : '–');

export const percent = (value) => (Number.isFinite(value) ? `${(value * 100).toFixed(1)} %` : '–');

// Numbers, times and sizes as people read them.

const whole = new Intl.NumberFormat('en');

export const number = (value: number) => whole.format(value);

// 1234 → 1,234; 12345678 → 12.3M
export function short(value: number): string {
  if (Math.abs(value) < 10_000) return Number.isInteger(value) ? number(value) : value.toPrecision(3);
  const units = ['k', 'M', 'G', 'T', 'P'];
  let at = -1;
  let rest = value;
  while (Math.abs(rest) >= 1000 && at < units.length - 1) {
    rest /= 1000;
    at++;
  }
  return `${rest >= 100 ? rest.toFixed(0) : rest.toFixed(1)}${units[at]}`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  const units = ['kB', 'MB', 'GB', 'TB', 'PB'];
  let at = -1;
  let rest = value;
  while (rest >= 1000 && at < units.length - 1) {
    rest /= 1000;
    at++;
  }
  return `${rest >= 100 ? rest.toFixed(0) : rest.toFixed(1)} ${units[at]}`;
}

export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(2) : seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(atMs: number | null, nowMs: number): string {
  if (atMs === null) return '–';
  const ms = Math.max(0, nowMs - atMs);
  return ms < 1500 ? 'just now' : `${ms < 60_000 ? `${Math.round(ms / 1000)} s` : duration(ms)} ago`;
}

const pad = (value: number, digits = 2) => String(value).padStart(digits, '0');

export function clock(atMs: number | null): string {
  if (atMs === null) return '–';
  const at = new Date(atMs);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
}

export function moment(atMs: number | null): string {
  if (atMs === null) return '–';
  const at = new Date(atMs);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(atMs).slice(0, 8)}`;
}

export const plural = (n: number, one: string, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// check_memory.js - whether memory stays flat. Part of check.js.
//
// Compared are medians over a quarter of the time, the second and the last, so that neither the first minutes nor single
// moments matter. A process that lives long is compared with itself. Those that are killed again and again are compared with
// each other, young ones with young ones: there shows what a new process takes over from the one before it. Runs and lives
// that are too short for that prove nothing, and are left out.
import { groupBy } from './check_index.js';

export const LIFE_MS = 7 * 60000; // at least, to be compared with itself
const SAMPLES_MIN = 15; // in a quarter
const YOUNG_MS = [5000, 60000]; // the ages at which processes that are started again are compared
const FACTOR = 1.35;
const MB = 2 ** 20;
const FLOOR = { c: 16 * MB, w: 64 * MB }; // of coordinators, and of workers, in which DuckDB comes and goes

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const megabytes = (bytes) => Math.round(bytes / MB);

// { second, last }: medians of two quarters of the time from `from` to `to`; undefined: too few samples.
function quarters(samples, from, to) {
  const within = (low, high) =>
    samples.filter(({ t }) => t >= from + low * (to - from) && t <= from + high * (to - from)).map(({ rss }) => rss);
  const [second, last] = [within(0.25, 0.5), within(0.75, 1)];
  if (second.length < SAMPLES_MIN || last.length < SAMPLES_MIN) return undefined;
  return { second: median(second), last: median(last) };
}

// Returns what was compared: [{ who, second, last }] in bytes.
export function memory(index, violate) {
  const compared = [];
  const compare = (who, kind, samples) => {
    const times = samples.map(({ t }) => t);
    const [from, to] = [times[0], times.at(-1)];
    const medians = to - from < LIFE_MS ? undefined : quarters(samples, from, to);
    if (!medians) return;
    const { second, last } = medians;
    compared.push({ who, second, last });
    if (last > Math.max(second * FACTOR, second + FLOOR[kind]))
      violate(`${who}: ${megabytes(second)} MB in the second quarter of the time, ${megabytes(last)} MB in the last`);
  };
  for (const [who, samples] of groupBy(index.memory, ({ name, incarnation }) => `${name}-${incarnation}`))
    compare(who, who[0], samples);
  const young = index.memory.filter(({ age }) => age >= YOUNG_MS[0] && age <= YOUNG_MS[1]);
  for (const [kind, samples] of groupBy(young, ({ name }) => name[0]))
    compare(`new ${kind === 'c' ? 'coordinators' : 'workers'}`, kind, samples);
  return compared;
}

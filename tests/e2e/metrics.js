// metrics.js - what /metrics of processes says, and what it has said so far.
import { assert } from './harness.js';

// The series of one answer: 'name{label="value"}' → number.
export async function readMetrics(base) {
  const response = await fetch(`${base}/metrics`);
  assert.equal(response.status, 200);
  const lines = (await response.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]));
}

// Remembers the highest value of each series. Buckets of histograms are left out: their count says enough.
export class Exported {
  #highest = new Map();

  async read(who, base) {
    const now = await readMetrics(base);
    for (const [series, value] of now) {
      const name = `${who}: ${series}`;
      if (!/_bucket\{/.test(series)) this.#highest.set(name, Math.max(value, this.#highest.get(name) ?? 0));
    }
    return now;
  }

  // Those that have never been above 0.
  get silent() {
    return [...this.#highest].filter(([, value]) => value === 0).map(([name]) => name).sort();
  }
}

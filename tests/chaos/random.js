// random.js - choices that a seed decides: the same seed, the same choices, on every machine.

// A Weyl sequence whose steps are mixed. `fork` gives an independent sequence by name, so that one part of the driver can
// draw more without changing what another part draws.
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  // From 0 to below 1.
  next() {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let bits = this.#state;
    for (const factor of [0x85ebca6b, 0xc2b2ae35]) bits = Math.imul(bits ^ (bits >>> 15), factor) >>> 0;
    return ((bits ^ (bits >>> 16)) >>> 0) / 2 ** 32;
  }

  fork(name) {
    let seed = this.#state ^ 0x811c9dc5;
    for (const letter of name) seed = Math.imul(seed ^ letter.codePointAt(0), 0x01000193) >>> 0;
    return new Random(seed);
  }

  // A whole number from `low` to `high`, both included.
  int(low, high) {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  any(list) {
    return list[Math.floor(this.next() * list.length)];
  }

  chance(probability) {
    return this.next() < probability;
  }

  shuffle(list) {
    const mixed = [...list];
    for (let i = mixed.length - 1; i > 0; i--) {
      const j = this.int(0, i);
      [mixed[i], mixed[j]] = [mixed[j], mixed[i]];
    }
    return mixed;
  }
}

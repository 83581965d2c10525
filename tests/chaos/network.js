// network.js - all connections of the cluster go through here: who connects to whom is known, and can be cut off from whom.
//
// A gate stands in front of every process and is what that process says its address is. The one who connects is found by
// the socket that it has open; so `lay([['w2', 'c1']], ...)` can part two processes while all others go on. Each rule lasts
// until it is lifted itself: of several on one way, all hold.
//
//   cut      what is open breaks, what comes is refused
//   stall    what is open stays, nothing passes, and all of it passes later: a cable that is pulled and put back
//   mute     what is asked arrives, no answer comes back; broken at the end, since bytes are missing
//   sever    what is open, or comes, breaks after so many more bytes of answers; of several, the fewest
//   delay    what passes takes so much longer, each way; of several, the longest
//
// It works in a thread of its own, so that nothing else that the driver does slows the cluster down. Network is the
// handle: each of its calls is done when the thread has done it.
import net from 'node:net';
import { Worker, isMainThread, parentPort } from 'node:worker_threads';
import { listeningPort, ownersOf } from './sockets.js';

const HELD_BYTES_MAX = 4 * 1024 * 1024; // of one direction; then the sender waits
const LOOK_MS = 50; // between two looks at the system's tables, which take milliseconds each

export class Network {
  #thread = new Worker(new URL(import.meta.url));
  #calls = new Map();
  #last = 0;

  constructor() {
    this.#thread.on('message', ({ id, answer, error }) => {
      const { resolve, reject } = this.#calls.get(id);
      this.#calls.delete(id);
      if (error) reject(new Error(error));
      else resolve(answer);
    });
    for (const name of ['gate', 'process', 'lay', 'lift', 'heal', 'close']) {
      this[name] = (...args) =>
        new Promise((resolve, reject) => {
          this.#calls.set(++this.#last, { resolve, reject });
          this.#thread.postMessage({ id: this.#last, name, args });
        });
    }
  }

  async end() {
    await this.close();
    await this.#thread.terminate();
  }
}

// ---- in the thread ----

// One direction of a connection: chunks in order, each not before its time.
class Lane {
  #chunks = [];
  #bytes = 0;
  #timer;

  constructor(from, to, pair, isAnswer) {
    this.from = from;
    this.to = to;
    this.pair = pair;
    from.on('data', (chunk) => {
      if (isAnswer && pair.rule.mute) return;
      this.#chunks.push({ chunk, due: Date.now() + pair.rule.delay });
      this.#bytes += chunk.length;
      if (this.#bytes > HELD_BYTES_MAX) from.pause();
      if (isAnswer) this.#sever(chunk.length);
      this.flush();
    });
    to.on('drain', () => this.flush());
  }

  #sever(bytes) {
    const { pair } = this;
    if (pair.rule.sever === undefined) return;
    pair.left = Math.min(pair.left ?? Infinity, pair.rule.sever) - bytes;
    if (pair.left <= 0) setImmediate(pair.end);
  }

  flush() {
    clearTimeout(this.#timer);
    if (this.pair.rule.stall || this.to.destroyed) return;
    while (this.#chunks.length > 0 && this.#chunks[0].due <= Date.now()) {
      if (this.to.writableNeedDrain) return;
      const { chunk } = this.#chunks.shift();
      this.#bytes -= chunk.length;
      this.to.write(chunk);
    }
    if (this.#chunks.length > 0) this.#timer = setTimeout(() => this.flush(), this.#chunks[0].due - Date.now());
    else if (this.from.isPaused()) this.from.resume();
  }

  close() {
    clearTimeout(this.#timer);
    this.#chunks = [];
  }
}

class Gates {
  #rules = new Map(); // id: { ways: [[from, to]], rule: { cut, stall, mute, delay, sever } }
  #last = 0;
  #pairs = new Set();
  #waiting = []; // accepted, and not yet known who they are
  #servers = [];
  #processes = new Map(); // name: { pid, port, looked }

  // The process behind the gate of that name; undefined: there is none now.
  process(name, pid) {
    if (pid === undefined) this.#processes.delete(name);
    else this.#processes.set(name, { pid });
  }

  // A gate in front of `to`: the process of that name, or the socket at `target`. `from` names the one who connects, if it
  // is always the same. With a path, it listens there; else on a port that is free. Returns the address.
  async gate(to, { target, from, path } = {}) {
    const server = net.createServer((socket) => this.#accept(socket, to, target, from));
    this.#servers.push(server);
    await new Promise((resolve, reject) => {
      server.on('error', reject);
      if (path) server.listen(path, resolve);
      else server.listen(0, '127.0.0.1', resolve);
    });
    return path ?? `127.0.0.1:${server.address().port}`;
  }

  #targetOf(name) {
    const it = this.#processes.get(name);
    if (it && it.port === undefined && !(Date.now() - it.looked < LOOK_MS)) {
      it.port = listeningPort(it.pid);
      it.looked = Date.now();
    }
    return it?.port === undefined ? undefined : { host: '127.0.0.1', port: it.port };
  }

  // Whether it matters who this is: only where there are rules, so only then it is looked for.
  #isAsked({ from, to }) {
    return from === undefined && [...this.#rules.values()].some(({ ways }) => ways.some(([, it]) => it === to));
  }

  #identify(pairs) {
    const asked = pairs.filter((pair) => this.#isAsked(pair));
    if (asked.length === 0) return;
    const processes = [...this.#processes].map(([name, { pid }]) => [name, pid]);
    const owners = ownersOf(
      asked.map(({ port }) => port),
      processes,
    );
    for (const pair of asked) pair.from = owners.get(pair.port) ?? 'client';
  }

  #ruleFor({ from, to }) {
    const isOf = ([a, b]) => b === to && (a === '*' || a === from);
    const all = [...this.#rules.values()].filter(({ ways }) => ways.some(isOf)).map(({ rule }) => rule);
    const severs = all.map(({ sever }) => sever).filter((bytes) => bytes !== undefined);
    return {
      cut: all.some(({ cut }) => cut),
      stall: all.some(({ stall }) => stall),
      mute: all.some(({ mute }) => mute),
      delay: Math.max(0, ...all.map(({ delay }) => delay ?? 0)),
      sever: severs.length === 0 ? undefined : Math.min(...severs),
    };
  }

  // Those that come where there are rules wait a moment for each other, and are looked for together.
  #accept(socket, to, target, from) {
    const pair = { from, to, socket, target, port: socket.remotePort };
    socket.on('error', () => {});
    if (!this.#isAsked(pair)) {
      this.#connect(pair);
      return;
    }
    if (this.#waiting.push(pair) > 1) return;
    setTimeout(() => {
      const all = this.#waiting.splice(0).filter((it) => !it.socket.destroyed);
      this.#identify(all);
      for (const it of all) this.#connect(it);
    }, LOOK_MS);
  }

  #connect(pair) {
    const { socket, to, target } = pair;
    pair.rule = this.#ruleFor(pair);
    const there = target ?? this.#targetOf(to);
    if (!there || pair.rule.cut) {
      socket.destroy();
      return;
    }
    const peer = net.connect(there);
    pair.end = () => {
      this.#pairs.delete(pair);
      for (const lane of pair.lanes) lane.close();
      socket.destroy();
      peer.destroy();
    };
    pair.lanes = [new Lane(socket, peer, pair, false), new Lane(peer, socket, pair, true)];
    this.#pairs.add(pair);
    for (const it of [socket, peer]) it.setNoDelay?.(true).on('error', pair.end).on('close', pair.end);
  }

  // Lays a rule on these ways, [from, to] by names; `from` may be '*'. Returns what `lift` takes it back by.
  lay(ways, rule) {
    this.#rules.set(++this.#last, { ways, rule });
    this.#apply();
    return this.#last;
  }

  lift(id) {
    this.#rules.delete(id);
    this.#apply();
  }

  heal() {
    this.#rules.clear();
    this.#apply();
  }

  #apply() {
    this.#identify([...this.#pairs]);
    for (const pair of [...this.#pairs]) {
      const was = pair.rule;
      pair.rule = this.#ruleFor(pair);
      if (pair.rule.sever === undefined) pair.left = undefined;
      if (pair.rule.cut || (was.mute && !pair.rule.mute)) pair.end();
      else for (const lane of pair.lanes) lane.flush();
    }
  }

  close() {
    for (const pair of [...this.#pairs]) pair.end();
    for (const server of this.#servers) server.close();
  }
}

if (!isMainThread && parentPort) {
  const gates = new Gates();
  parentPort.on('message', async ({ id, name, args }) => {
    try {
      parentPort.postMessage({ id, answer: await gates[name](...args) });
    } catch (error) {
      parentPort.postMessage({ id, error: error.stack });
    }
  });
}

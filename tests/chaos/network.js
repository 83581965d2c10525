// network.js - all connections of the cluster go through here: who connects to whom is known, and can be cut off from whom.
//
// A gate stands in front of every process and is what that process says its address is. The one who connects is found by
// the socket that it has open; so `rule('w2', 'c1', ...)` can part two processes while all others go on.
//
//   cut      what is open breaks, what comes is refused
//   stall    what is open stays, nothing passes, and all of it passes later: a cable that is pulled and put back
//   mute     what is asked arrives, no answer comes back; broken at the end, since bytes are missing
//   sever    what is open, or comes, breaks after so many more bytes of answers
//   delay    what passes takes so much longer, each way
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
    for (const name of ['gate', 'process', 'rule', 'heal', 'close']) {
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
      this.#chunks.push({ chunk, due: Date.now() + (pair.rule.delay ?? 0) });
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
    pair.left = (pair.left ?? pair.rule.sever) - bytes;
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
  #rules = new Map(); // 'from>to' or '*>to': { cut, stall, mute, delay, sever }
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

  // Who connects matters only where there are rules, so only then it is looked for.
  #identify(pairs) {
    const unknown = pairs.filter(({ from }) => from === undefined);
    const isAsked = ({ to }) => [...this.#rules.keys()].some((key) => key.endsWith(`>${to}`));
    const asked = unknown.filter(isAsked);
    if (asked.length === 0) return;
    const processes = [...this.#processes].map(([name, { pid }]) => [name, pid]);
    const owners = ownersOf(
      asked.map(({ port }) => port),
      processes,
    );
    for (const pair of asked) pair.from = owners.get(pair.port) ?? 'client';
  }

  #ruleFor({ from, to }) {
    return { ...this.#rules.get(`*>${to}`), ...this.#rules.get(`${from}>${to}`) };
  }

  // Those that come where there are rules wait a moment for each other, and are looked for together.
  #accept(socket, to, target, from) {
    const pair = { from, to, socket, target, port: socket.remotePort };
    const isAsked = from === undefined && [...this.#rules.keys()].some((key) => key.endsWith(`>${to}`));
    socket.on('error', () => {});
    if (!isAsked) {
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

  // `from` and `to` are names; `from` may be '*'. What was said of these two before is replaced; {} takes it back.
  rule(from, to, rule) {
    if (Object.keys(rule).length === 0) this.#rules.delete(`${from}>${to}`);
    else this.#rules.set(`${from}>${to}`, rule);
    this.#identify([...this.#pairs]);
    for (const pair of [...this.#pairs]) {
      const was = pair.rule;
      pair.rule = this.#ruleFor(pair);
      if (pair.rule.sever === undefined) pair.left = undefined;
      if (pair.rule.cut || (was.mute && !pair.rule.mute)) pair.end();
      else for (const lane of pair.lanes) lane.flush();
    }
  }

  heal() {
    for (const key of [...this.#rules.keys()]) this.rule(...key.split('>'), {});
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

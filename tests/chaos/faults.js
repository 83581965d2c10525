// faults.js - what is done to the cluster. One function per kind of plan.js: it begins the fault, and returns what ends it.
import fs from 'node:fs';
import path from 'node:path';
import { pause } from '../e2e/harness.js';
import { canMount } from './cluster.js';
import { coordinators, isEnding, spared, workers } from './plan.js';

// What cannot be done here, and why. It is said loudly, once, and left out.
export function impossible(cluster) {
  const reasons = {};
  if (!canMount) reasons.fill_disk = 'a file system of its own cannot be mounted (unshare -rm)';
  if (!cluster.clocks)
    reasons.shift_clock = 'there is no libfaketime that fits (Debian: faketime) or no clock.so (./dev build), or sanitizers forbid it';
  return reasons;
}

class Faults {
  constructor(cluster) {
    this.cluster = cluster;
  }

  // Ends a process with a signal and starts it again later.
  async #end(name, signal) {
    const member = this.cluster.members.get(name);
    if (!member.isUp || !member.isWanted) return undefined;
    const { process } = member;
    await this.cluster.endMember(name, signal);
    return async () => {
      // One that was asked to end has a little time for it.
      if (!process.isOver) await Promise.race([process.ended, pause(3000)]);
      await process.kill();
      await this.cluster.startMember(name);
    };
  }

  #freeze(name) {
    const { process, isUp } = this.cluster.members.get(name);
    if (!isUp) return undefined;
    process.signal('SIGSTOP');
    return () => process.signal('SIGCONT');
  }

  // Lays the rule on all these ways, [from, to].
  async #part(ways, rule) {
    const id = await this.cluster.network.lay(ways, rule);
    return () => this.cluster.network.lift(id);
  }

  kill_coordinator = ({ hit }) => this.#end(hit, 'SIGKILL');
  stop_coordinator = ({ hit }) => this.#end(hit, 'SIGTERM');
  kill_worker = ({ hit }) => this.#end(hit, 'SIGKILL');
  stop_worker = ({ hit }) => this.#end(hit, 'SIGTERM');
  freeze_coordinator = ({ hit }) => this.#freeze(hit);
  freeze_worker = ({ hit }) => this.#freeze(hit);

  #between = (name, others) =>
    others.flatMap((other) => [
      [name, other],
      [other, name],
    ]);
  isolate_worker = ({ hit, how }) => this.#part(this.#between(hit, coordinators), { [how]: true });
  slow_worker = ({ hit, delay_ms }) => this.#part(this.#between(hit, coordinators), { delay: delay_ms });
  #around = (hit) => [['*', hit], ...workers.map((name) => [hit, name])];
  isolate_leader = ({ hit, how }) => this.#part(this.#around(hit), { [how]: true });
  cut_leader = ({ hit, how }) => this.#part([...this.#around(hit), [hit, 'database']], { [how]: true });
  cut_clients = ({ hit, how }) => this.#part([['client', hit]], { [how]: true });
  cut_database = ({ hit, how }) => this.#part([[hit, 'database']], { [how]: true });
  slow_database = ({ hit, delay_ms }) => this.#part([[hit, 'database']], { delay: delay_ms });
  cut_workers = ({ hit, how, bytes }) => {
    const [a, b] = hit.split('-');
    return this.#part(this.#between(a, [b]), { [how]: how === 'sever' ? bytes : true });
  };
  slow_workers = ({ hit, delay_ms }) => {
    const [a, b] = hit.split('-');
    return this.#part(this.#between(a, [b]), { delay: delay_ms });
  };

  crash_database = async () => {
    if (this.isDatabaseDown) return undefined;
    this.isDatabaseDown = true;
    await this.cluster.crashDatabase();
    return async () => {
      await this.cluster.restartDatabase();
      this.isDatabaseDown = false;
    };
  };

  terminate_leader = async () => {
    const said = await this.cluster
      .sql("select pg_terminate_backend(backend_pid) from capstan.cluster_leader where token <> ''::bytea")
      .catch(() => '');
    return said === 't' ? () => {} : undefined;
  };

  fill_disk = ({ hit }) => {
    const file = path.join(this.cluster.visibleFolderOf(hit), 'filler');
    if (fs.existsSync(file)) return undefined;
    const fd = fs.openSync(file, 'w');
    const block = Buffer.alloc(65536);
    try {
      for (;;) if (fs.writeSync(fd, block) < block.length) break;
    } catch (error) {
      if (error.code !== 'ENOSPC') throw error;
    } finally {
      fs.closeSync(fd);
    }
    return () => fs.rmSync(file, { force: true });
  };

  shift_clock = ({ hit, seconds }) => {
    const file = this.cluster.clockFile(hit);
    fs.writeFileSync(file, `${seconds < 0 ? '' : '+'}${seconds}\n`);
    return () => fs.writeFileSync(file, '+0\n');
  };
}

// Runs a plan against a cluster. What is begun is ended in its time, or by `heal`.
export class Tormentor {
  #faults;
  #pending = new Set();
  #ending = new Set();
  #isOver = false;
  #again;

  // `isSparing`: whoever is in `spared` is not ended.
  constructor(cluster, history, { isSparing = false } = {}) {
    this.cluster = cluster;
    this.history = history;
    this.isSparing = isSparing;
    this.#faults = new Faults(cluster);
    this.counts = {};
    this.missed = 0; // what should have been hit was away already
    this.#again = []; // steps of kinds that have hit nobody yet
  }

  async run(plan) {
    const start = Date.now();
    const left = impossible(this.cluster);
    for (const step of plan) {
      const wait = start + step.at_ms - Date.now();
      if (wait > 0) await pause(wait);
      if (this.#isOver) return;
      for (const earlier of this.#again.splice(0)) await this.#strike(earlier);
      if (!left[step.kind]) await this.#strike(step);
    }
  }

  // Who is hit. A leader that is to live on is not ended: another coordinator is, instead.
  #hitOf({ kind, target }) {
    const hit = target === 'leader' ? this.cluster.leader : target;
    if (!this.isSparing || !isEnding(kind) || !spared.includes(hit)) return hit;
    return (coordinators.includes(hit) ? coordinators : workers).find(
      (name) => !spared.includes(name) && this.cluster.members.get(name).isUp,
    );
  }

  async #strike(step) {
    const hit = this.#hitOf(step);
    let end;
    if (hit !== undefined) {
      this.history.add('fault', { ...step, hit, phase: 'begin' });
      end = await this.#faults[step.kind]({ ...step, hit });
    }
    if (!end) {
      this.missed++;
      if (hit !== undefined) this.history.add('fault', { kind: step.kind, hit, phase: 'end', missed: true });
      if (!this.counts[step.kind]) this.#again.push(step);
      return;
    }
    this.counts[step.kind] = (this.counts[step.kind] ?? 0) + 1;
    const pending = { step, hit, end };
    pending.timer = setTimeout(() => this.#finish(pending), step.ms);
    this.#pending.add(pending);
  }

  async #finish(pending) {
    clearTimeout(pending.timer);
    if (!this.#pending.delete(pending)) return;
    const done = (async () => {
      await pending.end();
      this.history.add('fault', { kind: pending.step.kind, hit: pending.hit, phase: 'end' });
    })();
    this.#ending.add(done);
    await done;
    this.#ending.delete(done);
  }

  async heal() {
    this.#isOver = true;
    await Promise.all([...this.#pending].map((pending) => this.#finish(pending)));
    await Promise.all(this.#ending);
    await this.cluster.network.heal();
    for (const name of this.cluster.members.keys()) {
      this.cluster.members.get(name).process?.signal('SIGCONT');
      await this.cluster.startMember(name);
    }
  }
}

// plan.js - which faults come when, from a seed alone: no clock, no process, no file. The same seed gives the same plan.
//
// A step of the plan: { at_ms, kind, target, ms, ... } with the times counted from the first fault. A target is the name of
// a process (c1.., w1..), or 'leader': whoever leads then. What was really hit is in the history.
import { Random } from './random.js';

export const coordinators = ['c1', 'c2', 'c3'];
export const workers = ['w1', 'w2', 'w3', 'w4'];
export const smallDisk = 'w4'; // its data folder is a small file system of its own
export const witnesses = ['z1', 'z2']; // workers that the driver is itself (witness.js); no fault is aimed at them
// In long runs these are never killed or stopped, only everything else: what leaks shows only in a process that lives.
export const spared = ['c3', 'w3'];
export const SPARING_MS = 8 * 60000;
export const isEnding = (kind) => /^(kill|stop)_/.test(kind);

// Times are in proportion to these settings of the cluster, so that some faults end before a lease does, and some after.
export const settings = {
  heartbeat_interval_ms: 500,
  lease_ms: 4000,
  worker_liveness_timeout_ms: 4000,
  node_stale_ms: 4000,
  node_dead_ms: 12000,
  leader_ttl_ms: 2000,
  retry_backoff_base_ms: 20,
  max_task_attempts: 1000,
  max_fetch_recoveries: 64,
  blacklist_failure_threshold: 5,
  blacklist_ttl_ms: 1500,
  orphan_ms: 60000,
  drain_timeout_ms: 2000,
  kill_grace_ms: 500,
  shuffle_memory_bytes: 65536,
  ended_jobs_resident: 300, // soon reached, so that memory can be asked to stay as it is
};

const short = (random) => random.int(50, 900);
const beyondLease = (random) => settings.lease_ms + random.int(500, 3000);
const shortOrLong = (random) => (random.chance(0.3) ? beyondLease(random) : short(random));
const aCoordinator = (random) => (random.chance(0.7) ? 'leader' : random.any(coordinators));
const aWorker = (random) => random.any(workers);
const aBreak = (random) => random.any(['cut', 'stall', 'mute']);
const two = (random) => random.shuffle(workers).slice(0, 2);

// Each kind draws what it needs. `weight` is how often it comes, compared with others.
export const kinds = {
  kill_coordinator: { weight: 4, draw: (r) => ({ target: aCoordinator(r), ms: r.int(50, 2500) }) },
  stop_coordinator: { weight: 1, draw: (r) => ({ target: aCoordinator(r), ms: r.int(50, 1500) }) },
  freeze_coordinator: {
    weight: 3,
    draw: (r) => ({
      target: aCoordinator(r),
      ms: r.chance(0.5) ? short(r) : settings.leader_ttl_ms + r.int(300, 2500),
    }),
  },
  kill_worker: {
    weight: 4,
    draw: (r) => ({ target: aWorker(r), ms: r.chance(0.3) ? beyondLease(r) : r.int(20, 1500) }),
  },
  stop_worker: { weight: 1, draw: (r) => ({ target: aWorker(r), ms: r.int(50, 1000) }) },
  freeze_worker: { weight: 3, draw: (r) => ({ target: aWorker(r), ms: shortOrLong(r) }) },
  isolate_worker: { weight: 3, draw: (r) => ({ target: aWorker(r), how: aBreak(r), ms: shortOrLong(r) }) },
  isolate_leader: { weight: 2, draw: (r) => ({ target: 'leader', how: aBreak(r), ms: r.int(200, 2500) }) },
  // The leader's whole machine: from workers, clients and the database at once.
  cut_leader: { weight: 2, draw: (r) => ({ target: 'leader', how: aBreak(r), ms: r.int(200, 5000) }) },
  slow_worker: { weight: 1, draw: (r) => ({ target: aWorker(r), delay_ms: r.int(20, 300), ms: r.int(500, 4000) }) },
  cut_clients: { weight: 2, draw: (r) => ({ target: aCoordinator(r), how: aBreak(r), ms: r.int(100, 2000) }) },
  cut_workers: {
    weight: 3,
    draw: (r) => ({
      target: two(r).join('-'),
      how: r.any(['cut', 'stall', 'sever']),
      bytes: r.int(100, 200000),
      ms: r.int(100, 2500),
    }),
  },
  slow_workers: {
    weight: 1,
    draw: (r) => ({ target: two(r).join('-'), delay_ms: r.int(20, 200), ms: r.int(500, 3000) }),
  },
  cut_database: {
    weight: 3,
    draw: (r) => ({ target: aCoordinator(r), how: r.any(['cut', 'stall']), ms: r.int(100, 4000) }),
  },
  slow_database: {
    weight: 1,
    draw: (r) => ({ target: aCoordinator(r), delay_ms: r.int(5, 100), ms: r.int(500, 3000) }),
  },
  crash_database: { weight: 1, draw: (r) => ({ target: 'database', ms: r.int(0, 1500) }) },
  terminate_leader: { weight: 2, draw: () => ({ target: 'leader', ms: 0 }) },
  fill_disk: { weight: 2, draw: (r) => ({ target: smallDisk, ms: r.int(500, 4000) }) },
  shift_clock: {
    weight: 2,
    draw: (r) => ({
      target: r.any([...coordinators, ...workers]),
      seconds: r.any([-86400, -3600, -7, 11, 3600, 86400]),
      ms: r.int(500, 6000),
    }),
  },
};

const others = { c3: 'c2', w3: 'w2' }; // who is hit instead of those that are spared

const GAP_MS = 1500; // between two faults, on average

// Whether a run of that length leaves `spared` alive.
export const spares = (lastMs) => lastMs >= SPARING_MS;

// All kinds once, in some order, then by weight. `only` names kinds, if not all are wanted.
export function makePlan(seed, lastMs, only = Object.keys(kinds)) {
  const random = new Random(seed).fork('plan');
  const names = Object.keys(kinds).filter((name) => only.includes(name));
  const urn = names.flatMap((name) => Array(kinds[name].weight).fill(name));
  const first = random.shuffle(names);
  const plan = [];
  for (let at = 500; at < lastMs; at += random.int(GAP_MS / 4, (GAP_MS * 7) / 4)) {
    const kind = first.pop() ?? random.any(urn);
    const step = { at_ms: at, kind, ...kinds[kind].draw(random) };
    if (spares(lastMs) && isEnding(kind)) step.target = others[step.target] ?? step.target;
    plan.push(step);
  }
  return plan;
}

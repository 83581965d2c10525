// check_lease.js - whose outcomes were taken. Part of check.js: `index` and `replay` are its.
//
// Three sources that do not know of each other must agree: the rows of the coordinators in the order of their commits, the
// lines that commands wrote about themselves, and the diaries of the witnesses (witness.js).
import { OUTCOME, isCommand, keyOf, replay } from './check_index.js';

const CLOCK_MS = 5; // the database rounds its times; all clocks here are one
const DISK_MS = 15000; // around a full disk commands may fail without having run

// A token is two numbers of eight bytes, which begin with the lowest byte in messages and with the highest in the database.
const tokenOf = (column) =>
  (column.replace(/^\\x/, '').match(/.{16}/g) ?? []).map((half) => half.match(/../g).reverse().join('')).join('');

const verdicts = { [OUTCOME.completed]: 'succeeded', [OUTCOME.failed]: 'failed' };

// By the rows alone: an outcome that was accepted is that of the attempt that held the lease, and a task has one at a time.
// `eachOutcome` gets every outcome that was taken, with the lease under which that was.
function leases(index, violate, eachOutcome) {
  replay(index, (rows, states, held) => {
    const gone = new Set(
      rows.filter(({ table, op }) => table === 'task_leases' && op === 'DELETE').map(({ row }) => keyOf(row)),
    );
    for (const { table, op, row, at } of rows) {
      const key = keyOf(row);
      const lease = held.get(key);
      if (table === 'task_leases' && op === 'INSERT' && lease && !gone.has(key))
        violate(`${key} got a second lease (attempt ${row.attempt_id}) beside that of attempt ${lease.attempt_id}`);
      if (table !== 'execution_idempotency' || op === 'DELETE' || row.node_id === null) continue;
      if (row.status !== OUTCOME.completed && row.status !== OUTCOME.failed) continue;
      if (lease?.attempt_id !== row.attempt_id || lease?.node_id !== row.node_id) {
        violate(
          `an outcome of attempt ${row.attempt_id} of ${key} on ${row.node_id} was taken, but the lease was ${lease ? `that of attempt ${lease.attempt_id} on ${lease.node_id}` : "nobody's"}`,
        );
      }
      eachOutcome({ key, row, lease, at });
    }
  });
}

const isFull = (index, node, at) =>
  index.faults.some(({ kind, hit, t }) => kind === 'fill_disk' && hit === node && Math.abs(t - at) < DISK_MS);

// By what commands wrote down: the execution that an outcome was taken of was over by then, and on that worker.
function outcomeOfCommand(index, violate, { job, task }, { row, at }) {
  const key = index.attempts.get(keyOf(row))?.find(({ attempt_id }) => attempt_id === row.attempt_id)?.key;
  if (key === undefined) return;
  const lines = (index.runs.get(`${job}/${task.name}`) ?? []).filter((line) => line.key === key);
  const start = lines.find(({ what }) => what === 'start');
  const end = lines.find(({ what }) => what === 'end');
  const name = `attempt ${row.attempt_id} of ${job}/${task.name} on ${row.node_id}`;
  if (start?.worker !== undefined && start.worker !== row.node_id)
    violate(`an outcome of ${name} was taken, but that execution was on ${start.worker}`);
  if (end && end.at <= at + CLOCK_MS) return;
  if (row.status === OUTCOME.failed && isFull(index, row.node_id, at)) return;
  violate(
    `${name} was taken as ${verdicts[row.status]}, but that execution ${end ? `was over only ${Math.round(end.at - at)} ms later` : start ? 'was never over' : 'never began'}`,
  );
}

// By the diary: the worker of that lease had reported just that, quoting it, and was not told that it is refused.
function outcomeOfWitness(index, violate, { job, task }, { key, row, lease, at }) {
  const token = lease === undefined ? undefined : tokenOf(lease.lease_token);
  const own = (index.reports.get(key) ?? []).filter(
    (it) => it.attempt === row.attempt_id && it.worker === row.node_id && it.state === verdicts[row.status],
  );
  const sent = own.filter((it) => it.t <= at + CLOCK_MS && it.token === token);
  if (sent.some(({ call }) => index.told.get(call)?.accepted !== false)) return;
  const name = `attempt ${row.attempt_id} of ${job}/${task.name} on ${row.node_id}`;
  const why =
    sent.length > 0
      ? 'its worker was told that the report is refused'
      : own.length > 0
        ? 'its worker had not reported that under the lease that it had'
        : 'its worker has never reported that';
  violate(`${name} was taken as ${verdicts[row.status]}, but ${why}`);
}

// What a witness was told: a report that was accepted quoted a lease of its own, and was taken as what it said.
function diaries(index, violate) {
  for (const it of [...index.reports.values()].flat()) {
    if (index.told.get(it.call)?.accepted !== true) continue;
    const name = `a report of ${it.worker} about attempt ${it.attempt} of ${keyOf({ job_id: it.job, ...it })}`;
    const given = index.assigned.get(it.token);
    if (!given) {
      violate(`${name} was accepted, and quoted a lease that nobody was given`);
    } else if (given.worker !== it.worker || given.attempt !== it.attempt) {
      violate(`${name} was accepted, and quoted the lease of attempt ${given.attempt} on ${given.worker}`);
    } else {
      const status = index.attemptOf.get(given.key)?.status;
      if (verdicts[status] !== it.state)
        violate(
          `${name} was accepted as ${it.state}, but that attempt is ${Object.keys(OUTCOME).find((name) => OUTCOME[name] === status) ?? 'not known'}`,
        );
    }
  }
}

export function currentLease(index, violate) {
  const byKey = new Map();
  for (const { job, task, key } of index.treeTasks()) byKey.set(key, { job, task });
  leases(index, violate, (outcome) => {
    const known = byKey.get(outcome.key);
    if (known?.task.does === 'witness') outcomeOfWitness(index, violate, known, outcome);
    else if (known && isCommand(known.task)) outcomeOfCommand(index, violate, known, outcome);
  });
  diaries(index, violate);
}

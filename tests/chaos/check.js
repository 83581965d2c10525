// check.js - what a history proves, or disproves. Pure: it reads nothing but the history, and changes nothing.
//
//   check(history) -> { violations: [{ property, what }], figures }
//
// history.js says what the lines are. Each function below, or in check_lease.js and check_memory.js, is one property. They share
// the index of the history, and what the rows that were written say in order (check_index.js).
import { kept } from './audit.js';
import {
  Index,
  JOB_ENDS,
  JOB_TREE,
  OUTCOME,
  TASK,
  groupBy,
  isCommand,
  isEnd,
  keyOf,
  replay,
  resultOf,
  taskState,
} from './check_index.js';
import { currentLease } from './check_lease.js';
import { memory } from './check_memory.js';
import { spared } from './plan.js';

// ---- properties of answers ----

// What a client was told is true for ever: jobs that were taken are there, ends are final, results are those.
function acknowledged(index, violate) {
  for (const { op, job, state, results } of index.answers) {
    const row = index.jobs.get(job);
    if (!row) {
      if (['submit', 'status', 'cancel', 'cli', 'results', 'rows'].includes(op))
        violate(`${op} of ${job} was answered, and there is no such job`);
      continue;
    }
    const end = JOB_ENDS[row.state];
    if (isEnd(state) && end !== state)
      violate(`${op} of ${job} was answered with ${state}, and it is ${end ?? 'not ended'}`);
    for (const [name, key] of Object.entries(results ?? {})) {
      const kept = resultOf(index.tasks.get(index.key(job, name)) ?? {})?.json?.key ?? null;
      if (key !== kept) violate(`the result of ${job}/${name} was ${key} for the client, and is ${kept}`);
    }
  }
  for (const { op, job, code, why } of index.refused) violate(`${op} of ${job} was refused: ${code} ${why}`);
}

// A command line that has no answer says so after the time that it was given, with the code for that: it does not crash, and
// does not give up at the first failover.
const CLI_TIMEOUT_MS = 30000;
const GAVE_UP = 'exit 3';

function commandLine(index, violate) {
  const begun = new Map(index.invoked.map(({ call, t }) => [call, t]));
  for (const { op, call, job, code, why, t } of index.unknown) {
    if (op !== 'cli') continue;
    if (code !== GAVE_UP) violate(`the command line of ${job} ended with ${code}: ${why}`);
    else if (t - begun.get(call) < CLI_TIMEOUT_MS)
      violate(`the command line of ${job} gave up after ${t - begun.get(call)} ms: ${why}`);
  }
}

// Queries bring the rows of one DuckDB.
function rows(index, violate) {
  for (const { op, job, digest, rows: count } of index.answers) {
    const plan = index.plans.get(job);
    if (digest === undefined || plan?.kind !== 'query') continue;
    if (digest !== plan.expected)
      violate(`${op} of ${job} brought other rows (${count}) than DuckDB alone (${plan.rows}): ${plan.sql}`);
  }
}

// ---- properties of what is in the database at the end ----

function oneResult(index, violate) {
  for (const { job, task, row, attempts } of index.treeTasks()) {
    const completed = attempts.filter(({ status }) => status === OUTCOME.completed);
    if (completed.length > 1) violate(`${job}/${task.name} has ${completed.length} results`);
    if (row.state !== TASK.succeeded) {
      if (completed.length > 0) violate(`${job}/${task.name} is ${taskState(row.state)}, and has a result`);
      continue;
    }
    if (completed.length === 0 && task.does !== 'sql')
      violate(`${job}/${task.name} succeeded, and no attempt of it did`);
    const result = resultOf(row);
    if (isCommand(task) && result?.json?.key !== completed[0]?.key) {
      violate(
        `the result of ${job}/${task.name} is of the execution ${result?.json?.key}, but ${completed[0]?.key} was committed`,
      );
    }
    if (task.does === 'sql' && Number(result?.rows?.[0]?.n) !== task.value)
      violate(`${job}/${task.name} has the rows ${JSON.stringify(result?.rows)}, not ${task.value}`);
    const saw = result?.json?.saw ?? [];
    task.told.forEach((name, i) => {
      if (saw[i] !== index.committed(job, name))
        violate(
          `${job}/${task.name} was told ${saw[i]} as the result of ${name}, which is ${index.committed(job, name)}`,
        );
    });
  }
}

// How a tree must end, by what its tasks do: { name: state }. Only for trees that nobody canceled or stopped.
function expectedStates({ tasks }) {
  const states = {};
  for (const { name, does, requires } of tasks) {
    const isSkipped = requires.some((parent) => states[parent] !== 'succeeded');
    states[name] = isSkipped ? 'skipped' : does === 'fail' ? 'failed' : 'succeeded';
  }
  return states;
}

function outcome(index, violate) {
  for (const [job, plan] of index.plans) {
    const row = index.jobs.get(job);
    if (!row || !JOB_ENDS[row.state]) continue;
    const end = JOB_ENDS[row.state];
    const mayBeCanceled = index.canceled.has(job);
    if (end === 'canceled' && !mayBeCanceled) violate(`${job} is canceled, and nobody asked for it`);
    if (end === 'canceled') continue;
    const expected = plan.kind === 'tree' ? expectedStates(plan) : {};
    const wanted = Object.values(expected).includes('failed') ? 'failed' : 'succeeded';
    if (end !== wanted) violate(`${job} ${end}, and should have ${wanted}: ${row.message}`);
    if (plan.kind !== 'tree' || (plan.stops && end === 'failed')) continue;
    for (const [name, state] of Object.entries(expected)) {
      const task = index.tasks.get(index.key(job, name));
      if (taskState(task?.state) !== state)
        violate(`${job}/${name} is ${taskState(task?.state)}, and should be ${state}: ${task?.message}`);
    }
  }
}

// After the heal everything comes to an end, and nothing is left behind.
function ends(index, violate) {
  if (!index.healed) violate('the faults were never healed');
  if (index.finished?.isDone !== true)
    violate(`not all jobs came to an end after the heal: ${JSON.stringify(index.finished?.open)}`);
  for (const row of index.jobs.values()) if (!JOB_ENDS[row.state]) violate(`${row.job_id} has not ended`);
  for (const row of index.tasks.values()) {
    if (row.state === TASK.queued || row.state === TASK.running)
      violate(`${keyOf(row)} is ${taskState(row.state)} at the end`);
  }
  for (const row of index.attemptOf.values()) {
    if (row.status === OUTCOME.pending) violate(`attempt ${row.attempt_id} of ${keyOf(row)} has no outcome`);
  }
  for (const row of index.leases) violate(`the lease of ${keyOf(row)} on ${row.node_id} is left`);
}

// In runs of so many minutes those that are spared surely live long enough to be compared, and the moments in which the driver
// stood still are judged: in a minute, a few of them would be too many.
const LONG_MINUTES = 12;
const STALLED_MAX = 0.5; // of the time may be excused by them

// A history without what the leaders wrote would prove nothing: all properties of it would hold.
function recorded(index, { compared, stalled }, violate) {
  const hasEpoch = index.audit.some(({ epoch }) => Number(epoch) > 0);
  const hasTransaction = index.audit.some(({ xid }) => Boolean(xid));
  if (!hasEpoch || !hasTransaction)
    violate(`nothing was recorded: ${hasTransaction ? 'no epoch' : 'no transaction'} of any leader`);
  for (const table of Object.keys(kept))
    if (!index.audit.some((line) => line.table === table)) violate(`nothing was recorded of ${table}`);
  if (!index.audit.some(({ table }) => table !== 'cluster_leader' && !kept[table]))
    violate('nothing was recorded of the tables without rows in the history');
  if (![...index.told.values()].some(({ accepted }) => accepted))
    violate('nothing was recorded: no report of a witness was ever accepted');
  if (index.meta.minutes >= 1 && ![...index.told.values()].some(({ accepted }) => !accepted))
    violate('nothing was tried: no report of a witness was ever refused');
  if (!(index.meta.minutes >= LONG_MINUTES)) return;
  for (const name of spared)
    if (!compared.some(({ who }) => who.startsWith(`${name}-`)))
      violate(`the memory of ${name}, which should have lived all the time, was not compared`);
  if (stalled > STALLED_MAX)
    violate(`the driver stood still so often that ${Math.round(stalled * 100)} % of the time excuse everybody`);
}

function processes(index, violate) {
  for (const { what } of index.unexpected) violate(what);
}

// ---- properties of what ran ----

function attemptOnce(index, violate) {
  for (const [key, runs] of groupBy(
    [...index.runs.values()].flat().filter(({ what }) => what === 'start'),
    ({ key }) => key,
  )) {
    const { job, task } = runs[0];
    if (runs.length > 1) violate(`the attempt ${key} of ${job}/${task} was executed ${runs.length} times`);
    if (!index.attemptOf.has(key)) violate(`the attempt ${key} of ${job}/${task} was executed, and nobody knows of it`);
  }
}

// By the times that commands wrote down themselves, on one machine.
function exclusive(index, violate) {
  for (const { job, task, runs } of index.treeTasks()) {
    if (task.does !== 'exclusive') continue;
    const spans = [...groupBy(runs, ({ key }) => key).values()]
      .map((lines) => ({
        attempt: lines[0].attempt,
        from: Math.min(...lines.map(({ at }) => at)),
        to: Math.max(...lines.map(({ at }) => at)),
      }))
      .sort((a, b) => a.from - b.from);
    for (let i = 1; i < spans.length; i++) {
      const [a, b] = [spans[i - 1], spans[i]];
      if (b.from < a.to)
        violate(
          `${job}/${task.name} ran twice at once: attempt ${b.attempt} began ${Math.round(a.to - b.from)} ms before attempt ${a.attempt} was over`,
        );
    }
  }
}

function dependencies(index, violate) {
  for (const { job, task, plan, runs } of index.treeTasks()) {
    const first = Math.min(...runs.filter(({ what }) => what === 'start').map(({ at }) => at));
    for (const name of Number.isFinite(first) ? task.requires : []) {
      if (!isCommand(plan.tasks.find((other) => other.name === name))) continue;
      const key = index.committed(job, name);
      const end = (index.runs.get(`${job}/${name}`) ?? []).find((line) => line.what === 'end' && line.key === key);
      if (!end || end.at > first)
        violate(`${job}/${task.name} was executed before ${name}, which it needs, had succeeded`);
    }
  }
}

// ---- properties of what was written, in order ----

// Only the leader writes, and of each epoch there is one.
function oneWriter(index, violate) {
  const writers = new Map();
  let newest = 0;
  for (const { app, leader, epoch, table, n } of index.audit) {
    if (app.split('-')[0] !== leader)
      violate(`${app} wrote into ${table} (row ${n}) while ${leader} led in epoch ${epoch}`);
    else if (!writers.has(epoch)) writers.set(epoch, app);
    else if (writers.get(epoch) !== app)
      violate(`${app} wrote into ${table} (row ${n}) in epoch ${epoch}, which is that of ${writers.get(epoch)}`);
    if (epoch < newest) violate(`row ${n} was written in epoch ${epoch}, after epoch ${newest}`);
    newest = Math.max(newest, epoch);
  }
}

// No task of a tree has more than one success in its life, and none runs before those that it waits for have ended.
function transitions(index, violateResult, violateDependency) {
  const byKey = new Map();
  for (const { job, task, key } of index.treeTasks()) byKey.set(key, { job, task });
  const successes = new Map();
  replay(index, (rows, states) => {
    const after = new Map();
    for (const { table, op, row } of rows) if (table === 'tasks' && op !== 'DELETE') after.set(keyOf(row), row.state);
    for (const [key, state] of after) {
      const known = byKey.get(key);
      const before = states.get(key);
      if (!known || before === state) continue;
      const { job, task } = known;
      if (state === TASK.succeeded) successes.set(key, (successes.get(key) ?? 0) + 1);
      if (successes.get(key) > 1) violateResult(`${job}/${task.name} succeeded ${successes.get(key)} times`);
      if (state !== TASK.running && state !== TASK.succeeded) continue;
      const stateOf = (name) => after.get(index.key(job, name)) ?? states.get(index.key(job, name)) ?? TASK.queued;
      for (const name of task.requires) {
        if (stateOf(name) !== TASK.succeeded)
          violateDependency(
            `${job}/${task.name} was started while ${name}, which it needs, was ${taskState(stateOf(name))}`,
          );
      }
      for (const name of task.optional) {
        if (stateOf(name) < TASK.succeeded)
          violateDependency(
            `${job}/${task.name} was started while ${name}, for which it waits, was ${taskState(stateOf(name))}`,
          );
      }
    }
  });
}

// A run without its faults proves nothing.
function faultsHit(index, violate) {
  const missed = groupBy(
    index.faults.filter((it) => it.missed),
    ({ kind }) => kind,
  );
  for (const kind of index.meta.kinds ?? []) {
    const begun = index.faults.filter((it) => it.kind === kind && it.phase === 'begin').length;
    if (begun === (missed.get(kind) ?? []).length) violate(`${kind} was planned, and has hit nobody`);
  }
  const epochs = new Set(index.audit.map(({ epoch }) => epoch)).size;
  if (index.meta.kinds?.includes('kill_coordinator') && epochs < 2) violate('nobody but the first leader has led');
}

// ---- whose fault it was ----

const WORKER_FAULTS = new Set(['kill_worker', 'stop_worker', 'freeze_worker', 'isolate_worker']);
const ALL_WORKERS_FAULTS = new Set(['isolate_leader']);
const REACH_FAULTS = new Set(['isolate_leader', 'cut_leader']); // workers cannot reach the leader
// What a worker has made can be lost, or out of reach for others, for these reasons, too.
const OUTPUT_FAULTS = new Set(['cut_workers', 'slow_workers', 'fill_disk', 'shift_clock']);

// Leases run out a while after what kept them from being renewed, and the rest of the way back takes a moment, too.
const graceOf = (index) => (index.meta.settings.lease_ms ?? 0) + 4000;
const stallsOf = (index) => index.stalls.map(({ t, ms }) => ({ from: t - ms, to: t + graceOf(index) }));

// The part of the time, from the first fault to the heal, that is excused because the driver itself did not get to run.
function stalledPart(index) {
  const [begin, end] = [index.faults[0]?.t, index.healed?.t];
  if (!(end > begin)) return 0;
  let sum = 0;
  let until = begin;
  for (const { from, to } of stallsOf(index).sort((a, b) => a.from - b.from)) {
    sum += Math.max(0, Math.min(to, end) - Math.max(from, until));
    until = Math.max(until, to);
  }
  return sum / (end - begin);
}

// Times in which a worker could not do its work or be heard: [{ worker, kind, from, to }]; worker undefined: all of them. A
// leader that is soon back in reach, or that loses its place with its reach, is no excuse.
function excuses(index) {
  const lease = index.meta.settings.lease_ms ?? 0;
  const grace = graceOf(index);
  const isShort = ({ kind, since }, t) => ALL_WORKERS_FAULTS.has(kind) && t - since < (lease * 3) / 8;
  const open = new Map();
  const reach = new Map(); // of who is out of reach: how many faults are open, and since when there has been one
  const list = stallsOf(index);
  for (const { t, kind, hit, phase } of index.faults) {
    if (REACH_FAULTS.has(kind)) {
      const { n, since } = reach.get(hit) ?? { n: 0 };
      reach.set(hit, phase === 'begin' ? { n: n + 1, since: n === 0 ? t : since } : { n: n - 1, since });
    }
    if (!WORKER_FAULTS.has(kind) && !ALL_WORKERS_FAULTS.has(kind) && !OUTPUT_FAULTS.has(kind)) continue;
    const worker = ALL_WORKERS_FAULTS.has(kind) ? undefined : hit;
    const name = `${kind} ${hit}`;
    if (phase === 'begin') {
      const excuse = { worker, kind, from: t, since: reach.get(hit)?.since ?? t, to: Infinity };
      list.push(excuse);
      if (!open.has(name)) open.set(name, []);
      open.get(name).push(excuse);
    } else {
      const excuse = open.get(name)?.shift();
      if (excuse) excuse.to = isShort(excuse, t) ? -Infinity : t + grace;
    }
  }
  return list;
}

// Whether some excuse is of that time, and of one of these workers; what lies between two is an excuse of both.
const isExcused = (list, from, to, nodes) =>
  list.some(
    ({ from: begin, to: end, worker }) =>
      begin <= to && end >= from && (worker === undefined || worker.split('-').some((node) => nodes.includes(node))),
  );

// Executions that were lost though their worker was well, and had to be done again: the coordinators are to blame. But
// exclusive tasks are given back when no coordinator can be reached before their lease is over: that is what they ask for. And
// witnesses lose attempts on purpose.
function executedAgain(index, violate) {
  const list = excuses(index).filter(({ kind }) => !OUTPUT_FAULTS.has(kind));
  let count = 0;
  for (const { job, task, plan, runs } of index.treeTasks()) {
    if (index.canceled.has(job) || plan.stops || ['exclusive', 'witness'].includes(task.does)) continue;
    const starts = runs.filter(({ what }) => what === 'start');
    for (const { key, attempt, at } of starts) {
      const row = index.attemptOf.get(key);
      const again = Math.min(...starts.filter((other) => other.attempt > attempt).map((other) => other.at));
      const hasVerdict = row?.status === OUTCOME.completed || row?.status === OUTCOME.failed;
      if (!row || hasVerdict || !Number.isFinite(again)) continue;
      const given = row.status === OUTCOME.lost ? row.changed_at_ms : again;
      if (isExcused(list, at, given, [row.node_id])) continue;
      count++;
      violate(
        `attempt ${attempt} of ${job}/${task.name} was lost on ${row.node_id}, which was well, and executed again`,
      );
    }
  }
  return count;
}

// The same for the tasks of queries, which write nothing down. What shows that one was executed: it succeeded, or was given up
// for another reason than that it never reached its worker, or came back from there untouched. One that had succeeded may run
// again only for what it left: where that was lost with its worker, or could not be fetched by another task of the query, which
// failed then. What runs again, or was given up, because its input had to be redone is as good as the reason for that, which is
// looked at in its turn.
const NEVER_RAN = new Set(['the assignment did not reach the worker', 'released']);
const INPUT_REDONE = 'its input is being redone';
const OUTPUT_LOST = 'its map output was lost';

function queriesExecutedAgain(index, violate) {
  const all = excuses(index);
  const own = all.filter(({ kind }) => !OUTPUT_FAULTS.has(kind));
  const ofJob = groupBy([...index.attempts.values()].flat(), ({ job_id }) => job_id);
  const hasLostOutput = (job) =>
    ofJob.get(job).some((row) => index.reasons.get(`${keyOf(row)}/${row.attempt_id}`) === OUTPUT_LOST);
  const readers = (job, key, from, to) =>
    ofJob
      .get(job)
      .filter((row) => row.status === OUTCOME.failed && row.changed_at_ms >= from && row.changed_at_ms <= to)
      .filter((row) => keyOf(row) !== key)
      .map(({ node_id }) => node_id);
  let count = 0;
  for (const [key, attempts] of index.attempts) {
    const { job_id } = attempts[0];
    const job = index.jobs.get(job_id);
    if (!job || job.kind === JOB_TREE || attempts.length === 1) continue;
    if (JOB_ENDS[job.state] !== 'succeeded') continue; // canceled ones are given up everywhere
    const inOrder = [...attempts].sort((a, b) => a.attempt_id - b.attempt_id);
    for (let i = 0; i + 1 < inOrder.length; i++) {
      const { attempt_id, status, node_id, created_at_ms, changed_at_ms } = inOrder[i];
      const reason = index.reasons.get(`${key}/${attempt_id}`);
      if (status === OUTCOME.failed || node_id === null) continue;
      if (status !== OUTCOME.completed && NEVER_RAN.has(reason)) continue;
      const again = inOrder[i + 1].created_at_ms;
      if (reason === INPUT_REDONE && hasLostOutput(job_id)) continue;
      const excused =
        status === OUTCOME.completed
          ? isExcused(all, changed_at_ms, again, [node_id, ...readers(job_id, key, changed_at_ms, again)])
          : isExcused(own, created_at_ms, again, [node_id]);
      if (excused) continue;
      count++;
      violate(
        `attempt ${attempt_id} of ${key} of a query ${status === OUTCOME.completed ? `had succeeded on ${node_id}` : `was lost on ${node_id}, which was well`} (${reason ?? 'no reason given'}), and was executed again`,
      );
    }
  }
  return count;
}

// A command that does what it should never fails, unless its worker's disk was full.
function falseFailures(index, violate) {
  for (const { job, task, attempts } of index.treeTasks()) {
    if (task.does !== 'ok' && task.does !== 'exclusive') continue;
    for (const { status, attempt_id, node_id, changed_at_ms } of attempts) {
      if (status !== OUTCOME.failed) continue;
      const near = index.faults.some(
        ({ kind, hit, t }) => kind === 'fill_disk' && hit === node_id && Math.abs(t - changed_at_ms) < 15000,
      );
      if (!near) violate(`attempt ${attempt_id} of ${job}/${task.name} failed on ${node_id} for no reason`);
    }
  }
}

// ---- all of it ----

export function check(history) {
  const index = new Index(history);
  const violations = [];
  const into = (property) => (what) => violations.push({ property, what });
  acknowledged(index, into('acknowledged'));
  rows(index, into('rows'));
  oneResult(index, into('one_result'));
  transitions(index, into('one_result'), into('dependencies'));
  dependencies(index, into('dependencies'));
  outcome(index, into('outcome'));
  ends(index, into('ends'));
  faultsHit(index, into('faults'));
  processes(index, into('processes'));
  commandLine(index, into('command_line'));
  attemptOnce(index, into('attempt_once'));
  exclusive(index, into('exclusive'));
  oneWriter(index, into('one_writer'));
  currentLease(index, into('current_lease'));
  falseFailures(index, into('false_failures'));
  const compared = memory(index, into('memory'));
  const stalled = stalledPart(index);
  recorded(index, { compared, stalled }, into('recorded'));
  const again =
    executedAgain(index, into('executed_again')) + queriesExecutedAgain(index, into('executed_again'));
  const jobs = [...index.jobs.values()].filter(({ job_id }) => index.plans.has(job_id));
  const kind = (wanted) => jobs.filter(({ kind: it, state }) => it === wanted && JOB_ENDS[state]).length;
  const runs = [...index.runs.values()].flat();
  return {
    violations,
    figures: {
      trees: kind(JOB_TREE),
      queries: kind(0),
      tasks: [...index.tasks.values()].filter(({ state }) => state >= TASK.succeeded).length,
      attempts: index.attemptOf.size,
      executions: runs.filter(({ what }) => what === 'start').length,
      calls: index.answers.length,
      unanswered: index.unknown.length,
      gave_up: index.unknown.filter(({ op }) => op === 'cli').length,
      stalls: index.stalls.length,
      stalled,
      epochs: new Set(index.audit.map(({ epoch }) => epoch)).size,
      transactions: new Set(index.audit.map(({ xid }) => xid)).size,
      lost: violations.filter(({ property }) => property === 'acknowledged').length,
      duplicated: violations.filter(({ property }) => property === 'one_result' || property === 'attempt_once').length,
      executed_again: again,
      reports: index.told.size,
      reports_refused: [...index.told.values()].filter(({ accepted }) => !accepted).length,
      memory: compared,
    },
  };
}

// The checker can fail: a small history that is right, and for each property histories in which one thing is wrong.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { check } from './check.js';
import { SPARING_MS, coordinators, isEnding, kinds, makePlan, settings, spared, workers } from './plan.js';
import { Random } from './random.js';

const KEY_A = 'a'.repeat(64);
const KEY_B = 'b'.repeat(64);
const KEY_C = 'c'.repeat(64);
const keys = [KEY_A, KEY_B, KEY_C];
const names = ['a', 'b', 'c'];
const tokenOf = (stage) => `0${stage}abcdefabcdefab`.repeat(2);
const columnOf = (stage) => `\\x${`abefcdabefcdab0${stage}`.repeat(2)}`;
const result = (key, saw = []) => JSON.stringify({ exit_code: 0, json: { key, saw } });

// A tree of three: b needs a, a witness did c. A query. Two leaders, one after the other.
function good() {
  const lines = [];
  let t = 1000;
  const add = (e, fields) => lines.push({ t: (t += 10), e, ...fields });
  const state = (table, row) => add('state', { table, row });
  let n = 0;
  const audit = (xid, table, op, row, who = 'c1-1', epoch = 1, at = t) =>
    add('audit', { n: ++n, xid, at, app: who, leader: who.split('-')[0], epoch, table, op, row });
  const ref = (stage) => ({ job_id: 'tree-1', stage, task: 0 });

  add('meta', { seed: 1, settings });
  const task = (name, does, requires, more) => ({ name, does, requires, optional: [], told: requires, ...more });
  add('plan', {
    job: 'tree-1',
    kind: 'tree',
    stops: false,
    tasks: [task('a', 'ok', []), task('b', 'exclusive', ['a']), task('c', 'witness', [])],
  });
  add('plan', { job: 'query-1', kind: 'query', expected: 'd1', rows: 3, sql: 'select 1' });
  for (const job of ['tree-1', 'query-1']) {
    add('invoke', { call: lines.length, op: 'submit', job });
    add('ok', { call: lines.length, op: 'submit', job });
  }
  add('ok', { op: 'status', job: 'tree-1', state: 'succeeded' });
  add('ok', { op: 'results', job: 'tree-1', results: { a: KEY_A, b: KEY_B, c: KEY_C } });
  add('ok', { op: 'rows', job: 'query-1', digest: 'd1', rows: 3 });
  add('healed', {});
  add('finished', { isDone: true, open: {} });

  state('jobs', { job_id: 'tree-1', kind: 1, state: 2 });
  state('jobs', { job_id: 'query-1', kind: 0, state: 2 });
  names.forEach((name, stage) => {
    const key = keys[stage];
    const node_id = name === 'c' ? 'z1' : 'w1';
    const base = 2000 + 1000 * stage;
    state('stages', { job_id: 'tree-1', stage, name });
    state('tasks', { ...ref(stage), state: 2, attempt_id: 1, result: result(key, name === 'b' ? [KEY_A] : []) });
    state('execution_idempotency', {
      ...ref(stage),
      attempt_id: 1,
      key,
      node_id,
      status: 2,
      created_at_ms: base - 100,
      changed_at_ms: base + 1000,
    });
    const [who, epoch] = stage === 0 ? ['c1-1', 1] : ['c2-1', 2];
    if (stage === 0) audit('1', 'jobs', 'INSERT', { job_id: 'tree-1', kind: 1, state: 0 });
    if (stage === 0) audit('1', 'task_events', 'INSERT', {});
    if (stage === 0) for (const it of [0, 1, 2]) audit('1', 'tasks', 'INSERT', { ...ref(it), state: 0, attempt_id: 0 });
    if (stage === 1) audit('9', 'cluster_leader', 'UPDATE', { node_id: 'c2', epoch: 2 }, 'c2-1', 2);
    const attempt = { ...ref(stage), attempt_id: 1, node_id };
    const lease = { ...attempt, lease_token: columnOf(stage) };
    const write = (step, at, table, op, row) => audit(`${stage}${step}`, table, op, row, who, epoch, at);
    write('a', base - 100, 'tasks', 'UPDATE', { ...ref(stage), state: 1, attempt_id: 1 });
    write('a', base - 100, 'task_leases', 'INSERT', lease);
    write('a', base - 100, 'execution_idempotency', 'INSERT', { ...attempt, status: 1 });
    write('b', base + 700, 'task_leases', 'DELETE', lease);
    write('b', base + 700, 'tasks', 'UPDATE', { ...ref(stage), state: 2, attempt_id: 1 });
    write('b', base + 700, 'execution_idempotency', 'UPDATE', { ...attempt, status: 2 });
    for (const [what, at] of [
      ['start', base],
      ['tick', base + 300],
      ['end', base + 600],
    ]) {
      add('run', { job: 'tree-1', task: name, what, key, attempt: 1, at, worker: node_id });
    }
  });
  const own = { worker: 'z1', job: 'tree-1', stage: 2, task: 0, attempt: 1, token: tokenOf(2) };
  lines.push({ t: 4000, e: 'assigned', ...own, key: KEY_C });
  lines.push({ t: 4650, e: 'report', call: 1, ...own, state: 'succeeded' });
  lines.push({ t: 4750, e: 'answer', call: 1, accepted: true, reason: '' });
  for (const [attempt_id, key] of [
    [1, 'd'],
    [2, 'e'],
  ]) {
    const at = 2000 * attempt_id;
    state('execution_idempotency', {
      job_id: 'query-1',
      stage: 1,
      task: 0,
      attempt_id,
      key: key.repeat(64),
      node_id: 'w2',
      status: attempt_id === 1 ? 4 : 2,
      created_at_ms: at,
      changed_at_ms: at + 1000,
    });
  }
  state('task_events', {
    event_type: 6,
    job_id: 'query-1',
    stage: 1,
    task: 0,
    attempt_id: 1,
    node_id: 'w2',
    details: 'the assignment did not reach the worker',
  });
  return lines;
}

const broken = (change) => {
  const history = good();
  change(history, (e, match) =>
    history.find((line) => line.e === e && Object.entries(match).every(([key, value]) => line[key] === value)),
  );
  return new Set(check(history).violations.map(({ property }) => property));
};
const rowOf = (history, table, wanted) =>
  history.find(
    ({ e, table: it, row }) =>
      e === 'state' && it === table && Object.entries(wanted).every(([key, value]) => row[key] === value),
  ).row;
const drop = (history, match) => history.splice(0, history.length, ...history.filter((line) => !match(line)));

test('a history that is right breaks nothing', () => {
  const { violations, figures } = check(good());
  assert.deepEqual(violations, []);
  assert.deepEqual(
    [figures.trees, figures.queries, figures.tasks, figures.executions, figures.epochs],
    [1, 1, 3, 3, 2],
  );
});

test('faults that were planned and hit somebody, and a command line that waited its time, break nothing', () => {
  const history = good();
  history.find(({ e }) => e === 'meta').kinds = ['kill_coordinator'];
  history.push({ t: 1, e: 'fault', kind: 'kill_coordinator', hit: 'c1', phase: 'begin' });
  history.push({ t: 1000, e: 'invoke', op: 'cli', call: 9, job: 'tree-1' });
  history.push({ t: 31000, e: 'unknown', op: 'cli', call: 9, job: 'tree-1', code: 'exit 3', why: '' });
  assert.deepEqual(check(history).violations, []);
});

// [property, what is wrong, how]
const cases = [
  [
    'acknowledged',
    'a job that was acknowledged is not there',
    (h) => drop(h, ({ e, row }) => e === 'state' && row.job_id === 'query-1'),
  ],
  ['acknowledged', 'an end that was told is another', (h) => (rowOf(h, 'jobs', { job_id: 'tree-1' }).state = 3)],
  ['acknowledged', 'an end that was told is none', (h) => (rowOf(h, 'jobs', { job_id: 'tree-1' }).state = 1)],
  ['acknowledged', 'a result that was told is another', (h, find) => (find('ok', { op: 'results' }).results.a = KEY_B)],
  ['acknowledged', 'a submit was refused', (h) => h.push({ t: 1, e: 'fail', op: 'submit', job: 'tree-1', code: 3 })],
  ['rows', 'a query brings other rows', (h, find) => (find('ok', { op: 'rows' }).digest = 'd2')],
  [
    'one_result',
    'a task has two completed attempts',
    (h) =>
      h.push({
        t: 1,
        e: 'state',
        table: 'execution_idempotency',
        row: { job_id: 'tree-1', stage: 0, task: 0, attempt_id: 2, key: 'c', node_id: 'w2', status: 2 },
      }),
  ],
  [
    'one_result',
    'the result is that of another execution',
    (h) => (rowOf(h, 'tasks', { stage: 0 }).result = result('c')),
  ],
  [
    'one_result',
    'a task succeeded without an attempt',
    (h) => (rowOf(h, 'execution_idempotency', { stage: 0 }).status = 4),
  ],
  ['one_result', 'a task that failed has a result', (h) => (rowOf(h, 'tasks', { stage: 0 }).state = 3)],
  [
    'one_result',
    'a task was told another result than the committed one',
    (h) => (rowOf(h, 'tasks', { stage: 1 }).result = result(KEY_B, ['c'])),
  ],
  [
    'one_result',
    'a task succeeds twice',
    (h) => {
      const again = h.find(({ e, table, row }) => e === 'audit' && table === 'tasks' && row.state === 2);
      h.push({ ...again, n: 100, xid: 'x', epoch: 2, app: 'c2-1', leader: 'c2', row: { ...again.row, state: 1 } });
      h.push({ ...again, n: 101, xid: 'y', epoch: 2, app: 'c2-1', leader: 'c2' });
    },
  ],
  [
    'attempt_once',
    'an attempt is executed twice',
    (h, find) => h.push({ ...find('run', { what: 'start', task: 'a' }) }),
  ],
  [
    'attempt_once',
    'something is executed that nobody has assigned',
    (h, find) => h.push({ ...find('run', { what: 'start', task: 'a' }), key: 'c' }),
  ],
  [
    'dependencies',
    'a task is executed before what it needs',
    (h, find) => (find('run', { what: 'start', task: 'b' }).at = 2500),
  ],
  [
    'dependencies',
    'a task is assigned before what it needs has succeeded',
    (h) => {
      const first = h.findIndex(({ e, xid }) => e === 'audit' && xid === '0a');
      const early = h
        .filter(({ e, xid }) => e === 'audit' && xid === '1a')
        .map((line) => ({ ...line, epoch: 1, app: 'c1-1', leader: 'c1' }));
      drop(h, ({ e, xid }) => e === 'audit' && xid === '1a');
      h.splice(first, 0, ...early);
    },
  ],
  [
    'dependencies',
    'a task is assigned before one ends for which it waits',
    (h, find) => {
      const [, b] = find('plan', { job: 'tree-1' }).tasks;
      Object.assign(b, { requires: [], told: [], optional: ['a'] });
      drop(h, ({ e, xid }) => e === 'audit' && xid === '0b');
    },
  ],
  ['outcome', 'a tree fails though nothing in it does', (h) => (rowOf(h, 'jobs', { job_id: 'tree-1' }).state = 3)],
  [
    'outcome',
    'a tree succeeds though a task must fail',
    (h, find) => (find('plan', { job: 'tree-1' }).tasks[1].does = 'fail'),
  ],
  ['outcome', 'a job is canceled and nobody asked for it', (h) => (rowOf(h, 'jobs', { job_id: 'query-1' }).state = 4)],
  ['outcome', 'a task is skipped though it should run', (h) => (rowOf(h, 'tasks', { stage: 1 }).state = 5)],
  [
    'exclusive',
    'an exclusive task runs twice at once',
    (h, find) => h.push({ ...find('run', { what: 'start', task: 'b' }), key: 'c', attempt: 2, at: 3400 }),
  ],
  ['ends', 'a job does not end', (h) => (rowOf(h, 'jobs', { job_id: 'query-1' }).state = 1)],
  ['ends', 'a task does not end', (h) => (rowOf(h, 'tasks', { stage: 1 }).state = 0)],
  [
    'ends',
    'a lease is left',
    (h) =>
      h.push({
        t: 1,
        e: 'state',
        table: 'task_leases',
        row: { job_id: 'tree-1', stage: 0, task: 0, attempt_id: 1, node_id: 'w1' },
      }),
  ],
  ['ends', 'an attempt has no outcome', (h) => (rowOf(h, 'execution_idempotency', { stage: 0 }).status = 1)],
  ['ends', 'a client still waits', (h, find) => (find('finished', {}).isDone = false)],
  ['ends', 'nothing was healed', (h) => drop(h, ({ e }) => e === 'healed')],
  ['recorded', 'nothing that was written is in it', (h) => drop(h, ({ e }) => e === 'audit')],
  [
    'recorded',
    'no epoch is in it',
    (h) => h.filter(({ e }) => e === 'audit').forEach((line) => (line.epoch = undefined)),
  ],
  ['recorded', 'a table that is followed is not in it', (h) => drop(h, ({ e, table }) => e === 'audit' && table === 'jobs')],
  ['recorded', 'all other tables are not in it', (h) => drop(h, ({ e, table }) => e === 'audit' && table === 'task_events')],
  ['processes', 'a process ended by itself', (h) => h.push({ t: 1, e: 'unexpected', what: 'c1-1 ended by itself' })],
  ['faults', 'a kind of fault is planned and never tried', (h, find) => (find('meta', {}).kinds = ['kill_worker'])],
  [
    'faults',
    'a kind of fault finds nobody to hit',
    (h, find) => {
      find('meta', {}).kinds = ['kill_worker'];
      h.push({ t: 1, e: 'fault', kind: 'kill_worker', hit: 'w1', phase: 'begin' });
      h.push({ t: 2, e: 'fault', kind: 'kill_worker', hit: 'w1', phase: 'end', missed: true });
    },
  ],
  [
    'faults',
    'coordinators are killed and none takes over',
    (h, find) => {
      find('meta', {}).kinds = ['kill_coordinator'];
      h.push({ t: 1, e: 'fault', kind: 'kill_coordinator', hit: 'c1', phase: 'begin' });
      for (const line of h.filter(({ e }) => e === 'audit')) line.epoch = 1;
    },
  ],
  [
    'command_line',
    'a command line crashes',
    (h) => h.push({ t: 1, e: 'unknown', op: 'cli', call: 9, job: 'tree-1', code: 'exit SIGSEGV', why: '' }),
  ],
  [
    'command_line',
    'a command line gives up before its time',
    (h) => {
      h.push({ t: 1000, e: 'invoke', op: 'cli', call: 9, job: 'tree-1' });
      h.push({ t: 3000, e: 'unknown', op: 'cli', call: 9, job: 'tree-1', code: 'exit 3', why: '' });
    },
  ],
  ['one_writer', 'another than the leader writes', (h, find) => (find('audit', { xid: '0b' }).app = 'c3-1')],
  [
    'one_writer',
    'another than the leader writes into a table without rows in the history',
    (h, find) => Object.assign(find('audit', { table: 'task_events' }), { app: 'c3-1', xid: 'x' }),
  ],
  [
    'one_writer',
    'two processes of one name write in one epoch',
    (h, find) => (find('audit', { xid: '1b' }).app = 'c2-2'),
  ],
  [
    'one_writer',
    'an epoch comes back',
    (h, find) => Object.assign(find('audit', { xid: '1b' }), { epoch: 1, app: 'c1-1', leader: 'c1' }),
  ],
  [
    'current_lease',
    'an outcome of an attempt is taken that has no lease',
    (h) => {
      drop(h, ({ e, xid, table, op }) => e === 'audit' && xid === '0a' && table === 'task_leases' && op === 'INSERT');
    },
  ],
  [
    'current_lease',
    'an outcome of an older attempt is taken',
    (h) => {
      h.find(({ e, xid, table }) => e === 'audit' && xid === '0a' && table === 'task_leases').row.attempt_id = 2;
    },
  ],
  [
    'current_lease',
    'an outcome comes from another worker than the one with the lease',
    (h) => {
      h.find(({ e, xid, table }) => e === 'audit' && xid === '0b' && table === 'execution_idempotency').row.node_id =
        'w2';
    },
  ],
  [
    'current_lease',
    'a task gets a second lease',
    (h) => {
      const first = h.find(({ e, table, op }) => e === 'audit' && table === 'task_leases' && op === 'INSERT');
      h.splice(h.indexOf(first) + 2, 0, { ...first, xid: 'x', row: { ...first.row, attempt_id: 2 } });
    },
  ],
  [
    'current_lease',
    'a command counts as succeeded before its execution is over',
    (h, find) => (find('run', { what: 'end', task: 'a' }).at = 2750),
  ],
  [
    'current_lease',
    'a command counts as succeeded whose execution was never over',
    (h) => drop(h, ({ e, what, task }) => e === 'run' && what === 'end' && task === 'a'),
  ],
  [
    'current_lease',
    'a command counts as succeeded that has never begun',
    (h) => drop(h, ({ e, task }) => e === 'run' && task === 'a'),
  ],
  [
    'current_lease',
    'an outcome is of another worker than the one that executed it',
    (h, find) => (find('run', { what: 'start', task: 'a' }).worker = 'w2'),
  ],
  [
    'current_lease',
    'an outcome of a witness was never reported',
    (h) => drop(h, ({ e }) => e === 'report' || e === 'answer'),
  ],
  [
    'current_lease',
    'an outcome was taken before it was reported',
    (h, find) => (find('report', { call: 1 }).t = 4800),
  ],
  [
    'current_lease',
    'an outcome was taken though its worker was told that it is refused',
    (h, find) => (find('answer', { call: 1 }).accepted = false),
  ],
  [
    'current_lease',
    'an outcome was reported under another lease than the one in the rows',
    (h, find) => {
      find('report', { call: 1 }).token = 'f'.repeat(32);
      find('assigned', {}).token = 'f'.repeat(32);
    },
  ],
  [
    'current_lease',
    'a report with a lease that nobody was given is accepted',
    (h, find) => {
      h.push({ ...find('report', { call: 1 }), call: 2, token: 'f'.repeat(32) });
      h.push({ ...find('answer', { call: 1 }), call: 2 });
    },
  ],
  [
    'current_lease',
    'a report with the lease of another worker is accepted',
    (h, find) => {
      h.push({ ...find('report', { call: 1 }), call: 2, worker: 'z2' });
      h.push({ ...find('answer', { call: 1 }), call: 2 });
    },
  ],
  [
    'current_lease',
    'a failure is accepted of an attempt that has succeeded',
    (h, find) => {
      h.push({ ...find('report', { call: 1 }), call: 2, state: 'failed' });
      h.push({ ...find('answer', { call: 1 }), call: 2 });
    },
  ],
  ['recorded', 'no witness had anything to do', (h) => drop(h, ({ e }) => e === 'answer')],
  [
    'executed_again',
    'a task of a query is lost on a worker that was well',
    (h) => (rowOf(h, 'task_events', {}).details = 'the lease expired'),
  ],
  [
    'executed_again',
    'a task of a query is lost, and nobody says why',
    (h) => drop(h, ({ e, table }) => e === 'state' && table === 'task_events'),
  ],
  [
    'executed_again',
    'a task of a query that had succeeded runs again',
    (h) => {
      rowOf(h, 'execution_idempotency', { job_id: 'query-1', attempt_id: 1 }).status = 2;
      rowOf(h, 'task_events', {}).details = 'its map output was lost';
    },
  ],
  [
    'executed_again',
    'an execution is lost on a worker that was well',
    (h, find) => {
      Object.assign(rowOf(h, 'execution_idempotency', { stage: 0 }), { status: 4 });
      h.push({ ...find('run', { what: 'start', task: 'a' }), key: 'c', attempt: 2 });
    },
  ],
  [
    'executed_again',
    'an execution is forgotten and done again',
    (h, find) => {
      Object.assign(rowOf(h, 'execution_idempotency', { stage: 0 }), { status: 1 });
      h.push({ ...find('run', { what: 'start', task: 'a' }), key: 'c', attempt: 2 });
    },
  ],
  [
    'false_failures',
    'a command fails that should not',
    (h) => {
      h.push({
        t: 1,
        e: 'state',
        table: 'execution_idempotency',
        row: {
          job_id: 'tree-1',
          stage: 0,
          task: 0,
          attempt_id: 9,
          key: 'c',
          node_id: 'w2',
          status: 3,
          changed_at_ms: 1,
        },
      });
    },
  ],
];
for (const [property, what, change] of cases) {
  test(`${property}: ${what}`, () => assert.ok(broken(change).has(property), `only ${[...broken(change)]}`));
}

test('a report under an old lease that is accepted is noticed, even if all rows agree with each other', () => {
  const properties = broken((h, find) => {
    // z1 has lost attempt 1 and reports it; the rows have nothing but attempt 2 of z2, which has not reported.
    const second = { attempt_id: 2, node_id: 'z2' };
    const token = 'f'.repeat(32);
    Object.assign(rowOf(h, 'execution_idempotency', { key: KEY_C }), second);
    rowOf(h, 'tasks', { stage: 2 }).attempt_id = 2;
    for (const { e, table, row } of h)
      if (e === 'audit' && row.stage === 2 && table !== 'tasks') Object.assign(row, second);
    for (const line of h) if (line.e === 'run' && line.task === 'c') Object.assign(line, { attempt: 2, worker: 'z2' });
    const first = { ...find('assigned', {}), token, key: 'd'.repeat(64) };
    Object.assign(find('assigned', {}), { attempt: 2, worker: 'z2' });
    h.push(first);
    const row = { job_id: 'tree-1', stage: 2, task: 0, attempt_id: 1, key: first.key, node_id: 'z1', status: 4 };
    h.push({ t: 1, e: 'state', table: 'execution_idempotency', row });
    find('report', { call: 1 }).token = token;
  });
  assert.deepEqual(properties, new Set(['current_lease']));
});

test("an execution that is lost because its worker was killed is nobody's fault", () => {
  const properties = broken((h, find) => {
    Object.assign(rowOf(h, 'execution_idempotency', { stage: 0 }), { status: 4 });
    h.push({ ...find('run', { what: 'start', task: 'a' }), key: 'c', attempt: 2 });
    h.push({ t: 2100, e: 'fault', kind: 'kill_worker', hit: 'w1', phase: 'begin' });
  });
  assert.ok(!properties.has('executed_again'));
});

test('a leader that is cut off excuses lost leases if that lasts, and only if it still leads', () => {
  for (const [kind, ms, isExcused] of [
    ['isolate_leader', 2500, true],
    ['isolate_leader', 1000, false],
    ['cut_leader', 5000, false],
  ]) {
    const properties = broken((h, find) => {
      Object.assign(rowOf(h, 'execution_idempotency', { stage: 0 }), { status: 4 });
      h.push({ ...find('run', { what: 'start', task: 'a' }), key: 'c', attempt: 2 });
      h.push({ t: 1500, e: 'fault', kind, hit: 'c1', phase: 'begin' });
      h.push({ t: 1500 + ms, e: 'fault', kind, hit: 'c1', phase: 'end' });
    });
    assert.equal(!properties.has('executed_again'), isExcused, `${kind} for ${ms} ms`);
  }
});

test('two short times in which the leader is cut off are a long one if there is nothing between them', () => {
  for (const [kind, gap, isExcused] of [
    ['isolate_leader', 0, true],
    ['cut_leader', 0, true],
    ['isolate_leader', 400, false],
  ]) {
    const properties = broken((h, find) => {
      Object.assign(rowOf(h, 'execution_idempotency', { stage: 0 }), { status: 4 });
      h.push({ ...find('run', { what: 'start', task: 'a' }), key: 'c', attempt: 2 });
      h.push({ t: 1500, e: 'fault', kind, hit: 'c1', phase: 'begin' });
      const end = { t: 2500, e: 'fault', kind, hit: 'c1', phase: 'end' };
      if (gap > 0) h.push(end);
      h.push({ t: 2400 + gap, e: 'fault', kind: 'isolate_leader', hit: 'c1', phase: 'begin' });
      if (gap === 0) h.push(end);
      h.push({ t: 3400 + gap, e: 'fault', kind: 'isolate_leader', hit: 'c1', phase: 'end' });
    });
    assert.equal(!properties.has('executed_again'), isExcused, `${kind}, ${gap} ms`);
  }
});

test('what a task of a query has made may be lost with its worker, or out of reach of one that reads it', () => {
  for (const [kind, hit, isReadBy, isExcused] of [
    ['kill_worker', 'w2', undefined, true],
    ['cut_workers', 'w1-w2', undefined, true],
    ['isolate_leader', 'c1', undefined, true],
    ['kill_worker', 'w3', undefined, false],
    ['cut_workers', 'w3-w1', undefined, false],
    ['freeze_worker', 'w3', 'w3', true],
    ['freeze_worker', 'w3', 'w1', false],
    ['kill_coordinator', 'c1', undefined, false],
  ]) {
    const properties = broken((h) => {
      const row = rowOf(h, 'execution_idempotency', { job_id: 'query-1', attempt_id: 1 });
      row.status = 2;
      rowOf(h, 'task_events', {}).details = 'its map output was lost';
      h.push({ t: 3500, e: 'fault', kind, hit, phase: 'begin' });
      const reader = { ...row, stage: 2, key: 'f'.repeat(64), node_id: isReadBy, status: 3, changed_at_ms: 3600 };
      if (isReadBy) h.push({ t: 1, e: 'state', table: 'execution_idempotency', row: reader });
    });
    assert.equal(!properties.has('executed_again'), isExcused, `${kind} ${hit}, read by ${isReadBy}`);
  }
});

test('what is redone with its input is as good as the reason for that', () => {
  for (const [reason, isExcused] of [
    ['its map output was lost', true],
    ['the lease expired', false],
  ]) {
    const properties = broken((h) => {
      const row = rowOf(h, 'execution_idempotency', { job_id: 'query-1', attempt_id: 1 });
      const event = rowOf(h, 'task_events', {});
      event.details = 'its input is being redone';
      const map = { ...row, stage: 0, key: 'f'.repeat(64) };
      h.push({ t: 1, e: 'state', table: 'execution_idempotency', row: map });
      h.push({ t: 1, e: 'state', table: 'task_events', row: { ...event, stage: 0, details: reason } });
    });
    assert.equal(!properties.has('executed_again'), isExcused, reason);
  }
});

test('a report whose answer was lost, and that is refused when it comes again, was taken the first time', () => {
  const properties = broken((h, find) => {
    h.push({ ...find('report', { call: 1 }), t: 4900, call: 2 });
    h.push({ t: 4910, e: 'answer', call: 2, accepted: false, reason: 'stale attempt' });
    drop(h, ({ e, call }) => e === 'answer' && call === 1);
  });
  assert.ok(!properties.has('current_lease'));
});

// What is said to be missing from the history.
const missing = (history) =>
  check(history)
    .violations.filter(({ property }) => property === 'recorded')
    .map(({ what }) => what);

// A long run in which the driver stands still for two seconds every so often; each time is told twice, and counts once.
function stalling(everyMs, minutes = 20) {
  const history = good();
  history.find(({ e }) => e === 'meta').minutes = minutes;
  const end = 1000 + minutes * 60000;
  history.push({ t: 1000, e: 'fault', kind: 'kill_worker', hit: 'w1', phase: 'begin' });
  history.find(({ e }) => e === 'healed').t = end;
  for (let t = 1000 + everyMs; t < end; t += everyMs)
    for (const at of [t, t + 1]) history.push({ t: at, e: 'stall', ms: 2000 });
  return history;
}

test('recorded: a driver that stands still most of the time is noticed, in a long run', () => {
  assert.match(missing(stalling(15000)).join(), /stood still so often that 6\d % of the time/); // of ten in fifteen seconds
  assert.match(missing(stalling(3000)).join(), /stood still so often that 100 % of the time/); // it is never more
  assert.doesNotMatch(missing(stalling(30000)).join(), /stood still/);
  assert.doesNotMatch(missing(stalling(3000, 1)).join(), /stood still/);
  assert.ok(Math.abs(check(stalling(30000)).figures.stalled - 1 / 3) < 0.01);
  assert.equal(check(good()).figures.stalled, 0);
});

// An hour of samples, every five seconds: c3 and w3 live all the time, c1 and w1 are started again every half minute.
function samples(rssOf, { minutes, but } = {}) {
  const history = good();
  if (minutes) history.find(({ e }) => e === 'meta').minutes = minutes;
  for (let at = 0; at < 3600000; at += 5000) {
    for (const [name, life] of [
      ['c3', Infinity],
      ['w3', Infinity],
      ['c1', 30000],
      ['w1', 30000],
    ]) {
      if (name === but) continue;
      const age = Number.isFinite(life) ? at % life : at;
      const incarnation = Number.isFinite(life) ? 1 + Math.floor(at / life) : 1;
      history.push({ t: at, e: 'memory', name, incarnation, age, rss: Math.round(rssOf(name, at, age) * 2 ** 20) });
    }
  }
  const { violations, figures } = check(history);
  return {
    violations: violations.filter(({ property }) => property === 'memory').map(({ what }) => what),
    compared: figures.memory,
    missing: missing(history).filter((what) => what.startsWith('the memory of')),
  };
}
const noise = new Random(3);

test('memory that grows at first, swings and has peaks is flat', () => {
  const warm = (age) => 30 * (1 - Math.exp(-age / 120000));
  const { violations, compared } = samples((name, at, age) => {
    const swing = name[0] === 'w' ? noise.int(0, 90) : noise.int(0, 12);
    return (name[0] === 'w' ? 120 : 40) + warm(age) + swing + (noise.chance(0.05) ? 200 : 0);
  });
  assert.deepEqual(violations, []);
  assert.deepEqual(compared.map(({ who }) => who).sort(), ['c3-1', 'new coordinators', 'new workers', 'w3-1']);
});

test('memory: a coordinator, or a worker, that leaks is noticed', () => {
  for (const [who, perMinute] of [
    ['c3', 1.5],
    ['w3', 6],
  ]) {
    const { violations } = samples((name, at) => 60 + noise.int(0, 10) + (name === who ? (perMinute * at) / 60000 : 0));
    assert.equal(violations.length, 1, violations.join('\n'));
    assert.match(violations[0], new RegExp(`^${who}-1: `));
  }
});

test('memory: what grows from one process to the next is noticed', () => {
  const { violations } = samples((name, at) => 60 + noise.int(0, 10) + (name === 'c1' ? (1.5 * at) / 60000 : 0));
  assert.deepEqual(
    violations.map((what) => what.split(':')[0]),
    ['new coordinators'],
  );
});

test('recorded: a long run in which the memory of somebody who should live was not compared is noticed', () => {
  const flat = () => 60;
  assert.deepEqual(samples(flat, { minutes: 60 }).missing, []);
  for (const but of spared) {
    const [what, ...more] = samples(flat, { minutes: 60, but }).missing;
    assert.match(what, new RegExp(`^the memory of ${but}, `));
    assert.deepEqual(more, []);
    assert.deepEqual(samples(flat, { minutes: 2, but }).missing, [], 'a short run compares nothing');
  }
});

test('a long run never ends those that are to live through it', () => {
  for (const step of makePlan(3, SPARING_MS)) if (isEnding(step.kind)) assert.ok(!spared.includes(step.target));
  assert.ok(makePlan(3, SPARING_MS - 1).some((step) => isEnding(step.kind) && spared.includes(step.target)));
});

test('a command may fail on a worker whose disk is full', () => {
  const properties = broken((h) => {
    h.push({
      t: 1,
      e: 'state',
      table: 'execution_idempotency',
      row: {
        job_id: 'tree-1',
        stage: 0,
        task: 0,
        attempt_id: 9,
        key: 'c',
        node_id: 'w4',
        status: 3,
        changed_at_ms: 5000,
      },
    });
    h.push({ t: 4000, e: 'fault', kind: 'fill_disk', hit: 'w4', phase: 'begin' });
  });
  assert.ok(!properties.has('false_failures'));
});

test('a job that was canceled may have ended as it would have, or as canceled', () => {
  for (const end of [2, 4]) {
    const properties = broken((h) => {
      rowOf(h, 'jobs', { job_id: 'query-1' }).state = end;
      h.push({ t: 1, e: 'invoke', op: 'cancel', job: 'query-1' });
    });
    assert.ok(!properties.has('outcome'), `${end}`);
  }
});

test('the same seed makes the same plan, another seed another', () => {
  assert.deepEqual(makePlan(7, 60000), makePlan(7, 60000));
  assert.notDeepEqual(makePlan(7, 60000), makePlan(8, 60000));
});

test('a plan of a minute has every kind of fault, in the order of time, at targets that exist', () => {
  for (let seed = 0; seed < 50; seed++) {
    const plan = makePlan(seed, 60000);
    assert.deepEqual(new Set(plan.map(({ kind }) => kind)), new Set(Object.keys(kinds)), `seed ${seed}`);
    const times = plan.map(({ at_ms }) => at_ms);
    assert.deepEqual(
      times,
      [...times].sort((a, b) => a - b),
    );
    const names = ['leader', 'database', ...coordinators, ...workers];
    for (const { target } of plan) for (const name of target.split('-')) assert.ok(names.includes(name), target);
  }
});

test('what one part of the driver draws does not depend on what another has drawn', () => {
  const one = new Random(5);
  const other = new Random(5);
  const fork = one.fork('a');
  for (let i = 0; i < 10; i++) fork.next();
  assert.equal(one.next(), other.next());
  assert.notEqual(one.fork('a').next(), one.fork('b').next());
});

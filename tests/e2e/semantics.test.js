// The rules of docs/semantics.md, one by one, as clients and workers see them.
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import {
  assert,
  command,
  grpcStatus,
  isAlive,
  isSoak,
  scenario,
  scenarioWithEachStore,
  sleep,
  until,
} from './harness.js';

const fails = (name, more = {}) => command(name, 'echo no >&2; exit 3', more);

// ---- retries ----

scenarioWithEachStore('a failed attempt is tried again after a backoff that doubles', async (world, store) => {
  const cluster = await world.cluster({ store, workers: 3, settings: { retry_backoff_base_ms: 200 } });
  const { id, state, message, tasks } = await cluster.run([
    fails('bad', { retry: { max_attempts: 4, backoff_ms: 200 } }),
  ]);
  assert.equal(state, 'failed');
  assert.equal(message, "task 'bad' failed in attempt 4: exit code 3: no");
  assert.equal(tasks.bad.failures, 4);
  assert.equal(tasks.bad.message, 'exit code 3: no');
  const events = (await cluster.events(id)).filter(
    ({ ref, type }) => ref.attempt > 0 && ['assigned', 'failed'].includes(type),
  );
  assert.deepEqual(
    events.map(({ type, ref }) => `${type} ${ref.attempt}`),
    [1, 2, 3, 4].flatMap((n) => [`assigned ${n}`, `failed ${n}`]),
  );
  const failed = events.filter(({ type }) => type === 'failed');
  const assigned = events.filter(({ type }) => type === 'assigned');
  for (let i = 0; i < 3; i++) {
    const waited = assigned[i + 1].at_ms - failed[i].at_ms;
    const least = 200 * 2 ** i * 0.8;
    assert.ok(waited >= least - 1, `before attempt ${i + 2} it waited ${waited} ms, at least ${least}`);
  }
  assert.equal(JSON.parse(failed[0].details).message, 'exit code 3: no');
});

scenario('a task succeeds in its third attempt, on workers where it did not fail before', async (world) => {
  const cluster = await world.cluster({ workers: 3, settings: { retry_backoff_base_ms: 5 } });
  const file = path.join(world.folder(), 'runs');
  const { id, state, tasks } = await cluster.run([command('third', `echo x >>${file}; [ $(wc -l <${file}) -eq 3 ]`)]);
  assert.equal(state, 'succeeded');
  assert.equal(tasks.third.attempt, 3);
  assert.equal(tasks.third.failures, 2);
  const workers = (await cluster.events(id))
    .filter(({ type }) => type === 'assigned')
    .map(({ worker_id }) => worker_id);
  assert.equal(new Set(workers).size, 3, workers.join());
});

scenario(
  'an exit code in no_retry_exit_codes and a signal of its own mean no further attempt, or one',
  async (world) => {
    const cluster = await world.cluster({ workers: 1, settings: { retry_backoff_base_ms: 5, max_task_attempts: 2 } });
    const { tasks } = await cluster.run([
      command('final', 'exit 64', { inputs: { no_retry_exit_codes: [64, 65] } }),
      command('killed', 'kill -9 $$'),
    ]);
    assert.equal(tasks.final.failures, 1);
    assert.equal(tasks.final.attempt, 1);
    assert.match(tasks.final.message, /exit code 64/);
    assert.equal(tasks.killed.failures, 2);
    assert.match(tasks.killed.message, /signal 9/);
  },
);

scenario('timeout_ms ends a command that ignores SIGTERM, with its children', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: { kill_grace_ms: 300 } });
  const file = path.join(world.folder(), 'pid');
  const script = `trap '' TERM; sleep 1000 & echo $! >${file}; while :; do sleep 0.1; done`;
  const { state, tasks } = await cluster.run([
    command('stubborn', script, { timeout_ms: 4000, retry: { max_attempts: 1 } }),
  ]);
  assert.equal(state, 'failed');
  assert.equal(tasks.stubborn.message.split('\n')[0].split(':')[0], 'timed out after 4000 ms');
  const took = tasks.stubborn.finished - tasks.stubborn.started;
  assert.ok(took >= 4000, `${took} ms`);
  const pid = fs.readFileSync(file, 'utf8').trim();
  await until('the child has gone', () => !isAlive(pid));
});

// ---- blacklist ----

scenarioWithEachStore(
  'a worker on which three tasks fail is blacklisted, gets nothing, and is let in again',
  async (world, store) => {
    const settings = { blacklist_ttl_ms: 6000, max_task_attempts: 1 };
    const cluster = await world.cluster({ store, workers: 1, settings });
    for (let i = 0; i < 3; i++) assert.equal((await cluster.run([fails('bad')])).state, 'failed');
    const { w1 } = await cluster.nodes();
    assert.equal(w1.blacklisted, true);
    const id = await cluster.submit([sleep('later', 1)]);
    const reason = await until('it waits', async () => (await cluster.why(id))[0]);
    assert.equal(reason, 'all 1 matching workers are blacklisted');
    const human = (await cluster.cli(['nodes'])).stdout;
    assert.match(human, /blacklisted/);
    assert.equal((await cluster.end(id)).state, 'succeeded');
    const events = (await cluster.events()).filter(({ worker_id }) => worker_id === 'w1');
    const at = (type) => events.find((event) => event.type === type)?.at_ms;
    assert.ok(at('cleared') - at('blacklisted') >= 6000, `${at('blacklisted')} ${at('cleared')}`);
    assert.equal((await cluster.nodes()).w1.failures, 0);
  },
);

scenario('a blacklisting survives the coordinator and ends by hand', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: { max_task_attempts: 1 } });
  for (let i = 0; i < 3; i++) await cluster.run([fails('bad')]);
  await cluster.coordinator.kill();
  await cluster.startCoordinator();
  assert.equal((await cluster.nodes()).w1.blacklisted, true);
  const id = await cluster.submit([sleep('later', 1)]);
  assert.equal((await cluster.cli(['node', 'clear', 'w1'])).code, 0);
  assert.equal((await cluster.end(id)).state, 'succeeded');
});

scenario('one poison job does not blacklist a fleet', async (world) => {
  const cluster = await world.cluster({
    workers: 3,
    slots: 1,
    settings: { retry_backoff_base_ms: 1, max_task_attempts: 9 },
  });
  const { state, tasks } = await cluster.run([fails('poison')]);
  assert.equal(state, 'failed');
  assert.equal(tasks.poison.failures, 9);
  const nodes = Object.values(await cluster.nodes());
  assert.deepEqual(
    nodes.map(({ blacklisted }) => blacklisted),
    [false, false, false],
  );
  assert.equal(
    nodes.reduce((sum, { failures }) => sum + failures, 0),
    1,
    'only the first failure counts',
  );
});

// ---- capabilities and placement ----

scenario('tasks go to the workers that have their operators', async (world) => {
  const cluster = await world.cluster();
  const operators = { red: ['dye_red', 'wash'], blue: ['dye_blue', 'wash'], both: ['dye_red', 'dye_blue'] };
  for (const [id, list] of Object.entries(operators)) await cluster.startJsWorker({ id, operators: list, slots: 1 });
  const needs = (name, ops, at) => ({
    name: `${name}${at}`,
    executor: 'sleep',
    inputs: { ms: 5 },
    required_custom_ops: ops,
  });
  const list = Array.from({ length: 10 }, (_, at) => [
    needs('red', ['dye_red'], at),
    needs('washblue', ['wash', 'dye_blue'], at),
    needs('all', ['dye_blue', 'dye_red'], at),
    needs('washred', ['wash', 'dye_red'], at),
    needs('any', [], at),
  ]).flat();
  const { state, tasks } = await cluster.run(list);
  assert.equal(state, 'succeeded');
  for (const { name, worker } of Object.values(tasks)) {
    if (name.startsWith('red')) assert.ok(['red', 'both'].includes(worker), `${name} on ${worker}`);
    if (name.startsWith('washblue')) assert.equal(worker, 'blue');
    if (name.startsWith('washred')) assert.equal(worker, 'red');
    if (name.startsWith('all')) assert.equal(worker, 'both');
  }
  const id = await cluster.submit([needs('x', ['dye_green'], 0)]);
  assert.deepEqual(await until('a reason', () => cluster.why(id)), ["no live worker advertises operator 'dye_green'"]);
  assert.deepEqual(
    await cluster.json('nodes', '--operator', 'wash').then(({ nodes }) => nodes.map(({ worker_id }) => worker_id)),
    ['blue', 'red'],
  );
  await cluster.startJsWorker({ id: 'green', operators: ['dye_green'], slots: 1 });
  assert.equal((await cluster.end(id)).state, 'succeeded');
});

scenario('an operator that is missing at execution costs nothing and is not asked for there again', async (world) => {
  // A heartbeat advertises the operator again, so none comes in between.
  const rare = { heartbeat_interval_ms: 60000, lease_ms: 200000, worker_liveness_timeout_ms: 200000 };
  const cluster = await world.cluster({ settings: { retry_backoff_base_ms: 1, ...rare } });
  // This worker says that it has the operator, and finds out that it does not.
  const broken = () => {
    throw new Error("custom physical operator 'dye' is not registered on worker");
  };
  await cluster.startJsWorker({ id: 'liar', operators: ['dye'], executors: { paint: broken }, slots: 1 });
  const id = await cluster.submit([
    { name: 'paint', executor: 'paint', required_custom_ops: ['dye'], retry: { max_attempts: 1 } },
  ]);
  // The worker is idle and alive, and still the task waits: nobody has the operator any more.
  await until('nobody is asked', async () =>
    (await cluster.why(id)).includes("no live worker advertises operator 'dye'"),
  );
  const { liar } = await cluster.nodes();
  assert.deepEqual([liar.status, liar.running_tasks, liar.custom_operator_capabilities], ['healthy', 0, []]);
  assert.deepEqual((await cluster.json('nodes', '--operator', 'dye')).nodes, []);
  await cluster.startJsWorker({ id: 'honest', operators: ['dye'], executors: { paint: () => 'red' }, slots: 1 });
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const { paint } = await cluster.tasks(id);
  assert.equal(paint.worker, 'honest');
  assert.equal(paint.failures, 0);
  const assigned = (await cluster.events(id)).filter(({ type }) => type === 'assigned');
  assert.deepEqual(
    assigned.map(({ worker_id }) => worker_id),
    ['liar', 'honest'],
  );
});

scenario('placement: capabilities, executors, allowed and forbidden nodes', async (world) => {
  const cluster = await world.cluster();
  await cluster.startWorker({
    id: 'a',
    args: ['--capability', 'gpu=nvidia', '--capability', 'cpu_cores=4', '--label', 'ml', '--label', 'eu'],
  });
  await cluster.startWorker({
    id: 'b',
    args: ['--capability', 'gpu=amd', '--capability', 'cpu_cores=16', '--label', 'eu'],
  });
  await cluster.startWorker({ id: 'c', args: ['--capability', 'cpu_cores=8', '--executors', 'sleep'] });
  const rules = {
    gpu: [{ requires_capabilities: { gpu: 'nvidia' } }, 'a'],
    cores: [{ requires_capabilities: { cpu_cores: '>=8' } }, 'bc'],
    exact: [{ requires_capabilities: { cpu_cores: 4 } }, 'a'],
    label: [{ requires_capabilities: { labels: 'eu' } }, 'ab'],
    two: [{ requires_capabilities: { labels: 'eu', cpu_cores: '>=10' } }, 'b'],
    executor: [{ requires_executors: ['docker', 'command'] }, 'ab'],
    allowed: [{ allowed_nodes: ['c', 'nowhere'] }, 'c'],
    forbidden: [{ forbidden_nodes: ['a', 'b'] }, 'c'],
    wins: [{ allowed_nodes: ['a', 'b'], forbidden_nodes: ['a'] }, 'b'],
    empty: [{ allowed_nodes: [], forbidden_nodes: [], requires_executors: [], requires_capabilities: {} }, 'abc'],
  };
  const tree = Object.entries(rules).flatMap(([name, [placement]]) =>
    Array.from({ length: 6 }, (_, i) => sleep(`${name}_${i}`, 3, { placement })),
  );
  const { state, tasks } = await cluster.run(tree);
  assert.equal(state, 'succeeded');
  for (const { name, worker } of Object.values(tasks)) {
    const [, fits] = rules[name.split('_')[0]];
    assert.ok(fits.includes(worker), `${name} ran on ${worker}, not on one of ${fits}`);
  }
  const never = {
    'placement: requires_capabilities gpu=intel matches 0 of 3 live workers': {
      requires_capabilities: { gpu: 'intel' },
    },
    'placement: requires_capabilities cpu_cores=>=64 matches 0 of 3 live workers': {
      requires_capabilities: { cpu_cores: '>=64' },
    },
    'placement: requires_executors docker matches 0 of 3 live workers': { requires_executors: ['docker'] },
    'placement: allowed_nodes matches 0 of 3 live workers': { allowed_nodes: ['z'] },
    'placement: forbidden_nodes matches 0 of 3 live workers': { forbidden_nodes: ['a', 'b', 'c'] },
  };
  for (const [reason, placement] of Object.entries(never)) {
    const id = await cluster.submit([sleep('never', 1, { placement })]);
    assert.deepEqual(await until('a reason', () => cluster.why(id)), [reason]);
    await cluster.client.cancel(id);
  }
  const names = async (...args) =>
    (await cluster.json('nodes', ...args)).nodes.map(({ worker_id }) => worker_id).join('');
  assert.equal(await names('--capability', 'gpu=nvidia'), 'a');
  assert.equal(await names('--capability', 'labels=eu'), 'ab');
  assert.equal(await names('--executor', 'command'), 'ab');
});

// ---- limits ----

// The greatest number of attempts that ran at the same time, by what `key` says.
async function peak(cluster, id, key) {
  const running = new Map();
  let most = 0;
  for (const event of await cluster.events(id)) {
    if (event.ref.attempt === 0) continue;
    const at = key(event);
    if (event.type === 'assigned') running.set(at, (running.get(at) ?? 0) + 1);
    if (event.type === 'completed') running.set(at, running.get(at) - 1);
    most = Math.max(most, ...running.values());
  }
  return most;
}
const fan = (n, ms, more = {}) => Array.from({ length: n }, (_, i) => sleep(`t${i}`, ms, more));

scenario('limits: per worker, per query and per node', async (world) => {
  const settings = { max_concurrent_tasks_per_worker: 3, max_concurrent_tasks_per_query: 5 };
  const cluster = await world.cluster({ settings, workers: 2, slots: 8 });
  const wide = await cluster.run(fan(30, 150));
  assert.equal(wide.state, 'succeeded');
  assert.equal(await peak(cluster, wide.id, ({ worker_id }) => worker_id), 3, 'per worker');
  assert.equal(await peak(cluster, wide.id, () => 'all'), 5, 'per query');
  const placed = await cluster.run(fan(12, 30, { placement: { max_parallel_per_node: 1 } }));
  assert.equal(placed.state, 'succeeded');
  assert.equal(await peak(cluster, placed.id, ({ worker_id }) => worker_id), 1, 'per node');
});

scenario('a job at its limit says so, and does not stand in the way of another', async (world) => {
  const cluster = await world.cluster({ settings: { max_concurrent_tasks_per_query: 1 }, workers: 1, slots: 4 });
  const greedy = await cluster.submit(fan(3, 1000000));
  await cluster.reaches(greedy, 't0', 'running');
  const reasons = await until('it waits', async () =>
    (await cluster.why(greedy)).find((reason) => /limit/.test(reason)),
  );
  assert.equal(reasons, 'query limit 1 reached');
  assert.equal((await cluster.run([sleep('other', 1)])).state, 'succeeded');
  await cluster.client.cancel(greedy);
});

scenario('a full cluster says so', async (world) => {
  const cluster = await world.cluster({ workers: 2, slots: 1 });
  const id = await cluster.submit(fan(3, 1000000));
  await until(
    'two run',
    async () => Object.values(await cluster.tasks(id)).filter(({ state }) => state === 'running').length === 2,
  );
  assert.deepEqual(await cluster.why(id), ['all 2 matching workers are full']);
});

scenario('an urgent job overtakes the others, also with priority 0', async (world) => {
  const cluster = await world.cluster({ workers: 1, slots: 1 });
  const go = path.join(world.folder(), 'go');
  const block = await cluster.submit([command('block', `until [ -e ${go} ]; do sleep 0.02; done`)]);
  await cluster.reaches(block, 'block', 'running');
  const ids = {};
  for (const priority of [3, 2, 1, 0]) ids[priority] = await cluster.submit({ priority, tasks: [sleep('t', 1)] });
  fs.writeFileSync(go, '');
  for (const id of Object.values(ids)) await cluster.end(id);
  const order = (await cluster.events())
    .filter(({ type, ref }) => type === 'assigned' && ref.query_id !== block)
    .map(({ ref }) => ref.query_id);
  assert.deepEqual(order, [ids[0], ids[1], ids[2], ids[3]]);
});

// ---- cancel ----

scenarioWithEachStore(
  'cancel kills a running sleep 1000 and its children within 2 s, also on a full worker',
  async (world, store) => {
    const cluster = await world.cluster({ store, workers: 1, slots: 2 });
    const dir = world.folder();
    const script = (n) => `sleep 1000 & echo $! $$ >${dir}/${n}; (sleep 1000 & echo $! >${dir}/${n}b; wait); wait`;
    const pids = (file) => fs.readFileSync(file, 'utf8').trim().split(' ');
    const alive = (name) => [...pids(`${dir}/${name}`), ...pids(`${dir}/${name}b`)].filter(isAlive);
    const isWritten = (file) => fs.existsSync(file) && fs.readFileSync(file, 'utf8').endsWith('\n');
    const start = async (name) => {
      const id = await cluster.submit([command('t', script(name))]);
      await until(`${name} runs`, () => isWritten(`${dir}/${name}`) && isWritten(`${dir}/${name}b`));
      return id;
    };
    const other = await start('other');
    // What a busy machine adds is not the cluster's: the best of three counts.
    let took = Infinity;
    for (let i = 0; i < 3 && took >= 2000; i++) {
      const id = await start(`a${i}`);
      assert.equal(alive(`a${i}`).length, 3);
      const started = Date.now();
      await cluster.client.cancel(id, 'not wanted any more');
      await until('all of it has gone', () => alive(`a${i}`).length === 0);
      took = Date.now() - started;
      const status = await cluster.end(id);
      assert.equal(status.state, 'canceled');
      assert.match(status.message, /not wanted any more/);
      assert.equal((await cluster.tasks(id)).t.state, 'canceled');
      await until('its slot is free', async () => (await cluster.nodes()).w1.running_tasks === 1);
    }
    assert.ok(took < 2000, `${took} ms`);
    assert.equal(alive('other').length, 3, 'the other job goes on');
    assert.equal((await cluster.run([sleep('next', 1)])).state, 'succeeded');
    await cluster.client.cancel(other);
    await until('all of the other has gone', () => alive('other').length === 0);
  },
);

scenario('a canceled job stays canceled, and what was queued in it never starts', async (world) => {
  const cluster = await world.cluster({ workers: 1, slots: 1 });
  const file = path.join(world.folder(), 'started');
  const id = await cluster.submit([
    sleep('a', 100000),
    command('b', `touch ${file}`, { depends_on: ['a'] }),
    command('c', `touch ${file}`),
  ]);
  await cluster.reaches(id, 'a', 'running');
  assert.equal((await cluster.json('cancel', id)).state, 'canceled');
  assert.equal((await cluster.json('cancel', id)).state, 'canceled', 'again');
  assert.deepEqual(
    Object.values(await cluster.tasks(id)).map(({ state }) => state),
    ['canceled', 'canceled', 'canceled'],
  );
  assert.equal((await cluster.run([sleep('other', 1)])).state, 'succeeded');
  assert.ok(!fs.existsSync(file));
});

// ---- dependencies ----

scenario('dependents of a failure are skipped, other branches and optional dependents go on', async (world) => {
  const cluster = await world.cluster({ workers: 2, settings: { max_task_attempts: 1 } });
  const { state, tasks } = await cluster.run([
    fails('bad'),
    sleep('needs', 1, { depends_on: ['bad'] }),
    sleep('needs_too', 1, { depends_on: ['needs'] }),
    command('looks', 'cat', {
      depends_on: [{ task: 'bad', required: false }, 'good'],
      inputs: { stdin: '${results.bad} ${results.good.json}' },
    }),
    command('waits', 'echo ok', { depends_on: [{ task: 'needs', required: false }] }),
    command('good', 'echo 5'),
    sleep('far', 1, { depends_on: ['good'] }),
  ]);
  assert.equal(state, 'failed');
  const states = Object.fromEntries(Object.values(tasks).map(({ name, state: is }) => [name, is]));
  assert.deepEqual(states, {
    bad: 'failed',
    needs: 'skipped',
    needs_too: 'skipped',
    looks: 'succeeded',
    waits: 'succeeded',
    good: 'succeeded',
    far: 'succeeded',
  });
  assert.equal(tasks.looks.result.stdout, 'null 5');
});

scenario('on_failure stop cancels the rest at once', async (world) => {
  const cluster = await world.cluster({ workers: 2, slots: 4, settings: { max_task_attempts: 1 } });
  const started = Date.now();
  const { state, tasks } = await cluster.run({
    on_failure: 'stop',
    tasks: [
      command('bad', 'sleep 0.3; exit 1'),
      sleep('long', 1000000),
      sleep('after', 1, { depends_on: ['long'] }),
      sleep('needs', 1, { depends_on: ['bad'] }),
    ],
  });
  assert.equal(state, 'failed');
  assert.equal(tasks.long.state, 'canceled');
  assert.equal(tasks.after.state, 'canceled');
  assert.ok(['canceled', 'skipped'].includes(tasks.needs.state), tasks.needs.state);
  assert.ok(Date.now() - started < 20000);
  await until('the slots are free', async () =>
    Object.values(await cluster.nodes()).every(({ running_tasks }) => running_tasks === 0),
  );
});

scenarioWithEachStore(
  'retry runs what failed and what was skipped, and retry --from a task and all that depend on it',
  async (world, store) => {
    const cluster = await world.cluster({ store, workers: 1, settings: { max_task_attempts: 1 } });
    const dir = world.folder();
    const note = (name, more) =>
      command(
        name,
        `echo x >>${dir}/${name}; [ ${name} != shaky ] || [ -e ${dir}/mended ]; cat ${dir}/${name} | wc -l`,
        more,
      );
    const runs = () =>
      Object.fromEntries(
        fs
          .readdirSync(dir)
          .filter((name) => name !== 'mended')
          .map((name) => [name, fs.readFileSync(`${dir}/${name}`, 'utf8').length / 2]),
      );
    const { id, state } = await cluster.run([
      note('first'),
      command('shaky', `echo x >>${dir}/shaky; [ -e ${dir}/mended ]`, { depends_on: ['first'] }),
      note('last', { depends_on: ['shaky'] }),
      note('side', { depends_on: ['first'] }),
    ]);
    assert.equal(state, 'failed');
    assert.deepEqual(runs(), { first: 1, shaky: 1, side: 1 });
    fs.writeFileSync(`${dir}/mended`, '');
    const retried = await cluster.json('retry', id);
    assert.ok(['queued', 'running'].includes(retried.state), retried.state);
    assert.equal((await cluster.end(id)).state, 'succeeded');
    assert.deepEqual(runs(), { first: 1, shaky: 2, last: 1, side: 1 });
    await cluster.json('retry', id, '--from', 'shaky');
    assert.equal((await cluster.end(id)).state, 'succeeded');
    assert.deepEqual(runs(), { first: 1, shaky: 3, last: 2, side: 1 });
    const types = (await cluster.events(id)).map(({ type }) => type);
    assert.equal(types.filter((type) => type === 'retried').length, 2);
    const wrong = await cluster.cli(['retry', id, '--from', 'nobody']);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /nobody/);
  },
);

// ---- identity ----

scenarioWithEachStore(
  'submitting again yields the same job: by id and by key, also after its end and a restart',
  async (world, store) => {
    const cluster = await world.cluster({ store, workers: 1, settings: { leader_ttl_ms: 1000 } });
    const file = path.join(world.folder(), 'runs');
    const tree = { tasks: [command('once', `echo x >>${file}`)] };
    const submit = (id, key, more = {}) =>
      cluster.client.call('SubmitTasks', {
        job_id: id,
        tree_json: Buffer.from(JSON.stringify({ ...tree, ...more })),
        idempotency_key: key,
      });
    const first = await submit('job-1', 'key-1');
    assert.deepEqual([first.job_id, first.existed], ['job-1', false]);
    assert.deepEqual(
      [(await submit('job-1', 'key-1')).job_id, (await submit('job-1', 'key-1')).existed],
      ['job-1', true],
    );
    assert.equal((await cluster.end('job-1')).state, 'succeeded');
    const again = await submit('job-1', '');
    assert.deepEqual([again.existed, again.state], [true, 'QUERY_STATE_SUCCEEDED']);
    assert.equal((await submit('job-2', 'key-1')).job_id, 'job-1');
    assert.equal((await submit('', 'key-1')).job_id, 'job-1');
    await assert.rejects(submit('job-1', '', { name: 'other' }), { code: grpcStatus.ALREADY_EXISTS });
    await cluster.coordinator.kill();
    await cluster.startCoordinator();
    assert.deepEqual([(await submit('job-1', '')).existed, (await submit('', 'key-1')).job_id], [true, 'job-1']);
    const many = await Promise.all(Array.from({ length: 20 }, () => submit('', 'key-2')));
    assert.equal(new Set(many.map(({ job_id }) => job_id)).size, 1);
    await cluster.end(many[0].job_id);
    assert.equal(fs.readFileSync(file, 'utf8'), 'x\nx\n');
  },
);

scenario('a command sees a key for its attempt and one for its task', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: { retry_backoff_base_ms: 1 } });
  const file = path.join(world.folder(), 'keys');
  await cluster.run([
    command('a', `echo $CAPSTAN_TASK_KEY $CAPSTAN_IDEMPOTENCY_KEY >>${file}; [ $(wc -l <${file}) -eq 2 ]`),
  ]);
  const [first, second] = fs
    .readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' '));
  assert.match(first[1], /^[0-9a-f]{64}$/);
  assert.equal(first[0], second[0]);
  assert.notEqual(first[1], second[1]);
});

scenario(
  'the http executor sends the task key, fills in templates, and knows what is worth another try',
  async (world) => {
    const cluster = await world.cluster({ workers: 1, settings: { retry_backoff_base_ms: 1 } });
    const seen = [];
    const server = http.createServer((request, response) => {
      let body = '';
      request
        .on('data', (text) => (body += text))
        .on('end', () => {
          seen.push({ url: request.url, method: request.method, key: request.headers['idempotency-key'], body });
          const times = seen.filter(({ url }) => url === request.url).length;
          const status = { '/flaky': times < 3 ? 503 : 200, '/gone': 410 }[request.url] ?? 200;
          response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ times }));
        });
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    world.atEnd(() => server.close());
    const url = (place) => `http://127.0.0.1:${server.address().port}${place}`;
    const call = (name, inputs, more = {}) => ({ name, executor: 'http', inputs, ...more });
    const { tasks } = await cluster.run([
      command('count', 'echo 42'),
      call(
        'post',
        { method: 'POST', url: url('/hook'), json: { n: '${results.count.json}' } },
        { depends_on: ['count'] },
      ),
      call('flaky', { url: url('/flaky') }),
      call('gone', { url: url('/gone') }),
      call('metadata', { url: 'http://169.254.169.254/latest' }),
    ]);
    assert.deepEqual([tasks.post.result.status, tasks.post.result.json], [200, { times: 1 }]);
    const hook = seen.find(({ url: at }) => at === '/hook');
    assert.deepEqual([hook.method, JSON.parse(hook.body)], ['POST', { n: 42 }]);
    assert.notEqual(hook.key, undefined);
    assert.deepEqual(
      [tasks.flaky.state, tasks.flaky.failures, tasks.flaky.result.json],
      ['succeeded', 2, { times: 3 }],
    );
    assert.equal(
      new Set(seen.filter(({ url: at }) => at === '/flaky').map(({ key }) => key)).size,
      1,
      'one key for all attempts',
    );
    assert.deepEqual([tasks.gone.state, tasks.gone.failures], ['failed', 1], 'a 4xx is not tried again');
    assert.deepEqual([tasks.metadata.state, tasks.metadata.failures], ['failed', 1], 'a link-local address is refused');
  },
);

// ---- templates ----

scenario('templates: values, texts, deep paths, and errors with the path', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  await cluster.startJsWorker({ id: 'js', slots: 4 });
  const source = command('src', `echo '{"rows":[{"id":1,"a b":[true,null]}],"t":"x\\"y","n":1.5}'`);
  const echo = (name, inputs) => ({ name, executor: 'echo', depends_on: ['src'], inputs });
  const { state, tasks } = await cluster.run([
    source,
    echo('all', {
      whole: '${results.src.json.rows[0]}',
      number: '${results.src.json.n}',
      quoted: '${results.src.json.rows[0]["a b"][0]}',
      text: 'a ${results.src.json.t} b ${results.src.json.rows} $${results.src} $HOME',
      deep: [{ x: ['${results.src.exit_code}'] }],
    }),
    echo('missing', { a: { b: '${results.src.json.rows[7].id}' } }),
    echo('scalar', { a: '${results.src.json.n.more}' }),
    echo('absent', { a: '${results.src.nothing}' }),
  ]);
  assert.equal(state, 'failed');
  const { results, ...got } = tasks.all.result;
  assert.deepEqual(got, {
    whole: { id: 1, 'a b': [true, null] },
    number: 1.5,
    quoted: true,
    text: 'a x"y b [{"id":1,"a b":[true,null]}] ${results.src} $HOME',
    deep: [{ x: [0] }],
  });
  assert.equal(results.src.json.n, 1.5);
  assert.equal(
    tasks.missing.message,
    'inputs.a.b: ${results.src.json.rows[7].id}: json.rows[7] does not exist; json.rows is a list with 1 element',
  );
  for (const name of ['missing', 'scalar', 'absent'])
    assert.equal(tasks[name].failures, 1, `${name} is not tried again`);
  assert.match(tasks.scalar.message, /results\.src\.json\.n\.more/);
  assert.match(tasks.absent.message, /results\.src\.nothing/);
});

// ---- why ----

scenario('why says what each queued task waits for', async (world) => {
  const cluster = await world.cluster({
    workers: 1,
    slots: 4,
    settings: { retry_backoff_base_ms: 30000, stuck_task_warn_ms: 300 },
  });
  const id = await cluster.submit([
    sleep('long', 1000000),
    sleep('after', 1, { depends_on: ['long'] }),
    fails('bad'),
    { name: 'dock', executor: 'docker', inputs: {} },
    { name: 'op', executor: 'sleep', inputs: { ms: 1 }, required_custom_ops: ['x'] },
  ]);
  await cluster.reaches(id, 'long', 'running');
  await until('bad has failed', async () => (await cluster.tasks(id)).bad.failures === 1);
  const reasons = await cluster.why(id);
  const has = (pattern) =>
    assert.ok(
      reasons.some((reason) => pattern.test(reason)),
      `${pattern} in ${reasons.join('; ')}`,
    );
  has(/^waiting for stage 0 \(1 of 1 tasks left\)$/);
  has(/^backoff until /);
  has(/^no live worker has executor 'docker'$/);
  has(/^no live worker advertises operator 'x'$/);
  await until('it is stuck', async () => (await cluster.events(id)).some(({ type }) => type === 'stuck'));
  await cluster.coordinator.line(/stuck/);
});

// ---- drain ----

scenario(
  'a drained worker finishes and takes nothing; a stopped one gives back what it cannot finish',
  async (world) => {
    const cluster = await world.cluster({ settings: { drain_timeout_ms: 500 } });
    const worker = await cluster.startWorker({ id: 'w1', slots: 1 });
    const file = path.join(world.folder(), 'runs');
    const id = await cluster.submit([command('long', `echo x >>${file}; [ $(wc -l <${file}) -gt 1 ] || sleep 1000`)]);
    await cluster.reaches(id, 'long', 'running');
    assert.equal((await cluster.json('node', 'drain', 'w1')).draining, true);
    const other = await cluster.submit([sleep('other', 1)]);
    assert.deepEqual(await until('a reason', () => cluster.why(other)), ['all 1 matching workers are draining']);
    worker.signal('SIGTERM');
    assert.deepEqual(await worker.ended, { code: 0, signal: null });
    await cluster.startWorker({ id: 'w2', slots: 1 });
    assert.equal((await cluster.end(id)).state, 'succeeded');
    assert.equal((await cluster.end(other)).state, 'succeeded');
    const { long } = await cluster.tasks(id);
    assert.deepEqual([long.attempt, long.failures, long.worker], [2, 0, 'w2'], 'a release counts as no failure');
  },
);

// ---- size ----

// The answer may take longer than that to a small tree.
async function submitLarge(cluster, tasks) {
  const request = { job_id: randomUUID(), tree_json: Buffer.from(JSON.stringify({ tasks })) };
  return (await cluster.client.call('SubmitTasks', request, { timeoutMs: 120000 })).job_id;
}

scenarioWithEachStore('a fan of 100,000 tasks', { ms: 120000 }, async (world, store) => {
  const cluster = await world.cluster({
    store,
    settings: { max_concurrent_tasks_per_query: 2000, max_concurrent_tasks_per_worker: 1000 },
  });
  await cluster.startWorker({ id: 'w1', slots: 64 });
  await cluster.startWorker({ id: 'w2', slots: 64 });
  const started = Date.now();
  const id = await submitLarge(cluster, fan(100000, 0));
  const submitted = Date.now();
  assert.equal((await cluster.end(id)).state, 'succeeded');
  console.log(`fan of 100,000 (${store}): submit ${submitted - started} ms, all ${Date.now() - started} ms`);
  const { stages } = await cluster.client.status(id);
  assert.equal(stages.length, 0, 'too many to list');
  const page = await cluster.client.call('ListTasks', { query_id: id, state: 'succeeded', limit: 1000 });
  assert.equal(page.tasks.length, 1000);
  assert.notEqual(page.next, '');
});

scenarioWithEachStore('a chain of 100,000 tasks', { ms: 400000, if: isSoak }, async (world, store) => {
  const cluster = await world.cluster({ store, workers: 1 });
  const chain = (n) =>
    Array.from({ length: n }, (_, i) => sleep(`t${i}`, 0, i > 0 ? { depends_on: [`t${i - 1}`] } : {}));
  const started = Date.now();
  const id = await submitLarge(cluster, chain(100000));
  assert.equal((await cluster.end(id)).state, 'succeeded');
  console.log(`chain of 100,000 (${store}): ${Date.now() - started} ms`);
});

scenario('a chain of 2,000 tasks', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const { state } = await cluster.run(
    Array.from({ length: 2000 }, (_, i) => sleep(`t${i}`, 0, i > 0 ? { depends_on: [`t${i - 1}`] } : {})),
  );
  assert.equal(state, 'succeeded');
});

scenario('a chain of 100,000 is submitted and canceled in seconds', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const started = Date.now();
  const id = await submitLarge(
    cluster,
    Array.from({ length: 100000 }, (_, i) => sleep(`t${i}`, 0, i > 0 ? { depends_on: [`t${i - 1}`] } : {})),
  );
  await cluster.client.cancel(id);
  assert.equal((await cluster.end(id)).state, 'canceled');
  assert.ok(Date.now() - started < 60000, `${Date.now() - started} ms`);
});

// worker.test.js - the worker helper against real coordinators: executors, failures, stops, leases, kills, the end.
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect, TaskError, Worker } from 'capstan';
import { assert, quick, scenario, until } from '../../../tests/e2e/harness.js';

const workerScript = fileURLToPath(new URL('worker-process.js', import.meta.url));
const patient = {
  ...quick,
  node_dead_ms: 60000,
  lease_ms: 3000,
  worker_liveness_timeout_ms: 3000,
  node_stale_ms: 3000,
};

async function start(world, cluster, executors, options = {}) {
  const worker = await new Worker({ servers: cluster.address, id: 'js', executors, ...options }).start();
  world.atEnd(() => worker.close({ now: true }));
  return worker;
}

function clientOf(world, cluster) {
  const client = connect({ servers: cluster.address });
  world.atEnd(() => client.close());
  return client;
}

const one = (executor, inputs = {}, more = {}) => ({ tasks: [{ name: 't', executor, inputs, ...more }] });

scenario('executors: results, failures, retries, timeouts, progress, what a task is told', async (world) => {
  const cluster = await world.cluster({ settings: quick });
  const client = clientOf(world, cluster);
  const tries = [];
  let passed;
  await start(
    world,
    cluster,
    {
      add: ({ inputs: { a, b } }) => a + b,
      nothing: () => undefined,
      flaky: (task) => {
        tries.push(task);
        if (task.attempt < 3) throw new Error('not yet');
        return 'at last';
      },
      wrong: () => {
        throw new TaskError('these inputs are wrong');
      },
      loop: () => {
        const it = {};
        it.it = it;
        return it;
      },
      late: ({ signal }) =>
        new Promise((resolve) => signal.addEventListener('abort', () => resolve(String(signal.reason)))),
      slow: async ({ progress, signal }) => {
        progress(0.5, { rows: 10, bytes: 2048 });
        while (!passed && !signal.aborted) await pause(10);
      },
    },
    { slots: 4, capabilities: { zone: 'a' } },
  );
  assert.deepEqual(await client.run(one('add', { a: 2, b: 3 })), { t: 5 });
  assert.deepEqual(await client.run(one('nothing')), { t: null });
  assert.deepEqual(await client.run(one('flaky', { x: 1 })), { t: 'at last' });
  assert.deepEqual(
    tries.map(({ attempt, inputs, name }) => [attempt, inputs.x, name]),
    [
      [1, 1, 't'],
      [2, 1, 't'],
      [3, 1, 't'],
    ],
  );
  assert.equal(new Set(tries.map(({ taskKey }) => taskKey)).size, 1, 'one key over all attempts');
  assert.equal(new Set(tries.map(({ idempotencyKey }) => idempotencyKey)).size, 3, 'and one of each');
  const failure = async (tree) => {
    const job = await client.submit(tree);
    const { message } = await job.wait({ orFailure: true });
    const tasks = [];
    for await (const task of job.tasks()) tasks.push(task);
    return [message, tasks[0].message, tasks[0].attempt];
  };
  assert.match((await failure(one('wrong')))[1], /these inputs are wrong/);
  assert.equal((await failure(one('wrong')))[2], 1, 'no other attempt');
  assert.match((await failure(one('loop')))[1], /cannot be written as JSON/);
  const late = await failure(one('late', {}, { timeout_ms: 50, retry: { max_attempts: 1 } }));
  assert.match(late[1], /timed out after 50 ms/);
  const job = await client.submit(one('slow', {}, { placement: { requires_capabilities: { zone: 'a' } } }));
  const stage = await until('its progress is known', async () => {
    const { stages } = await job.status();
    return stages[0].fraction > 0 && stages[0];
  });
  assert.deepEqual([stage.fraction, stage.rows, stage.bytes], [0.5, 10, 2048]);
  passed = true;
  const { stages } = await job.wait();
  assert.deepEqual([stages[0].fraction, stages[0].rows], [1, 0], 'what was told is not what was done');
});

scenario('a cancel fires the signal of its task, and frees the slot', async (world) => {
  const cluster = await world.cluster({ settings: quick });
  const client = clientOf(world, cluster);
  const reasons = [];
  await start(
    world,
    cluster,
    {
      wait: ({ signal }) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => {
            reasons.push(signal.reason.message);
            resolve();
          });
        }),
      echo: ({ inputs }) => inputs,
    },
    { slots: 1 },
  );
  const job = await client.submit(one('wait'));
  await until('it runs', async () => (await job.status()).state === 'running');
  await job.cancel();
  await until('the signal is fired', () => reasons.length === 1);
  assert.match(reasons[0], /stopped by the coordinator/);
  assert.deepEqual(await client.run(one('echo', { free: true })), { t: { free: true } });
});

scenario('close lets tasks end and leaves; with now it gives them back to another worker', async (world) => {
  const cluster = await world.cluster({ settings: quick });
  const client = clientOf(world, cluster);
  const ran = [];
  const hold =
    (who) =>
    async ({ signal }) => {
      ran.push(who);
      while (!signal.aborted && !ran.includes('open')) await pause(5);
      return who;
    };
  const first = await start(world, cluster, { hold: hold('first') }, { id: 'first' });
  const job = await client.submit(one('hold'));
  await until('it runs', () => ran.length === 1);
  const closing = first.close();
  ran.push('open');
  await closing;
  assert.deepEqual(await job.results(), { t: 'first' }, 'what ran was reported');
  assert.deepEqual(
    (await client.nodes()).filter(({ status }) => status === 'healthy'),
    [],
    'it has said goodbye',
  );
  ran.length = 0;
  const second = await start(world, cluster, { hold: hold('second') }, { id: 'second' });
  const other = await client.submit(one('hold'));
  await until('it runs', () => ran.length === 1);
  await start(world, cluster, { hold: hold('third') }, { id: 'third' });
  await second.close({ now: true });
  await until('the other has it', () => ran.includes('third'));
  ran.push('open');
  await other.wait();
  assert.deepEqual(await other.results(), { t: 'third' });
  for await (const { failures } of other.tasks()) assert.equal(failures, 0, 'giving back costs nothing');
});

scenario(
  'a worker that is killed: its task runs elsewhere, and its restart under the old name is no trouble',
  async (world) => {
    const cluster = await world.cluster({ settings: quick });
    const client = clientOf(world, cluster);
    const launch = async () => {
      const child = world.start('worker process', process.execPath, [workerScript, cluster.address, 'killed']);
      await child.line(/registered/);
      return child;
    };
    const child = await launch();
    const job = await client.submit(one('where', { ms: 600000 }));
    await child.line(/began/);
    await child.kill();
    const again = await launch(); // a new incarnation: the task comes back at once, without waiting for a lease
    await again.line(/began/);
    const tasks = [];
    for await (const task of job.tasks()) tasks.push(task);
    assert.deepEqual([tasks[0].workerId, tasks[0].attempt], ['killed', 2]);
    await job.cancel();
    const third = await client.submit(one('where', { ms: 0 }));
    await third.wait();
    assert.deepEqual(await third.results(), { t: again.pid });
    assert.deepEqual(await again.stop(), { code: 0, signal: null }, 'SIGTERM drains it');
  },
);

scenario('a worker that may not join says so, and one that never started can be closed', async (world) => {
  const args = [
    'up',
    '--data',
    world.folder('data'),
    '--workers',
    '1',
    '--listen',
    '127.0.0.1:0',
    '--http',
    '127.0.0.1:0',
  ];
  const up = world.capstan('up', args, { env: { XDG_CONFIG_HOME: world.folder('home') } });
  const [, address] = await up.line(/ready: coordinator at (\S+),/);
  const worker = new Worker({ servers: address, token: 'wrong', executors: {} });
  await assert.rejects(worker.start(), { code: 'unauthenticated' });
  await new Worker({ servers: address, executors: {} }).close();
  const signal = AbortSignal.timeout(100);
  await assert.rejects(new Worker({ servers: '127.0.0.1:1', executors: {} }).start({ signal }), {
    name: 'TimeoutError',
  });
});

scenario('of two live workers of one name the older ends and says why', async (world) => {
  const cluster = await world.cluster({ settings: quick });
  const older = await start(world, cluster, { x: () => 1 }, { id: 'same' });
  await start(world, cluster, { x: () => 2 }, { id: 'same' });
  await assert.rejects(older.ended, /a newer process runs under the worker id same/);
});

scenario(
  'cut off, an exclusive task stops before another may start it; others are reported when somebody is there',
  async (world) => {
    const lease = { lease_ms: 6000, worker_liveness_timeout_ms: 6000, node_stale_ms: 6000 };
    const cluster = await world.cluster({ settings: { ...patient, ...lease } });
    const client = clientOf(world, cluster);
    const proxy = await world.proxy(cluster.address);
    const story = [];
    let isOpen = false;
    const hold = async ({ name, attempt, signal }) => {
      story.push(`${name} ${attempt} began`);
      while (!isOpen && !signal.aborted) await pause(5);
      story.push(`${name} ${attempt} ${signal.aborted ? 'stopped' : 'ended'}`);
      return name;
    };
    const cut = await start(world, { address: proxy.address }, { hold }, { id: 'cut', slots: 1 });
    const alone = await client.submit(one('hold', {}, { name: 'alone', exclusive: true }));
    await until('it runs', () => story.length === 1);
    await start(world, cluster, { hold }, { id: 'other', slots: 1 });
    proxy.cut();
    await until('the other has it', () => story.includes('alone 2 began'));
    assert.deepEqual(story, ['alone 1 began', 'alone 1 stopped', 'alone 2 began'], 'never twice at the same time');
    isOpen = true;
    await alone.wait();
    proxy.heal();
    assert.deepEqual(await alone.results(), { alone: 'alone' });
    await cut.close();
  },
);

scenario('a task that ends while nobody can be told is reported later, and not run again', async (world) => {
  const cluster = await world.cluster({
    settings: { ...patient, lease_ms: 20000, worker_liveness_timeout_ms: 20000, node_stale_ms: 20000 },
  });
  const client = clientOf(world, cluster);
  const proxy = await world.proxy(cluster.address);
  let isOpen = false;
  let runs = 0;
  const hold = async () => {
    runs++;
    while (!isOpen) await pause(5);
    return runs;
  };
  const worker = await start(world, { address: proxy.address }, { hold });
  const job = await client.submit(one('hold'));
  await until('it runs', () => runs === 1);
  proxy.cut();
  isOpen = true;
  await pause(300); // the cut itself: some reports fail meanwhile
  assert.equal(worker.running, 1, 'kept until somebody has answered');
  proxy.heal();
  await job.wait();
  assert.deepEqual(await job.results(), { t: 1 });
  await worker.close();
});

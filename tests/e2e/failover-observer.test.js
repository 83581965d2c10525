// Observers over changes of leaders and gaps: what they answer, how old they say it is, what they refuse.
import path from 'node:path';
import { contractOf } from '../upgrade/future.js';
import { Held, Trio } from './failover-cluster.js';
import { assert, command, grpcStatus, root, scenario, sleep, until } from './harness.js';

async function observe(world, follow) {
  const args = [
    'coordinator',
    '--role',
    'observer',
    '--follow',
    follow,
    '--listen',
    '127.0.0.1:0',
    '--http',
    '127.0.0.1:0',
  ];
  const observer = world.capstan('observer', args);
  observer.address = (await observer.line(/serving on (\S+),/))[1];
  observer.http = (await observer.line(/the HTTP API is at (http:\S+)/))[1];
  observer.client = world.client(observer.address);
  await observer.line(/observer: a copy from/);
  return observer;
}

const leaderOf = ({ client }) => client.once('GetLeader');

// What each verb of the command line and each route tells about these jobs. The job `done` has failed.
const verbs = [
  ['jobs'],
  ['job', 'done'],
  ['tasks', 'done'],
  ['why', 'stuck'],
  ['events', 'done'],
  ['results', 'done'],
  ['results', 'rows'],
  ['table', 'list'],
];
const routes = [
  'jobs',
  'jobs/done',
  'jobs/done/tasks',
  'jobs/stuck/why',
  'jobs/done/results',
  'jobs/rows/results',
  'tables',
];

async function everything(world, { address, http }) {
  const told = {};
  for (const words of verbs) {
    const { code, stdout, stderr } = await world.cli([...words, '--json', '--server', address]);
    assert.equal(code, words[0] === 'results' && words[1] === 'done' ? 1 : 0, `${words}: ${stderr}`);
    told[words.join(' ')] = stdout;
  }
  for (const route of routes) {
    const response = await fetch(`${http}/v1/${route}`);
    assert.equal(response.status, 200, route);
    told[route] = await response.text();
  }
  return told;
}

scenario('an observer tells people and programs the same as the leader, also when that has gone', async (world) => {
  const cluster = await world.cluster({ settings: { stuck_task_warn_ms: 600000 } });
  await cluster.coordinator.kill();
  await cluster.startCoordinator({ args: ['--http', '127.0.0.1:0'] });
  const leader = {
    address: cluster.address,
    http: (await cluster.coordinator.line(/the HTTP API is at (http:\S+)/))[1],
  };
  await cluster.startWorker({ id: 'w1' });
  await cluster.json('table', 'add', 'trips', '/data/*.parquet');
  const tree = [
    command('a', 'echo 1'),
    command('b', 'exit 3', { retry: { max_attempts: 1 } }),
    sleep('c', 1, { depends_on: ['a'] }),
  ];
  await cluster.submit(tree, { id: 'done' });
  await cluster.end('done');
  await cluster.client.call('SubmitQuery', { query_id: 'rows', sql: 'select 42 as n' });
  await cluster.end('rows');
  await cluster.submit([sleep('a', 1, { placement: { allowed_nodes: ['nobody'] } })], { id: 'stuck' });

  const observer = await observe(world, cluster.address);
  const wanted = await everything(world, leader);
  assert.deepEqual(await everything(world, observer), wanted);
  const { nodes } = JSON.parse((await world.cli(['nodes', '--json', '--server', observer.address])).stdout);
  assert.deepEqual(
    nodes.map(({ worker_id, status }) => [worker_id, status]),
    [['w1', 'healthy']],
  );

  const about = async () => (await fetch(`${observer.http}/v1/leader`)).json();
  const fresh = await about();
  assert.deepEqual([fresh.role, fresh.address, fresh.epoch], ['observer', cluster.address, 2]);
  await cluster.coordinator.kill();
  await until('it says that its copy gets older', async () => (await about()).staleness_ms > fresh.staleness_ms + 2000);
  assert.deepEqual(await everything(world, observer), wanted, 'the last copy answers');
  const response = await fetch(`${observer.http}/v1/jobs`);
  assert.ok(Number(response.headers.get('capstan-staleness-ms')) > 2000);
  const { code, stdout } = await world.cli(['leader', '--server', observer.address]);
  assert.equal(code, 0);
  assert.match(stdout, / leads under epoch 2; an observer says so, whose copy was complete \d{4,} ms ago$/m);
  const told = JSON.parse((await world.cli(['leader', '--json', '--server', observer.address])).stdout);
  assert.equal(told.role, 'observer');
  assert.ok(told.staleness_ms > 2000);
  const statuses = { healthz: 200, readyz: 200, leaderz: 503, metrics: 200, 'v1/overview': 200, 'v1/nodes': 200 };
  for (const [route, status] of Object.entries(statuses)) {
    assert.equal((await fetch(`${observer.http}/${route}`)).status, status, route);
  }
  const stream = await fetch(`${observer.http}/v1/events?job=done`);
  const { value } = await stream.body.getReader().read();
  assert.match(Buffer.from(value).toString(), /^id: \d+\n/m);
});

// Questions. Everything else changes something, or is only for those who take part.
const READS = [
  ...['GetQueryStatus', 'FetchQueryResults', 'ListJobs', 'ListTasks', 'WhyPending', 'WatchEvents'],
  ...['GetLeader', 'ListNodes', 'ListTables', 'GetOverview'],
];
const OF_WORKERS = ['FetchShufflePartition']; // no coordinator serves it

scenario('an observer refuses every call that is no question, with the address of the leader', async (world) => {
  const cluster = await world.cluster();
  const observer = await observe(world, cluster.address);
  const { services } = contractOf(path.join(root, 'proto/capstan.proto'));
  const methods = Object.values(services).flatMap((methods) => Object.entries(methods));
  assert.ok(methods.length >= 24);
  const names = methods.map(([name]) => name);
  for (const name of [...READS, ...OF_WORKERS]) assert.ok(names.includes(name), `${name} is not in the .proto`);
  const about = { query_id: 'no-such-job' }; // those that ask for something else do not look at it
  for (const [name, { responseStream }] of methods) {
    const error = responseStream
      ? await observer.client
          .stream(name, about)
          .toArray()
          .then(
            () => undefined,
            (thrown) => thrown,
          )
      : await observer.client.once(name, about).then(
          () => undefined,
          (thrown) => thrown,
        );
    if (OF_WORKERS.includes(name)) {
      assert.equal(error?.code, grpcStatus.UNIMPLEMENTED, name);
    } else if (READS.includes(name)) {
      const code = error?.code ?? grpcStatus.OK;
      assert.ok([grpcStatus.OK, grpcStatus.NOT_FOUND].includes(code), `${name}: ${code} ${error?.message}`);
    } else {
      assert.equal(error?.code, grpcStatus.FAILED_PRECONDITION, name);
      assert.deepEqual(error.metadata.get('capstan-leader'), [cluster.address], name);
    }
  }
  const headers = { 'content-type': 'application/json' };
  for (const [method, route, body] of [
    ['POST', 'jobs', { tasks: [sleep('a', 1)] }],
    ['POST', 'queries', { sql: 'select 1' }],
    ['POST', 'jobs/x/cancel', {}],
    ['POST', 'jobs/x/retry', {}],
    ['POST', 'nodes/x/drain', {}],
    ['POST', 'tables', { name: 't', source: 's' }],
    ['DELETE', 'tables/t'],
  ]) {
    const response = await fetch(`${observer.http}/v1/${route}`, {
      method,
      headers,
      body: body && JSON.stringify(body),
    });
    assert.equal(response.status, 503, route);
    const { error, leader } = await response.json();
    assert.equal(leader ?? error.leader, cluster.address, route);
  }
  assert.deepEqual((await cluster.client.call('ListJobs')).jobs, []);
});

scenario('an observer that was away for a while catches up: where it was, or with a new copy', async (world) => {
  const cluster = await world.cluster({ workers: 1, slots: 8 });
  const observer = await observe(world, cluster.address);
  const jobsOf = async ({ client }) => JSON.stringify((await client.once('ListJobs', { limit: 100 })).jobs);
  const isEqual = () =>
    until('it tells the same', async () => {
      const [ours, theirs] = [await jobsOf(observer).catch(() => ''), await jobsOf(cluster)];
      return ours === theirs;
    });
  const copies = () => observer.log.match(/observer: a new copy from/g)?.length ?? 0;

  observer.signal('SIGSTOP');
  for (let i = 0; i < 3; i++) assert.equal((await cluster.run([sleep('a', 1), sleep('b', 1)])).state, 'succeeded');
  observer.signal('SIGCONT');
  await isEqual();
  assert.equal(copies(), 0, 'a short gap is filled');

  // More than the leader keeps for those who follow.
  observer.signal('SIGSTOP');
  const many = Array.from({ length: 21000 }, (_, i) => sleep(`t${i}`, 0, { placement: { allowed_nodes: ['nobody'] } }));
  const id = await cluster.submit(many);
  await cluster.client.cancel(id);
  assert.equal((await cluster.run([sleep('a', 1)])).state, 'succeeded');
  observer.signal('SIGCONT');
  await isEqual();
  assert.ok(copies() > 0, observer.log);
});

scenario('those who use an observer notice nothing of a change of leaders', async (world) => {
  const trio = await Trio.start(world, { workers: 1 });
  const observer = await observe(world, trio.servers);
  const env = { CAPSTAN_SERVER: observer.address };
  const events = trio.spawn('events', ['events', '--follow', '--json'], { env });
  const held = new Held(world);
  const file = world.file(
    'tree.json',
    JSON.stringify({ tasks: [held.task('a'), sleep('b', 1, { depends_on: ['a'] })] }),
  );
  const run = trio.spawn('run', ['run', file, '--id', 'tree'], { env });
  await held.running('a');
  const before = await trio.leader();
  assert.equal((await leaderOf(observer)).address, before.address);
  await before.process.kill();
  const after = await trio.leader(before.epoch);
  held.release();
  assert.deepEqual(await run.ended, { code: 0, signal: null }, run.log);
  assert.equal(JSON.parse(run.stdout).a.json, 'a');
  assert.equal(held.runs('a'), 1);
  await until('it follows the new leader', async () => (await leaderOf(observer)).address === after.address);

  const all = [];
  for await (const { seq } of after.client.stream('WatchEvents', {})) all.push(seq);
  const told = () =>
    events.stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line).seq);
  await until('all events are told', () => told().at(-1) >= all.at(-1));
  assert.deepEqual(told().slice(0, all.length), all);
  assert.ok(!events.isOver, events.log);
});

// client.test.js - the client against real coordinators and workers: the way of a job, rows, errors, deadlines, events.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import * as arrow from 'apache-arrow';
import {
  AlreadyExistsError,
  CapstanError,
  connect,
  DeadlineError,
  InvalidArgumentError,
  JobFailedError,
  NotFoundError,
  PreconditionError,
  protocol,
  UnauthenticatedError,
  UnavailableError,
} from 'capstan';
import { assert, command, scenario, sleep, until } from '../../../tests/e2e/harness.js';

const clientOf = (world, cluster, options = {}) => {
  const client = connect({ servers: cluster.address, ...options });
  world.atEnd(() => client.close());
  return client;
};

const all = async (iterable) => {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
};

const tree = {
  name: 'sum',
  tasks: [
    command('numbers', `echo '[1, 2, 3]'`),
    { name: 'count', executor: 'sql', depends_on: ['numbers'], inputs: { sql: 'select 41 + 1 as n' } },
  ],
};

scenario('a tree: submit, wait, results, status, tasks, events, lists', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const client = clientOf(world, cluster);
  const job = await client.submit(tree, { id: 'first' });
  assert.equal(job.id, 'first');
  assert.equal(job.existed, false);
  const status = await job.wait();
  assert.equal(status.state, 'succeeded');
  assert.equal(status.kind, 'tree');
  assert.equal(status.name, 'sum');
  assert.deepEqual(
    status.stages.map(({ name, succeeded, parents }) => [name, succeeded, parents]),
    [
      ['numbers', 1, []],
      ['count', 1, [0]],
    ],
  );
  const results = await job.results();
  assert.deepEqual(results.numbers.json, [1, 2, 3]);
  assert.deepEqual(results.count.rows, [{ n: 42 }]);
  assert.equal((await client.submit(tree, { id: 'first' })).existed, true, 'a repeated submit finds the job');
  const tasks = await all(job.tasks());
  assert.deepEqual(
    tasks.map(({ name, state, attempt, workerId }) => [name, state, attempt, workerId]),
    [
      ['numbers', 'succeeded', 1, 'w1'],
      ['count', 'succeeded', 1, ''],
    ],
  );
  assert.deepEqual(tasks[0].result.json, [1, 2, 3]);
  const events = await all(job.events({ follow: true }));
  assert.deepEqual([events[0].type, events.at(-1).type, events.at(-1).attempt], ['created', 'completed', 0]);
  assert.ok((await all(client.events())).length >= events.length);
  assert.deepEqual(
    (await all(job.events({ after: events.at(-2).seq }))).map(({ type }) => type),
    ['completed'],
  );
  const jobs = await all(client.jobs({ name: 'sum' }));
  assert.deepEqual(
    jobs.map(({ jobId, state }) => [jobId, state]),
    [['first', 'succeeded']],
  );
  const [node] = await client.nodes({ executor: 'command' });
  assert.deepEqual([node.workerId, node.status, node.slots], ['w1', 'healthy', 2]);
  assert.equal((await client.leader()).address, cluster.address);
  assert.match(protocol(), /service ControlPlane/);
});

scenario('why a job waits, cancel, retry, priorities, keys', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const client = clientOf(world, cluster);
  const job = await client.submit({ tasks: [{ name: 't', executor: 'abacus', inputs: {} }] }, { key: 'once' });
  const [{ reason, tasks }] = await job.why();
  assert.match(reason, /no live worker has executor 'abacus'/);
  assert.equal(tasks, 1);
  const again = await client.submit({ tasks: [sleep('other', 1)] }, { key: 'once' });
  assert.deepEqual([again.id, again.existed], [job.id, true], 'the key finds the first job');
  assert.equal(await job.cancel('enough'), 'canceled');
  await assert.rejects(job.wait(), (error) => {
    assert.ok(error instanceof JobFailedError);
    assert.equal(error.status.state, 'canceled');
    return true;
  });
  assert.equal((await job.wait({ orFailure: true })).state, 'canceled');
  const flag = world.file('flag', '').replace(/flag$/, 'there');
  const failing = await client.submit({
    tasks: [command('t', `test -e ${flag}`, { retry: { max_attempts: 1 } }), sleep('u', 1, { depends_on: ['t'] })],
  });
  assert.equal((await failing.wait({ orFailure: true })).state, 'failed');
  await client.run({ tasks: [command('make', `touch ${flag}`)] });
  assert.match(await failing.retry(), /queued|running/);
  const following = all(failing.events({ follow: true })); // meets the first end, which is no longer one
  assert.equal((await failing.wait()).state, 'succeeded');
  const events = await all(failing.events());
  const ofJob = events.filter(({ attempt }) => attempt === 0).map(({ type }) => type);
  assert.deepEqual(
    ofJob.filter((type) => /created|failed|retried|completed/.test(type)),
    ['created', 'failed', 'retried', 'completed'],
  );
  assert.deepEqual(await following, events);
  assert.deepEqual(await all(failing.events({ follow: true })), events);
  const urgent = await client.query('select 1 as one', undefined, { priority: 0 });
  assert.equal((await urgent.wait()).state, 'succeeded');
});

scenario('rows as objects, of all kinds of types; parameters; a million rows; Arrow', async (world) => {
  const cluster = await world.cluster({ workers: 2 });
  const client = clientOf(world, cluster);
  const [row] = await client.sql(`select 1::tinyint as small, 9007199254740993 as big, 123::bigint as fits,
    sum(x)::hugeint as huge, 1.50::decimal(9,2) as price, -0.05::decimal(4,2) as less, true as yes, 2.5 as half,
    1e300::double as large, 'text' as text, null as nothing, date '2026-11-15' as day, time '12:34:56.5' as hour,
    timestamp '2026-11-15 12:34:56.789' as at, '\\x01\\xFF'::blob as bytes, [1, null, 3] as list, {'a': 1, 'b': 'x'} as pair,
    map {'k': 1} as mapping, uuid '00112233-4455-6677-8899-aabbccddeeff' as id, 'b'::enum('a', 'b') as choice,
    interval '1 month 2 days' as span, 1 as twice, 2 as twice from range(5) t(x)`);
  assert.deepEqual(row, {
    small: 1,
    big: 9007199254740993n,
    fits: 123,
    huge: 10,
    price: '1.50',
    less: '-0.05',
    yes: true,
    half: '2.5',
    large: 1e300,
    text: 'text',
    nothing: null,
    day: '2026-11-15',
    hour: '12:34:56.5',
    at: new Date('2026-11-15T12:34:56.789Z'),
    bytes: Uint8Array.of(1, 255),
    list: [1, null, 3],
    pair: { a: 1, b: 'x' },
    mapping: new Map([['k', 1]]),
    id: '00112233-4455-6677-8899-aabbccddeeff',
    choice: 'b',
    span: { months: 1, days: 2, nanoseconds: 0n },
    twice: 1,
    twice_1: 2,
  });
  const [big] = await client.sql('select 1::bigint as n', [], { bigints: true });
  assert.equal(big.n, 1n);
  assert.deepEqual(await client.sql('select $1 + 1 as n, $2 as t', [41, "it's"]), [{ n: 42, t: "it's" }]);
  assert.deepEqual(
    await client.sql('select $big::bigint as big, $day::timestamp as day', {
      big: 9007199254740993n,
      day: new Date('2026-01-02T03:04:05Z'),
    }),
    [{ big: 9007199254740993n, day: new Date('2026-01-02T03:04:05Z') }],
  );
  const many = await client.query('select x, x * 2 as y from range(1000000) t(x)');
  await many.wait();
  let count = 0;
  let sum = 0;
  for await (const batch of many.batches()) {
    count += batch.length;
    for (const { y } of batch) sum += y;
  }
  assert.deepEqual([count, sum], [1000000, 999999000000]);
  const reader = await many.arrow();
  assert.deepEqual(
    reader.schema.fields.map(({ name }) => name),
    ['x', 'y'],
  );
  await reader.cancel();
  const table = await arrow.tableFromIPC(many.bytes());
  assert.equal(table.numRows, 1000000);
  const plan = await client.query('select 1', undefined, { explain: true });
  await plan.wait();
  const [{ plan: text }] = await plan.toArray();
  const physical = await client.plan(JSON.parse(text));
  await physical.wait();
  assert.equal((await physical.toArray()).length, 1, 'a physical plan runs');
  await client.putTable('numbers', `${cluster.dir}/numbers.parquet`);
  assert.deepEqual(
    (await client.tables()).map(({ name }) => name),
    ['numbers'],
  );
  await client.deleteTable('numbers');
  assert.deepEqual(await client.tables(), []);
});

scenario('errors are classes with a code and a hint', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const client = clientOf(world, cluster);
  const rejects = (promise, Class, code, message, hint) =>
    assert.rejects(promise, (error) => {
      assert.ok(error instanceof CapstanError, String(error));
      assert.equal(error.constructor, Class);
      assert.equal(error.name, Class.name);
      assert.equal(error.code, code);
      assert.match(error.message, message);
      assert.match(error.hint ?? '', hint);
      return true;
    });
  await rejects(client.job('nope').status(), NotFoundError, 'not_found', /there is no job 'nope'/, /capstan jobs/);
  await rejects(client.submit({ tasks: [] }), InvalidArgumentError, 'invalid_argument', /tasks/, /^/);
  await client.submit({ tasks: [sleep('a', 1)] }, { id: 'mine' });
  const other = client.submit({ tasks: [sleep('b', 1)] }, { id: 'mine' });
  await rejects(other, AlreadyExistsError, 'already_exists', /mine/, /^/);
  await rejects(client.sql('selec 1'), JobFailedError, 'job_failed', /syntax error/, /^$/);
  const slow = await client.submit({ tasks: [sleep('s', 60000)] });
  await rejects(slow.results(), PreconditionError, 'failed_precondition', /./, /^/);
  const query = await client.query('select 1');
  await query.wait();
  await rejects(query.results(), InvalidArgumentError, 'invalid_argument', /is a query/, /rows\(\)/);
  const nowhere = connect({ servers: ['127.0.0.1:1'], patienceMs: 100 });
  await rejects(nowhere.leader(), UnavailableError, 'unavailable', /cannot reach a coordinator at 127/, /capstan up/);
  nowhere.close();
  assert.throws(() => connect({ servers: 'here' }), InvalidArgumentError);
  assert.throws(() => connect({ tls: { cert: 'x' } }), InvalidArgumentError);
  await assert.rejects(client.query('select $1', [Infinity]), InvalidArgumentError);
});

scenario('a deadline and a signal end a wait; the job goes on unless it is to be canceled', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const client = clientOf(world, cluster);
  const job = await client.submit({ tasks: [sleep('s', 600000)] });
  await assert.rejects(job.wait({ timeoutMs: 50 }), DeadlineError);
  assert.match((await job.status()).state, /queued|running/);
  const abort = new AbortController();
  const waiting = job.wait({ signal: abort.signal });
  abort.abort(new Error('tired'));
  await assert.rejects(waiting, /tired/);
  assert.match((await job.status()).state, /queued|running/);
  await assert.rejects(job.wait({ timeoutMs: 50, cancelOnAbort: true }), DeadlineError);
  assert.equal((await job.wait({ orFailure: true })).state, 'canceled');
  const second = new AbortController();
  const running = client.run({ tasks: [sleep('s', 600000)] }, { id: 'run', signal: second.signal });
  await until('it is there', () =>
    client
      .job('run')
      .status()
      .catch(() => undefined),
  );
  second.abort();
  await assert.rejects(running, { name: 'AbortError' });
  assert.equal((await client.job('run').wait({ orFailure: true })).state, 'canceled');
  await assert.rejects(client.leader({ signal: AbortSignal.abort() }), { name: 'AbortError' });
});

scenario('rows and events go on where a connection broke, each once', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const proxy = await world.proxy(cluster.address);
  const client = clientOf(world, { address: proxy.address });
  const job = await client.query('select x from range(1000000) t(x)');
  await job.wait();
  let breaks = 0;
  let next = 0;
  for await (const batch of job.batches()) {
    for (const { x } of batch) if (x !== next++) assert.fail(`${x} in the place of ${next - 1}`);
    if (next > 250000 * (breaks + 1)) {
      breaks++;
      proxy.breakAll();
    }
  }
  assert.deepEqual([next, breaks], [1000000, 3]);
  let one = 0;
  for await (const { x } of job.rows()) {
    assert.equal(x, one);
    if (++one === 100) break; // leaves nothing open
  }
  const steps = Array.from({ length: 12 }, (_, i) => sleep(`t${i}`, 5, i > 0 ? { depends_on: [`t${i - 1}`] } : {}));
  const chain = await client.submit({ tasks: steps });
  const seen = [];
  for await (const event of chain.events({ follow: true })) {
    seen.push(event.seq);
    if (seen.length % 7 === 0) proxy.breakAll();
  }
  const expected = (await all(chain.events())).map(({ seq }) => seq);
  assert.deepEqual(seen, expected);
});

scenario('tokens: the one that up has left for this user, a given one, and none', async (world) => {
  const home = world.folder('home');
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
  const up = world.capstan('up', args, { env: { XDG_CONFIG_HOME: home } });
  const [, address] = await up.line(/ready: coordinator at (\S+),/);
  const file = path.join(home, 'capstan/tokens', address);
  const token = fs.readFileSync(file, 'utf8').trim();
  const ask = async (options) => {
    const client = connect({ servers: address, ...options });
    try {
      return (await client.nodes()).length;
    } finally {
      client.close();
    }
  };
  const before = process.env.XDG_CONFIG_HOME;
  process.env.XDG_CONFIG_HOME = home;
  try {
    assert.equal(await ask({}), 1);
    await assert.rejects(ask({ token: '' }), (error) => {
      assert.ok(error instanceof UnauthenticatedError);
      assert.match(error.hint, /token/);
      return true;
    });
    await assert.rejects(ask({ token: 'wrong' }), UnauthenticatedError);
    fs.chmodSync(file, 0o644);
    await assert.rejects(ask({}), /open to other users/);
  } finally {
    if (before === undefined) delete process.env.XDG_CONFIG_HOME;
    else process.env.XDG_CONFIG_HOME = before;
  }
  assert.equal(await ask({ token }), 1);
});

// Certificates of an authority of this test's own: texts of its PEM files.
function certificates(world) {
  const folder = world.folder('certificates');
  const script = `
    new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
    $new -x509 -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca
    $new -keyout node.key -out node.csr -subj /CN=node
    printf 'subjectAltName=IP:127.0.0.1' >node.ext
    openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile node.ext -out node.pem`;
  execFileSync('sh', ['-e', '-c', script], { cwd: folder, stdio: 'ignore' });
  const file = (name) => path.join(folder, name);
  return { file, pem: (name) => fs.readFileSync(file(name), 'utf8') };
}

scenario('TLS: an authority that is trusted, a certificate of the client, and neither', async (world) => {
  const { file, pem } = certificates(world);
  const keys = ['--tls-cert', file('node.pem'), '--tls-key', file('node.key'), '--tls-client-ca', file('ca.pem')];
  const store = `sqlite:${world.folder()}/state.db`;
  const coordinator = world.capstan('coordinator', [
    'coordinator',
    '--store',
    store,
    '--listen',
    '127.0.0.1:0',
    ...keys,
  ]);
  const [, servers] = await coordinator.line(/serving on (\S+),/);
  const ask = async (tls) => {
    const client = connect({ servers, tls, patienceMs: 500 });
    try {
      return (await client.leader()).address;
    } finally {
      client.close();
    }
  };
  await coordinator.line(/this coordinator leads/);
  const own = { ca: pem('ca.pem'), cert: pem('node.pem'), key: pem('node.key') };
  assert.equal(await ask(own), servers);
  await assert.rejects(ask({ ca: pem('ca.pem') }), UnavailableError); // it presents nothing
  await assert.rejects(ask(true), UnavailableError); // it trusts only what the machine trusts
  await assert.rejects(ask(false), UnavailableError);
});

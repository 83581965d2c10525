// What one client, or somebody without any right, can do to the others: floods, readers that stop reading, bombs.
import { createHash } from 'node:crypto';
import http from 'node:http';
import net from 'node:net';
import { gzipSync } from 'node:zlib';
import { grpc } from '../../examples/javascript/capstan.js';
import { assert, command, grpcStatus, pause, scenario, sleep, slowness, until } from './harness.js';

const MB = 1e6;
const GRPC_MESSAGE = 60 * MB; // nearly as large as one may be

// A file of tokens, { name: scopes }, each token called as its name with -secret behind it.
const tokenLines = (scopes) =>
  Object.entries(scopes)
    .map(([name, list]) => `${createHash('sha256').update(`${name}-secret`).digest('hex')} ${name} ${list}\n`)
    .join('');

// A cluster with tokens and an HTTP API.
async function guarded(world, { scopes, args = [], ...options }) {
  const cluster = await world.cluster(options);
  await cluster.coordinator.stop();
  const tokens = world.file('tokens', tokenLines(scopes));
  await cluster.startCoordinator({ args: ['--auth-tokens', tokens, '--http', '127.0.0.1:0', ...args] });
  cluster.http = (await cluster.coordinator.line(/the HTTP API is at http:\/\/(\S+)/))[1];
  return cluster;
}

const clientOf = (world, cluster, who) => world.client(cluster.address, { token: `${who}-secret` });
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

// ---- floods ----

// All jobs, in the order in which they were taken.
async function allJobs(client) {
  const jobs = [];
  let after = '';
  do {
    const page = await client.call('ListJobs', { limit: 1000, after });
    jobs.push(...page.jobs);
    after = page.next;
  } while (after);
  return jobs.sort((a, b) => a.submitted_at_ms - b.submitted_at_ms);
}

// How many jobs of others were taken between each of ours and the one before.
async function othersBetween(client, ours) {
  const between = [];
  let others = 0;
  for (const { query_id: id } of await allJobs(client)) {
    if (ours.has(id)) between.push(others);
    others = ours.has(id) ? 0 : others + 1;
  }
  return between;
}

scenario('a client that floods over many connections does not hold up others', { ms: 120000 }, async (world) => {
  const CONNECTIONS = 64;
  const cluster = await guarded(world, { scopes: { flood: 'submit', calm: 'submit' } });
  const flood = world.capstan(
    'flood',
    ['bench', 'tasks', '--server', cluster.address, '--tasks', '10000000', '--batch', '1000', '--clients', `${CONNECTIONS}`],
    { env: { CAPSTAN_TOKEN: 'flood-secret' } },
  );
  const calm = clientOf(world, cluster, 'calm');
  const count = async () => (await calm.call('ListJobs', { limit: 1000 })).jobs.length;
  await until('the flood has come', async () => (await count()) > CONNECTIONS / 2);
  const submits = async (client, n) => {
    const ours = new Set();
    for (let i = 0; i < n; i++) ours.add(await client.submit({ tasks: [sleep('a', 1)] }));
    const between = (await othersBetween(calm, ours)).slice(1);
    assert.equal(between.length, n - 1, 'all were answered, and are there');
    return between;
  };
  const apart = await submits(calm, 15);
  // For whoever has the same token as the flood, this is one more of its many connections: what it is without turns.
  const among = await submits(clientOf(world, cluster, 'flood'), 4);
  await flood.kill();
  console.log(`jobs of the flood before each of ours: ${apart}; with its token: ${among}`);
  assert.ok(median(among) > CONNECTIONS / 2, `${among}`);
  // The best counts: while this process waits for its turn on a busy machine, the flood goes on.
  assert.ok(Math.min(...apart) < median(among) / 3, `${apart}, not much less than ${among}`);
});

scenario('who has too much open is refused with a hint, and nobody else is', async (world) => {
  const scopes = { greedy: 'read', calm: 'submit' };
  const cluster = await guarded(world, { scopes, args: ['--set', 'max_calls_per_client=20'] });
  const greedy = clientOf(world, cluster, 'greedy');
  const calm = clientOf(world, cluster, 'calm');
  const id = await calm.submit({ tasks: [sleep('a', 1)] });
  const waiting = Array.from({ length: 20 }, () => greedy.call('GetQueryStatus', { query_id: id, wait_ms: 60000 }));
  const refused = await until('it is refused', async () => {
    try {
      await greedy.call('ListNodes');
      return undefined;
    } catch (error) {
      return error;
    }
  });
  assert.equal(refused.code, grpcStatus.RESOURCE_EXHAUSTED);
  assert.match(refused.details, /this client has 20 calls open/);
  assert.match(refused.metadata.get('capstan-hint')[0], /wait for answers.*max_calls_per_client/);
  const headers = { authorization: 'Bearer greedy-secret' };
  const response = await fetch(`http://${cluster.http}/v1/nodes`, { headers });
  assert.equal(response.status, 429);
  const { error } = await response.json();
  assert.equal(error.code, 'resource_exhausted');
  assert.match(error.hint, /max_calls_per_client/);
  await calm.call('ListNodes');
  await calm.cancel(id);
  for (const { status } of await Promise.all(waiting)) assert.equal(status.state, 'QUERY_STATE_CANCELED');
  await greedy.call('ListNodes');
});

// ---- readers that stop reading ----

const rssOf = (cluster) => cluster.coordinator.usage().rss;

// The same, when it does not change any more.
async function settledRss(cluster) {
  for (let before = 0, now = rssOf(cluster); ; before = now, now = rssOf(cluster)) {
    if (Math.abs(now - before) < MB) return now;
    await pause(500);
  }
}

// Connections that have asked for something, read a little of it, and then nothing more.
async function stalledHttp(world, address, path, n, headers = '') {
  for (let i = 0; i < n; i++) {
    const [host, port] = address.split(':');
    const socket = net.connect({ host, port: Number(port) });
    world.atEnd(() => socket.destroy());
    socket.on('error', () => {});
    socket.write(`GET ${path} HTTP/1.1\r\nHost: ${address}\r\n${headers}\r\n`);
    await new Promise((resolve) => socket.once('data', resolve));
    socket.pause();
  }
}

async function stalledGrpc(world, address, method, request, n) {
  for (let i = 0; i < n; i++) {
    const stream = world.client(address).stream(method, request);
    world.atEnd(() => stream.cancel());
    stream.on('error', () => {});
    await new Promise((resolve) => stream.once('data', resolve));
    stream.pause();
  }
}

scenario('readers of events that stop reading cost nothing but their connection', { ms: 120000 }, async (world) => {
  const READERS = 40;
  const cluster = await world.cluster();
  await cluster.coordinator.stop();
  await cluster.startCoordinator({ args: ['--http', '127.0.0.1:0'] });
  const [, address] = await cluster.coordinator.line(/the HTTP API is at http:\/\/(\S+)/);
  const tree = { tasks: Array.from({ length: 20000 }, (_, i) => sleep(`task-with-a-long-name-${i}`, 1)) };
  // Some 20 MB of events before they come, and as many afterwards, which they all follow.
  const make = async () => cluster.client.cancel(await cluster.submit(tree), 'x'.repeat(400));
  await make();
  const before = rssOf(cluster);
  await stalledHttp(world, address, '/v1/events?after=0', READERS);
  await stalledGrpc(world, cluster.address, 'WatchEvents', { follow: true }, READERS);
  await make();
  await make();
  const events = await cluster.client.call('ListJobs', {}); // it answers
  assert.equal(events.jobs.length, 3);
  const grown = rssOf(cluster) - before;
  console.log(`readers of events: grown by ${Math.round(grown / MB)} MB`);
  assert.ok(grown < 150 * MB * slowness, `the coordinator has grown by ${grown} bytes`);
});

scenario('readers of results that stop reading cost a few pieces of them', { ms: 120000 }, async (world) => {
  const READERS = 16;
  const cluster = await world.cluster();
  await cluster.coordinator.stop();
  await cluster.startCoordinator({ args: ['--http', '127.0.0.1:0'] });
  const [, address] = await cluster.coordinator.line(/the HTTP API is at http:\/\/(\S+)/);
  await cluster.startWorker();
  const sql = "select i, repeat('x', 60) as t from range(1000000) r(i)";
  const { query_id: id } = await cluster.client.call('SubmitQuery', { sql });
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const overHttp = (format) => stalledHttp(world, address, `/v1/jobs/${id}/results?format=${format}`, READERS);
  // All of the text is more than 1 GB for all readers together. To make it, each holds a batch of rows besides.
  for (const [how, bound, stall] of [
    ['over gRPC', 250, () => stalledGrpc(world, cluster.address, 'FetchQueryResults', { query_id: id }, READERS)],
    ['as CSV', 400, () => overHttp('csv')],
    ['as JSON', 400, () => overHttp('json')],
  ]) {
    const before = rssOf(cluster);
    await stall();
    await cluster.run([sleep('a', 1)]);
    const grown = (await settledRss(cluster)) - before;
    console.log(`readers of results ${how}: grown by ${Math.round(grown / MB)} MB`);
    assert.ok(grown < bound * MB * slowness, `${how}: the coordinator has grown by ${grown} bytes`);
  }
});

// ---- a worker that does not answer ----

scenario('fetches of rows that lie on a frozen worker hold up nobody who wants rows that are in the store', async (world) => {
  const FETCHES = 8;
  const cluster = await world.cluster();
  const worker = await cluster.startWorker();
  const run = async (sql) => {
    const { query_id: id } = await cluster.client.call('SubmitQuery', { sql });
    assert.equal((await cluster.end(id)).state, 'succeeded');
    return id;
  };
  const few = await run('select 1 as x');
  const many = await run('select i, hash(i) as h from range(1000000) r(i)');
  worker.signal('SIGSTOP');
  const greedy = world.client(cluster.address);
  let ended = 0;
  for (let i = 0; i < FETCHES; i++) {
    const stream = greedy.stream('FetchQueryResults', { query_id: many });
    world.atEnd(() => stream.cancel());
    stream.on('error', () => ended++).on('data', () => ended++);
  }
  // What is asked over the same connection is answered after those fetches have been looked at.
  for (let i = 0; i < 3; i++) await greedy.call('GetQueryStatus', { query_id: many });
  // More of them than those fetches have turns until they are given up.
  for (let i = 0; i < 10; i++) {
    let bytes = 0;
    const stream = world.client(cluster.address).stream('FetchQueryResults', { query_id: few });
    for await (const { payload } of stream) bytes += payload.length;
    assert.ok(bytes > 0);
  }
  assert.equal(ended, 0, 'nobody had to give up for that');
});

// ---- bombs, and strangers ----

// A unary call of any bytes: the status it ends with.
function rawCall(world, address, path, bytes, { metadata = {}, options = {} } = {}) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure(), {
    'grpc.max_send_message_length': -1,
    ...options,
  });
  world.atEnd(() => client.close());
  const headers = new grpc.Metadata();
  for (const [key, value] of Object.entries(metadata)) headers.set(key, value);
  return new Promise((resolve) => {
    const as = (it) => it;
    client.makeUnaryRequest(path, as, as, bytes, headers, (error) => resolve(error?.code ?? 0));
  });
}

scenario('messages that are compressed are refused, not unpacked', async (world) => {
  const cluster = await guarded(world, { scopes: { s: 'submit' } });
  const before = rssOf(cluster);
  const bomb = Buffer.alloc(100 * MB);
  const code = await rawCall(world, cluster.address, '/capstan.v1.ControlPlane/SubmitTasks', bomb, {
    metadata: { authorization: 'Bearer s-secret' },
    options: { 'grpc.default_compression_algorithm': 2 },
  });
  assert.equal(code, grpcStatus.UNIMPLEMENTED);
  const body = gzipSync(Buffer.alloc(100 * MB, ' '));
  for (const encoding of ['gzip', 'deflate', 'br', 'GZIP, identity']) {
    const response = await fetch(`http://${cluster.http}/v1/jobs`, {
      method: 'POST',
      headers: { authorization: 'Bearer s-secret', 'content-type': 'application/json', 'content-encoding': encoding },
      body,
    });
    assert.equal(response.status, 415);
    assert.match((await response.json()).error.message, /^Content-Encoding: '.*' is not taken$/);
  }
  const grown = rssOf(cluster) - before;
  assert.ok(grown < 50 * MB * slowness, `the coordinator has grown by ${grown} bytes`);
});

scenario('JSON that is nested without end is refused at both doors', async (world) => {
  const cluster = await guarded(world, { scopes: { s: 'submit' } });
  const client = clientOf(world, cluster, 's');
  const headers = { authorization: 'Bearer s-secret', 'content-type': 'application/json' };
  const why = /nested deeper than 64|but the text ends/;
  let before = 0;
  for (let round = 0; round < 3; round++) {
    for (const open of ['[', '{"a":']) {
      const body = Buffer.from(`{"tasks":${open.repeat((4 * MB) / open.length)}`);
      await assert.rejects(client.call('SubmitTasks', { tree_json: body }), ({ code, details }) => {
        assert.equal(code, grpcStatus.INVALID_ARGUMENT);
        assert.match(details, why);
        return true;
      });
      for (const path of ['/v1/jobs', '/v1/queries', '/v1/tables', '/v1/jobs/x/cancel']) {
        const response = await fetch(`http://${cluster.http}${path}`, { method: 'POST', headers, body });
        assert.equal(response.status, 400, path);
        assert.match((await response.json()).error.message, why, path);
      }
    }
    if (round === 0) before = rssOf(cluster); // what the allocator keeps for the next time is not counted
  }
  const grown = rssOf(cluster) - before;
  assert.ok(grown < 50 * MB * slowness, `the coordinator has grown by ${grown} bytes`);
});

// Sends a large body without a token, and says the status.
function postWithoutToken(address, bytes) {
  const [host, port] = address.split(':');
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': bytes.length };
    const request = http.request({ host, port, method: 'POST', path: '/v1/jobs', headers }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    request.on('error', reject).end(bytes);
  });
}

scenario('nobody without a token makes a coordinator keep what he sends, and it is logged that he tries', async (world) => {
  const cluster = await guarded(world, { scopes: { s: 'submit' } });
  const before = rssOf(cluster);
  const bytes = Buffer.alloc(GRPC_MESSAGE, 'x');
  const path = '/capstan.v1.ControlPlane/SubmitTasks';
  const wrong = { metadata: { authorization: 'Bearer not-a-secret' } };
  const codes = await Promise.all([
    ...[1, 2].map(() => rawCall(world, cluster.address, path, bytes)),
    ...[1, 2].map(() => rawCall(world, cluster.address, path, bytes, wrong)),
  ]);
  assert.deepEqual(codes, Array(4).fill(grpcStatus.UNAUTHENTICATED));
  const statuses = await Promise.all([1, 2, 3, 4].map(() => postWithoutToken(cluster.http, bytes)));
  assert.deepEqual(statuses, Array(4).fill(401));
  const grown = rssOf(cluster) - before;
  assert.ok(grown < 80 * MB * slowness, `the coordinator has grown by ${grown} bytes`);

  // Many refusals make few lines, which count the rest and have no token in them.
  const { coordinator } = cluster;
  await Promise.all(Array.from({ length: 300 }, () => rawCall(world, cluster.address, path, Buffer.alloc(0), wrong)));
  await pause(1000); // the next line may come
  await rawCall(world, cluster.address, path, Buffer.alloc(0), wrong);
  await coordinator.line(/refused SubmitTasks from ipv4:127\.0\.0\.1:\d+: the token is not known here.*; and \d+ more calls/);
  const lines = coordinator.log.split('\n').filter((line) => /refused/.test(line));
  assert.ok(lines.length < 20, `${lines.length} lines`);
  assert.ok(!coordinator.log.includes('not-a-secret'));
});

// ---- commands ----

scenario('a worker bounds what its commands may use, and a task can ask for less', async (world) => {
  const cluster = await world.cluster();
  const bounds = ['--command-output', '2000', '--command-files', '64', '--command-cpu', '60s'];
  await cluster.startWorker({ args: bounds });
  const { state, tasks } = await cluster.run([
    command('loud', 'yes'),
    command('same', 'ulimit -n; ulimit -t'),
    command('less', 'ulimit -n; ulimit -t', { inputs: { limits: { open_files: 32, cpu_seconds: 600 } } }),
  ]);
  assert.equal(state, 'failed');
  assert.equal(tasks.loud.message, 'stopped at its limit of 2000 bytes of output');
  assert.equal(tasks.loud.failures, 1, 'it is not tried again');
  assert.equal(tasks.same.result.stdout, '64\n60\n');
  assert.equal(tasks.less.result.stdout, '32\n60\n');
  // `up` hands them to its workers.
  const places = ['--data', `${world.folder('up')}/data`, '--listen', '127.0.0.1:0', '--workers', '1'];
  const up = world.capstan('up', ['up', ...places, '--no-auth', '--json', ...bounds]);
  const [line] = await up.line(/^\{"ready":true.*$/m);
  const tree = world.file('tree.json', JSON.stringify({ tasks: [command('a', 'ulimit -n')] }));
  const run = await world.cli(['run', tree, '--json', '--server', JSON.parse(line).address]);
  assert.equal(run.code, 0, run.stderr);
  assert.match(run.stdout, /"stdout":"64\\n"/);
});

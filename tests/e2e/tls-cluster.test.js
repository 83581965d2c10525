// A cluster in which everybody has a certificate, asks for one, and sends a token: changes of leaders, observers, HTTP, and
// certificates that are replaced while all of it runs.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import https from 'node:https';
import path from 'node:path';
import tls from 'node:tls';
import { grpc } from '../../examples/javascript/capstan.js';
import { Held, Trio } from './failover-cluster.js';
import { assert, grpcStatus, scenario, sleep, until } from './harness.js';

// ---- certificates and tokens ----

// A file of tokens, { name: scopes }; each token is its name with -secret behind it.
const tokenLines = (scopes) =>
  Object.entries(scopes)
    .map(([name, list]) => `${createHash('sha256').update(`${name}-secret`).digest('hex')} ${name} ${list}\n`)
    .join('');

// An authority that signs certificates for 127.0.0.1: the text of its own, and `sign` for { cert, key } of others.
function authority(world, name) {
  const folder = world.folder(name);
  const openssl = (...words) => execFileSync('openssl', words, { cwd: folder, stdio: 'ignore' });
  const fresh = ['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const read = (leaf) => fs.readFileSync(path.join(folder, leaf), 'utf8');
  openssl(...fresh, '-x509', '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2', '-subj', `/CN=${name}`);
  const sign = (who, usage = 'serverAuth,clientAuth') => {
    openssl(...fresh, '-keyout', `${who}.key`, '-out', `${who}.csr`, '-subj', `/CN=${who}`);
    fs.writeFileSync(path.join(folder, 'ext'), `subjectAltName=IP:127.0.0.1\nextendedKeyUsage=${usage}\n`);
    const by = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2', '-extfile', 'ext'];
    openssl('x509', '-req', '-in', `${who}.csr`, ...by, '-out', `${who}.pem`);
    return { cert: read(`${who}.pem`), key: read(`${who}.key`) };
  };
  return { ca: read('ca.pem'), sign };
}

// The files of one kind of process, which can be replaced while it reads them.
class Files {
  constructor(world, name) {
    this.folder = world.folder(name);
  }

  at(leaf) {
    return path.join(this.folder, leaf);
  }

  // In one step each, as the documentation asks for.
  put(texts) {
    for (const [leaf, text] of Object.entries(texts)) {
      fs.writeFileSync(this.at(`${leaf}.new`), text);
      fs.renameSync(this.at(`${leaf}.new`), this.at(leaf));
    }
  }

  get env() {
    return { CAPSTAN_TLS_CA: this.at('ca'), CAPSTAN_TLS_CERT: this.at('cert'), CAPSTAN_TLS_KEY: this.at('key') };
  }
}

const ROLES = ['coordinator', 'worker', 'observer', 'client'];

// Three coordinators, two workers and an observer: { trio, observer, files, first }. All files are of the authority `first`.
async function startAll(world) {
  const first = authority(world, 'first');
  const files = Object.fromEntries(ROLES.map((role) => [role, new Files(world, role)]));
  for (const role of ROLES) files[role].put({ ca: first.ca, ...first.sign(role) });
  const tokens = world.file('tokens', tokenLines({ worker: 'worker', submit: 'submit', read: 'read' }));
  const listener = (role, token) => ({
    ...files[role].env,
    CAPSTAN_TLS_CLIENT_CA: files[role].at('ca'),
    CAPSTAN_TOKEN: `${token}-secret`,
  });
  const connection = (token = 'submit') => ({
    token: `${token}-secret`,
    credentials: grpc.credentials.createSsl(
      ...['ca', 'key', 'cert'].map((leaf) => fs.readFileSync(files.client.at(leaf))),
    ),
  });
  const trio = await Trio.start(world, {
    env: {
      coordinator: { ...listener('coordinator', 'worker'), CAPSTAN_AUTH_TOKENS: tokens },
      worker: listener('worker', 'worker'),
      client: { ...files.client.env, CAPSTAN_TOKEN: 'submit-secret' },
    },
    connection,
  });
  const words = ['coordinator', '--role', 'observer', '--follow', trio.servers, '--listen', '127.0.0.1:0'];
  const observer = world.capstan('observer', [...words, '--http', '127.0.0.1:0'], {
    env: { ...listener('observer', 'read'), CAPSTAN_AUTH_TOKENS: tokens },
  });
  observer.address = (await observer.line(/serving on (\S+),/))[1];
  observer.http = (await observer.line(/the HTTP API is at https:\/\/(\S+)/))[1];
  observer.connect = (token) => world.client(observer.address, connection(token));
  await observer.line(/observer: a copy from/);
  return { trio, observer, files, first };
}

// ---- HTTPS ----

// A request over a connection of its own: { status, body }, or { problem }.
function request(address, { path: route = '/healthz', method = 'GET', token, body, ...keys }) {
  const [host, port] = address.split(':');
  const headers = {
    ...(token && { authorization: `Bearer ${token}-secret` }),
    ...(body && { 'content-type': 'application/json' }),
  };
  return new Promise((resolve) => {
    https
      .request({ host, port, path: route, method, headers, agent: false, ...keys }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (piece) => (text += piece));
        response.on('end', () => resolve({ status: response.statusCode, body: text }));
        response.on('error', (error) => resolve({ problem: error.message }));
      })
      .on('error', (error) => resolve({ problem: error.message }))
      .end(body && JSON.stringify(body));
  });
}

// ---- changes of leaders ----

const failureOf = (promise) =>
  promise.then(
    () => assert.fail('it was not refused'),
    (error) => error,
  );

scenario('with certificates on all sides and tokens, a killed leader is followed by another and nothing is begun again', async (world) => {
  const { trio, observer, files } = await startAll(world);
  const held = new Held(world);
  const tree = { tasks: [held.task('a'), held.task('b'), sleep('c', 1, { depends_on: ['a'] })] };
  const run = trio.spawn('run', ['run', world.file('tree.json', JSON.stringify(tree)), '--id', 'tree']);
  const events = trio.spawn('events', ['events', '--follow', '--json']);
  await held.running('a', 'b');
  const before = await trio.leader();
  const reader = observer.connect('read');
  await until('the observer knows of it', async () => (await reader.once('ListJobs')).jobs.length === 1);

  await before.process.kill();
  const after = await trio.leader(before.epoch);
  held.release();
  assert.deepEqual(await run.ended, { code: 0, signal: null }, run.log);
  assert.equal(JSON.parse(run.stdout).b.json, 'b');
  for (const name of ['a', 'b']) assert.equal(held.runs(name), 1, `executions of ${name}`);
  assert.equal(trio.assertBegunOnce('tree'), 3);
  const all = [];
  for await (const { seq } of after.client.stream('WatchEvents', {})) all.push(seq);
  const told = () => events.stdout.split('\n').slice(0, -1).map((line) => JSON.parse(line).seq);
  await until('all events are told', () => told().at(-1) >= all.at(-1));
  assert.deepEqual(told().slice(0, all.length), all);
  assert.ok(!events.isOver, events.log);

  // The observer has followed, over gRPC and HTTP, and lets nobody change anything.
  await until('it follows the new leader', async () => (await reader.once('GetLeader')).address === after.address);
  await until('it knows the end', async () => (await reader.once('ListJobs')).jobs[0].state === 'QUERY_STATE_SUCCEEDED');
  const own = Object.fromEntries(['ca', 'cert', 'key'].map((leaf) => [leaf, fs.readFileSync(files.client.at(leaf))]));
  const jobs = await request(observer.http, { path: '/v1/jobs', token: 'read', ...own });
  assert.equal(jobs.status, 200, jobs.body ?? jobs.problem);
  assert.equal(JSON.parse(jobs.body).jobs[0].state, 'succeeded');
  const cancel = { query_id: 'tree' };
  assert.equal((await failureOf(reader.once('CancelQuery', cancel))).code, grpcStatus.PERMISSION_DENIED);
  const refusal = await failureOf(observer.connect('submit').once('CancelQuery', cancel));
  assert.equal(refusal.code, grpcStatus.FAILED_PRECONDITION);
  assert.deepEqual(refusal.metadata.get('capstan-leader'), [after.address]);
  const write = { path: '/v1/jobs', method: 'POST', body: { tasks: [sleep('d', 1)] }, ...own };
  assert.equal((await request(observer.http, { ...write, token: 'read' })).status, 403);
  assert.equal((await request(observer.http, { ...write, token: 'submit' })).status, 503);
  assert.match((await request(observer.http, { ...write, token: 'submit', cert: undefined })).problem, /./);
  for (const { log } of [observer, ...trio.members.map(({ process }) => process), ...Object.values(trio.workers)]) {
    assert.ok(!/-secret|PRIVATE KEY/.test(log), 'a secret is in a log');
  }
});

// ---- certificates that change ----

const AGAIN = /the certificates were read again; new connections get them/g;
const STAY = /the certificates stay as they were: the TLS CA is broken: certificate 2 in it is not whole/g;
const FOUND = /leader: found at/g;
const count = ({ log }, pattern) => [...log.matchAll(pattern)].length;

// Does something, and waits until each of the processes has said one more of these than before.
async function eachSays(processes, pattern, act) {
  const before = processes.map((process) => count(process, pattern));
  act();
  await until(`all say ${pattern}`, () => processes.every((process, i) => count(process, pattern) > before[i]));
}

// Rows that go from workers to each other, and from one of them, through the coordinator, to the command line. Who gets the
// tasks is up to the scheduler, so the query is asked until both workers have taken part.
async function checkRows(world, trio) {
  const folder = world.folder('rows');
  for (const name of ['a', 'b']) {
    const lines = Array.from({ length: 20000 }, (_, i) => `${i},${'x'.repeat(50)}${name}\n`);
    fs.writeFileSync(path.join(folder, `${name}.csv`), `i,t\n${lines.join('')}`);
  }
  const text = `SELECT i, count(*) AS n, max(t) AS t FROM '${folder}/*.csv' GROUP BY i ORDER BY t, i`;
  const forced = ['forced=true', 'single_task_bytes=0', 'broadcast_bytes=0', 'partitions=8'];
  let id = path.basename(folder);
  await until('both workers take part', async () => {
    id += '-';
    const { code, stdout, stderr } = await trio.cli([
      ...['sql', text, '-o', 'csv', '-q', '--id', id],
      ...forced.flatMap((pair) => ['--set', pair]),
    ]);
    assert.equal(code, 0, stderr);
    assert.equal(stdout.trim().split('\n').at(-1), `19999,2,${'x'.repeat(50)}b`);
    const { tasks } = await trio.json('tasks', id);
    return new Set(tasks.map(({ worker_id }) => worker_id)).size === 2;
  });
}

// Who has signed what a server shows.
function issuerAt(address, options) {
  const [host, port] = address.split(':');
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host, port, ALPNProtocols: ['h2'], ...options }, () => {
      resolve(socket.getPeerCertificate().issuer.CN);
      socket.destroy();
    });
    socket.on('error', reject);
  });
}

scenario('a cluster moves to another authority while it works: no restart, and nothing is begun again', async (world) => {
  const { trio, observer, files, first } = await startAll(world);
  const next = authority(world, 'next');
  const workers = Object.values(trio.workers);
  const processes = [...trio.members.map(({ process }) => process), ...workers, observer];
  const put = (texts) => ROLES.forEach((role) => files[role].put(texts(role)));
  const held = new Held(world);
  const before = await trio.leader();
  await before.client.submit({ tasks: [held.task('a'), held.task('b')] }, { id: 'tree' });
  await held.running('a', 'b');
  await checkRows(world, trio);

  // The end of a file is missing: all say so, once, and go on with what they have, also over new connections.
  const both = first.ca + next.ca;
  await eachSays(processes, STAY, () => put(() => ({ ca: both.slice(0, -100) })));
  await eachSays(workers, FOUND, () => trio.members.forEach(({ front }) => front.breakAll()));
  for (const process of processes) assert.equal(count(process, STAY), 1, process.title);

  // To the other authority in three steps: trust both, present the new, trust the new alone.
  await eachSays(processes, AGAIN, () => put(() => ({ ca: both })));
  const fresh = Object.fromEntries(ROLES.map((role) => [role, next.sign(role)]));
  await eachSays(processes, AGAIN, () => put((role) => fresh[role]));
  await eachSays(processes, AGAIN, () => put(() => ({ ca: next.ca })));
  for (const member of trio.members) trio.connect(member);
  await checkRows(world, trio);

  // All have to connect anew.
  await before.process.kill();
  const after = await trio.leader(before.epoch);
  held.release();
  assert.equal((await after.client.end('tree')).state, 'QUERY_STATE_SUCCEEDED');
  for (const name of ['a', 'b']) assert.equal(held.runs(name), 1, `executions of ${name}`);
  assert.equal(trio.assertBegunOnce('tree'), 2);
  await checkRows(world, trio);
  const reader = observer.connect('read');
  await until('the observer follows', async () => (await reader.once('GetLeader')).address === after.address);
  await until('it knows the end', async () =>
    (await reader.once('ListJobs')).jobs.some(({ query_id, state }) => query_id === 'tree' && /SUCCEEDED/.test(state)),
  );

  const { nodes } = await trio.json('nodes');
  const servers = [after.address, observer.address, observer.http, ...nodes.map(({ address }) => address)];
  for (const address of servers) assert.equal(await issuerAt(address, { ca: next.ca, ...fresh.client }), 'next', address);
  files.client.put({ ca: both, ...first.sign('client') });
  const refused = await trio.cli(['nodes', '--timeout', '1s']);
  assert.equal(refused.code, 3, 'a certificate of the authority of before');
});

// ---- HTTP ----

scenario('HTTP asks for certificates of clients as gRPC does', async (world) => {
  const [first, next] = [authority(world, 'first'), authority(world, 'next')];
  const files = new Files(world, 'coordinator');
  files.put({ ca: first.ca, ...first.sign('coordinator') });
  const coordinator = world.capstan('coordinator', [
    ...['coordinator', '--store', `sqlite:${world.folder()}/state.db`, '--listen', '127.0.0.1:0'],
    ...['--tls-cert', files.at('cert'), '--tls-key', files.at('key'), '--tls-client-ca', files.at('ca')],
    ...['--http', '127.0.0.1:0', '--auth-tokens', world.file('tokens', tokenLines({ read: 'read' }))],
  ]);
  const [, address] = await coordinator.line(/the HTTP API is at https:\/\/(\S+)/);
  await coordinator.line(/this coordinator leads/);
  const ask = (pair, more) => request(address, { ca: first.ca, ...pair, ...more });
  const [ours, theirs] = [first.sign('client'), next.sign('client')];
  assert.equal((await ask(ours)).status, 200);
  assert.equal((await ask(ours, { path: '/v1/jobs', token: 'read' })).status, 200);
  assert.equal((await ask(ours, { path: '/v1/jobs' })).status, 401, 'a certificate is no token');
  const refused = { none: {}, "another authority's": theirs, "a server's": first.sign('server', 'serverAuth') };
  for (const [name, pair] of Object.entries(refused)) {
    for (const route of ['/healthz', '/metrics', '/']) {
      const { status, problem } = await ask(pair, { path: route });
      assert.equal(status, undefined, `${name}: ${route} was answered`);
      assert.match(problem, /./);
    }
  }
  await eachSays([coordinator], /those who connect still see the certificates of before: /g, () =>
    files.put({ ca: next.ca.slice(0, 300) }),
  );
  assert.equal((await ask(ours)).status, 200);
  await eachSays([coordinator], AGAIN, () => files.put({ ca: next.ca }));
  assert.equal((await ask(theirs)).status, 200);
  assert.equal((await ask(ours)).status, undefined);
});

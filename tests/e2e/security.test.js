// Who may do what, with real processes: tokens, certificates, addresses that others can reach.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import https from 'node:https';
import os from 'node:os';
import path from 'node:path';
import { assert, childrenOf, command, freePort, grpcStatus, root, scenario, sleep, until } from './harness.js';

const UNAUTHENTICATED = /^capstan: (no token was sent|the token is not known here)/;

// ---- tokens ----

// A file of tokens, { name: scopes }, each token called as its name with -secret behind it.
const tokenLines = (scopes) =>
  Object.entries(scopes)
    .map(([name, list]) => `${createHash('sha256').update(`${name}-secret`).digest('hex')} ${name} ${list}\n`)
    .join('');

// ---- certificates ----

// An authority of its own, and certificates for 127.0.0.1 that it has signed: { ca, cert, key, folder }.
function authority(world, name) {
  const folder = world.folder(name);
  const script = `
    new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
    $new -x509 -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca
    $new -keyout node.key -out node.csr -subj /CN=node
    printf 'subjectAltName=IP:127.0.0.1,DNS:localhost' >node.ext
    openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile node.ext -out node.pem`;
  execFileSync('sh', ['-e', '-c', script], { cwd: folder, stdio: 'ignore' });
  const file = (leaf) => path.join(folder, leaf);
  return { folder, ca: file('ca.pem'), cert: file('node.pem'), key: file('node.key') };
}

// ---- processes ----

async function startUp(world, { home = world.folder('home'), args = [], env = {} } = {}) {
  const data = path.join(world.folder(), 'data');
  const up = world.capstan('up', ['up', '--data', data, '--listen', '127.0.0.1:0', '--json', ...args], {
    env: { HOME: home, ...env },
  });
  await up.line(/"ready":true/);
  const { address } = JSON.parse(up.stdout.split('\n').find((line) => line.includes('"ready":true')));
  const cli = (words, more = {}) => world.cli([...words, '--server', address], { env: { HOME: home, ...more } });
  return { up, address, home, cli, data };
}

const tokenFile = (home, address) => path.join(home, '.config/capstan/tokens', address);
const modeOf = (file) => (fs.statSync(file).mode & 0o777).toString(8);

// A query that is cut into stages, so that both workers fetch from each other, with more rows than travel inside of reports.
async function checkShuffle(world, cli) {
  const folder = world.folder('rows');
  for (const name of ['a', 'b']) {
    const lines = Array.from({ length: 100000 }, (_, i) => `${i},${'x'.repeat(20)}${name}\n`);
    fs.writeFileSync(path.join(folder, `${name}.csv`), `i,t\n${lines.join('')}`);
  }
  const text = `SELECT i, count(*) AS n, max(t) AS t FROM '${folder}/*.csv' GROUP BY i ORDER BY t, i`;
  const forced = ['forced=true', 'single_task_bytes=0', 'broadcast_bytes=0', 'partitions=2'];
  let id = `rows-${path.basename(folder)}`;
  await until('both workers take part', async () => {
    id += '-';
    const words = ['sql', text, '-o', 'csv', '-q', '--id', id, ...forced.flatMap((pair) => ['--set', pair])];
    const { code, stdout, stderr } = await cli(words);
    assert.equal(code, 0, stderr);
    const lines = stdout.trim().split('\n');
    assert.equal(lines.length, 100001);
    assert.equal(lines[100000], `99999,2,${'x'.repeat(20)}b`);
    const { tasks } = JSON.parse((await cli(['tasks', id, '--json'])).stdout);
    return new Set(tasks.map(({ worker_id }) => worker_id)).size === 2;
  });
}

// ---- capstan up ----

scenario('up makes a token that its user need not know of and others do not have', async (world) => {
  const { up, address, home, cli, data } = await startUp(world);
  const file = tokenFile(home, address);
  const token = fs.readFileSync(file, 'utf8').trim();
  assert.match(token, /^[0-9a-f]{64}$/);
  assert.equal(modeOf(file), '600');
  assert.equal(modeOf(path.dirname(file)), '700');
  assert.equal(modeOf(path.join(data, 'auth-tokens')), '600');

  const tree = world.file('tree.json', JSON.stringify({ tasks: [command('a', 'env')] }));
  const run = await cli(['run', tree, '--json']);
  assert.equal(run.code, 0, run.stderr);
  assert.ok(!run.stdout.includes('CAPSTAN_TOKEN'), 'a command sees the token of its worker');
  await checkShuffle(world, cli);

  const stranger = world.folder('stranger');
  for (const words of [['nodes'], ['jobs'], ['run', tree], ['sql', 'SELECT 1'], ['events']]) {
    const refused = await cli(words, { HOME: stranger });
    assert.equal(refused.code, 4, `${words}: ${refused.stderr}`);
    assert.match(refused.stderr, UNAUTHENTICATED);
    assert.match(refused.stderr, /hint: .*CAPSTAN_TOKEN/);
  }
  assert.equal((await cli(['nodes'], { HOME: stranger, CAPSTAN_TOKEN: 'wrong' })).code, 4);
  assert.equal((await cli(['nodes'], { HOME: stranger, CAPSTAN_TOKEN: token })).code, 0);
  assert.equal((await cli(['leader'], { HOME: stranger })).code, 0, 'who leads is no secret');

  for (const pid of [up.pid, ...childrenOf(up.pid)]) {
    assert.ok(!fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(token), 'all users see command lines');
  }
  assert.deepEqual(await up.signal('SIGTERM').ended, { code: 0, signal: null });
  assert.ok(!up.log.includes(token), 'the token is in the log');
  assert.ok(!fs.existsSync(file), 'the token is still there');
});

scenario('two of them side by side have a token each, and one that was killed leaves none that is sent', async (world) => {
  const home = world.folder('home');
  const one = await startUp(world, { home, args: ['--workers', '1'] });
  const two = await startUp(world, { home, args: ['--workers', '1'] });
  const tokens = [one, two].map(({ address }) => fs.readFileSync(tokenFile(home, address), 'utf8'));
  assert.notEqual(tokens[0], tokens[1]);
  for (const { cli } of [one, two]) assert.equal((await cli(['nodes'])).code, 0);
  await two.up.kill();
  assert.equal((await one.cli(['nodes'])).code, 0);
  // Whoever listens there now does not get it: an open coordinator, with workers of that user.
  const cluster = await world.cluster();
  fs.copyFileSync(tokenFile(home, two.address), tokenFile(home, cluster.address));
  for (const id of ['a', 'b']) {
    const args = ['worker', '--join', cluster.address, '--id', id, '--slots', '2', '--data', path.join(home, id)];
    await world.capstan(`worker ${id}`, args, { env: { HOME: home } }).line(/registered/);
  }
  await checkShuffle(world, (words) => world.cli([...words, '--server', cluster.address], { env: { HOME: home } }));
});

scenario('with a token of its own choice, up and everybody who has it agree', async (world) => {
  const { cli, home, address } = await startUp(world, { env: { CAPSTAN_TOKEN: 'shared-secret' } });
  assert.ok(!fs.existsSync(tokenFile(home, address)));
  assert.equal((await cli(['nodes'])).code, 4);
  assert.equal((await cli(['nodes'], { CAPSTAN_TOKEN: 'shared-secret' })).code, 0);
  const file = world.file('token', 'shared-secret\n');
  assert.equal((await cli(['nodes', '--token-file', file])).code, 0);
});

scenario('with --no-auth every user of the machine may do everything', async (world) => {
  const { cli } = await startUp(world, { args: ['--no-auth', '--workers', '1'] });
  assert.equal((await cli(['nodes'], { HOME: world.folder('stranger') })).code, 0);
});

// ---- scopes ----

scenario('a token can do what its scopes say, and a change of the file counts at once', async (world) => {
  const file = world.file('tokens', tokenLines({ r: 'read', s: 'submit', w: 'worker', a: 'admin' }));
  const store = `sqlite:${world.folder()}/state.db`;
  const coordinator = world.capstan('coordinator', [
    'coordinator',
    ...['--store', store, '--listen', '127.0.0.1:0', '--auth-tokens', file],
  ]);
  const [, address] = await coordinator.line(/serving on (\S+),/);
  await coordinator.line(/this coordinator leads/);
  const cli = (who, ...words) =>
    world.cli([...words, '--server', address], { env: who === '' ? {} : { CAPSTAN_TOKEN: `${who}-secret` } });
  const worker = (who) =>
    world.capstan(
      `worker with ${who}`,
      ['worker', '--join', address, '--data', path.join(world.folder(), 'w'), '--id', `by-${who}`],
      { env: { CAPSTAN_TOKEN: `${who}-secret` } },
    );
  for (const who of ['r', 's']) {
    const refused = worker(who);
    assert.equal((await refused.ended).code, 4, refused.log);
    assert.match(refused.log, /does not allow this: it needs the scope worker/);
  }
  const good = worker('w');
  await good.line(/registered/);
  const [{ address: data }] = JSON.parse((await cli('r', 'nodes', '--json')).stdout).nodes;
  for (const [who, status] of Object.entries({ r: 'UNAUTHENTICATED', s: 'UNAUTHENTICATED', a: 'UNAUTHENTICATED', w: 'NOT_FOUND' })) {
    assert.equal(await fetchFrom(world, data, { token: `${who}-secret` }), grpcStatus[status], `the data, with the token ${who}`);
  }

  const tree = world.file('tree.json', JSON.stringify({ tasks: [sleep('a', 600000)] }));
  for (const who of ['', 'r', 'w']) assert.equal((await cli(who, 'submit', tree)).code, 4, who);
  const submitted = await cli('s', 'submit', tree, '--json', '--id', 'job-1');
  assert.equal(submitted.code, 0, submitted.stderr);
  for (const who of ['r', 's', 'w', 'a']) assert.equal((await cli(who, 'job', 'job-1')).code, 0, who);
  for (const who of ['', 'r', 'w']) {
    const refused = await cli(who, 'cancel', 'job-1');
    assert.equal(refused.code, 4, `${who}: ${refused.stderr}`);
  }
  assert.equal((await cli('s', 'cancel', 'job-1')).code, 0);
  for (const who of ['', 'r', 's', 'w']) assert.equal((await cli(who, 'node', 'drain', 'by-w')).code, 4, who);
  assert.equal((await cli('a', 'node', 'drain', 'by-w')).code, 0);

  const follow = (who) =>
    world.capstan(`${who} follows`, ['events', '--follow', '--server', address], { env: { CAPSTAN_TOKEN: `${who}-secret` } });
  const [withdrawn, kept] = [follow('r'), follow('a')];
  for (const follower of [withdrawn, kept]) await follower.line(/job-1/);

  // Another file takes the place of the first, as editors do it.
  const fresh = `${file}.new`;
  fs.writeFileSync(fresh, tokenLines({ n: 'read', a: 'admin' }));
  fs.renameSync(fresh, file);
  await until('the new token counts', async () => (await cli('n', 'nodes')).code === 0);
  assert.equal((await cli('r', 'nodes')).code, 4);
  assert.equal((await withdrawn.ended).code, 4, withdrawn.log);
  assert.equal((await cli('a', 'nodes')).code, 0);
  fs.writeFileSync(fresh, 'nonsense\n');
  fs.renameSync(fresh, file); // never half of it
  await coordinator.line(/the tokens stay as they were: .*, line 1: a line has three words/);
  assert.equal((await cli('a', 'nodes')).code, 0);
  assert.ok(!/-secret/.test(coordinator.log + good.log), 'a token is in a log');
});

// ---- addresses that others can reach ----

scenario('nothing listens for other machines by accident', async (world) => {
  const { cert, key, ca } = authority(world, 'certs');
  const tokens = world.file('tokens', tokenLines({ a: 'admin' }));
  const store = ['--store', `sqlite:${world.folder()}/state.db`];
  const open = ['--listen', '0.0.0.0:0', '--advertise', '127.0.0.1:1'];
  const openHttp = ['--listen', '127.0.0.1:0', '--http', '0.0.0.0:0'];
  const tls = ['--tls-cert', cert, '--tls-key', key];
  const refused = [
    [['coordinator', ...store, ...open], /without encryption.*\n.*--tls-cert and --tls-key.*--insecure/],
    [['coordinator', ...store, ...open, '--auth-tokens', tokens], /without encryption/],
    [['coordinator', ...store, ...open, ...tls], /without tokens.*\n.*--auth-tokens FILE.*--insecure/],
    [['coordinator', ...store, ...open, '--no-auth', '--insecure'], /--no-auth is for addresses of this machine only/],
    [['coordinator', ...store, '--no-auth', '--auth-tokens', tokens], /contradict each other/],
    [['coordinator', ...store, '--tls-cert', cert], /--tls-cert and --tls-key belong together/],
    [['coordinator', ...store, '--tls-client-ca', ca], /--tls-client-ca needs --tls-cert and --tls-key/],
    [['coordinator', ...store, '--auth-tokens', '/nonexistent'], /cannot open the file of tokens \/nonexistent/],
    [['coordinator', ...store, '--tls-cert', key, '--tls-key', key], /holds no certificate in PEM form/],
    [['up', ...open], /without encryption/],
    [['up', ...open, '--no-auth', '--insecure'], /--no-auth is for addresses of this machine only/],
    [['up', '--listen', '127.0.0.1:0', '--auth-tokens', tokens], /the workers need a token with the scope worker/],
    [['worker', ...open], /without encryption/],
    [['coordinator', ...store, ...openHttp], /refusing to listen on 0\.0\.0\.0:0 without encryption/],
    [['coordinator', ...store, ...openHttp, '--auth-tokens', tokens], /without encryption/],
    [['coordinator', ...store, ...openHttp, ...tls], /without tokens/],
    [['coordinator', ...store, ...openHttp, '--no-auth'], /--no-auth is for addresses of this machine only, not for 0\.0\.0\.0:0/],
    [['coordinator', ...store, ...openHttp, '--no-auth', '--insecure'], /--no-auth is for addresses of this machine only/],
    [['up', ...openHttp], /refusing to listen on 0\.0\.0\.0:0 without encryption/],
    [['up', ...openHttp, '--no-auth'], /--no-auth is for addresses of this machine only, not for 0\.0\.0\.0:0/],
    [['worker', ...openHttp], /refusing to listen on 0\.0\.0\.0:0 without encryption/],
    [['worker', ...openHttp, ...tls, '--tls-ca', ca], /refusing to listen on 0\.0\.0\.0:0 without encryption/],
    [['worker', ...open, ...tls, '--tls-ca', ca], /without a token: whoever reaches it could fetch data/],
  ];
  for (const [words, message] of refused) {
    const { code, stderr } = await world.cli(words);
    assert.equal(code, 2, `${words}: ${stderr}`);
    assert.match(stderr, message);
  }
  for (const more of [[...tls, '--auth-tokens', tokens], ['--insecure']]) {
    const started = world.capstan('coordinator', ['coordinator', ...store, ...open, ...more]);
    await started.line(/this coordinator leads/);
    await started.stop();
  }
});

// ---- TLS from end to end ----

scenario('with certificates and tokens a query runs on two workers, its rows come back, and nobody else gets them', async (world) => {
  const certs = authority(world, 'certs');
  const other = authority(world, 'other');
  const tokens = world.file('tokens', tokenLines({ w: 'worker', s: 'submit' }));
  const keys = ['--tls-ca', certs.ca, '--tls-cert', certs.cert, '--tls-key', certs.key, '--tls-client-ca', certs.ca];
  const env = { CAPSTAN_TOKEN: 'w-secret' };
  const port = await freePort();
  const address = `127.0.0.1:${port}`;
  const coordinator = world.capstan(
    'coordinator',
    [
      'coordinator',
      ...['--store', `sqlite:${world.folder()}/state.db`, '--listen', `0.0.0.0:${port}`, '--advertise', address],
      ...['--auth-tokens', tokens, ...keys],
    ],
    { env },
  );
  await coordinator.line(/this coordinator leads/);
  const workers = ['a', 'b'].map((id) =>
    world.capstan(
      `worker ${id}`,
      [
        ...['worker', '--join', address, '--id', id, '--slots', '2', '--data', path.join(world.folder(), id)],
        ...['--listen', '0.0.0.0:0', '--advertise', '127.0.0.1:0', ...keys],
      ],
      { env },
    ),
  );
  for (const worker of workers) await worker.line(/registered/);
  const client = ['--server', address, '--tls-ca', certs.ca, '--tls-cert', certs.cert, '--tls-key', certs.key];
  const cli = (words) => world.cli([...words, ...client], { env: { CAPSTAN_TOKEN: 's-secret' } });
  await checkShuffle(world, cli);

  // Who is not let in tries until the time is up.
  const denied = async (words, more, timeout = '2s') =>
    world.cli([...words, '--server', address, '--timeout', timeout, ...more], { env });
  assert.equal((await denied(['submit', world.file('t.json', '{"tasks":[]}')], client.slice(2), '30s')).code, 4);
  assert.equal((await denied(['nodes'], [])).code, 3, 'without TLS');
  assert.equal((await denied(['nodes'], ['--tls-ca', certs.ca])).code, 3, 'without a certificate');
  assert.equal((await denied(['nodes'], ['--tls-ca', other.ca, ...client.slice(4)])).code, 3, 'a server of others');
  const theirs = ['--tls-ca', certs.ca, '--tls-cert', other.cert, '--tls-key', other.key];
  assert.equal((await denied(['nodes'], theirs)).code, 3, 'a certificate of others');
});

// The status of a request over a connection of its own, or what was wrong with that.
function httpsStatus(address, ca) {
  const [host, port] = address.split(':');
  return new Promise((resolve) => {
    https
      .get({ host, port, path: '/healthz', ca, agent: false }, (response) => {
        response.resume();
        resolve(response.statusCode);
      })
      .on('error', (error) => resolve(error.message));
  });
}

// A stream of events that stays open: { text } grows.
function httpsStream(world, address, ca, token) {
  const [host, port] = address.split(':');
  const headers = { authorization: `Bearer ${token}` };
  return new Promise((resolve, reject) => {
    const stream = { text: '' };
    stream.request = https.get({ host, port, path: '/v1/events', ca, agent: false, headers }, (response) => {
      response.setEncoding('utf8').on('data', (text) => (stream.text += text));
      response.on('error', () => {});
      resolve(stream);
    });
    stream.request.on('error', reject);
    world.atEnd(() => stream.request.destroy());
  });
}

scenario('a new certificate counts for new connections without a restart', async (world) => {
  const certs = authority(world, 'certs');
  const keep = { cert: `${certs.cert}.kept`, key: `${certs.key}.kept` };
  fs.copyFileSync(certs.cert, keep.cert);
  fs.copyFileSync(certs.key, keep.key);
  const next = authority(world, 'next');
  const tokens = world.file('tokens', tokenLines({ a: 'admin' }));
  const coordinator = world.capstan('coordinator', [
    'coordinator',
    ...['--store', `sqlite:${world.folder()}/state.db`, '--listen', '127.0.0.1:0', '--auth-tokens', tokens],
    ...['--tls-cert', certs.cert, '--tls-key', certs.key, '--http', '127.0.0.1:0'],
  ]);
  const [, address] = await coordinator.line(/serving on (\S+),/);
  const [, http] = await coordinator.line(/the HTTP API is at https:\/\/(\S+)/);
  await coordinator.line(/this coordinator leads/);
  const codeWith = async (authority, timeout) =>
    (
      await world.cli(['nodes', '--server', address, '--timeout', timeout, '--tls-ca', authority], {
        env: { CAPSTAN_TOKEN: 'a-secret' },
      })
    ).code;
  // Who does not trust the server tries until the time is up.
  const trusts = async (authority) => assert.equal(await codeWith(authority, '30s'), 0);
  const mistrusts = async (authority) => assert.equal(await codeWith(authority, '1s'), 3);
  const ca = fs.readFileSync(certs.ca);
  const nextCa = fs.readFileSync(next.ca);
  await trusts(certs.ca);
  await mistrusts(next.ca);
  assert.equal(await httpsStatus(http, ca), 200);
  assert.match(await httpsStatus(http, nextCa), /certificate|signature/i);
  const open = await httpsStream(world, http, ca, 'a-secret'); // over the certificate of before
  // First only one of the two files, which do not belong together then.
  fs.copyFileSync(next.cert, certs.cert);
  await coordinator.line(/the certificates stay as they were: the TLS certificate and key cannot be used/);
  await trusts(certs.ca);
  assert.equal(await httpsStatus(http, ca), 200);
  fs.copyFileSync(next.key, certs.key);
  await coordinator.line(/the certificates were read again/);
  await trusts(next.ca);
  await mistrusts(certs.ca);
  assert.equal(await httpsStatus(http, nextCa), 200);
  assert.match(await httpsStatus(http, ca), /certificate|signature/i);
  // What is open goes on: a stream that was there before tells of what happens now.
  const tree = world.file('tree.json', JSON.stringify({ tasks: [sleep('a', 1)] }));
  const submit = ['submit', tree, '--id', 'seen', '--server', address, '--tls-ca', next.ca];
  assert.equal((await world.cli(submit, { env: { CAPSTAN_TOKEN: 'a-secret' } })).code, 0);
  await until('the stream goes on', () => open.text.includes('"seen"'));
  // And once more, back to where it was.
  fs.copyFileSync(keep.cert, certs.cert);
  fs.copyFileSync(keep.key, certs.key);
  await until('the first certificate counts again', async () => (await httpsStatus(http, ca)) === 200);
  await trusts(certs.ca);
  open.request.destroy();
});

// ---- the database ----

scenario('the database is reached over TLS, and one with another certificate is not trusted', async (world) => {
  const certs = authority(world, 'certs');
  const other = authority(world, 'other');
  const port = await freePort();
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cap-pgtls-'));
  const script = path.join(root, 'tests/integration/postgres/server.sh');
  world.atEnd(() => execFileSync(script, ['remove', dir], { stdio: 'ignore' }));
  // The key must belong to the user that the server runs as.
  const isRoot = process.getuid() === 0;
  const owner = isRoot ? Number(execFileSync('id', ['-u', 'postgres'], { encoding: 'utf8' })) : process.getuid();
  fs.chmodSync(dir, 0o755);
  for (const [from, leaf] of [[certs.cert, 'server.pem'], [certs.key, 'server.key']]) {
    const file = path.join(dir, leaf);
    fs.copyFileSync(from, file);
    fs.chmodSync(file, 0o600);
    if (isRoot) fs.chownSync(file, owner, -1);
  }
  const settings = [`port=${port}`, 'listen_addresses=127.0.0.1', 'ssl=on'];
  const files = [`ssl_cert_file=${dir}/server.pem`, `ssl_key_file=${dir}/server.key`];
  execFileSync(script, ['start', dir, '--fsync=off', ...settings, ...files], { stdio: 'ignore' });
  const url = (ca) => `postgres://postgres@127.0.0.1:${port}/postgres?sslmode=verify-full&sslrootcert=${ca}`;
  const listen = ['--listen', '127.0.0.1:0'];
  const refused = await world.cli(['coordinator', '--store', url(other.ca), '--store-wait', '0s', ...listen]);
  assert.equal(refused.code, 3, refused.stderr);
  assert.match(refused.stderr, /certificate verify failed/);
  const wrongName = url(certs.ca).replace('@127.0.0.1', '@127.0.0.2');
  assert.notEqual((await world.cli(['coordinator', '--store', wrongName, '--store-wait', '0s', ...listen])).code, 0);

  const coordinator = world.capstan('coordinator', ['coordinator', '--store', url(certs.ca), ...listen]);
  const [, address] = await coordinator.line(/serving on (\S+),/);
  await coordinator.line(/this coordinator leads/);
  const tree = world.file('tree.json', JSON.stringify({ tasks: [sleep('a', 1)] }));
  const submitted = await world.cli(['submit', tree, '--id', 'kept', '--server', address]);
  assert.equal(submitted.code, 0, submitted.stderr);
  const sql = (text) =>
    execFileSync('psql', ['-h', dir, '-p', String(port), '-U', 'postgres', '-qAt', '-c', text], { encoding: 'utf8' }).trim();
  assert.equal(sql("select count(*) from capstan.jobs where job_id = 'kept'"), '1');
  const from = "from pg_stat_ssl join pg_stat_activity using (pid) where client_addr = '127.0.0.1'";
  assert.equal(sql(`select count(*) ${from} and not ssl`), '0');
  assert.ok(Number(sql(`select count(*) ${from} and ssl`)) >= 2, 'its connections are encrypted');
});

/** The status of asking a worker for data that nobody has. */
async function fetchFrom(world, worker, options) {
  const request = { query_id: 'q', stage_id: 0, map_task: 0, attempt: 1, reduce_partition: 0 };
  try {
    for await (const chunk of world.client(worker, options).stream('FetchShufflePartition', request)) assert.ok(chunk);
  } catch (error) {
    return error.code;
  }
  return 0;
}

scenario('the data of a worker is for those who have the token of workers', async (world) => {
  const { cli, address, home } = await startUp(world, { args: ['--workers', '1'] });
  const token = fs.readFileSync(tokenFile(home, address), 'utf8').trim();
  const { stdout } = await cli(['nodes', '--json']);
  const [{ address: worker }] = JSON.parse(stdout).nodes;
  assert.equal(await fetchFrom(world, worker, {}), grpcStatus.UNAUTHENTICATED);
  assert.equal(await fetchFrom(world, worker, { token: 'wrong' }), grpcStatus.UNAUTHENTICATED);
  assert.equal(await fetchFrom(world, worker, { token }), grpcStatus.NOT_FOUND);
});

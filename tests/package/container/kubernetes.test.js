// The pods of packaging/kubernetes as containers: three coordinators on PostgreSQL, workers, a proxy; with TLS, tokens, users,
// read-only file systems and probes as the manifests have them. Names in the DNS are those of a cluster. Run by
// tools/container.sh, which has built CAPSTAN_IMAGE and CAPSTAN_BUILD_IMAGE (with PostgreSQL and HAProxy).
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import https from 'node:https';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { objects, podman, podmanAsync, probe, secrets, startPod, status, until } from './pods.js';

const { CAPSTAN_IMAGE: image, CAPSTAN_BUILD_IMAGE: buildImage, CAPSTAN_SCRATCH: folder } = process.env;
const network = `capstan-${process.pid}`;
const all = objects();
const pod = (name) => all.find(({ kind, metadata }) => /Set$|Deployment/.test(kind) && metadata.name === name);
const domain = 'capstan-coordinators.capstan.svc';
const world = { folder, network, image, images: { 'haproxy:2.8': buildImage } };
const coordinators = [];
const workers = [];
let prefix;
let proxy;

const addressOf = (n) => `${prefix}.${n}`;
const leads = async ({ ip }) => (await status(https, ip, 7480, '/leaderz')) === 200;
const leader = async () => {
  for (const coordinator of coordinators) if (await leads(coordinator)) return coordinator;
  return undefined;
};
const exitCode = ({ full }) => podman('inspect', '--format', '{{.State.ExitCode}}', full);

// A client with the command of the README: the three names, the authority, a token.
const client = (...words) =>
  podmanAsync(
    ...['run', '--rm', `--network=${network}`, '--no-healthcheck', `--volume=${path.join(folder, 'client')}:/client:ro`, image],
    ...words,
    `--server=${[0, 1, 2].map((n) => `capstan-coordinator-${n}.${domain}:7400`).join(',')}`,
    ...['--tls-ca=/client/ca.pem', '--token-file=/client/admin.token'],
  );
const runCommand = (name, text) => {
  const tree = { tasks: [{ name, executor: 'command', inputs: { argv: ['sh', '-c', text] } }] };
  fs.writeFileSync(path.join(folder, 'client', `${name}.json`), JSON.stringify(tree));
  return client('run', `/client/${name}.json`, '--json');
};

before(async () => {
  podman('network', 'create', network);
  const [{ subnets }] = JSON.parse(podman('network', 'inspect', network));
  prefix = subnets[0].subnet.replace(/\.\d+\/\d+$/, '');
  world.secrets = secrets(path.join(folder, 'secrets'), 'postgres://capstan:of-the-database@db.example/postgres');
  world.configMaps = new Map(
    all.filter(({ kind }) => kind === 'ConfigMap').map(({ metadata, data }) => [metadata.name, new Map(Object.entries(data))]),
  );
  fs.mkdirSync(path.join(folder, 'client'));
  fs.mkdirSync(path.join(folder, 'data'));
  for (const file of ['ca.pem', 'admin.token']) {
    fs.copyFileSync(path.join(folder, 'secrets', file), path.join(folder, 'client', file));
    fs.chownSync(path.join(folder, 'client', file), 10001, 10001);
  }
  for (let n = 0; n < 6; n++) {
    const lines = Array.from({ length: 1000 }, (_, i) => `${i % 10},1\n`);
    fs.writeFileSync(path.join(folder, 'data', `${n}.csv`), `k,v\n${lines.join('')}`);
  }
  const server = `PATH=/usr/lib/postgresql/15/bin:$PATH; echo of-the-database >/tmp/password;
    initdb -D /tmp/db -U capstan --encoding=UTF8 --auth=scram-sha-256 --pwfile=/tmp/password >/dev/null &&
    echo 'host all all all scram-sha-256' >>/tmp/db/pg_hba.conf && exec postgres -D /tmp/db -k /tmp -c listen_addresses='*'`;
  podman(
    ...['run', '--detach', `--name=${network}-db`, `--network=${network}`, '--network-alias=db.example', '--user=postgres'],
    ...['--entrypoint=["/bin/sh","-c"]', buildImage, server],
  );
});

// What a process said last, if it should run and does not.
function lastWords(full) {
  if (podman('inspect', '--format', '{{.State.Running}}', full) === 'true') return;
  const { stdout, stderr } = spawnSync('podman', ['logs', '--tail=20', full], { encoding: 'utf8' });
  console.log(`${full} has ended:\n${stdout}${stderr}`);
}

after(() => {
  for (const full of podman('ps', '--all', '--format={{.Names}}', `--filter=name=^${network}-`).split('\n').filter(Boolean)) {
    lastWords(full);
    podman('rm', '--force', '--time=0', '--volumes', full);
  }
  podman('network', 'rm', '--force', network);
});

test('three coordinators start, are ready, and one of them leads', async () => {
  const set = pod('capstan-coordinator');
  assert.equal(set.spec.replicas, 3);
  for (let n = 0; n < 3; n++) {
    const name = `capstan-coordinator-${n}`;
    const names = [`${name}.${domain}`, `${name}.${domain}.cluster.local`];
    coordinators.push(startPod(set, world, { name, ip: addressOf(20 + n), names }));
  }
  for (const coordinator of coordinators) {
    for (const which of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
      await until(`${coordinator.name}: ${which}`, async () => (await probe(coordinator, which)) === 200);
    }
  }
  assert.equal((await Promise.all(coordinators.map(leads))).filter(Boolean).length, 1);
});

test('workers join, and are ready', async () => {
  const set = pod('capstan-worker');
  for (let n = 0; n < set.spec.replicas; n++) {
    const ip = addressOf(30 + n);
    const names = [`${ip.replaceAll('.', '-')}.capstan.pod`];
    const more = [`--volume=${path.join(folder, 'data')}:/srv/data:ro`];
    workers.push(startPod(set, world, { name: `capstan-worker-${n}`, ip, names, more }));
  }
  for (const worker of workers) {
    await until(`${worker.name}: ready`, async () => (await probe(worker, 'readinessProbe')) === 200);
  }
  await until('all are healthy', async () => (await client('nodes')).match(/healthy/g)?.length === workers.length);
});

test('processes are who the manifests say, and cannot write to the image', () => {
  for (const [{ full }, uid] of [
    [coordinators[0], '10001'],
    [workers[0], '10002'],
  ]) {
    assert.equal(podman('exec', full, 'sh', '-c', 'echo $(id -u) $(id -g)'), `${uid} ${uid}`);
    const writes = 'for folder in /usr /etc /var/lib; do ! touch $folder/x 2>/dev/null || echo $folder; done';
    assert.equal(podman('exec', full, 'sh', '-c', writes), '');
  }
  const tokens = podman('exec', workers[0].full, 'sh', '-c', 'ls /etc/capstan/tokens /etc/capstan/tls');
  assert.match(tokens, /worker\.token/);
  assert.doesNotMatch(tokens, /^tokens$|node\.key/m);
});

test('a tree and a query run, rows go from worker to worker with TLS', async () => {
  assert.match(await runCommand('who', 'id -un'), /capstan-worker/);
  const sql = "SELECT k, sum(v) AS n FROM read_csv('/srv/data/*.csv') GROUP BY k ORDER BY k";
  const { rows } = JSON.parse(await client('sql', sql, '-o', 'json', '--set', 'forced=true', '--set', 'partitions=3'));
  assert.deepEqual(rows.map(([k, n]) => [Number(k), Number(n)]), Array.from({ length: 10 }, (_, k) => [k, 600]));
  const fetched = workers.map(({ full }) => podman('exec', full, 'curl', '-fsS', 'http://127.0.0.1:7481/metrics'));
  assert.match(fetched.join('\n'), /^capstan_shuffle_bytes_total\{[^}]*\} [1-9]/m);
});

test('the proxy leads to whoever leads, with a certificate for its own name', async () => {
  const names = ['capstan', 'capstan.capstan.svc'];
  const instead = ['/usr/sbin/haproxy', '-W', '-db', '-f', '/usr/local/etc/haproxy/haproxy.cfg'];
  proxy = startPod(pod('capstan-leader'), world, { name: 'capstan-leader-0', ip: addressOf(40), names, instead });
  await until('the proxy is ready', async () => (await probe(proxy, 'readinessProbe')) === 200);
  await until('it leads somewhere', async () => (await status(https, proxy.ip, 7480, '/leaderz')) === 200);
  const curl = [
    ...['run', '--rm', `--network=${network}`, '--no-healthcheck', `--volume=${path.join(folder, 'client')}:/client:ro`],
    ...['--entrypoint=["/usr/bin/curl"]', image, '-fsS', '--cacert', '/client/ca.pem'],
    'https://capstan.capstan.svc:7480/leaderz',
  ];
  // HAProxy takes all servers for good until its first checks are done; it cuts connections to those that were not.
  await until('curl trusts it', () => spawnSync('podman', curl, { timeout: 60_000 }).status === 0);
});

test('a worker drains at SIGTERM: its task ends well, and so does the process', async () => {
  const job = runCommand('slow', 'touch /tmp/started; until test -e /tmp/go; do sleep 0.1; done; echo finished');
  // /tmp of the pod; podman does not execute anything in a container that it stops.
  const tmp = ({ name }, file) => path.join(folder, 'pods', name, 'tmp', file);
  const runs = (worker) => fs.existsSync(tmp(worker, 'started'));
  await until('a worker has the task', () => workers.some(runs));
  const worker = workers.find(runs);
  const stopped = podmanAsync('stop', worker.full);
  await until('it is not ready any more', async () => (await probe(worker, 'readinessProbe')) === 503);
  fs.writeFileSync(tmp(worker, 'go'), '');
  assert.match(await job, /finished/);
  await stopped;
  assert.equal(exitCode(worker), '0');
  podman('start', worker.full);
  await until('it is back', async () => (await probe(worker, 'readinessProbe')) === 200);
});

test('the leader hands over at SIGTERM: the next one leads, clients and the proxy follow', async () => {
  const old = await leader();
  await podmanAsync('stop', old.full);
  assert.equal(exitCode(old), '0');
  await until('another one leads', async () => (await leader()) !== undefined);
  await until('the proxy follows', async () => (await status(https, proxy.ip, 7480, '/leaderz')) === 200);
  assert.match(await runCommand('next', 'echo after'), /after/);
  podman('start', old.full);
  await until('it stands by', async () => (await probe(old, 'readinessProbe')) === 200);
});

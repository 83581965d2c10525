// The proxy of the Kubernetes manifests, with its real settings, in front of real coordinators: it follows the leader.
import fs from 'node:fs';
import https from 'node:https';
import { parseAllDocuments } from 'yaml';
import { assert, freePort, freshDatabase, Process, scenario, until } from '../e2e/harness.js';
import { has, read, run } from './program.js';

const settings = () =>
  parseAllDocuments(read('packaging/kubernetes/leader.yaml'))
    .map((document) => document.toJS())
    .find((object) => object.kind === 'ConfigMap').data['haproxy.cfg'];

// Not everybody has its folder in the path.
const haproxy = has('haproxy') ? 'haproxy' : '/usr/sbin/haproxy';

scenario('the Service capstan leads to whoever leads, also after the leader was killed', async (world) => {
  const folder = world.folder('leader');
  const secrets = `${folder}/secrets`;
  run('packaging/kubernetes/make-secrets.sh', [secrets, 'postgres://unused']);
  const store = freshDatabase();
  const start = async (id) => {
    const coordinator = world.capstan(id, [
      ...['coordinator', '--node-id', id, '--store', store, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0', '--no-auth'],
      ...['--http-name', 'capstan', '--set', 'leader_ttl_ms=2000'],
      ...['--tls-cert', `${secrets}/node.pem`, '--tls-key', `${secrets}/node.key`],
    ]);
    const [, address] = await coordinator.line(/HTTP API is at https:\/\/(\S+)/);
    return { id, coordinator, address };
  };
  const nodes = [await start('c0'), await start('c1'), await start('c2')];

  // Its settings, but for addresses: names of pods mean nothing here.
  const [port, health] = [await freePort(), await freePort()];
  const text = settings()
    .replace('bind :7480', `bind 127.0.0.1:${port}`)
    .replace('bind :7479', `bind 127.0.0.1:${health}`)
    .replaceAll('/etc/capstan/tls', secrets)
    .replace(/capstan-coordinator-(\d)\.\S+:7480 verifyhost \S+/g, (_, i) => `${nodes[i].address} verifyhost localhost`);
  fs.writeFileSync(`${folder}/haproxy.cfg`, text);
  const proxy = new Process('haproxy', haproxy, ['-f', `${folder}/haproxy.cfg`], { cwd: folder });

  // As a browser calls it: by the name of the Service, whose certificate is the coordinator's.
  const ask = (path) =>
    new Promise((resolve) => {
      const options = { host: '127.0.0.1', port, path, ca: fs.readFileSync(`${secrets}/ca.pem`), servername: 'capstan' };
      const request = https.get({ ...options, headers: { host: 'capstan:7480' }, agent: false, timeout: 2000 }, (response) => {
        let body = '';
        response.on('data', (bytes) => (body += bytes));
        response.on('end', () => resolve({ status: response.statusCode, body }));
      });
      request.on('timeout', () => request.destroy());
      request.on('error', (error) => resolve({ status: 0, body: error.message }));
    });
  const leader = async () => {
    if ((await ask('/leaderz')).status !== 200) return undefined;
    const { status, body } = await ask('/v1/leader');
    assert.equal(status, 200, body);
    return JSON.parse(body).node_id;
  };
  try {
    const first = await until('the proxy has found the leader', leader);
    await nodes.find(({ id }) => id === first).coordinator.kill();
    const second = await until('the proxy has found another', async () => {
      const id = await leader();
      return id !== first && id;
    });
    assert.ok(nodes.some(({ id }) => id === second));
    assert.equal((await fetch(`http://127.0.0.1:${health}/healthz`)).status, 200);
  } finally {
    await proxy.kill();
  }
});

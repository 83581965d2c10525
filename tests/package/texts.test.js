// Units, settings, manifests and the Containerfile name flags, settings, ports, files and labels. All of them must be known.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { parse, parseAllDocuments } from 'yaml';
import { binary, complaints, files, flagsOf, has, read, run, settings } from './program.js';

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-package-'));
process.on('exit', () => fs.rmSync(scratch, { recursive: true, force: true }));

// What a worker needs to leave, in seconds: the time to finish, to stop what is left, and to say goodbye.
const leaveSeconds = (drainMs) => Math.ceil((drainMs + settings().get('kill_grace_ms')) / 1000) + 15;

// ---- settings file ----

test('every key of capstan.conf, also of what is commented out, is a flag of its verb', () => {
  let section = '';
  let n = 0;
  for (const line of read('packaging/etc/capstan.conf').split('\n')) {
    section = /^\[(\w+)\]$/.exec(line)?.[1] ?? section;
    const [, key, value] = /^(?:# )?([a-z-]+) = (.+)$/.exec(line) ?? [];
    if (key === undefined) continue;
    n++;
    for (const verb of section === '' ? ['coordinator', 'worker'] : [section]) {
      assert.ok(flagsOf(verb).includes(key), `[${verb}] ${key}`);
    }
    if (key === 'set') assert.ok(settings().has(value.split('=')[0]), value);
  }
  assert.ok(n > 10, `found only ${n} keys`);
});

// ---- systemd ----

const units = files('packaging/systemd', /\.service$/);
const keysOf = (text) => [...text.matchAll(/^([A-Z][A-Za-z]+)=(.*)$/gm)].map(([, key, value]) => [key, value]);

test('units start verbs that exist, with flags that exist', () => {
  assert.equal(units.length, 2);
  for (const name of units) {
    const [command, ...more] = keysOf(read(name))
      .filter(([key]) => key === 'ExecStart')
      .map(([, value]) => value.split(' '));
    assert.deepEqual(more, []);
    assert.equal(command[0], '/usr/bin/capstan');
    assert.deepEqual(complaints(command.slice(1)), []);
  }
});

test('units keep processes from becoming more than they are', () => {
  for (const name of units) {
    const unit = new Map(keysOf(read(name)));
    for (const key of ['NoNewPrivileges', 'PrivateTmp', 'ProtectHome', 'ProtectKernelTunables', 'RestrictSUIDSGID']) {
      assert.equal(unit.get(key), 'yes', `${name}: ${key}`);
    }
    assert.equal(unit.get('ProtectSystem'), 'strict');
    assert.equal(unit.get('CapabilityBoundingSet'), '');
    assert.match(unit.get('User'), /^capstan/);
  }
});

test('the unit of workers leaves them the time to drain', () => {
  const unit = new Map(keysOf(read('packaging/systemd/capstan-worker@.service')));
  assert.equal(unit.get('KillMode'), 'mixed'); // else commands would get the signal, too
  assert.equal(unit.get('OOMPolicy'), 'continue');
  const least = leaveSeconds(settings().get('drain_timeout_ms'));
  assert.ok(Number(unit.get('TimeoutStopSec')) >= least, `${unit.get('TimeoutStopSec')} < ${least}`);
});

test('systemd knows every line of the units', { skip: !has('systemd-analyze') && 'systemd-analyze is not here' }, () => {
  const copies = units.map((name) => {
    const copy = path.join(scratch, path.basename(name));
    fs.writeFileSync(copy, read(name).replaceAll('/usr/bin/capstan', binary));
    return copy;
  });
  assert.equal(run('sh', ['-c', 'systemd-analyze verify --man=no "$@" 2>&1', '-', ...copies]), '');
  // Of 100, where 0 is none; a worker must let commands do more than a coordinator does itself.
  const most = { 'capstan-coordinator.service': 20, 'capstan-worker@.service': 35 };
  for (const copy of copies) {
    run('systemd-analyze', ['security', '--offline=true', `--threshold=${most[path.basename(copy)]}`, copy]);
  }
});

// ---- container ----

test('the container starts a verb that exists, as a user that is not root', () => {
  const text = read('packaging/container/Containerfile');
  assert.deepEqual(complaints(JSON.parse(/^CMD (\[.*\])$/m.exec(text)[1])), []);
  assert.deepEqual(JSON.parse(/^ENTRYPOINT (\[.*\])$/m.exec(text)[1]).slice(-1), ['/usr/bin/capstan']);
  assert.match(text, /^USER 10001:10001$/m);
  assert.match(text, /^HEALTHCHECK /m);
  assert.equal([...text.matchAll(/^FROM docker\.io\/library\/debian:12-slim/gm)].length, 2);
  assert.match(text, /rm -rf .*\/etc\/capstan\/tokens .*\/etc\/capstan\/\*\.token/); // no secrets in the image
});

// ---- Kubernetes ----

const folder = 'packaging/kubernetes';
const objects = files(folder, /\.yaml$/)
  .filter((name) => !name.endsWith('kustomization.yaml'))
  .flatMap((name) =>
    parseAllDocuments(read(name), { version: '1.1' }).map((document) => {
      assert.deepEqual(document.errors, [], name);
      return document.toJS();
    }),
  );
const of = (kind) => objects.filter((object) => object.kind === kind);
const pods = [...of('StatefulSet'), ...of('Deployment')];
const podNamed = (name) => pods.find((pod) => pod.metadata.name === name);
const fits = (selector, labels) => Object.entries(selector).every(([key, value]) => labels[key] === value);
const selectedBy = (selector) => pods.filter((pod) => fits(selector, pod.spec.template.metadata.labels));
const containerOf = (pod) => pod.spec.template.spec.containers[0];
const portsOf = (pod) => containerOf(pod).ports;

// The words after `capstan`: of arguments as they are, or of the one that a shell runs.
function wordsOf(pod) {
  const { command, args } = containerOf(pod);
  if (command === undefined) return args;
  const [, words] = /^exec capstan (.*)$/s.exec(args[0]);
  return words.match(/(?:[^\s"]|"(?:\$\([^)]*\)|[^"])*")+/g).map((word) => word.replaceAll('"', ''));
}
const flag = (pod, name) =>
  wordsOf(pod)
    .filter((word) => word.startsWith(`--${name}=`))
    .map((word) => word.slice(name.length + 3));

const coordinator = podNamed('capstan-coordinator');
const worker = podNamed('capstan-worker');
const proxy = podNamed('capstan-leader');

test('kustomization.yaml lists all manifests', () => {
  const { resources, images } = parse(read(`${folder}/kustomization.yaml`));
  const there = files(folder, /\.yaml$/).map((name) => path.basename(name));
  assert.deepEqual([...resources, 'kustomization.yaml'].sort(), there.sort());
  assert.equal(`capstan ${images[0].newTag}\n`, run(binary, ['version']));
  if (has('kubectl')) assert.match(run('kubectl', ['kustomize', folder]), /registry\.example\/capstan:/);
});

test('manifests start verbs that exist, with flags and settings that exist', () => {
  for (const pod of [coordinator, worker]) assert.deepEqual(complaints(wordsOf(pod)), []);
  assert.equal(wordsOf(coordinator)[0], 'coordinator');
  assert.equal(wordsOf(worker)[0], 'worker');
  assert.ok(wordsOf(worker).length > 10);
});

test('every selector selects, and every port that is named is there', () => {
  for (const object of [...of('Service'), ...of('PodDisruptionBudget'), ...of('NetworkPolicy')]) {
    const selector = object.kind === 'Service' ? object.spec.selector : (object.spec.selector ?? object.spec.podSelector);
    const selected = selectedBy(selector.matchLabels ?? (object.kind === 'Service' ? selector : {}));
    assert.ok(selected.length > 0, `${object.kind} ${object.metadata.name} selects nothing`);
    const named = [
      ...(object.kind === 'Service' ? object.spec.ports.map((port) => port.targetPort) : []),
      ...(object.spec.ingress ?? []).flatMap((rule) => rule.ports.map(({ port }) => port)),
    ];
    for (const pod of selected) {
      for (const port of named) {
        assert.ok(
          portsOf(pod).some(({ name }) => name === port),
          `${object.kind} ${object.metadata.name}: ${pod.metadata.name} has no port ${port}`,
        );
      }
    }
    for (const peer of (object.spec.ingress ?? []).flatMap((rule) => rule.from)) {
      const labels = peer.podSelector?.matchLabels;
      if (labels?.['app.kubernetes.io/component'] !== undefined) assert.ok(selectedBy(labels).length > 0);
    }
  }
  for (const pod of pods) {
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
      const { httpGet, tcpSocket } = containerOf(pod)[probe] ?? {};
      const port = (httpGet ?? tcpSocket)?.port;
      assert.ok(port === undefined || portsOf(pod).some(({ name }) => name === port), `${pod.metadata.name} ${probe}`);
    }
  }
});

test('processes listen on the ports that their containers show', () => {
  for (const pod of [coordinator, worker]) {
    const said = [...flag(pod, 'listen'), ...flag(pod, 'http')].map((address) => Number(address.split(':').pop()));
    assert.deepEqual(
      said,
      portsOf(pod).map(({ containerPort }) => containerPort),
    );
  }
  assert.equal(containerOf(coordinator).readinessProbe.httpGet.path, '/readyz');
});

test('workers and proxies know all coordinators', () => {
  const { replicas, serviceName } = coordinator.spec;
  const names = Array.from({ length: replicas }, (_, i) => `capstan-coordinator-${i}.${serviceName}.capstan.svc`);
  assert.deepEqual(flag(worker, 'join')[0].split(','), names.map((name) => `${name}:7400`));
  const config = of('ConfigMap')[0].data['haproxy.cfg'];
  const servers = [...config.matchAll(/^ +server \S+ (\S+) verifyhost (\S+)$/gm)];
  assert.deepEqual(servers.map(([, address]) => address), names.map((name) => `${name}.cluster.local:7480`));
  assert.deepEqual(servers.map(([, , name]) => name), names);
  assert.match(config, /option httpchk GET \/leaderz/);
  assert.deepEqual(flag(coordinator, 'advertise'), [`$(POD_NAME).${serviceName}.capstan.svc:7400`]);
  assert.equal(of('Service').find(({ metadata }) => metadata.name === serviceName).spec.clusterIP, 'None');
});

test('pods are no root, have no rights, and no variables that look like flags', () => {
  for (const pod of pods) {
    const { spec } = pod.spec.template;
    assert.equal(spec.securityContext.runAsNonRoot, true);
    assert.equal(spec.enableServiceLinks, false, `${pod.metadata.name}: CAPSTAN_PORT of the Service would be read`);
    assert.equal(spec.automountServiceAccountToken, false);
    const { securityContext } = containerOf(pod);
    assert.deepEqual(securityContext.capabilities.drop, ['ALL']);
    assert.equal(securityContext.allowPrivilegeEscalation, false);
    assert.equal(securityContext.readOnlyRootFilesystem, true);
  }
});

test('workers get the time to drain', () => {
  const drainMs = Number(flag(coordinator, 'set').find((pair) => pair.startsWith('drain_timeout_ms=')).split('=')[1]);
  const { terminationGracePeriodSeconds } = worker.spec.template.spec;
  assert.ok(terminationGracePeriodSeconds >= leaveSeconds(drainMs), `${terminationGracePeriodSeconds} s`);
});

test('every file that is named comes from a Secret that make-secrets.sh makes, and certificates fit all names', () => {
  const secrets = path.join(scratch, 'secrets');
  const made = parseAllDocuments(run(`${folder}/make-secrets.sh`, [secrets, 'postgres://a:b@c/d']))
    .map((document) => document.toJS())
    .filter((secret) => secret !== null);
  const keys = new Map(made.map((secret) => [secret.metadata.name, Object.keys(secret.data)]));
  const mounted = new Map();
  for (const pod of pods) {
    const { volumes } = pod.spec.template.spec;
    const there = containerOf(pod).volumeMounts.flatMap(({ name, mountPath }) => {
      const volume = volumes.find((one) => one.name === name);
      assert.ok(volume, `${pod.metadata.name}: there is no volume ${name}`);
      if (volume.configMap) assert.ok(of('ConfigMap').some(({ metadata }) => metadata.name === volume.configMap.name));
      if (!volume.secret) return [];
      const all = keys.get(volume.secret.secretName);
      const chosen = volume.secret.items?.map(({ key }) => key) ?? all;
      for (const key of chosen) assert.ok(all.includes(key), `${volume.secret.secretName} has no ${key}`);
      return chosen.map((key) => `${mountPath}/${key}`);
    });
    mounted.set(pod, there);
    const text = pod === proxy ? of('ConfigMap')[0].data['haproxy.cfg'] : wordsOf(pod).join(' ');
    const wanted = [...new Set(text.match(/\/etc\/capstan\/[\w./]+/g))];
    assert.ok(wanted.length > 0);
    for (const file of wanted) assert.ok(there.includes(file), `${pod.metadata.name}: nothing mounts ${file}`);
    for (const { valueFrom } of containerOf(pod).env ?? []) {
      const from = valueFrom?.secretKeyRef;
      if (from) assert.ok(keys.get(from.name)?.includes(from.key), `${from.name}/${from.key}`);
    }
  }
  assert.equal(Buffer.from(made.find(({ metadata }) => metadata.name === 'capstan-store').data.url, 'base64').toString(), 'postgres://a:b@c/d');
  // Each certificate is for the names under which its pods are called, and for none of the others'.
  const service = of('Service').find(({ metadata }) => metadata.name === 'capstan').metadata.name;
  const names = new Map([
    [coordinator, ['capstan-coordinator-2.capstan-coordinators.capstan.svc', service, ...flag(coordinator, 'http-name')]],
    [worker, ['10-1-2-3.capstan.pod']],
  ]);
  const everybody = [...names.values()].flat();
  for (const [pod, own] of names) {
    const file = path.join(secrets, path.basename(flag(pod, 'tls-cert')[0]));
    const verify = (name) => run('openssl', ['verify', '-CAfile', `${secrets}/ca.pem`, '-verify_hostname', name, file]);
    for (const name of own) verify(name);
    for (const name of [...everybody.filter((one) => !own.includes(one)), 'other.example']) {
      assert.throws(() => verify(name), /hostname mismatch/, `${file} is good for ${name}`);
    }
    const key = path.join(secrets, path.basename(flag(pod, 'tls-key')[0]));
    assert.equal(run('openssl', ['x509', '-in', file, '-noout', '-pubkey']), run('openssl', ['pkey', '-in', key, '-pubout']));
  }
  // Commands of tasks read what a worker reads: its own key, and no other.
  assert.deepEqual(mounted.get(worker).map((file) => path.basename(file)).sort(), ['ca.pem', 'worker.key', 'worker.pem', 'worker.token']);
  assert.ok(!mounted.get(proxy).some((file) => file.endsWith('.key')));
  assert.match(flag(worker, 'advertise')[0], /^\$\(printf %s \$POD_IP \| tr \.: -\)\.capstan\.pod:7401$/);
  const repeated = run(`${folder}/make-secrets.sh`, [secrets, 'postgres://a:b@c/d']);
  for (const { data } of made) {
    for (const value of Object.values(data)) assert.ok(repeated.includes(value), 'a second call makes the same');
  }
});

// Pods of the manifests as containers of podman: arguments, variables, users, limits and mounts are those of the files.
import { execFile, execFileSync } from 'node:child_process';
import fs from 'node:fs';
import https from 'node:https';
import http from 'node:http';
import path from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';

const manifests = new URL('../../../packaging/kubernetes/', import.meta.url).pathname;

export const podman = (...args) => execFileSync('podman', args, { encoding: 'utf8', timeout: 120_000 }).trim();
export const podmanAsync = async (...args) =>
  (await promisify(execFile)('podman', args, { encoding: 'utf8', timeout: 120_000 })).stdout.trim();

const documents = (text) => parseAllDocuments(text, { version: '1.1' }).map((document) => document.toJS());

export function objects() {
  return fs
    .readdirSync(manifests)
    .filter((name) => name.endsWith('.yaml'))
    .flatMap((name) => documents(fs.readFileSync(path.join(manifests, name), 'utf8')));
}

// The Secrets that make-secrets.sh prints: name -> file -> content.
export function secrets(folder, store) {
  const printed = execFileSync(path.join(manifests, 'make-secrets.sh'), [folder, store], { encoding: 'utf8' });
  return new Map(
    documents(printed).map(({ metadata, data }) => [
      metadata.name,
      new Map(Object.entries(data).map(([file, content]) => [file, Buffer.from(content, 'base64')])),
    ]),
  );
}

const bytes = (quantity) => {
  const [, number, unit] = /^(\d+)(Ki|Mi|Gi)$/.exec(quantity);
  return Number(number) * 1024 ** (1 + ['Ki', 'Mi', 'Gi'].indexOf(unit));
};

// Makes the folder that stands for a volume, with the modes and the group that Kubernetes gives it.
function volumeFolder(volume, folder, group, world) {
  fs.mkdirSync(folder, { recursive: true });
  const { secret, configMap, emptyDir } = volume;
  if (emptyDir) {
    fs.chownSync(folder, 0, group);
    fs.chmodSync(folder, 0o2777);
    return folder;
  }
  const all = secret ? world.secrets.get(secret.secretName) : world.configMaps.get(configMap.name);
  const items = secret?.items ?? [...all.keys()].map((key) => ({ key, path: key }));
  const mode = secret?.defaultMode ?? 0o644;
  for (const item of items) {
    const file = path.join(folder, item.path);
    fs.writeFileSync(file, all.get(item.key));
    fs.chownSync(file, 0, group);
    fs.chmodSync(file, mode);
  }
  fs.chmodSync(folder, 0o755);
  return folder;
}

// WORLD: folder, network, image, secrets, configMaps. OPTIONS: name and address of the pod, its names in the DNS, and what
// is not in the manifests: more arguments of podman, another command.
export function startPod(pod, world, { name, ip, names, more = [], instead }) {
  const { spec } = pod.spec.template;
  const container = spec.containers[0];
  const { runAsUser, runAsGroup, fsGroup } = spec.securityContext;
  const { readOnlyRootFilesystem, allowPrivilegeEscalation, capabilities } = container.securityContext;
  const valueOf = ({ value, valueFrom }) => {
    if (valueFrom?.secretKeyRef) return String(world.secrets.get(valueFrom.secretKeyRef.name).get(valueFrom.secretKeyRef.key));
    return { 'metadata.name': name, 'status.podIP': ip }[valueFrom?.fieldRef.fieldPath] ?? value;
  };
  const env = new Map((container.env ?? []).map((entry) => [entry.name, valueOf(entry)]));
  const expand = (text) => text.replace(/\$\((\w+)\)/g, (whole, key) => env.get(key) ?? whole);
  const command = instead ?? container.command;
  podman(
    'run',
    '--detach',
    `--name=${world.network}-${name}`,
    `--network=${world.network}`,
    `--ip=${ip}`,
    ...names.map((alias) => `--network-alias=${alias}`),
    `--user=${runAsUser}:${runAsGroup}`,
    `--group-add=${fsGroup}`,
    ...(readOnlyRootFilesystem ? ['--read-only', '--read-only-tmpfs=false'] : []),
    ...(allowPrivilegeEscalation ? [] : ['--security-opt=no-new-privileges']),
    ...capabilities.drop.map((capability) => `--cap-drop=${capability}`),
    `--memory=${bytes(container.resources.limits.memory)}`,
    `--stop-timeout=${spec.terminationGracePeriodSeconds ?? 30}`,
    '--no-healthcheck',
    ...[...env].map(([key, value]) => `--env=${key}=${value}`),
    ...(container.volumeMounts ?? []).map(({ name: volumeName, mountPath, readOnly }) => {
      const volume = spec.volumes.find((candidate) => candidate.name === volumeName);
      const folder = path.join(world.folder, 'pods', name, volumeName);
      return `--volume=${volumeFolder(volume, folder, fsGroup, world)}:${mountPath}${readOnly ? ':ro' : ''}`;
    }),
    ...(command ? [`--entrypoint=${JSON.stringify(command)}`] : []),
    ...more,
    world.images[container.image] ?? world.image,
    ...(instead ? [] : (container.args ?? []).map(expand)),
  );
  return { name, ip, container, full: `${world.network}-${name}` };
}

// The answer to a probe, as the kubelet asks: the status, or 0 if there is none.
export function probe({ ip, container }, which) {
  const { path: target, port, scheme } = container[which].httpGet;
  const { containerPort } = container.ports.find(({ name }) => name === port);
  return status(scheme === 'HTTPS' ? https : http, ip, containerPort, target);
}

export function status(protocol, host, port, target) {
  return new Promise((resolve) => {
    const request = protocol.get({ host, port, path: target, rejectUnauthorized: false, timeout: 2000, agent: false });
    request.on('response', (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    request.on('timeout', () => request.destroy());
    request.on('error', () => resolve(0));
  });
}

export async function until(what, condition, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

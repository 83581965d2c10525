// program.js - what the program itself says about its verbs, flags and settings, for comparison with texts that name them.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const binary = path.resolve(root, process.env.CAPSTAN_BIN ?? 'build/release/bin/capstan');
export const read = (name) => fs.readFileSync(path.join(root, name), 'utf8');
export const files = (folder, pattern) =>
  fs
    .readdirSync(path.join(root, folder))
    .filter((name) => pattern.test(name))
    .map((name) => `${folder}/${name}`);

// Runs a program and returns what it prints; throws with its errors if it fails.
export const run = (file, args, options = {}) =>
  execFileSync(file, args, { encoding: 'utf8', cwd: root, stdio: ['pipe', 'pipe', 'pipe'], maxBuffer: 1 << 26, ...options });

export const capstan = (...args) => run(binary, args, { env: { PATH: process.env.PATH } });

export const has = (tool) => {
  try {
    run('sh', ['-c', `command -v ${tool}`]);
    return true;
  } catch {
    return false;
  }
};

const help = new Map();
const helpOf = (verb) => {
  if (!help.has(verb)) help.set(verb, capstan(verb, '--help'));
  return help.get(verb);
};

export const verbs = () => JSON.parse(capstan('help', '--json')).verbs.map(({ name }) => name);

// The names of a verb's flags, without the dashes.
export const flagsOf = (verb) => [...helpOf(verb).matchAll(/^ {2}(?:-\w, )?--([a-z-]+)/gm)].map(([, name]) => name);

// The settings of a coordinator, with their defaults.
export const settings = () =>
  new Map(
    [...capstan('help', '--markdown').matchAll(/^\| `([a-z_]+)` \| (\d+) \| \d+ \| \d+ \|/gm)].map(([, name, value]) => [
      name,
      Number(value),
    ]),
  );

// What is wrong with the words after `capstan`: an unknown verb, flag or setting. Words are as a shell has split them.
export function complaints(words) {
  const [verb, ...rest] = words;
  if (!verbs().includes(verb)) return [`there is no verb '${verb}'`];
  const known = flagsOf(verb);
  const found = [];
  rest.forEach((word, i) => {
    const [, flag, value] = /^--([a-z-]+)(?:=(.*))?$/.exec(word) ?? [];
    if (flag === undefined) return;
    if (!known.includes(flag)) found.push(`${verb}: there is no flag --${flag}`);
    const setting = flag === 'set' ? (value ?? rest[i + 1]).split('=')[0] : undefined;
    if (setting !== undefined && !settings().has(setting)) found.push(`${verb}: there is no setting ${setting}`);
  });
  return found;
}

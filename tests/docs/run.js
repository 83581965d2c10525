// run.js [--binary FILE] [NAME] - runs the documents, or those with NAME in their name. The rules are in README.md here.
//
// Several documents run at a time: they wait more than they work. The last line is `N passed, N failed`.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { checkInline, checkLinks, checkProtocol } from './checks.js';
import { Document } from './document.js';
import { claimNetwork } from './network.js';
import { selftest } from './selftest.js';

const root = fileURLToPath(new URL('../../', import.meta.url)).replace(/\/$/, '');
const AT_A_TIME = 4;
const NOT_RUN_MAX = 10; // as many as there are; one more has to replace one of them, or be run

const names = process.argv.slice(2);
const binaryAt = names.indexOf('--binary');
const binary = path.resolve(root, binaryAt < 0 ? 'build/release/bin/capstan' : names.splice(binaryAt, 2)[1]);
const filter = names[0] ?? '';

function documents() {
  const found = ['README.md'];
  const walk = (folder) => {
    for (const entry of fs.readdirSync(path.join(root, folder), { withFileTypes: true })) {
      if (entry.isDirectory()) walk(`${folder}/${entry.name}`);
      else if (entry.name.endsWith('.md')) found.push(`${folder}/${entry.name}`);
    }
  };
  walk('docs');
  for (const folder of ['examples', 'clients']) {
    for (const name of fs.readdirSync(path.join(root, folder))) {
      if (fs.existsSync(path.join(root, folder, name, 'README.md'))) found.push(`${folder}/${name}/README.md`);
    }
  }
  return found.sort().filter((name) => name.includes(filter));
}

// ---- all of it ----

let passed = 0;
let failed = 0;
const totals = { run: 0, compared: 0, files: 0, notRun: [] };

async function attempt(what, body) {
  const start = Date.now();
  try {
    const said = await body();
    console.log(`ok: ${what} (${said ? `${said}, ` : ''}${((Date.now() - start) / 1000).toFixed(1)} s)`);
    passed++;
  } catch (error) {
    console.log(`not ok: ${what}\n${error.message.replace(/^/gm, '    ')}`);
    failed++;
  }
}

async function runDocument(name, network) {
  const markdown = fs.readFileSync(path.join(root, name), 'utf8');
  const place = name.startsWith('examples/') ? path.dirname(name) : undefined;
  const document = new Document(name, markdown, { network, binary, place });
  await document.run();
  checkInline(name, markdown, binary);
  checkLinks(name, markdown);
  const { counts } = document;
  for (const key of Object.keys(totals)) totals[key] = totals[key].concat?.(counts[key]) ?? totals[key] + counts[key];
  return `${counts.run} run, ${counts.compared} compared`;
}

async function main() {
  const start = Date.now();
  const part = await claimNetwork();
  const queue = documents();
  const total = queue.length;
  const lane = async () => {
    while (queue.length > 0) {
      const number = total - queue.length;
      const name = queue.shift();
      await attempt(name, () => runDocument(name, `127.${part}.${number + 1}`));
    }
  };
  const tests = filter === '' || 'selftest'.includes(filter) ? selftest({ binary, part }) : [];
  if (filter === '') tests.push({ name: 'docs/protocol.md names every method', body: checkProtocol });
  const testLane = async () => {
    for (const { name, body } of tests) await attempt(name, body);
  };
  await Promise.all([...Array.from({ length: AT_A_TIME }, lane), testLane()]);
  for (const line of totals.notRun) console.log(`not run: ${line}`);
  console.log(
    `${totals.run} blocks and commands run, ${totals.compared} outputs compared, ${totals.files} files written, ` +
      `${totals.notRun.length} blocks not run (at most ${NOT_RUN_MAX}), ${((Date.now() - start) / 1000).toFixed(1)} s`,
  );
  if (totals.notRun.length > NOT_RUN_MAX) {
    console.log(`not ok: too many blocks are not run`);
    failed++;
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 && passed > 0 ? 0 : 1);
}

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => process.exit(1));
await main();

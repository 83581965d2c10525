// newcomer.js - the way of a new user, on a clean clone of the last commit: what README says first, then the quick
// start, and at its end the dashboard in a browser, with the jobs of that page. Prints when each step was done, from the
// first command on, and how long it took; fails if a step does. Run through ./dev soak newcomer.
//
// CAPSTAN_BARS=1, for a machine with nothing else to do, makes the time of ./dev run count, too.
//
// Packages of Debian are expected to be there (./dev setup), as for any test; npm's are fetched, as a new user would.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { checkQuiet, closeBrowser, openPage } from '../browser/browser.js';
import { Document } from './document.js';
import { parse } from './markdown.js';
import { claimNetwork } from './network.js';

const root = fileURLToPath(new URL('../../', import.meta.url)).replace(/\/$/, '');
const RUN_S_MAX = 180; // ./dev run: three minutes on two cores
const CORES = 2;
const IS_STRICT = process.env.CAPSTAN_BARS === '1'; // nobody else wants the machine: the bar itself is asserted
// Results of the demonstration: the sum of its tree, and the rows of its query.
const DEMO_PRINTS = [
  ['the result of the tree', /\b32\b/],
  ['the columns of the query', /country.*customers.*sales.*revenue.*largest/],
  ['its first row', /Kenya/],
  ['its last row', /Norway/],
];

const start = Date.now();
let last = start;
const seconds = (from) => ((Date.now() - from) / 1000).toFixed(1).padStart(6);
const say = (what) => {
  console.log(`${seconds(start)} s  ${seconds(last)} s  ${what}`);
  last = Date.now();
};

// The block of README under "Two commands": its first line is what a newcomer types first.
function firstCommand(readme) {
  const block = parse(readme).find(({ text }) => /^\.\/dev /m.test(text ?? ''));
  return block.text.split('\n')[0].replace(/\s+#.*/, '');
}

// The dashboard at the address that `capstan up` has printed: what the reader has done is there, and goes on from there.
async function lookAround(document) {
  const [, address] = /dashboard and HTTP API at (\S+)$/m.exec(document.screen('up'));
  const ends = [];
  const page = await openPage({ atEnd: (end) => ends.push(end) }, address);
  await page.getByText('Throughput').waitFor();
  say('dashboard: open, and nothing had to be typed');
  await page.getByRole('link', { name: 'Jobs', exact: true }).click();
  for (const row of [/^first .*succeeded/, /^broken .*failed/, /canceled/]) await page.getByRole('row', { name: row }).first().waitFor();
  say('dashboard: the jobs of the page are listed');
  await page.getByRole('link', { name: 'broken' }).click();
  await page.getByText("task 'load' failed in attempt 2: exit code 1: there is no ready.txt").waitFor();
  await page.getByRole('button', { name: /^report: skipped/ }).waitFor();
  say('dashboard: what failed says why');
  await page.getByRole('link', { name: 'SQL', exact: true }).click();
  await page.getByRole('button', { name: 'sales', exact: true }).click(); // the table that the reader has named
  await page.getByRole('textbox', { name: 'SQL statement' }).press('Control+Enter');
  await page.getByText('1,000 rows').waitFor();
  say('dashboard: the first query has run there');
  checkQuiet(page, new URL('/', address).origin);
  for (const end of ends) await end();
  await closeBrowser();
}

async function follow(clone, name, part, milestones, atEnd) {
  const markdown = fs.readFileSync(path.join(clone, name), 'utf8');
  const document = new Document(name, markdown, {
    network: `127.${part}.1`,
    binary: path.join(clone, 'build/release/bin/capstan'),
    source: clone,
    atEnd,
    onStep: ({ text = '' }) => {
      for (const [what, pattern] of milestones) {
        if (pattern.test(text)) say(`${name}: ${what}`);
      }
    },
  });
  await document.run();
  say(`${name}: all of it, ${document.counts.run} commands and blocks`);
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-newcomer-'));
  process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  const clone = path.join(folder, 'capstan');
  execFileSync('git', ['clone', '--quiet', root, clone], { stdio: 'inherit' });
  say('cloned');

  const command = firstCommand(fs.readFileSync(path.join(clone, 'README.md'), 'utf8'));
  const began = Date.now();
  const cpuFile = path.join(folder, 'cpu');
  const script = `TIMEFORMAT='%U %S'; { time { ${command}; } 2>&4; } 4>&2 2>'${cpuFile}'`;
  const printed = execFileSync('bash', ['-c', script], {
    cwd: clone,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const took = (Date.now() - began) / 1000;
  const [user, system] = fs.readFileSync(cpuFile, 'utf8').trim().split(' ').map(Number);
  console.log(printed.replace(/^/gm, '            | '));
  say(
    `${command}: a result in the terminal; took ${took.toFixed(1)} s, ${(user + system).toFixed(1)} s of processor time`,
  );
  for (const [what, pattern] of DEMO_PRINTS) {
    if (!pattern.test(printed)) throw new Error(`${command} has not printed ${what}`);
  }
  if (took > RUN_S_MAX && IS_STRICT) throw new Error(`${command} took ${took.toFixed(1)} s, more than ${RUN_S_MAX} s`);
  if (took > RUN_S_MAX)
    console.log(`that is more than ${RUN_S_MAX} s; the machine's load is ${os.loadavg()[0].toFixed(1)}`);
  // Other load stretches the time, not the work.
  if (user + system > RUN_S_MAX * CORES) throw new Error(`it cannot take less than ${RUN_S_MAX} s on ${CORES} cores`);

  const part = await claimNetwork();
  await follow(clone, 'README.md', part, [
    ['the cluster is up', /^capstan up\n$/],
    ['a tree has run', /capstan run/],
    ['a query has run', /capstan sql/],
  ]);
  const quickStart = [
    ['the cluster is up', /^capstan up\n$/],
    ['the first tree has run', /capstan run first/],
    ['the first query has run', /capstan sql 'SELECT shop/],
    ['the dashboard is served', /grep title/],
    ['the HTTP API has answered', /v1\/jobs/],
  ];
  await follow(clone, 'docs/quick-start.md', part, quickStart, lookAround);
}

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => process.exit(1));
try {
  await main();
  console.log('1 passed, 0 failed');
  process.exit(0);
} catch (error) {
  console.log(error.message);
  console.log('0 passed, 1 failed');
  process.exit(1);
}

// browser.js - Debian's Chromium, driven from tests: pages that notice what they must not do, clusters with a dashboard.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { assert, Cluster, command, root, sleep } from '../e2e/harness.js';

export const pictures = path.join(root, 'build/browser');
fs.mkdirSync(pictures, { recursive: true });

const axeSource = fs.readFileSync(fileURLToPath(new URL('node_modules/axe-core/axe.min.js', import.meta.url)), 'utf8');

// Names that lead here although they are somebody else's, as an attacker's name server would tell.
export const REBOUND = 'rebound.example';

let browser;

async function theBrowser() {
  browser ??= await chromium.launch({
    executablePath: process.env.CAPSTAN_CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', `--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`],
  });
  return browser;
}

export async function closeBrowser() {
  await browser?.close();
  browser = undefined;
}

// A page at this address, closed with the world. What it asked for and what it complained about is kept.
export async function openPage(world, url, options = {}) {
  const context = await (await theBrowser()).newContext({ viewport: { width: 1280, height: 800 }, ...options });
  world.atEnd(() => context.close());
  const page = await context.newPage();
  page.asked = [];
  page.complaints = [];
  page.on('request', (request) => page.asked.push(request.url()));
  page.on('console', (message) => {
    // The browser itself reports answers such as 401; what scripts report, and what the page's own rules refuse, are ours.
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) page.complaints.push(message.text());
  });
  page.on('pageerror', (error) => page.complaints.push(String(error)));
  page.setDefaultTimeout(90000);
  await page.addInitScript(() => {
    window.longTasks = [];
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) window.longTasks.push(duration);
    }).observe({ type: 'longtask', buffered: true });
  });
  if (url) await page.goto(url);
  return page;
}

// `up` with a dashboard.
export async function upWithDashboard(world, args = [], { auth = false, workers = 2, slots = 2 } = {}) {
  const home = world.folder('home');
  const up = world.capstan(
    'up',
    [
      'up',
      ...['--data', `${world.folder('up')}/data`, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'],
      ...['--workers', String(workers), '--slots', String(slots), ...(auth ? [] : ['--no-auth']), ...args],
    ],
    { env: { XDG_CONFIG_HOME: home } },
  );
  const [, address] = await up.line(/dashboard and HTTP API at (\S+)$/m);
  const base = new URL('/', address).origin;
  const token = new URL(address).hash.replace('#token=', '');
  const headers = { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const post = async (where, body) => {
    const response = await fetch(base + where, { method: 'POST', headers, body: JSON.stringify(body) });
    const answer = await response.json();
    assert.equal(response.status, 200, JSON.stringify(answer));
    return answer;
  };
  const get = async (where) => (await fetch(base + where, { headers })).json();
  const ended = async (id) => get(`/v1/jobs/${id}?wait_ms=60000`);
  return { up, address, base, token, post, get, ended };
}

// A cluster whose coordinator has a dashboard, and can be started again at the same addresses.
export async function clusterWithDashboard(world, { workers = 1, slots = 2, args = [], ...options } = {}) {
  const cluster = new Cluster(world, options);
  let http = '127.0.0.1:0';
  cluster.startAgain = async () => {
    const coordinator = await cluster.startCoordinator({ args: ['--http', http, ...args] });
    cluster.base = (await coordinator.line(/the HTTP API is at (http:\S+)/))[1];
    http = new URL(cluster.base).host;
    return coordinator;
  };
  await cluster.startAgain();
  cluster.client = world.client(cluster.address);
  for (let i = 1; i <= workers; i++) await cluster.startWorker({ id: `w${i}`, slots });
  return cluster;
}

// A task that runs until a file appears.
export const gated = (name, gate, more) => command(name, `while [ ! -e ${gate} ]; do sleep 0.02; done`, more);

const SALES =
  "create table sales as select i as sale, i % 1000 as customer, ((i * 7919) % 50000) / 100.0 as amount, " +
  "['Iceland', 'Norway', 'Kenya', 'Chile', 'Japan', 'Nepal'][1 + i % 6] as country from range(400000) t(i)";
export const BY_COUNTRY =
  'SELECT country, count(*) AS sales, sum(amount) AS revenue\nFROM sales\nWHERE amount > 1.5 -- cheap ones do not count\nGROUP BY country\nORDER BY revenue DESC';

// A cluster in which something has happened.
export async function lively(world) {
  const up = await upWithDashboard(world);
  const { post, ended } = up;
  await ended((await post('/v1/queries', { sql: SALES })).job_id);
  const options = { forced: true, partitions: 4 };
  const query = (await post('/v1/queries', { sql: BY_COUNTRY, options })).job_id;
  assert.equal((await ended(query)).state, 'succeeded');
  const tree = (
    await post('/v1/jobs', {
      name: 'nightly',
      on_failure: 'continue',
      tasks: [
        command('extract', 'echo \'{"rows": 3}\''),
        sleep('clean', 20, { depends_on: ['extract'] }),
        command('load', 'sleep 0.1; echo it went wrong >&2; exit 3', { depends_on: ['clean'], retry: { max_attempts: 2, backoff_ms: 10 } }),
        sleep('index', 10, { depends_on: ['load'] }),
        sleep('report', 10, { depends_on: ['extract'] }),
      ],
    })
  ).job_id;
  assert.equal((await ended(tree)).state, 'failed');
  return { ...up, query, tree };
}

// No request left for another origin, and nothing was refused or went wrong in the page.
export function checkQuiet(page, base) {
  const foreign = page.asked.filter((url) => !url.startsWith(`${base}/`) && !/^(data|blob):/.test(url));
  assert.deepEqual(foreign, []);
  assert.deepEqual(page.complaints, []);
}

// What the rules of accessibility, or some of them, find in the page as it is.
export async function findings(page, rules = {}) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate((options) => window.axe.run(document, options), rules);
  return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).slice(0, 3)}`);
}

export const checkAccessible = async (page, what) => assert.deepEqual(await findings(page), [], what);

export const picture = (page, name) => page.screenshot({ path: path.join(pictures, `${name}.png`) });

// How much time the longest task of any page's main thread took of the processor, in milliseconds, while `body` ran. How
// long it took by the clock depends on who else wants the machine.
export async function longestOfProcessor(page, body) {
  const one = page.context().browser();
  await one.startTracing(page, { categories: ['toplevel'] });
  const from = performance.now();
  await body();
  const took = performance.now() - from;
  const { traceEvents } = JSON.parse((await one.stopTracing()).toString());
  const isMain = ({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain';
  const mains = new Set(traceEvents.filter(isMain).map(({ pid, tid }) => `${pid}.${tid}`));
  const tasks = traceEvents.filter(({ name, pid, tid, tdur }) => /RunTask$/.test(name) && tdur !== undefined && mains.has(`${pid}.${tid}`));
  // From what any thread did first: on a busy machine a page may begin late.
  const begun = traceEvents.reduce((least, { ts, tdur }) => (tdur === undefined ? least : Math.min(least, ts)), Infinity);
  const span = (tasks.reduce((most, { ts }) => Math.max(most, ts), begun) - begun) / 1000;
  assert.ok(span > 0.8 * took, `the trace of ${tasks.length} tasks ends after ${Math.round(span)} ms of ${Math.round(took)}`); // it was full
  return tasks.reduce((most, { tdur }) => Math.max(most, tdur), 0) / 1000;
}

// By the clock, of this page since it was opened.
export const longest = (page) => page.evaluate(() => Math.max(0, ...window.longTasks));

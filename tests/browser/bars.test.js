// How small and how quick the dashboard is.
import fs from 'node:fs';
import os from 'node:os';
import { after } from 'node:test';
import { assert, childrenOf, scenario, sleep } from '../e2e/harness.js';
import { checkQuiet, closeBrowser, longest, longestOfProcessor, openPage, picture, upWithDashboard } from './browser.js';

after(closeBrowser);

const IS_STRICT = process.env.CAPSTAN_BARS === '1'; // nobody else wants the machine (./dev soak bars): the bars themselves are asserted

// A browser has a machine of its own, as a rule. Here the cluster takes what the browser leaves, or its tasks would be timed, too.
function stepBack(up) {
  for (const pid of [up.pid, ...childrenOf(up.pid)]) {
    for (const thread of fs.readdirSync(`/proc/${pid}/task`)) {
      try {
        os.setPriority(Number(thread), os.constants.priority.PRIORITY_LOW);
      } catch (e) {
        if (fs.existsSync(`/proc/${pid}/task/${thread}`)) throw e; // else it has ended meanwhile
      }
    }
  }
}

const isQuick = (ms) => ms < 100;

scenario('dashboard: small, quick to paint, and never stuck with 10,000 tasks', { ms: 120000 }, async (world) => {
  const { up, base, post, ended } = await upWithDashboard(world, ['--set', 'max_concurrent_tasks_per_query=16'], { slots: 8 });
  if (IS_STRICT) stepBack(up);
  const first = await openPage(world, `${base}/`);
  await first.getByText('Throughput').waitFor();
  const { bytes, paint } = await first.evaluate(() => {
    const files = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].filter(({ name }) => !name.includes('/v1/'));
    return {
      bytes: files.reduce((sum, file) => sum + file.encodedBodySize, 0),
      paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
    };
  });
  const many = Array.from({ length: 10_000 }, (_, i) => sleep(`t${i}`, 0));
  const { job_id: id } = await post('/v1/jobs', { name: 'many', tasks: many });
  const job = await openPage(world, `${base}/#/jobs/${id}`);
  await job.getByText('10,000', { exact: false }).first().waitFor();
  const rows = job.locator('.tasks .virtual-box');
  for (const part of [0.3, 0.9, 0.5]) {
    await rows.evaluate((element, at) => element.scrollTo(0, at * element.scrollHeight), part);
    await job.locator('.tasks').getByRole('button', { name: /^t\d+\.0$/ }).first().waitFor();
  }
  assert.equal((await ended(id)).state, 'succeeded');
  await job.getByRole('heading', { name: 'many succeeded' }).waitFor();
  await job.getByText('succeeded10000').waitFor();
  const longestBusy = await longest(job); // while the cluster took all of the machine
  const calm = await openPage(world);
  const ofProcessor = await longestOfProcessor(calm, async () => {
    await calm.goto(`${base}/#/jobs/${id}`);
    await calm.getByText('10,000 attempts').waitFor();
    for (const part of [0.2, 0.8]) await calm.locator('.tasks .virtual-box').evaluate((element, at) => element.scrollTo(0, at * element.scrollHeight), part);
    await calm.locator('.tasks [aria-rowindex="8010"]').waitFor();
  });
  const longestMany = await longest(calm);
  await picture(calm, 'job-10000');

  // A graph with as many stages as are drawn.
  const wide = Array.from({ length: 900 }, (_, i) => sleep(`w${i}`, 0, i < 30 ? {} : { depends_on: [`w${i - 30}`] }));
  const { job_id: graph } = await post('/v1/jobs', { name: 'wide', tasks: wide });
  await job.evaluate(() => window.longTasks.splice(0));
  await job.goto(`${base}/#/jobs/${graph}`);
  await job.getByRole('heading', { name: 'wide succeeded' }).waitFor();
  await job.getByRole('button', { name: /^w0: succeeded/ }).waitFor();
  assert.ok((await job.locator('.stage').count()) < 300, 'only what is seen is drawn');
  await job.locator('.graph').evaluate((element) => element.scrollTo(element.scrollWidth, element.scrollHeight));
  await job.getByRole('button', { name: /^w899: succeeded/ }).waitFor();
  const longestWide = await longest(job);
  await picture(job, 'job-900-stages');
  console.log(
    `dashboard: ${bytes} bytes compressed, first paint after ${Math.round(paint)} ms, longest task of the main thread ` +
      `${Math.round(longestMany)} ms with 10,000 tasks (${Math.round(ofProcessor)} ms of the processor; ${Math.round(longestBusy)} ms while they ran), ` +
      `${Math.round(longestWide)} ms with 900 stages`,
  );
  assert.ok(bytes > 10_000 && bytes < 300_000, `${bytes} bytes`);
  // The bars are a second and 100 ms (CAPSTAN_BARS=1); what a busy machine adds is not the dashboard's.
  assert.ok(ofProcessor < 600, `${ofProcessor} ms`);
  assert.ok(paint < 15000, `${paint} ms`);
  assert.ok(longestMany < 3000 && longestWide < 3000, `${longestMany} ms, ${longestWide} ms`);
  if (IS_STRICT) {
    assert.ok(paint < 1000, `the first paint took ${paint} ms`);
    const all = [longestBusy, longestMany, longestWide];
    assert.ok(all.every(isQuick), `the main thread was busy for ${all} ms: while tasks ran, with 10,000, with 900 stages`);
  }
  checkQuiet(job, base);
});

const LEAVES = 16;
const TASKS_OF_LEAF = 625;

// A plan whose stages are a tree: of each two the rows go on to one, until one is left. 31 stages, 10,015 tasks.
function treeOfStages(file) {
  const splits = Array.from({ length: TASKS_OF_LEAF }, () => ({ file }));
  const stages = Array.from({ length: LEAVES }, (_, id) => ({ id, sql: 'select length({{split}}) as n', splits, output: { exchange: 'gather' } }));
  for (let first = 0; first < stages.length - 1; first += 2) {
    const sql = 'select n from a union all select n from b';
    stages.push({ id: stages.length, inputs: { a: first, b: first + 1 }, sql, output: { exchange: 'gather' } });
  }
  const last = stages.at(-1);
  return { stages: [...stages.slice(0, -1), { ...last, sql: 'select count(*) as n from (select n from a union all select n from b)', output: { exchange: 'result' } }] };
}

const strictOnly = { ms: 180000, if: IS_STRICT, why: 'it takes most of a minute; ./dev soak bars has it' };

scenario('dashboard: never stuck while 10,000 tasks run in a graph of stages', strictOnly, async (world) => {
  const { up, base, post, get, ended } = await upWithDashboard(world, ['--set', 'max_concurrent_tasks_per_query=16'], { slots: 8 });
  stepBack(up);
  const plan = treeOfStages(world.file('nothing.csv', 'a\n1\n'));
  const page = await openPage(world, `${base}/#/jobs`);
  await page.getByText('There are no such jobs').waitFor();
  let job;
  const live = await longestOfProcessor(page, async () => {
    job = (await post('/v1/queries', { plan })).job_id;
    await page.goto(`${base}/#/jobs/${job}`);
    await page.getByRole('button', { name: /^s0: running, [1-9]\d* of 625 tasks done/ }).waitFor();
    await page.getByRole('button', { name: /^s20: queued, 0 of 1 task done/ }).waitFor();
    await page.getByRole('button', { name: /^s3: / }).click(); // only its tasks
    await page.locator('.tasks').getByRole('button', { name: /^s3\.\d+$/ }).first().waitFor();
    await page.getByRole('button', { name: /^s3: / }).click();
    for (const part of [0.3, 0.9, 0.5]) {
      await page.locator('.tasks .virtual-box').evaluate((element, at) => element.scrollTo(0, at * element.scrollHeight), part);
      await page.locator('.tasks').getByRole('button', { name: /^s\d+\.\d+$/ }).first().waitFor();
    }
    const done = await ended(job);
    assert.equal(done.state, 'succeeded', done.message);
    await page.getByRole('button', { name: /^s30: succeeded, 1 of 1 task done/ }).waitFor();
    await page.getByText('succeeded10015').waitFor();
  });
  const longestLive = await longest(page); // while the cluster took all of the machine
  assert.deepEqual((await get(`/v1/jobs/${job}/results`)).rows, [[LEAVES * TASKS_OF_LEAF]]);
  assert.equal(await page.locator('.stage').count(), 2 * LEAVES - 1);
  await picture(page, 'job-10000-stages');

  const calm = await openPage(world);
  const ofProcessor = await longestOfProcessor(calm, async () => {
    await calm.goto(`${base}/#/jobs/${job}`);
    await calm.getByText('10,015 attempts').waitFor();
    await calm.getByRole('button', { name: /^s30: succeeded/ }).waitFor();
    await calm.locator('.skew tbody tr').nth(2 * LEAVES - 2).waitFor();
    for (const part of [0.2, 0.8]) await calm.locator('.tasks .virtual-box').evaluate((element, at) => element.scrollTo(0, at * element.scrollHeight), part);
    await calm.locator('.tasks [aria-rowindex="8015"]').waitFor();
  });
  const longestCalm = await longest(calm);
  console.log(
    `dashboard: 10,015 tasks in 31 stages: longest task of the main thread ${Math.round(longestCalm)} ms (${Math.round(ofProcessor)} ms of the ` +
      `processor) when opened, ${Math.round(longestLive)} ms (${Math.round(live)} ms of the processor) while they ran`,
  );
  assert.ok([ofProcessor, live].every(isQuick), `the main thread took ${ofProcessor} ms of the processor, ${live} ms while tasks ran`);
  assert.ok([longestCalm, longestLive].every(isQuick), `the main thread was busy for ${longestCalm} ms, ${longestLive} ms while tasks ran`);
  for (const one of [page, calm]) checkQuiet(one, base);
});

// All pages of the dashboard: how they look, that they are live, and that they stay so.
import fs from 'node:fs';
import { after } from 'node:test';
import { assert, command, sleep, scenario, until } from '../e2e/harness.js';
import { checkQuiet, closeBrowser, clusterWithDashboard, findings, gated, lively, openPage, picture, upWithDashboard } from './browser.js';

after(closeBrowser);

const PAGE_OF_JOBS = 50;

const PAGES = (query, tree) => [
  ['overview', '/', 'text=Throughput'],
  ['jobs', '/jobs', 'role=link[name="nightly"]'],
  ['job-query', `/jobs/${query}`, '.stage >> nth=2'],
  ['job-tree', `/jobs/${tree}`, 'role=button[name=/^load: failed/]'],
  ['nodes', '/nodes', 'role=article'],
  ['events', '/events', 'role=row >> nth=3'],
  ['sql', `/sql?job=${query}`, 'role=cell[name="Iceland"]'],
];

scenario('dashboard: every page, in light and dark and on a phone, is accessible and asks nobody else', { ms: 120000 }, async (world) => {
  const { base, query, tree } = await lively(world);
  const wrong = [];
  // Another colour can only change the contrast. On a phone things are put elsewhere, and others scroll.
  for (const [look, options, rules] of [
    ['light', { colorScheme: 'light' }, {}],
    ['dark', { colorScheme: 'dark' }, { runOnly: ['color-contrast'] }],
    ['phone', { viewport: { width: 390, height: 844 } }, {}],
  ]) {
    const page = await openPage(world, `${base}/`, options);
    for (const [name, path, sign] of PAGES(query, tree)) {
      await page.goto(`${base}/#${path}`);
      await page.locator(sign).first().waitFor();
      if (!(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth))) wrong.push(`${name} in ${look} is too wide`);
      wrong.push(...(await findings(page, rules)).map((text) => `${name} in ${look}: ${text}`));
      await picture(page, `${name}-${look}`);
    }
    checkQuiet(page, base);
  }
  assert.deepEqual(wrong, []);
});

scenario('dashboard: overview, jobs, a job and events are live', async (world) => {
  const { base, post } = await upWithDashboard(world);
  const gate = `${world.folder()}/gate`;
  const overview = await openPage(world, `${base}/`);
  const jobs = await openPage(world, `${base}/#/jobs`);
  const events = await openPage(world, `${base}/#/events?type=completed`);
  await jobs.getByText('There are no such jobs').waitFor();
  const { job_id: id } = await post('/v1/jobs', { name: 'live', tasks: [gated('first', gate), sleep('second', 10, { depends_on: ['first'] })] });
  const job = await openPage(world, `${base}/#/jobs/${id}`);
  await job.getByRole('button', { name: /^first: running, 0 of 1 task done/ }).waitFor();
  await job.getByText('Why tasks wait').waitFor();
  await job.getByText(/waiting for/).first().waitFor();
  for (const page of [overview, jobs]) await page.getByRole('row', { name: /^live .*running/ }).waitFor();
  await overview.locator('a.tile', { hasText: 'Running' }).getByText('1', { exact: true }).waitFor(); // it has a request of its own
  fs.writeFileSync(gate, '');
  await job.getByRole('heading', { name: 'live succeeded' }).waitFor();
  await job.getByRole('button', { name: /^second: succeeded, 1 of 1 task done/ }).waitFor();
  await jobs.getByRole('row', { name: /^live .*succeeded/ }).waitFor();
  await overview.getByText('Nothing runs at the moment').waitFor();
  await events.getByRole('row', { name: new RegExp(`completed ${id} 1\\.0`) }).waitFor();
  assert.equal(await events.getByRole('row', { name: /created/ }).count(), 0);
  for (const page of [overview, jobs, events, job]) checkQuiet(page, base);
});

const SHOWN = { name: /^n\d\d$/ };

scenario('dashboard: who leads, jobs page by page, events held and searched, colours of choice', async (world) => {
  const { base, post, get, ended } = await upWithDashboard(world);
  const page = await openPage(world, `${base}/`);
  const { node_id: name, epoch } = await get('/v1/leader');
  const told = (await page.getByTestId('leader').innerText()).replaceAll(/\s+/g, ' ');
  assert.ok(told.startsWith('leader ') && told.endsWith(`${name} epoch ${epoch}`), told);

  const ids = [];
  for (let i = 10; i < 70; i++) ids.push((await post('/v1/jobs', { name: `n${i}`, tasks: [sleep('t', 0)] })).job_id);
  for (const id of ids) assert.equal((await ended(id)).state, 'succeeded');
  await page.goto(`${base}/#/jobs`);
  const shown = (n) =>
    until(`${n} jobs are shown`, async () => {
      const names = await page.getByRole('link', SHOWN).allInnerTexts();
      return names.length === n && names;
    });
  const turn = (to) => page.getByRole('button', { name: to, exact: true });
  const newest = await shown(PAGE_OF_JOBS);
  assert.equal(await turn('Newer').isDisabled(), true);
  await turn('Older').click();
  const oldest = await shown(ids.length - PAGE_OF_JOBS);
  await page.getByText('page 2', { exact: true }).waitFor();
  assert.equal(new Set([...newest, ...oldest]).size, ids.length);
  assert.equal(await turn('Older').isDisabled(), true);
  await turn('Newer').click();
  assert.deepEqual(await shown(PAGE_OF_JOBS), newest);

  const events = (id) => page.getByRole('row', { name: new RegExp(id) });
  await page.goto(`${base}/#/events`);
  await page.getByRole('searchbox').fill(ids[7]);
  await until('only its events are shown', async () => {
    const n = await events(ids[7]).count();
    return n > 0 && n === (await page.getByRole('row').count()) - 1;
  });
  await page.getByRole('searchbox').fill('');
  await events(ids[59]).first().waitFor();
  await page.getByRole('radiogroup', { name: 'Follow' }).getByText('Hold', { exact: true }).click();
  const other = await openPage(world, `${base}/#/events`);
  const { job_id: late } = await post('/v1/jobs', { tasks: [sleep('t', 0)] });
  await other.getByRole('row', { name: new RegExp(`completed ${late}`) }).first().waitFor();
  assert.equal(await events(late).count(), 0);
  await page.getByRole('radiogroup', { name: 'Follow' }).getByText('Follow', { exact: true }).click();
  await events(late).first().waitFor();

  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.getByLabel('Colours').selectOption('light');
  const light = await ground();
  await page.getByLabel('Colours').selectOption('dark');
  await until('it is dark', async () => (await ground()) !== light);
  await page.reload(); // it is kept
  await page.getByTestId('leader').waitFor();
  await until('it is dark again', async () => (await ground()) !== light);
  for (const one of [page, other]) checkQuiet(one, base);
});

scenario('dashboard: events that are long past are found further back, or by the id of their job', async (world) => {
  const { base, post, ended } = await upWithDashboard(world, [], { slots: 4 });
  const run = async (tasks) => {
    const { job_id: id } = await post('/v1/jobs', { tasks });
    assert.equal((await ended(id)).state, 'succeeded');
    return id;
  };
  const early = await run([sleep('t', 0)]);
  await run(Array.from({ length: 500 }, (_, i) => sleep(`t${i}`, 0)));
  const page = await openPage(world, `${base}/#/events?type=joined`);
  await page.getByText('among the last 1,000 events').waitFor();
  await page.getByText('None of these events fits.').waitFor();
  await page.getByRole('button', { name: 'Look further back' }).click();
  await page.getByRole('row', { name: /^\d+ \S+ joined/ }).first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Look further back' }).count(), 0);

  const other = await openPage(world, `${base}/#/events`);
  await other.getByText('among the last 1,000 events').waitFor();
  await other.getByRole('searchbox').fill(early);
  await other.getByText('among all events of the job that are kept').waitFor();
  await other.getByRole('row', { name: new RegExp(`created ${early}`) }).waitFor();
  await other.getByRole('row', { name: new RegExp(`completed ${early} 0\\.0`) }).waitFor();
  await other.getByRole('searchbox').fill('');
  await until('all jobs are there again', async () => (await other.getByRole('row').count()) > 10);
  for (const one of [page, other]) checkQuiet(one, base);
});

scenario('dashboard: the overview tells tasks per second, and what has failed', async (world) => {
  const { base, post, ended } = await upWithDashboard(world);
  const page = await openPage(world, `${base}/`);
  const failed = page.locator('a.tile', { hasText: 'Failed' });
  await failed.getByText('jobs; 0 attempts').waitFor();
  assert.equal(await failed.locator('.tile-value').innerText(), '0');
  const gate = `${world.folder()}/gate`;
  const N = 40;
  const tasks = [gated('first', gate), ...Array.from({ length: N }, (_, i) => sleep(`t${i}`, 0, { depends_on: ['first'] }))];
  const { job_id: id } = await post('/v1/jobs', { tasks });
  await page.locator('a.tile', { hasText: 'Running' }).getByText('1', { exact: true }).waitFor();
  // Each number is there for a second: all that come are kept.
  await page.evaluate(() => {
    const tile = document.querySelector('[data-testid=throughput]');
    window.rates = [];
    const keep = () => window.rates.push(parseFloat(tile.textContent));
    new MutationObserver(keep).observe(tile, { characterData: true, childList: true, subtree: true });
    keep();
  });
  assert.deepEqual(await page.evaluate(() => window.rates), [0]);
  fs.writeFileSync(gate, '');
  assert.equal((await ended(id)).state, 'succeeded');
  await until('nothing more is counted', () => page.evaluate(() => window.rates.length > 1 && window.rates.at(-1) === 0));
  const rates = await page.evaluate(() => window.rates);
  const sum = rates.reduce((all, rate) => all + rate, 0);
  // It is asked once a second, and more seldom on a busy machine.
  assert.ok(sum > 0 && sum <= N + 2, `${rates}`);

  await ended((await post('/v1/jobs', { tasks: [command('bad', 'exit 3', { retry: { max_attempts: 2, backoff_ms: 10 } })] })).job_id);
  await failed.getByText('jobs; 2 attempts').waitFor();
  assert.equal(await failed.locator('.tile-value').innerText(), '1');
  checkQuiet(page, base);
});

scenario('dashboard: tasks that no worker can run are counted as stuck, until one comes', async (world) => {
  const cluster = await clusterWithDashboard(world, { settings: { stuck_task_warn_ms: 1000 } });
  const page = await openPage(world, `${cluster.base}/`);
  const tile = page.locator('.tile', { hasText: 'Stuck' });
  await tile.getByText('every task has a worker').waitFor();
  assert.equal(await tile.locator('.tile-value').innerText(), '0');
  const placement = { requires_capabilities: { zone: 'far' } };
  const id = await cluster.submit({ name: 'lonely', tasks: [sleep('a', 1, { placement }), sleep('b', 1, { placement }), sleep('c', 1)] });
  await tile.getByText('no worker can run these').waitFor();
  await tile.getByText('2', { exact: true }).waitFor();
  await page.locator('.events-short').getByText('stuck', { exact: true }).first().waitFor();
  await picture(page, 'overview-stuck');
  await page.goto(`${cluster.base}/#/jobs/${id}`);
  await page.getByText(/zone/).first().waitFor(); // of "Why tasks wait"
  await page.goto(`${cluster.base}/#/`);
  await cluster.startWorker({ id: 'far', args: ['--capability', 'zone=far'] });
  await tile.getByText('every task has a worker').waitFor();
  assert.equal(await tile.locator('.tile-value').innerText(), '0');
  assert.equal((await cluster.end(id)).state, 'succeeded');
  checkQuiet(page, cluster.base);
});

scenario('dashboard: pages go on by themselves when the coordinator was killed and is there again', async (world) => {
  const cluster = await clusterWithDashboard(world);
  const gate = `${world.folder()}/gate`;
  const id = await cluster.submit({ name: 'through', tasks: [gated('first', gate), sleep('second', 1, { depends_on: ['first'] })] });
  const pages = {
    overview: await openPage(world, `${cluster.base}/`),
    events: await openPage(world, `${cluster.base}/#/events`),
    job: await openPage(world, `${cluster.base}/#/jobs/${id}`),
  };
  const all = Object.values(pages);
  const state = (page, word) => page.locator(`.live.is-${word}`).first().waitFor();
  await pages.job.getByRole('button', { name: /^first: running/ }).waitFor();
  await pages.events.getByRole('row', { name: new RegExp(`created ${id}`) }).waitFor();
  for (const page of all) {
    await state(page, 'live');
    await page.evaluate(() => (window.isTheSame = true)); // a page that was loaded again would not know it
  }
  await cluster.coordinator.kill();
  for (const page of all) {
    await page.getByText('cannot be reached; trying again').waitFor();
    await page.locator('.live:not(.is-live)').first().waitFor();
  }
  await cluster.startAgain();
  for (const page of all) {
    await page.getByTestId('leader').getByText('leader', { exact: true }).waitFor();
    await state(page, 'live');
  }
  fs.writeFileSync(gate, '');
  await pages.job.getByRole('heading', { name: 'through succeeded' }).waitFor();
  await pages.overview.getByText('Nothing runs at the moment').waitFor();
  await pages.events.getByRole('row', { name: new RegExp(`completed ${id} 1\\.0`) }).waitFor();
  // What was seen before is there once, and not told again.
  assert.equal(await pages.events.getByRole('row', { name: new RegExp(`created ${id}`) }).count(), 1);
  const later = await cluster.run({ name: 'later', tasks: [sleep('a', 1)] });
  await pages.events.getByRole('row', { name: new RegExp(`completed ${later.id} 0\\.0`) }).waitFor();
  for (const page of all) {
    assert.equal(await page.evaluate(() => window.isTheSame), true);
    checkQuiet(page, cluster.base);
  }
});

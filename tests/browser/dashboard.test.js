// The dashboard as people use it: Chromium, real clusters, clicks and keys.
import fs from 'node:fs';
import http from 'node:http';
import { after } from 'node:test';
import { assert, command, scenario, sleep, until } from '../e2e/harness.js';
import { checkAccessible, checkQuiet, closeBrowser, findings, longest, longestOfProcessor, openPage, picture, REBOUND, upWithDashboard } from './browser.js';

after(closeBrowser);

const ROWS = 1_000_000;
const IS_STRICT = process.env.CAPSTAN_BARS === '1'; // nobody else wants the machine: the bars themselves are asserted
const PAGE_OF_JOBS = 50;

// A task that runs until a file appears.
const gated = (name, gate, more) => command(name, `while [ ! -e ${gate} ]; do sleep 0.02; done`, more);

const SALES =
  "create table sales as select i as sale, i % 1000 as customer, ((i * 7919) % 50000) / 100.0 as amount, " +
  "['Iceland', 'Norway', 'Kenya', 'Chile', 'Japan', 'Nepal'][1 + i % 6] as country from range(400000) t(i)";
const BY_COUNTRY =
  'SELECT country, count(*) AS sales, sum(amount) AS revenue\nFROM sales\nWHERE amount > 1.5 -- cheap ones do not count\nGROUP BY country\nORDER BY revenue DESC';

// A cluster in which something has happened.
async function lively(world) {
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
        command('load', 'echo it went wrong >&2; exit 3', { depends_on: ['clean'], retry: { max_attempts: 2, backoff_ms: 10 } }),
        sleep('index', 10, { depends_on: ['load'] }),
        sleep('report', 10, { depends_on: ['extract'] }),
      ],
    })
  ).job_id;
  assert.equal((await ended(tree)).state, 'failed');
  return { ...up, query, tree };
}

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
  // Another colour can only change the contrast, another width only whether all of it fits.
  for (const [look, options, rules] of [
    ['light', { colorScheme: 'light' }, {}],
    ['dark', { colorScheme: 'dark' }, { runOnly: ['color-contrast'] }],
    ['phone', { viewport: { width: 390, height: 844 } }, undefined],
  ]) {
    const page = await openPage(world, `${base}/`, options);
    for (const [name, path, sign] of PAGES(query, tree)) {
      await page.goto(`${base}/#${path}`);
      await page.locator(sign).first().waitFor();
      if (!(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth))) wrong.push(`${name} in ${look} is too wide`);
      if (rules) wrong.push(...(await findings(page, rules)).map((text) => `${name} in ${look}: ${text}`));
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
  assert.equal(await overview.locator('a.tile', { hasText: 'Running' }).locator('.tile-value').innerText(), '1');
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

scenario('dashboard: a job is canceled, retried, and retried from a task, by clicks', async (world) => {
  const { base, post, get } = await upWithDashboard(world);
  const gate = `${world.folder()}/gate`;
  const tasks = [sleep('before', 1), gated('long', gate, { depends_on: ['before'] }), sleep('behind', 1, { depends_on: ['long'] })];
  const { job_id: id } = await post('/v1/jobs', { name: 'clicked', tasks });
  const page = await openPage(world, `${base}/#/jobs/${id}`);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('button', { name: 'No', exact: true }).click();
  assert.equal((await get(`/v1/jobs/${id}`)).state, 'running');
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.keyboard.press('Enter'); // "Yes" has the focus
  await page.getByRole('heading', { name: 'clicked canceled' }).waitFor();
  await page.getByText('canceled in the dashboard').waitFor();
  await page.getByRole('button', { name: 'Retry', exact: true }).click();
  await page.getByRole('heading', { name: 'clicked running' }).waitFor();
  fs.writeFileSync(gate, '');
  await page.getByRole('heading', { name: 'clicked succeeded' }).waitFor();

  const attempt = async (name) => (await get(`/v1/jobs/${id}/tasks`)).tasks.find((task) => task.name === name).attempt;
  const before = [await attempt('before'), await attempt('long')];
  await page.getByRole('button', { name: 'long.0' }).click();
  await page.getByRole('button', { name: 'Retry from here' }).click();
  await page.getByRole('button', { name: 'Yes', exact: true }).click();
  await until('long has run again', async () => (await attempt('long')) > before[1]);
  await page.getByRole('heading', { name: 'clicked succeeded' }).waitFor();
  assert.equal(await attempt('before'), before[0]);
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await page.getByLabel('Results of the tasks').getByText('"long"').waitFor();
  checkQuiet(page, base);
});

scenario('dashboard: what failed says why, with every attempt', async (world) => {
  const { base, tree } = await lively(world);
  const page = await openPage(world, `${base}/#/jobs?state=failed`);
  await page.getByRole('link', { name: 'nightly' }).click();
  await page.getByText("task 'load' failed in attempt 2: exit code 3").waitFor();
  await page.getByRole('img', { name: /^Timeline: 5 attempts/ }).waitFor(); // load twice, index never
  await page.getByRole('button', { name: 'load.0' }).click();
  await page.getByLabel('Result of the task').getByText('it went wrong').waitFor();
  await page.getByRole('button', { name: /^load: failed/ }).click(); // in the graph: only its tasks
  assert.equal(await page.getByRole('button', { name: 'clean.0' }).count(), 0);
  await page.goto(`${base}/#/jobs`);
  await page.getByRole('searchbox').fill(tree);
  await page.keyboard.press('Enter');
  await page.getByRole('row', { name: /^nightly .*failed/ }).waitFor();
  await until('it is the only one', async () => (await page.getByRole('row').count()) === 2);
  checkQuiet(page, base);
});

scenario('dashboard: a query that runs shows how far each of its stages is', async (world) => {
  const { base, post, ended } = await lively(world);
  const sql = 'select country, max(md5(repeat(sale::varchar, 200))) as m from sales group by country';
  const page = await openPage(world, `${base}/#/jobs`);
  const { job_id: id } = await post('/v1/queries', { sql, options: { forced: true, partitions: 4 } });
  await page.goto(`${base}/#/jobs/${id}`);
  await page.getByRole('button', { name: /^s0: running, [0-3] of 4 tasks done, [1-4] running, 0 failed, \d+ % through/ }).waitFor();
  await page.getByText(/^[1-9] of \d+ done$/).waitFor();
  await picture(page, 'job-query-running');
  assert.equal((await ended(id)).state, 'succeeded');
  await page.getByRole('button', { name: /^s0: succeeded, 4 of 4 tasks done/ }).waitFor();
  await page.getByRole('row', { name: /^s0 4 / }).waitFor(); // of the table of skew
  await page.getByRole('link', { name: 'Rows' }).click();
  await page.getByText('6 rows in').waitFor();
  checkQuiet(page, base);
});

// The rows that the grid has, and the first and last number that they show.
const seen = (page) =>
  page.evaluate(() => {
    const rows = [...document.querySelectorAll('.grid .virtual-rows [role=row]')].map((row) => row.children[1].textContent);
    return { n: rows.length, rows };
  });

scenario('dashboard: a million rows are scrolled through, and few are there at a time', { ms: 120000 }, async (world) => {
  const { base } = await upWithDashboard(world);
  const page = await openPage(world, `${base}/#/sql`);
  const editor = page.getByRole('textbox', { name: 'SQL statement' });
  await editor.fill(`select i, 'row number ' || i as words, i % 7 = 0 as is_seventh from range(${ROWS}) t(i)`);
  assert.equal(await page.locator('.editor .sql-keyword').first().innerText(), 'select');
  await editor.press('Control+Enter');
  await page.getByText('1,000,000 rows').waitFor();
  const box = page.locator('.grid .virtual-box');
  await until('the first rows', async () => (await seen(page)).rows.includes('0'));
  const step = await box.evaluate((element) => element.clientHeight * 0.8);
  for (let i = 1; i <= 10; i++) {
    await box.evaluate((element, by) => element.scrollBy(0, by), step);
    const wanted = String(Math.floor((i * step) / 26) + 3);
    await until(`row ${wanted} is seen`, async () => (await seen(page)).rows.includes(wanted));
  }
  for (const part of [0.25, 0.5, 0.75, 1, 0.1]) {
    await box.evaluate((element, at) => element.scrollTo(0, at * element.scrollHeight), part);
    await until(`rows at ${part}`, async () => {
      const { rows } = await seen(page);
      const middle = Number(rows[Math.floor(rows.length / 2)]);
      return Math.abs(middle - part * ROWS) < 1000 && !rows.includes('·');
    });
  }
  await page.getByRole('textbox', { name: 'go to row' }).fill('1,000,000');
  await page.keyboard.press('Enter');
  await until('the last row', async () => (await seen(page)).rows.includes(String(ROWS - 1)));
  assert.ok((await seen(page)).n < 100);
  await picture(page, 'sql-million');
  const fetched = page.asked.filter((url) => /\/results\?offset/.test(url));
  assert.ok(fetched.length < 60, `${fetched.length} requests`);
  console.log(`a million rows: ${fetched.length} requests for pages, longest task of the main thread ${Math.round(await longest(page))} ms`);
  checkQuiet(page, base);
});

scenario('dashboard: a query is explained, drawn, downloaded, canceled, and found again', { ms: 120000 }, async (world) => {
  const { base, query, post } = await lively(world);
  const page = await openPage(world, `${base}/#/sql?job=${query}`, { acceptDownloads: true });
  await page.getByRole('tab', { name: 'Chart' }).click();
  await page.getByRole('img', { name: /^sales by country, 6 values/ }).waitFor();
  await picture(page, 'sql-chart');
  await page.keyboard.press('ArrowRight'); // to the next tab
  await page.getByText('aggregate').first().waitFor();
  await checkAccessible(page, 'the plan');
  const read = async (name) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name, exact: true }).click()]);
    return fs.readFileSync(await download.path());
  };
  assert.match((await read('CSV')).toString(), /^country,sales,revenue\n(.*\n){6}$/);
  assert.ok((await read('Arrow')).length > 500);

  const editor = page.getByRole('textbox', { name: 'SQL statement' });
  await editor.fill(BY_COUNTRY);
  await page.getByRole('button', { name: 'Explain' }).click();
  await page.getByLabel('How it would run').getByText(/stage 0: 1 task/).waitFor();
  await editor.fill('selekt 1');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByText(/syntax error at or near/).waitFor();
  const slow = "select max(hash(i || 'x' || j)) as h from range(3000000) a(i), range(3000) b(j)";
  await editor.fill(slow);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.locator('.progress').getByText(/^running, \d/).waitFor();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByText('It was canceled').waitFor();
  await page.getByTestId('history').getByRole('button', { name: slow.slice(0, 80) }).waitFor();
  await page.reload();
  await page.getByTestId('history').getByRole('button', { name: 'selekt 1' }).click();
  assert.equal(await editor.inputValue(), 'selekt 1');
  await post('/v1/tables', { name: 'other', source: '/nowhere/*.csv', format: 'csv' });
  await page.getByRole('button', { name: 'sales', exact: true }).click();
  assert.equal(await editor.inputValue(), 'SELECT * FROM sales LIMIT 1000');
  checkQuiet(page, base);
});

scenario('dashboard: a node is drained and gets tasks again, by clicks', async (world) => {
  const { base, get } = await upWithDashboard(world);
  const page = await openPage(world, `${base}/#/nodes`);
  const node = page.getByRole('article').first();
  const id = await node.getAttribute('data-worker');
  const isDraining = async () => (await get('/v1/nodes')).nodes.find(({ worker_id: name }) => name === id).draining;
  await node.getByRole('button', { name: 'Drain' }).click();
  await node.getByRole('button', { name: 'Yes' }).click();
  await node.getByText('draining', { exact: true }).first().waitFor();
  assert.equal(await isDraining(), true);
  await node.getByRole('button', { name: 'Give tasks again' }).click();
  await node.getByRole('button', { name: 'Drain' }).waitFor();
  assert.equal(await isDraining(), false);
  checkQuiet(page, base);
});

scenario('dashboard: asks for the token, and takes it from the address', async (world) => {
  const { base, address, token, post, ended } = await upWithDashboard(world, [], { auth: true, workers: 1 });
  assert.match(token, /^[0-9a-f]{64}$/);
  const page = await openPage(world, `${base}/`);
  await page.getByLabel('This coordinator asks for a token').fill('a wrong one');
  await page.keyboard.press('Enter');
  await page.getByText('does not know that token').waitFor();
  await checkAccessible(page, 'the question for the token');
  await picture(page, 'token');
  await page.getByLabel('This coordinator asks for a token').fill(token);
  await page.keyboard.press('Enter');
  await page.getByText('Throughput').waitFor();
  await page.reload(); // it is kept for this tab
  await page.getByText('Throughput').waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('This coordinator asks for a token').waitFor();

  const told = await openPage(world, address);
  await told.getByText('Throughput').waitFor();
  assert.ok(!told.url().includes(token), told.url());
  assert.ok(!told.asked.some((url) => url.includes(token)));
  await told.goto(`${base}/#/events`);
  await told.getByRole('row', { name: /joined/ }).waitFor(); // the stream of events has the token, too
  const { job_id: id } = await post('/v1/queries', { sql: 'select 42 as answer' });
  assert.equal((await ended(id)).state, 'succeeded');
  await told.goto(`${base}/#/sql?job=${id}`);
  const csv = told.getByRole('button', { name: 'CSV', exact: true });
  const [download] = await Promise.all([told.waitForEvent('download'), csv.click()]);
  assert.equal(fs.readFileSync(await download.path(), 'utf8'), 'answer\n42\n');
  assert.ok(!told.asked.some((url) => url.includes(token)));
  for (const one of [page, told]) checkQuiet(one, base);
});

scenario('dashboard: an observer shows everything and changes nothing', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const { id } = await cluster.run([command('a', 'exit 1', { retry: { max_attempts: 1 } })]);
  const args = ['coordinator', '--role', 'observer', '--follow', cluster.address, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'];
  const observer = world.capstan('observer', args);
  const [, base] = await observer.line(/the HTTP API is at (http:\S+)/);
  const page = await openPage(world, `${base}/#/jobs/${id}`);
  await page.getByTestId('read-only').waitFor();
  const isShut = async (name) => assert.equal(await page.getByRole('button', { name, exact: true }).isDisabled(), true, name);
  await isShut('Retry');
  const isOpen = async () => (await page.getByRole('complementary', { name: 'Task', exact: true }).count()) === 1;
  const open = () => page.getByRole('button', { name: 'a.0', exact: true }).click(); // the page may still move below the pointer
  await until('the task is open', async () => (await isOpen()) || (await open()), { every: 200 });
  await isShut('Retry from here');
  await page.goto(`${base}/#/nodes`);
  await isShut('Drain');
  await page.goto(`${base}/#/sql`);
  await isShut('Run');
  await isShut('Explain');
  await page.goto(`${base}/#/jobs`);
  await page.getByRole('row', { name: /failed/ }).waitFor();
  const { id: later } = await cluster.run([sleep('b', 1)]);
  await page.getByRole('row', { name: new RegExp(`${later}.*succeeded`) }).waitFor(); // it is live, too
  await page.goto(`${base}/#/`);
  await page.locator('a.tile', { hasText: 'Nodes' }).getByText('1', { exact: true }).waitFor();
  await checkAccessible(page, 'an observer');

  // A worker that gets nothing more, and a job that waits for it.
  const bad = command('bad', 'exit 1', { retry: { max_attempts: 1 } });
  for (let i = 0; i < 3 && !(await cluster.nodes()).w1.blacklisted; i++) await cluster.run([bad]);
  await page.goto(`${base}/#/nodes`);
  await isShut('Clear blacklisting');
  const waiting = await cluster.submit([sleep('c', 1)]);
  await until('the observer knows it', async () => (await fetch(`${base}/v1/jobs/${waiting}`)).ok);
  await page.goto(`${base}/#/jobs/${waiting}`);
  await isShut('Cancel');
  checkQuiet(page, base);
});

scenario('dashboard: a page of another site cannot submit, read or even load anything', async (world) => {
  const { base, get } = await upWithDashboard(world, [], { workers: 1 });
  const site = http.createServer((_, answer) => answer.setHeader('content-type', 'text/html').end('<title>evil</title>'));
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  world.atEnd(() => site.close());
  const page = await openPage(world, `http://127.0.0.1:${site.address().port}/`);
  const tree = JSON.stringify({ tasks: [command('pwned', 'true')] });
  const tried = await page.evaluate(
    async ([target, body]) => {
      const attempt = (options) => fetch(`${target}/v1/jobs`, options).then((r) => `${r.type} ${r.status}`, (e) => e.name);
      const found = [
        await attempt({ method: 'POST', headers: { 'content-type': 'application/json' }, body }),
        await attempt({ method: 'POST', mode: 'no-cors', body }),
        await attempt({}),
      ];
      const form = document.createElement('form');
      Object.assign(form, { method: 'POST', action: `${target}/v1/jobs`, enctype: 'text/plain', target: 'frame' });
      form.append(Object.assign(document.createElement('input'), { name: body.slice(0, -1), value: '}' }));
      const frame = Object.assign(document.createElement('iframe'), { name: 'frame' });
      const loaded = new Promise((resolve) => frame.addEventListener('load', resolve));
      document.body.append(form, frame);
      await loaded;
      const sent = new Promise((resolve) => frame.addEventListener('load', resolve));
      form.submit();
      await sent;
      return found;
    },
    [base, tree],
  );
  assert.deepEqual(tried, ['TypeError', 'opaque 0', 'TypeError']);
  assert.deepEqual((await get('/v1/jobs')).jobs, []);

  // A name that was made to lead here is told apart by the Host that the browser sends.
  const rebound = `http://${REBOUND}:${new URL(base).port}`;
  const lured = await openPage(world);
  assert.equal((await lured.goto(`${rebound}/`)).status(), 403);
  const answer = await lured.evaluate(async (body) => {
    const response = await fetch('/v1/jobs', { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    return response.status;
  }, tree);
  assert.equal(answer, 403);
  assert.deepEqual((await get('/v1/jobs')).jobs, []);

  // And nobody can put the dashboard into a frame.
  await page.evaluate((src) => document.body.append(Object.assign(document.createElement('iframe'), { src, id: 'framed' })), `${base}/`);
  await until('the frame is refused', () => page.complaints.some((text) => /frame-ancestors|X-Frame-Options/.test(text)));
});

scenario('dashboard: small, quick to paint, and never stuck with 10,000 tasks', { ms: 120000 }, async (world) => {
  const { base, post, ended } = await upWithDashboard(world, ['--set', 'max_concurrent_tasks_per_query=16'], { slots: 8 });
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
  assert.ok(ofProcessor < 250, `${ofProcessor} ms`);
  assert.ok(paint < 5000, `${paint} ms`);
  assert.ok(longestMany < 1000 && longestWide < 1000, `${longestMany} ms, ${longestWide} ms`);
  if (IS_STRICT) {
    assert.ok(paint < 1000, `the first paint took ${paint} ms`);
    assert.ok(longestMany < 100 && longestWide < 100, `the main thread was busy for ${longestMany} ms, ${longestWide} ms`);
  }
  checkQuiet(job, base);
});

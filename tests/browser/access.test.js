// Who may see and do what: tokens, coordinators that only look or stand by, pages of other sites.
import fs from 'node:fs';
import http from 'node:http';
import { after } from 'node:test';
import { assert, command, scenario, sleep, until } from '../e2e/harness.js';
import { checkAccessible, checkQuiet, closeBrowser, clusterWithDashboard, openPage, picture, REBOUND, upWithDashboard } from './browser.js';

after(closeBrowser);

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

scenario('dashboard: a coordinator that stands by says who leads, and becomes the leader on the same page', { ms: 120000 }, async (world) => {
  const ttl = ['--set', 'leader_ttl_ms=2000'];
  const cluster = await clusterWithDashboard(world, { store: 'postgres', workers: 0, args: [...ttl, '--node-id', 'one'] });
  const id = await cluster.submit({ name: 'before', tasks: [sleep('a', 1)] });
  const second = world.capstan('second', [
    ...['coordinator', '--role', 'auto', '--store', cluster.store, '--node-id', 'two'],
    ...['--listen', '127.0.0.1:0', '--http', '127.0.0.1:0', ...ttl],
  ]);
  const [, base] = await second.line(/the HTTP API is at (http:\S+)/);
  const [, leader] = await second.line(/this coordinator stands by: one leads at (\S+), epoch 1$/m);
  assert.equal(leader, cluster.address);
  const page = await openPage(world, `${base}/`);
  const notice = page.getByTestId('read-only');
  await notice.getByText('This coordinator stands by').waitFor();
  assert.ok((await notice.innerText()).includes(cluster.address), await notice.innerText());
  const told = (await page.getByTestId('leader').innerText()).replaceAll(/\s+/g, ' ');
  assert.match(told, /^standby leader one epoch 1$/);
  await page.getByText('The overview cannot be shown: this coordinator does not lead').waitFor();
  await checkAccessible(page, 'one that stands by');
  await picture(page, 'standby');
  await page.goto(`${base}/#/jobs`); // this it reads from the store
  await page.getByRole('link', { name: 'before' }).waitFor();
  await page.goto(`${base}/#/sql`);
  for (const name of ['Run', 'Explain']) {
    const button = page.getByRole('button', { name, exact: true });
    assert.equal(await button.isDisabled(), true, name);
    assert.equal(await button.getAttribute('title'), 'this coordinator stands by: ask the one that leads');
  }
  await page.goto(`${base}/#/`);
  await notice.waitFor();

  await cluster.coordinator.kill();
  await second.line(/this coordinator leads/);
  await notice.waitFor({ state: 'detached' });
  await page.getByTestId('leader').getByText(/^two epoch [2-9]$/).waitFor();
  await page.locator('a.tile', { hasText: 'Queued' }).getByText('1', { exact: true }).waitFor();
  await page.locator('.live.is-live').waitFor();
  await page.goto(`${base}/#/jobs/${id}`);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'before canceled' }).waitFor();
  checkQuiet(page, base);
});

scenario('dashboard: a page of another site cannot submit, cancel, read or even load anything', async (world) => {
  const { base, get, post, ended } = await upWithDashboard(world, [], { workers: 1 });
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

  // A POST without a body needs no leave of the browser's: only its Origin tells whose page it is.
  const placement = { allowed_nodes: ['nobody'] };
  const { job_id: id } = await post('/v1/jobs', { tasks: [sleep('a', 1, { placement })] });
  const cancel = `${base}/v1/jobs/${id}/cancel`;
  const stateOf = async () => (await get(`/v1/jobs/${id}`)).state;
  const before = await stateOf();
  const sent = await page.evaluate((url) => fetch(url, { method: 'POST', mode: 'no-cors' }).then(({ type }) => type), cancel);
  assert.equal(sent, 'opaque', 'the browser sends it, and tells the page nothing');
  assert.equal(await stateOf(), before);
  assert.equal((await fetch(cancel, { method: 'POST' })).status, 200, 'the same from no page');
  assert.equal((await ended(id)).state, 'canceled');

  // A name that was made to lead here is told apart by the Host that the browser sends.
  const rebound = `http://${REBOUND}:${new URL(base).port}`;
  const lured = await openPage(world);
  assert.equal((await lured.goto(`${rebound}/`)).status(), 403);
  const answer = await lured.evaluate(async (body) => {
    const response = await fetch('/v1/jobs', { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    return response.status;
  }, tree);
  assert.equal(answer, 403);
  assert.deepEqual((await get('/v1/jobs')).jobs.map(({ job_id }) => job_id), [id]);

  // And nobody can put the dashboard into a frame.
  await page.evaluate((src) => document.body.append(Object.assign(document.createElement('iframe'), { src, id: 'framed' })), `${base}/`);
  await until('the frame is refused', () => page.complaints.some((text) => /frame-ancestors|X-Frame-Options/.test(text)));
});

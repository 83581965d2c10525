// The page of the nodes: who gets tasks, who gets none, and who gets them again.
import fs from 'node:fs';
import { after } from 'node:test';
import { assert, command, scenario, sleep, until } from '../e2e/harness.js';
import { checkQuiet, closeBrowser, clusterWithDashboard, gated, openPage, picture } from './browser.js';

after(closeBrowser);

scenario('dashboard: a node is drained and gets tasks again, by clicks', async (world) => {
  const cluster = await clusterWithDashboard(world, { workers: 2 });
  const page = await openPage(world, `${cluster.base}/#/nodes`);
  const node = page.getByRole('article', { name: 'Worker w1' });
  await node.getByRole('button', { name: 'Drain' }).click();
  await node.getByRole('button', { name: 'No', exact: true }).click();
  assert.equal((await cluster.nodes()).w1.draining, false);
  await node.getByRole('button', { name: 'Drain' }).click();
  await node.getByRole('button', { name: 'Yes' }).click();
  await node.getByText('draining', { exact: true }).first().waitFor();
  assert.equal((await cluster.nodes()).w1.draining, true);
  const { tasks } = await cluster.run(Array.from({ length: 6 }, (_, i) => sleep(`t${i}`, 1)));
  assert.deepEqual([...new Set(Object.values(tasks).map(({ worker }) => worker))], ['w2']);
  await node.getByRole('button', { name: 'Give tasks again' }).click();
  await node.getByRole('button', { name: 'Drain' }).waitFor();
  assert.equal((await cluster.nodes()).w1.draining, false);
  const again = await cluster.run([sleep('again', 1, { placement: { forbidden_nodes: ['w2'] } })]);
  assert.equal(again.tasks.again.worker, 'w1');
  checkQuiet(page, cluster.base);
});

scenario('dashboard: a node tells how many slots it has, how many of them are busy, and what it can do', async (world) => {
  const cluster = await clusterWithDashboard(world, { workers: 1, slots: 2 });
  await cluster.startWorker({ id: 'far', slots: 3, args: ['--capability', 'zone=far'] });
  const page = await openPage(world, `${cluster.base}/#/nodes`);
  const overview = await openPage(world, `${cluster.base}/`);
  const node = page.getByRole('article', { name: 'Worker far' });
  const other = page.getByRole('article', { name: 'Worker w1' });
  // In words, and as a bar with a part for what is busy and one for the rest.
  const isBusy = async (card, busy, slots) => {
    const bar = card.getByRole('img', { name: `${busy} of ${slots} slots busy`, exact: true });
    await bar.waitFor();
    const parts = await bar.locator('span').evaluateAll((all) => all.map(({ className, style }) => [className, Number(style.flexGrow)]));
    assert.deepEqual(parts, [...(busy > 0 ? [['is-running', busy]] : []), ['is-rest', slots - busy]]);
    assert.equal((await card.locator('.node-load').innerText()).trim(), `${busy} of ${slots} slots`);
  };
  const tile = overview.locator('.tile', { hasText: 'Slots' });
  await isBusy(node, 0, 3);
  await isBusy(other, 0, 2);
  await page.getByText('2 nodes, 0 of 5 slots busy', { exact: true }).waitFor();
  await tile.getByRole('img', { name: '0 of 5 slots are busy' }).waitFor();
  const chips = (card, name) => card.locator(`dt:text-is("${name}") + dd .chip`).allInnerTexts();
  assert.ok((await chips(node, 'Capabilities')).includes('zone far'), `${await chips(node, 'Capabilities')}`);
  assert.ok(!(await chips(other, 'Capabilities')).includes('zone far'));
  assert.deepEqual((await chips(node, 'Executors')).sort(), ['command', 'http', 'sleep', 'sql']);

  const gate = `${world.folder()}/gate`;
  const placement = { requires_capabilities: { zone: 'far' } };
  const id = await cluster.submit([gated('a', gate, { placement }), gated('b', gate, { placement })]);
  await isBusy(node, 2, 3);
  await isBusy(other, 0, 2);
  await page.getByText('2 nodes, 2 of 5 slots busy', { exact: true }).waitFor();
  await tile.getByRole('img', { name: '2 of 5 slots are busy' }).waitFor();
  assert.equal((await tile.locator('.tile-value').innerText()).trim(), '2 of 5');
  fs.writeFileSync(gate, '');
  assert.equal((await cluster.end(id)).state, 'succeeded');
  await isBusy(node, 0, 3);
  for (const one of [page, overview]) checkQuiet(one, cluster.base);
});

scenario('dashboard: a node that was blacklisted is cleared by a click, and what waited for it runs', async (world) => {
  const cluster = await clusterWithDashboard(world);
  const page = await openPage(world, `${cluster.base}/#/nodes`);
  const node = page.getByRole('article', { name: 'Worker w1' });
  await node.getByText('healthy', { exact: true }).first().waitFor();
  const clear = node.getByRole('button', { name: 'Clear blacklisting' });
  assert.equal(await clear.count(), 0);
  const bad = command('bad', 'exit 1', { retry: { max_attempts: 1 } });
  await until('it is blacklisted', async () => {
    await cluster.run([bad]);
    return (await cluster.nodes()).w1.blacklisted;
  });
  await node.getByText('blacklisted', { exact: true }).first().waitFor();
  await picture(page, 'nodes-blacklisted');
  const waiting = await cluster.submit([sleep('waits', 1)]);
  await until('it waits for that', async () => (await cluster.why(waiting)).some((reason) => /blacklisted/.test(reason)));
  await clear.click();
  await clear.waitFor({ state: 'detached' });
  assert.equal((await cluster.nodes()).w1.blacklisted, false);
  assert.equal((await cluster.end(waiting)).state, 'succeeded');
  await page.goto(`${cluster.base}/#/events?type=cleared`);
  await page.getByRole('row', { name: /cleared w1/ }).waitFor();
  checkQuiet(page, cluster.base);
});

// The page of the nodes: who gets tasks, who gets none, and who gets them again.
import { after } from 'node:test';
import { assert, command, scenario, sleep, until } from '../e2e/harness.js';
import { checkQuiet, closeBrowser, clusterWithDashboard, openPage, picture } from './browser.js';

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

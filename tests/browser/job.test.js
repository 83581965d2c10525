// The page of one job: what is seen of it, and what is done to it.
import fs from 'node:fs';
import { after } from 'node:test';
import { assert, command, scenario, sleep, until } from '../e2e/harness.js';
import { checkAccessible, checkQuiet, closeBrowser, gated, lively, openPage, picture, upWithDashboard } from './browser.js';

after(closeBrowser);

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

// Who was given which attempt, in their order.
async function assignments(base, id) {
  const text = await (await fetch(`${base}/v1/events?job=${id}&follow=false`)).text();
  const events = text.split('\n').filter((line) => line.startsWith('data: ')).map((line) => JSON.parse(line.slice(6)));
  return events.filter(({ type }) => type === 'assigned');
}

// The longest bar of a state in the timeline, by its colour: the middle of it, in the window.
const barOf = (page, state) =>
  page.evaluate((name) => {
    const canvas = document.querySelector('.timeline canvas');
    const probe = document.body.appendChild(document.createElement('span'));
    probe.style.color = `var(--${name})`;
    const wanted = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
    probe.remove();
    const { data, width, height } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const is = (x, y) => wanted.every((value, i) => data[(y * width + x) * 4 + i] === value) && data[(y * width + x) * 4 + 3] === 255;
    let best = { length: 0 };
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        let to = x;
        while (to < width && is(to, y)) to++;
        if (to - x > best.length) best = { length: to - x, x: (x + to) / 2, y: y + 1 };
        x = to;
      }
    }
    canvas.scrollIntoView({ block: 'center' });
    const box = canvas.getBoundingClientRect();
    return { length: best.length, x: box.left + (best.x * box.width) / width, y: box.top + (best.y * box.height) / height };
  }, state);

// What is drawn: a bar in the colour of each outcome, under the worker that it belongs to, which its name and its tip tell.
async function checkTimeline(page, assigned) {
  const workers = [...new Set(assigned.map(({ worker_id: id }) => id))].sort();
  const counts = workers.map((worker) => `${assigned.filter(({ worker_id: id }) => id === worker).length} on ${worker}`);
  const picture = page.getByRole('img', { name: /^Timeline: / });
  await until('the timeline is drawn', async () => (await barOf(page, 'failed')).length > 4);
  assert.equal((await picture.getAttribute('aria-label')).split(': ').at(-1), counts.join(', '));
  assert.ok((await barOf(page, 'succeeded')).length > 0);
  const bar = await barOf(page, 'failed');
  await page.mouse.move(bar.x, bar.y);
  const tip = await page.locator('.tip').innerText();
  const [, attempt, worker] = /^load · task 0 · attempt (\d)\s+failed on (\S+)/.exec(tip) ?? [];
  assert.ok(assigned.some((one) => one.stage === 2 && String(one.attempt) === attempt && one.worker_id === worker), tip);
}

// Which boxes of the graph lines join, by where they begin and end: on the right side of one, at the left side of another.
const joined = (page) =>
  page.evaluate(() => {
    const boxes = [...document.querySelectorAll('.graph .stage')].map((box) => {
      const { e: x, f: y } = box.transform.baseVal.consolidate().matrix;
      const { width, height } = box.querySelector('.frame').getBBox();
      return { name: box.querySelector('.name').textContent.trim(), left: x, right: x + width, middle: y + height / 2 };
    });
    const at = (side, { x, y }) => boxes.find((box) => Math.abs(box[side] - x) < 4 && Math.abs(box.middle - y) < 1)?.name;
    return [...document.querySelectorAll('.graph .edge')].map((edge) => {
      const from = at('right', edge.getPointAtLength(0));
      return `${from} > ${at('left', edge.getPointAtLength(edge.getTotalLength()))}`;
    });
  });

scenario('dashboard: what failed says why, with every attempt', async (world) => {
  const { base, tree } = await lively(world);
  const page = await openPage(world, `${base}/#/jobs?state=failed`);
  await page.getByRole('link', { name: 'nightly' }).click();
  await page.getByText("task 'load' failed in attempt 2: exit code 3").waitFor();
  await page.getByRole('img', { name: /^Timeline: 5 attempts/ }).waitFor(); // load twice, index never
  assert.deepEqual((await joined(page)).sort(), ['clean > load', 'extract > clean', 'extract > report', 'load > index']);
  await checkTimeline(page, await assignments(base, tree));
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

scenario('dashboard: why earlier attempts failed is told of what has succeeded, also in a large job', async (world) => {
  const { base, post, ended } = await upWithDashboard(world, ['--set', 'max_concurrent_tasks_per_query=16'], { slots: 8 });
  const page = await openPage(world);
  const flaky = () => {
    const flag = `${world.folder()}/flag`;
    return command('flaky', `[ -e ${flag} ] || { touch ${flag}; exit 3; }`, { retry: { max_attempts: 2, backoff_ms: 10 } });
  };
  const row = (name) => page.getByRole('table', { name: 'Attempts' }).getByRole('row', { name });
  const { job_id: small } = await post('/v1/jobs', { tasks: [flaky()] });
  assert.equal((await ended(small)).state, 'succeeded');
  await page.goto(`${base}/#/jobs/${small}`);
  await page.getByRole('button', { name: 'flaky.0' }).click();
  await row(/^1 failed \S+ [\d:.]+ \d.* exit code 3$/).waitFor();
  await row(/^2 succeeded \S+ [\d:.]+ \d/).waitFor();
  await checkAccessible(page, 'attempts');
  await page.getByRole('table', { name: 'Attempts' }).scrollIntoViewIfNeeded();
  await picture(page, 'job-attempts');

  // So many tasks that not all events are read with the page.
  const many = Array.from({ length: 4100 }, (_, i) => sleep(`t${i}`, 0, { depends_on: ['flaky'] }));
  const { job_id: large } = await post('/v1/jobs', { tasks: [flaky(), ...many] });
  assert.equal((await ended(large)).state, 'succeeded');
  await page.goto(`${base}/#/jobs/${large}`);
  await page.getByText('4,101 attempts; 1 earlier one not drawn').waitFor();
  await page.getByRole('button', { name: 'flaky.0' }).click();
  await page.getByText('The events of 1 earlier attempt have not been read.').waitFor();
  assert.equal(await row(/^1 failed/).count(), 0);
  await page.getByRole('button', { name: 'Read all events of the job' }).click();
  await row(/^1 failed \S+ [\d:.]+ \d.* exit code 3$/).waitFor();
  await row(/^2 succeeded/).waitFor();
  checkQuiet(page, base);
});

// Goes on from what has the focus, as somebody without a mouse does.
async function tabTo(page, target, key = 'Tab') {
  for (let i = 0; i < 60; i++) {
    if (await target.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press(key);
  }
  assert.fail(`${target} is not reached with ${key}`);
}

scenario('dashboard: a job is looked into and retried with nothing but the keyboard', async (world) => {
  const { base, tree, get } = await lively(world);
  const page = await openPage(world, `${base}/#/jobs/${tree}`);
  const button = (name) => page.getByRole('button', { name });
  const has = (target, what) => until(what, () => target.evaluate((element) => element === document.activeElement));
  await button(/^load: failed/).waitFor();
  await button('clean.0').waitFor();
  await page.keyboard.press('Tab');
  await has(page.getByRole('link', { name: 'To the content' }), 'the way past the navigation comes first');
  await page.keyboard.press('Enter');
  await has(page.getByRole('main'), 'the content has the focus');
  await tabTo(page, button(/^load: failed/));
  await page.keyboard.press('Enter');
  await page.getByLabel('Stage', { exact: true }).getByText('1 failed').waitFor();
  await until('only its task is listed', async () => (await button('clean.0').count()) === 0);
  await page.keyboard.press('Space'); // off again, and on
  await button('clean.0').waitFor();
  await page.keyboard.press('Enter');
  await tabTo(page, button('load.0'));
  await page.keyboard.press('Enter');
  await page.getByLabel('Result of the task').waitFor();
  await tabTo(page, button('Retry from here'));
  await page.keyboard.press('Enter');
  await has(button('Yes'), 'the question has the focus');
  await page.keyboard.press('Escape');
  await has(button('Retry from here'), 'the button has it again');
  assert.equal((await get(`/v1/jobs/${tree}`)).state, 'failed');
  await page.keyboard.press('Enter');
  await has(button('Yes'), 'the question has the focus');
  await page.keyboard.press('Enter');
  const attempt = async () => (await get(`/v1/jobs/${tree}/tasks`)).tasks.find(({ name }) => name === 'load').attempt;
  await until('it has run again', async () => (await attempt()) > 2);
  checkQuiet(page, base);
});

scenario('dashboard: a query that runs shows how far each of its stages is', async (world) => {
  const { base, post, ended } = await lively(world);
  const page = await openPage(world, `${base}/#/jobs`);
  const running = page.getByRole('button', { name: /^s0: running, \d+ of \d+ tasks done, \d+ running, 0 failed, \d+ % through/ });
  const over = page.getByRole('button', { name: /^s0: succeeded/ });
  let id;
  // On a busy machine the page may be slower than the query: then once more, with more to do.
  for (let times = 200, isSeen = false; !isSeen; times *= 4) {
    assert.ok(times <= 12800, 's0 was never seen running');
    const sql = `select country, max(md5(repeat(sale::varchar, ${times}))) as m from sales group by country`;
    ({ job_id: id } = await post('/v1/queries', { sql, options: { forced: true, partitions: 4 } }));
    await page.goto('about:blank'); // or the stages of the job before would be there at first
    await page.goto(`${base}/#/jobs/${id}`);
    await running.or(over).first().waitFor();
    isSeen = await running.isVisible();
  }
  await page.getByText(/^[1-9] of \d+ done$/).waitFor();
  await picture(page, 'job-query-running');
  assert.equal((await ended(id)).state, 'succeeded');
  await page.getByRole('button', { name: /^s0: succeeded, (\d+) of \1 tasks done/ }).waitFor();
  await page.getByRole('row', { name: /^s0 \d+ / }).waitFor(); // of the table of skew
  await page.getByRole('link', { name: 'Rows' }).click();
  await page.getByText('6 rows in').waitFor();
  checkQuiet(page, base);
});

scenario('dashboard: how uneven the tasks of a stage are is shown in numbers', async (world) => {
  const { base, post, get, ended } = await upWithDashboard(world);
  // Three files: two with ten rows, one with two hundred.
  const files = [10, 10, 200].map((n, i) => world.file(`${i}.csv`, `a\n${'1\n'.repeat(n)}`));
  const plan = {
    stages: [
      { id: 0, sql: 'select a from read_csv({{split}})', splits: files.map((file) => ({ file })), output: { exchange: 'gather' } },
      { id: 1, inputs: { m: 0 }, sql: 'select sum(a)::bigint as n from m', output: { exchange: 'result' } },
    ],
  };
  const { job_id: id } = await post('/v1/queries', { plan });
  assert.equal((await ended(id)).state, 'succeeded');
  const page = await openPage(world, `${base}/#/jobs/${id}`);
  const row = page.locator('.skew tbody tr', { hasText: 's0' });
  await row.getByText('10 / 200').waitFor();
  const cells = await row.getByRole('cell').allInnerTexts();
  // Behind tasks and time: a picture, median and largest, and how many times that is, of rows and bytes.
  const [, rows, timesRows, , sizes, timesBytes] = cells.slice(-6);
  assert.deepEqual([cells[0], rows, timesRows], ['3', '10 / 200', '×20.0']);
  assert.match(sizes, /^[\d.]+ k?B \/ [\d.]+ k?B$/);
  assert.match(timesBytes, /^×[\d.]+$/);
  // Time is what it was; nobody can say beforehand whose task took longest.
  const tasks = (await get(`/v1/jobs/${id}/tasks`)).tasks.filter(({ stage }) => stage === 0);
  const took = tasks.map(({ started_at_ms: from, finished_at_ms: to }) => to - from);
  const [, median, most] = took.toSorted((a, b) => a - b);
  const shown = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(2)} s`);
  assert.deepEqual(cells.slice(2, 4), [`${shown(median)} / ${shown(most)}`, median > 0 ? `×${(most / median).toFixed(1)}` : '∞']);
  assert.equal(await row.getByRole('cell').nth(3).getAttribute('title'), `largest: task ${tasks[took.indexOf(most)].task}`);
  const worst = row.getByRole('cell').nth(cells.length - 4);
  assert.equal(await worst.getAttribute('title'), 'largest: task 2');
  assert.match(await worst.getAttribute('class'), /is-warn/);
  const last = await page.locator('.skew tbody tr', { hasText: 's1' }).getByRole('cell').allInnerTexts();
  assert.equal(last.at(-4), '–'); // one task alone is not uneven
  checkQuiet(page, base);
});

scenario('dashboard: a query is retried from one of its stages, by a click, and says what that means', async (world) => {
  const { base, query, get } = await lively(world);
  const counted = async () => (await get(`/v1/jobs/${query}/results`)).rows.map(([country, sales]) => `${country} ${sales}`).sort();
  const before = await counted();
  const attempts = async () => (await get(`/v1/jobs/${query}/tasks`)).tasks.map(({ attempt }) => attempt);
  const page = await openPage(world, `${base}/#/jobs/${query}`);
  await page.getByRole('button', { name: 'plan.0', exact: true }).click();
  const again = page.getByRole('button', { name: 'Retry from here' });
  assert.equal(await again.isDisabled(), true);
  assert.match(await again.getAttribute('title'), /the plan is kept/);
  await page.getByRole('button', { name: 's1.0', exact: true }).click();
  await again.click();
  await page.getByText('Run stage s1 and all that depends on it again? What it reads is computed again, too.').waitFor();
  await page.getByRole('button', { name: 'Yes', exact: true }).click();
  await until('its tasks have run again', async () => (await attempts()).slice(1).every((n) => n === 2));
  await page.getByText('succeeded', { exact: true }).first().waitFor();
  assert.equal((await attempts())[0], 1);
  await until('it has succeeded again', async () => (await get(`/v1/jobs/${query}`)).state === 'succeeded');
  assert.deepEqual(await counted(), before);
  checkQuiet(page, base);
});

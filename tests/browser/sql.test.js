// The SQL console: a million rows, charts, plans, downloads.
import fs from 'node:fs';
import { after } from 'node:test';
import { assert, scenario, until } from '../e2e/harness.js';
import { DuckDBInstance } from '../e2e/node_modules/@duckdb/node-api/lib/index.js';
import { tableFromIPC } from '../e2e/node_modules/apache-arrow/Arrow.node.mjs';
import { BY_COUNTRY, checkAccessible, checkQuiet, closeBrowser, lively, longest, openPage, picture, upWithDashboard } from './browser.js';

after(closeBrowser);

const ROWS = 1_000_000;

// The rows that the grid has, and the first and last number that they show.
const seen = (page) =>
  page.evaluate(() => {
    const rows = [...document.querySelectorAll('.grid .virtual-rows [role=row]')].map((row) => row.children[1].textContent);
    return { n: rows.length, rows };
  });

// The number of the row on top, right below the head.
const onTop = (page) =>
  page.evaluate(() => {
    const head = document.querySelector('.grid-head').getBoundingClientRect().bottom;
    const rows = [...document.querySelectorAll('.grid .virtual-rows [role=row]')];
    return rows.find((row) => row.getBoundingClientRect().top > head - 13)?.children[0].textContent;
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
  const goTo = async (row) => {
    await page.getByRole('textbox', { name: 'go to row' }).fill(row);
    await page.keyboard.press('Enter');
  };
  // Also to rows that are so near that the bar hardly moves.
  for (const row of ['1', '201', '401', '150', '500,000', '500,040', '999,900', '2', '1']) {
    await goTo(row);
    await until(`row ${row} is on top`, async () => (await onTop(page)) === row);
    // What comes later, from the move itself, changes nothing.
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)))));
    assert.equal(await onTop(page), row);
  }
  await goTo('1,000,000');
  await until('the last row', async () => (await seen(page)).rows.includes(String(ROWS - 1)));
  assert.ok((await seen(page)).n < 100);
  await picture(page, 'sql-million');
  const fetched = page.asked.filter((url) => /\/results\?offset/.test(url));
  assert.ok(fetched.length < 60, `${fetched.length} requests`);
  console.log(`a million rows: ${fetched.length} requests for pages, longest task of the main thread ${Math.round(await longest(page))} ms`);
  checkQuiet(page, base);
});

// Where a line and points are drawn: each value at its place, whatever the order of the rows.
async function checkCurve(page, editor) {
  await editor.fill('select * from (values (3, 90), (1, 10), (2, 40), (5, 100)) v(a, b) where b > 0');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('cell', { name: '90' }).waitFor();
  await page.getByRole('tab', { name: 'Chart' }).click();
  await page.getByRole('img', { name: 'b by a, 4 values from 10 to 100' }).waitFor();
  const form = page.getByRole('radiogroup', { name: 'Form' });
  await form.getByText('Line', { exact: true }).click();
  const line = page.locator('.chart polyline.line');
  await line.waitFor();
  const places = (await line.getAttribute('points')).split(' ').map((place) => place.split(',').map(Number));
  // From 1 to 5 across, from 0 to 100 up: told by the first and the last of them.
  const [[left, low], [right, high]] = [places[0], places.at(-1)];
  const wanted = [[1, 10], [2, 40], [3, 90], [5, 100]].map(([a, b]) => [left + ((a - 1) / 4) * (right - left), low + ((b - 10) / 90) * (high - low)]);
  assert.ok(right - left > 500 && low - high > 150, `${places}`);
  const isNear = (some, others) => some.length === others.length && some.every((place, i) => place.every((x, j) => Math.abs(x - others[i][j]) < 0.2));
  assert.ok(isNear(places, wanted), `${places} instead of ${wanted}`);
  await picture(page, 'sql-chart-line');
  await form.getByText('Points', { exact: true }).click();
  const points = page.locator('.chart circle.mark');
  await points.first().waitFor();
  const drawn = await points.evaluateAll((all) => all.map((point) => [Number(point.getAttribute('cx')), Number(point.getAttribute('cy'))]));
  assert.ok(isNear(drawn.toSorted(([a], [b]) => a - b), wanted), `${drawn} instead of ${wanted}`);
  assert.equal(await line.count(), 0);
}

scenario('dashboard: a query is explained, drawn, downloaded, canceled, and found again', { ms: 120000 }, async (world) => {
  const { base, query, post, get } = await lively(world);
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
  const expected = (await get(`/v1/jobs/${query}/results`)).rows.map((row) => row.map(String));
  const arrow = tableFromIPC(await read('Arrow'));
  assert.deepEqual(arrow.schema.fields.map(({ name }) => name), ['country', 'sales', 'revenue']);
  assert.deepEqual(arrow.toArray().map((row) => [row.country, String(row.sales)]), expected.map((row) => row.slice(0, 2)));
  const file = world.file('rows.parquet', await read('Parquet'));
  const duck = await (await DuckDBInstance.create(':memory:')).connect();
  const rows = await duck.runAndReadAll(`select country::varchar, sales::varchar, revenue::varchar from '${file}'`);
  assert.deepEqual(rows.getRowsJson(), expected);

  const editor = page.getByRole('textbox', { name: 'SQL statement' });
  await editor.fill(BY_COUNTRY);
  await page.getByRole('button', { name: 'Explain' }).click();
  await page.getByLabel('How it would run').getByText(/stage 0: 1 task/).waitFor();
  await editor.fill("select 'a' as k, interval 1 day as d, [1, 2] as l, 5 as n, 2.5::decimal(5, 2) as p");
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('cell', { name: '2.5' }).waitFor();
  await page.getByRole('tab', { name: 'Chart' }).click();
  await page.getByRole('img', { name: 'n by k, 1 values from 5 to 5' }).waitFor(); // a span of time is no number, nor is a list
  assert.deepEqual(await page.locator('.chart label', { hasText: /^up/ }).locator('option').allInnerTexts(), ['n', 'p']);
  await checkCurve(page, editor);
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

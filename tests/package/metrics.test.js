// Alert rules and the dashboard name metrics and labels: a live coordinator and a live worker must export every one.
import http from 'node:http';
import { test } from 'node:test';
import { parse } from 'yaml';
import { assert, scenario, until } from '../e2e/harness.js';
import { has, read, run } from './program.js';

const alerts = parse(read('packaging/prometheus/alerts.yml'));
const rules = alerts.groups.flatMap((group) => group.rules);
const dashboard = JSON.parse(read('packaging/grafana/capstan.json'));
const panels = dashboard.panels.filter((panel) => panel.type !== 'row');
const jobs = { coordinator: /^(capstan-coordinator|\$coordinators)$/, worker: /^(capstan-worker|\$workers)$/ };

// The metrics of an exposition: name → label → values.
function parseMetrics(text) {
  const metrics = new Map();
  for (const line of text.split('\n').filter((one) => one !== '' && !one.startsWith('#'))) {
    const [, name, labels] = /^([a-z_]+)(?:\{(.*)\})? \S+$/.exec(line);
    if (!metrics.has(name)) metrics.set(name, new Map());
    for (const [, label, value] of (labels ?? '').matchAll(/(\w+)="([^"]*)"/g)) {
      const values = metrics.get(name).get(label) ?? new Set();
      metrics.get(name).set(label, values.add(value));
    }
  }
  return metrics;
}

// What an expression asks for that `live`, metrics by job, does not have.
function missing(expression, live) {
  const found = [];
  const names = [...expression.matchAll(/\b(capstan_\w+)(?:\{([^}]*)\})?/g)];
  for (const [, name, selector = ''] of names) {
    const matchers = [...selector.matchAll(/(\w+)(=~?|!=)"([^"]*)"/g)];
    const job = matchers.find(([, label]) => label === 'job')?.[3] ?? '';
    const side = Object.keys(jobs).find((one) => jobs[one].test(job));
    const labels = live[side]?.get(name);
    if (labels === undefined) {
      found.push(`${name} of job '${job}'`);
      continue;
    }
    for (const [, label, , wanted] of matchers.filter((matcher) => matcher[1] !== 'job')) {
      for (const value of wanted.split('|')) {
        if (!labels.get(label)?.has(value)) found.push(`${name}{${label}="${value}"}`);
      }
    }
  }
  // sum by (label, label) (rate(metric...: what is summed must have the labels.
  for (const [, list, name] of expression.matchAll(/\bby \(([^)]*)\) \((?:[a-z_]+\()*(capstan_\w+)/g)) {
    const labels = live.coordinator.get(name) ?? live.worker.get(name) ?? new Map();
    for (const label of list.split(', ').filter((one) => !['instance', 'job'].includes(one))) {
      if (!labels.has(label)) found.push(`${name} has no label ${label}`);
    }
  }
  if (names.length === 0 && !/\bup\{/.test(expression)) found.push('no metric at all');
  return found;
}

const isBalanced = (text) => {
  let depth = 0;
  for (const c of text) {
    if (c === '(' || c === '{' || c === '[') depth++;
    if (c === ')' || c === '}' || c === ']') depth--;
    if (depth < 0) return false;
  }
  return depth === 0;
};

scenario('every metric and label of alerts and dashboard is exported', async (world) => {
  const folder = world.folder('live');
  const coordinator = world.capstan('coordinator', [
    ...['coordinator', '--store', `sqlite:${folder}/state.db`, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'],
    ...['--http-name', 'capstan.example', '--no-auth'],
  ]);
  const [, address] = await coordinator.line(/serving on (\S+?),/);
  const [, api] = await coordinator.line(/HTTP API is at (http:\S+)/);
  const worker = world.capstan('worker', [
    ...['worker', '--join', address, '--id', 'w1', '--data', `${folder}/worker`, '--http', '127.0.0.1:0'],
  ]);
  const [, health] = await worker.line(/health and metrics on (http:\S+)/);
  await until('the worker is registered', async () => (await (await fetch(`${health}/healthz`)).json()).registered);

  const live = {
    coordinator: parseMetrics(await (await fetch(`${api}/metrics`)).text()),
    worker: parseMetrics(await (await fetch(`${health}/metrics`)).text()),
  };
  for (const rule of rules) assert.deepEqual(missing(rule.expr, live), [], rule.alert);
  for (const { expr } of dashboard.annotations.list) assert.deepEqual(missing(expr, live), [], expr);
  for (const panel of panels) {
    for (const target of panel.targets) assert.deepEqual(missing(target.expr, live), [], panel.title);
  }
  // The check itself notices what is not there.
  assert.deepEqual(missing('sum(capstan_leaders{job="capstan-coordinator"})', live), ["capstan_leaders of job 'capstan-coordinator'"]);
  assert.deepEqual(missing('capstan_tasks{job="capstan-coordinator",state="lost"}', live), ['capstan_tasks{state="lost"}']);
  assert.deepEqual(missing('sum by (zone) (capstan_leader{job="$coordinators"})', live), ['capstan_leader has no label zone']);
});

scenario('names of --http-name are names of the coordinator, others are not', async (world) => {
  const folder = world.folder('named');
  const coordinator = world.capstan('coordinator', [
    ...['coordinator', '--store', `sqlite:${folder}/state.db`, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'],
    ...['--http-name', 'capstan.example', '--http-name', 'capstan', '--no-auth'],
  ]);
  const [, host, port] = await coordinator.line(/HTTP API is at http:\/\/([\d.]+):(\d+)/);
  // fetch() chooses Host itself.
  const status = (name, origin) =>
    new Promise((resolve, reject) => {
      const headers = { host: name, ...(origin && { origin }) };
      const request = http.get({ host, port, path: '/v1/leader', headers }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      request.on('error', reject);
    });
  assert.equal(await status('capstan.example:7480'), 200);
  assert.equal(await status('CAPSTAN'), 200);
  assert.equal(await status('evil.example'), 403);
  assert.equal(await status('capstan.example', 'http://capstan.example'), 200);
  assert.equal(await status('capstan.example', 'http://evil.example'), 403);
});

test('alert rules are complete', () => {
  assert.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length);
  for (const rule of rules) {
    assert.match(rule.alert, /^Capstan[A-Z][A-Za-z]+$/);
    assert.ok(['page', 'ticket'].includes(rule.labels.severity), rule.alert);
    assert.ok(rule.annotations.summary && rule.annotations.description, rule.alert);
    assert.match(rule.for ?? '0s', /^\d+[smh]$/);
    assert.ok(isBalanced(rule.expr), rule.expr);
  }
  assert.deepEqual(
    parse(read('packaging/prometheus/scrape.yml')).scrape_configs.map((job) => job.job_name),
    ['capstan-coordinator', 'capstan-worker'],
  );
});

test('what docs/operations.md would wake somebody for, a rule does', () => {
  const rows = read('docs/operations.md').split('\n').filter((line) => /^\| `capstan_/.test(line) && line.includes('**wake somebody**'));
  assert.ok(rows.length >= 4);
  for (const row of rows) {
    const names = [...row.split(' | ')[0].matchAll(/`(capstan_\w+)/g)].map(([, name]) => new RegExp(`\\b${name}\\b`));
    const pages = rules.filter(({ labels }) => labels.severity === 'page');
    assert.ok(pages.some(({ expr }) => names.some((name) => name.test(expr))), row);
  }
});

scenario('Prometheus understands alert rules and the dashboard', { if: has('promtool'), why: 'promtool is not installed' }, (world) => {
  run('promtool', ['check', 'rules', 'packaging/prometheus/alerts.yml']);
  // Expressions of the dashboard, with its variables filled in, as if they were rules.
  const expressions = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  const asRules = expressions.map((expr, i) => ({ record: `r${i}`, expr: expr.replaceAll('$__rate_interval', '5m') }));
  const file = world.file('rules.yml', JSON.stringify({ groups: [{ name: 'dashboard', rules: asRules }] }));
  run('promtool', ['check', 'rules', file]);
});

test('the dashboard has panels that lie beside each other, each with a query and a unit', () => {
  assert.equal(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length);
  assert.ok(panels.length >= 20, `only ${panels.length} panels`);
  const taken = new Set();
  for (const { title, gridPos } of dashboard.panels) {
    assert.ok(gridPos.x + gridPos.w <= 24, title);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        assert.ok(!taken.has(`${x},${y}`), `${title} lies over another panel`);
        taken.add(`${x},${y}`);
      }
    }
  }
  for (const panel of panels) {
    assert.ok(panel.fieldConfig.defaults.unit, panel.title);
    for (const { expr, datasource } of panel.targets) {
      assert.ok(isBalanced(expr), expr);
      assert.equal(datasource.uid, '${datasource}');
    }
  }
});

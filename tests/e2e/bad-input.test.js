// A corpus of wrong input: task trees, flags, requests. Each is refused with its own message, and changes nothing.
// Neither a secret nor the insides of the program come out with a message.
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { assert, grpcStatus, pause, root, scenario, sleep, until } from './harness.js';

const SECRET = 'capstan-secret-4711';
const trees = path.join(root, 'tests/data/bad-trees');
const leaks = new RegExp(`${SECRET}|AddressSanitizer|assertion|\\bsrc/|\\.c:\\d+|0x[0-9a-f]{9,}|\\(null\\)`, 'i');

// Everything that a wrong request could have changed.
const snapshot = async (cluster) => ({
  jobs: (await cluster.client.call('ListJobs', { limit: 1000 })).jobs,
  nodes: (await cluster.client.call('ListNodes')).nodes.map(({ last_seen_ms, ...node }) => node),
  tables: (await cluster.client.call('ListTables')).tables,
  events: (await cluster.events()).length,
});

// Runs many at a time: each is a process of its own.
async function each(list, work, width = 4) {
  const left = [...list];
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (left.length > 0) await work(left.shift());
    }),
  );
}

const cases = fs
  .readdirSync(trees)
  .filter((name) => name.endsWith('.json'))
  .map((name) => name.slice(0, -5));

scenario(
  'every bad tree is refused by the command line with all its errors, exit code 2, and nothing is stored',
  { ms: 120000 },
  async (world) => {
    const cluster = await world.cluster();
    const before = await snapshot(cluster);
    assert.ok(cases.length >= 70, `${cases.length} cases`);
    const wrong = [];
    await each(cases, async (name) => {
      const expected = fs
        .readFileSync(path.join(trees, `${name}.txt`), 'utf8')
        .trimEnd()
        .split('\n');
      const { code, stdout, stderr } = await cluster.cli(['submit', path.join(trees, `${name}.json`)], {
        env: { CAPSTAN_TOKEN: SECRET },
        isQuiet: true,
      });
      assert.equal(code, 2, `${name}: ${stderr}`);
      assert.equal(stdout, '', name);
      const said = stderr
        .replace(/^capstan: /, '')
        .split('\n')
        .map((line) => line.trim());
      // An empty file is noticed before it is a tree, and parameters are filled in before the tree is sent.
      const text = fs.readFileSync(path.join(trees, `${name}.json`), 'latin1');
      const isSame = expected.every((line, at) => line.trim() === said[at]);
      if (!isSame && text !== '' && !text.includes('${params.'))
        wrong.push(`${name}: ${stderr.slice(0, 300)} instead of ${expected[0]}`);
      assert.doesNotMatch(stderr, leaks, name);
    });
    assert.deepEqual(wrong, []);
    assert.deepEqual(await snapshot(cluster), before);
  },
);

scenario('every bad tree is refused over gRPC with INVALID_ARGUMENT or RESOURCE_EXHAUSTED', async (world) => {
  const cluster = await world.cluster();
  const before = await snapshot(cluster);
  for (const name of cases) {
    const [expected] = fs.readFileSync(path.join(trees, `${name}.txt`), 'utf8').split('\n');
    const tree_json = fs.readFileSync(path.join(trees, `${name}.json`));
    const error = await cluster.client.once('SubmitTasks', { job_id: 'bad', tree_json }).then(
      () => undefined,
      (it) => it,
    );
    assert.ok(error, `${name} was accepted`);
    assert.ok(
      [grpcStatus.INVALID_ARGUMENT, grpcStatus.RESOURCE_EXHAUSTED].includes(error.code),
      `${name}: ${error.message}`,
    );
    if (tree_json.length > 0) assert.equal(error.details.split('\n')[0].trim(), expected.trim(), name);
    assert.doesNotMatch(error.details, leaks, name);
  }
  assert.deepEqual(await snapshot(cluster), before);
});

// [arguments, exit code, message]; the message is the first line after `capstan: `.
const noJob = "there is no job 'nope'";
const flags = [
  [['nope'], 2, "unknown verb 'nope'"],
  [['sumbit', 'x'], 2, "unknown verb 'sumbit'", "did you mean 'submit'? 'capstan help' lists all"],
  [['submit'], 2, 'submit: an argument is missing'],
  [['submit', 'a', 'b'], 2, "submit: unexpected argument 'b'"],
  [['submit', '/nonexistent.json'], 2, 'cannot open /nonexistent.json: No such file or directory'],
  [['submit', '/tmp'], 2, 'cannot read /tmp: Is a directory'],
  [['submit', '--bogus', 'x'], 2, "submit: unknown flag '--bogus'"],
  [
    ['submit', '--paramm', 'a=1', 'x'],
    2,
    "submit: unknown flag '--paramm'",
    "did you mean --param? 'capstan submit --help' lists all",
  ],
  [['submit', 'TREE', '--id', 'a b'], 2, "job_id: must consist of letters, digits, '.', '_' and '-'; byte 1 is 0x20"],
  [['submit', 'TREE', '--id', 'x'.repeat(101)], 2, /^job_id: must be at most 100 bytes/],
  [['submit', 'TREE', '--key', 'x'.repeat(513)], 2, /^idempotency_key: must be at most 512 bytes/],
  [['submit', 'TREE', '--param', 'novalue'], 2, "submit: --param: 'novalue' is not of the form name=value"],
  [
    ['submit', 'TREE', '--param-json', 'n=notjson'],
    2,
    "parameter 'n': not JSON: at byte 0: expected a value, found 'n'",
  ],
  [['run', '--detach'], 2, 'run: an argument is missing'],
  [['run', '/nonexistent.json'], 2, 'cannot open /nonexistent.json: No such file or directory'],
  [['jobs', '--limit', '0'], 2, 'jobs: --limit: 0 is out of range: from 1 to 1000'],
  [['jobs', '--limit', 'abc'], 2, "jobs: --limit: 'abc' is not a whole number"],
  [['jobs', '--limit', '-1'], 2, 'jobs: --limit: -1 is out of range: from 1 to 1000'],
  [['jobs', '--limit'], 2, 'jobs: --limit needs a value: N'],
  [['jobs', '--state', 'bad'], 2, "jobs: --state: 'bad' is none of queued|running|succeeded|failed|canceled"],
  [['jobs', '--after', 'zzz'], 2, /the page token is not one that a page came with/],
  [['jobs', '--timeout', 'x'], 2, "jobs: --timeout: 'x' is not a duration such as 250ms, 60s, 5m, 2h or 7d"],
  [['jobs', '--timeout', '0s'], 2, 'jobs: --timeout: 0s is too small'],
  [['jobs', '--server', 'nope'], 2, "jobs: --server: 'nope' is not an address of the form HOST:PORT"],
  [['jobs', '--server', '127.0.0.1:1', '--timeout', '200ms'], 3, /^cannot reach a coordinator at 127\.0\.0\.1:1: /],
  [['jobs', '--token-file', '/nonexistent'], 2, 'cannot open /nonexistent: No such file or directory'],
  [['jobs', '--tls-ca', '/nonexistent'], 2, 'cannot open /nonexistent: No such file or directory'],
  [['jobs', '--tls-cert', '/nonexistent'], 2, /cannot open \/nonexistent|belong together/],
  [['job'], 2, 'job: an argument is missing'],
  [['job', 'a/b'], 2, "job: 'a/b' is no job id: it has 1 to 100 letters, digits, '.', '_' or '-'"],
  [['job', 'nope'], 2, noJob],
  [['tasks', 'nope'], 2, noJob],
  [
    ['tasks', 'nope', '--state', 'x'],
    2,
    "tasks: --state: 'x' is none of queued|running|succeeded|failed|canceled|skipped",
  ],
  [['results', 'nope'], 2, noJob],
  [['cancel', 'nope'], 2, noJob],
  [['retry', 'nope'], 2, noJob],
  [['why', 'nope'], 2, noJob],
  [['events', 'nope'], 2, noJob],
  [['events', '--after', 'x'], 2, "events: --after: 'x' is not a whole number"],
  [['events', '--after', '-1'], 2, 'events: --after: -1 is out of range: from 0 to 9223372036854775807'],
  [['nodes', '--capability', 'x'], 2, "nodes: --capability: 'x' is not of the form name=value"],
  [['nodes', '--executor', ''], 2, 'nodes: --executor: the value is empty'],
  [['node'], 2, 'node: an argument is missing'],
  [['node', 'x', 'y'], 2, "node: 'x' is none of drain|undrain|clear"],
  [['node', 'drain'], 2, 'node: an argument is missing'],
  [['node', 'drain', 'nope'], 2, /'nope'/],
  [['node', 'clear', 'nope'], 2, /'nope'/],
  [['table', 'add', 'x'], 2, /^table: wrong arguments/],
  [['table', 'rm', 'nope'], 2, "there is no table 'nope'"],
  [['table', 'frob'], 2, "table: 'frob' is none of add|list|rm"],
  [['leader', 'x'], 2, "leader: unexpected argument 'x'"],
  [['completion', 'zsh'], 2, "completion: 'zsh' is none of bash"],
  [['completion'], 2, 'completion: an argument is missing'],
  [['help', 'nope'], 2, "unknown verb 'nope'"],
  [['version', 'x'], 2, "version: unexpected argument 'x'"],
  [['demo', 'x'], 2, "demo: unexpected argument 'x'"],
  [['bench', 'nope'], 2, /^bench: 'nope' is none of /],
  [['bench', 'tasks', '--tasks', '0'], 2, 'bench: --tasks: 0 is out of range: from 1 to 10000000'],
  [['bench', 'sql', '--scale', '0'], 2, "bench: --scale: '0' is no number above 0 and up to 1000"],
  [['bench', 'sql', '--queries', '1,23'], 2, "bench: --queries: '23' is no number from 1 to 22"],
  [['bench', 'sql', '--single', '--gain'], 2, 'bench: --single and --gain: choose one of them'],
  [['bench', 'sql', '--server', '127.0.0.1:9'], 2, 'bench: sql: would add tables to the cluster of --server'],
  [['store', 'frob'], 2, "store: 'frob' is none of status|migrate|rollback|copy"],
  [['store', 'status', '--store', 'sqlite:/nonexistent/x.db'], 2, 'there is no store at /nonexistent/x.db'],
  [['store', 'copy', '--store', 'sqlite:/nonexistent/x.db', '--to', 'sqlite:/nonexistent/x.db'], 2, 'there is no store at /nonexistent/x.db'],
  [['coordinator', '--set', 'x'], 2, "coordinator: --set: 'x' is not of the form name=value"],
  [['coordinator', '--set', 'x=1'], 2, "unknown setting 'x'"],
  [['coordinator', '--set', 'lease_ms=abc'], 2, "lease_ms: 'abc' is not a whole number"],
  [['coordinator', '--set', 'lease_ms=-1'], 2, 'lease_ms must be between 30 and 86400000, not -1'],
  [['coordinator', '--set', 'lease_ms=100'], 2, 'lease_ms must be at least three times heartbeat_interval_ms'],
  [
    ['coordinator', '--set', 'worker_liveness_timeout_ms=100'],
    2,
    'worker_liveness_timeout_ms must not be below lease_ms',
  ],
  [['coordinator', '--set', 'node_dead_ms=100'], 2, 'node_dead_ms must be above node_stale_ms'],
  [
    ['coordinator', '--set', 'lease_ms=100', '--set', 'node_dead_ms=100'],
    2,
    'lease_ms must be at least three times heartbeat_interval_ms',
    'node_dead_ms must be above node_stale_ms',
  ],
  [['coordinator', '--store', 'bogus:x'], 2, "the store's URL is neither sqlite: nor postgres://"],
  [['coordinator', '--store', ''], 2, 'coordinator: --store: the value is empty'],
  [['coordinator', '--listen', 'nope'], 2, "coordinator: --listen: 'nope' is not an address of the form HOST:PORT"],
  [
    ['coordinator', '--listen', '127.0.0.1:99999'],
    2,
    "coordinator: --listen: '127.0.0.1:99999' is not an address of the form HOST:PORT",
  ],
  [
    ['coordinator', '--listen', '0.0.0.0:0'],
    2,
    'refusing to listen on 0.0.0.0:0 without encryption: other machines could connect',
  ],
  [['coordinator', '--role', 'x'], 2, /^coordinator: --role: 'x' is none of auto\|leader/],
  [['coordinator', '--node-id', 'a b'], 2, /node-id/],
  [['coordinator', '--log-level', 'loud'], 2, "coordinator: --log-level: 'loud' is none of debug|info|warn|error|none"],
  [['coordinator', '--log-format', 'xml'], 2, "coordinator: --log-format: 'xml' is none of text|json"],
  [['coordinator', '--config', '/nonexistent'], 2, 'cannot open /nonexistent: No such file or directory'],
  [['coordinator', '--store-wait', 'soon'], 2, /^coordinator: --store-wait: 'soon' is not a duration/],
  [
    ['coordinator', '--store', `postgres://user:${SECRET}@127.0.0.1:1/db`, '--store-wait', '100ms'],
    3,
    /^capstan: cannot connect to the database: .*port 1 failed: Connection refused/m,
  ],
  [['worker', '--slots', '0'], 2, 'worker: --slots: 0 is out of range: from 1 to 1000'],
  [['worker', '--slots', 'x'], 2, "worker: --slots: 'x' is not a whole number"],
  [['worker', '--join', 'nope'], 2, "worker: --join: 'nope' is not an address of the form HOST:PORT"],
  [['worker', '--id', 'a b', '--join', 'SERVER'], 2, /a b|worker_id|id/],
  [['worker', '--executors', 'docker'], 2, "there is no executor 'docker'"],
  [['worker', '--plugin', '/nonexistent.so'], 2, 'plug-in /nonexistent.so: No such file or directory'],
  [['worker', '--require-ops', 'x'], 2, 'required operators are missing: x'],
  [['worker', '--capability', 'x'], 2, "worker: --capability: 'x' is not of the form name=value"],
  [['worker', '--capability', 'a=1', '--capability', 'a=2'], 2, /^the capabilities make no sense/],
  [['worker', '--memory', 'lots'], 2, "worker: --memory: 'lots' is not a size such as 4096, 64KB, 512MiB or 2GB"],
  [
    ['worker', '--listen', '0.0.0.0:0'],
    2,
    'refusing to listen on 0.0.0.0:0 without encryption: other machines could connect',
  ],
  [['up', '--workers', 'x'], 2, "up: --workers: 'x' is not a whole number"],
  [['up', '--slots', '0'], 2, 'up: --slots: 0 is out of range: from 1 to 1000'],
  [
    ['up', '--listen', '1.2.3.4:5', '--no-auth'],
    2,
    'refusing to listen on 1.2.3.4:5 without encryption: other machines could connect',
  ],
];

scenario(
  `${flags.length} wrong command lines: each has its message and its exit code`,
  { ms: 120000 },
  async (world) => {
    const cluster = await world.cluster();
    const before = await snapshot(cluster);
    const tree = world.file('tree.json', '{"tasks": [{"name": "a", "executor": "sleep", "inputs": {"ms": 1}}]}');
    const wrong = [];
    await each(flags, async ([args, code, message, more]) => {
      const given = args.map((word) => (word === 'TREE' ? tree : word === 'SERVER' ? cluster.address : word));
      const run = world.capstan(given.join(' ').slice(0, 100), given, {
        cwd: world.folder('cwd'),
        env: { CAPSTAN_SERVER: cluster.address, CAPSTAN_TOKEN: SECRET },
      });
      run.isQuiet = true;
      await Promise.race([run.ended, pause(10000)]); // one that runs on was not refused
      const complain = (what) =>
        wrong.push(`capstan ${args.join(' ').slice(0, 80)}: ${what}\n${run.log.slice(0, 600)}`);
      const lines = run.stderr.split('\n');
      const at = Math.max(
        0,
        lines.findIndex((line) => line.startsWith('capstan: ')),
      ); // A server may have logged before.
      const [first = '', second = ''] = lines.slice(at);
      const said = first.replace(/^capstan: /, '');
      if (!run.isOver) complain('still runs');
      else if (run.how.code !== code) complain(`exit code ${run.how.code}, not ${code}`);
      else if (args[0] !== 'worker' && !first.startsWith('capstan: ')) complain('no message');
      else if (typeof message === 'string' ? said !== message : !message.test(run.stderr.replace(/^capstan: /, '')))
        complain(`not ${message}`);
      else if (more && second.trim().replace(/^hint: /, '') !== more) complain(`not ${more}`);
      if (run.stdout !== '') complain('something on stdout');
      if (leaks.test(run.log)) complain('a leak');
      await run.kill();
    });
    assert.deepEqual(wrong, []);
    assert.deepEqual(await snapshot(cluster), before);
  },
);

// [method, request, code, message]; a code of null is that of a wrong or of a too large value. The worker `w` is there, the job `job` too.
const ref = (change) => ({
  query_id: 'job',
  stage_id: 0,
  task_id: 0,
  attempt: 1,
  lease_token: Buffer.alloc(16, 1),
  ...change,
});
const me = { worker_id: 'w', incarnation: 'i' };
const registration = (change) => ({
  ...me,
  worker_id: 'x',
  slots: 1,
  executor_types: ['sleep'],
  capabilities_json: '{}',
  ...change,
});
const report = (change, refChange) => ({
  ...me,
  reports: [{ ref: ref(refChange), state: 'TASK_STATE_SUCCEEDED', ...change }],
});
const bytes = (text) => Buffer.from(text);
const deep = `{"tasks": ${'['.repeat(70)}${']'.repeat(70)}}`;
const I = 'INVALID_ARGUMENT';
const E = 'RESOURCE_EXHAUSTED';
const N = 'NOT_FOUND';
const requests = [
  ['SubmitTasks', {}, I, /^tree_json: is missing/],
  ['SubmitTasks', { tree_json: bytes('{') }, I, /not JSON|JSON/],
  [
    'SubmitTasks',
    { tree_json: Buffer.from([0xff, 0xfe]) },
    I,
    'the tree is not JSON: line 1, column 1: not UTF-8',
  ],
  ['SubmitTasks', { tree_json: bytes('[]') }, I, 'the tree must be an object, {"tasks": [...]}'],
  ['SubmitTasks', { tree_json: bytes(deep) }, I, 'the tree is not JSON: line 1, column 74: nested deeper than 64'],
  [
    'SubmitTasks',
    { tree_json: bytes('{"tasks":[{"name":"a","executor":"sleep","inputs":{"ms":1}}]}'), job_id: 'a/b' },
    I,
    /^job_id: /,
  ],
  [
    'SubmitTasks',
    { tree_json: bytes('{"tasks":[{"name":"a","executor":"sleep","inputs":{"ms":1}}]}'), job_id: 'x'.repeat(101) },
    null,
    /^job_id: must be at most 100 bytes/,
  ],
  [
    'SubmitTasks',
    {
      tree_json: bytes('{"tasks":[{"name":"a","executor":"sleep","inputs":{"ms":1}}]}'),
      idempotency_key: 'x'.repeat(513),
    },
    null,
    /^idempotency_key: /,
  ],
  ['SubmitQuery', {}, I, /^sql, physical_plan_json: exactly one of them must be given/],
  ['SubmitQuery', { sql: 'select 1', physical_plan_json: bytes('{}') }, I, /^sql, physical_plan_json: exactly one/],
  ['SubmitQuery', { sql: 'select 1', priority: 4, priority_set: true }, I, /^priority: must be at most 3, got 4/],
  ['GetQueryStatus', {}, I, /^query_id: /],
  ['GetQueryStatus', { query_id: 'no' }, N, /^there is no job 'no'/],
  ['GetQueryStatus', { query_id: '../../etc/passwd' }, I, /^query_id: /],
  ['GetQueryStatus', { query_id: "x' or '1'='1" }, I, /^query_id: /],
  ['CancelQuery', {}, I, /^query_id: /],
  ['CancelQuery', { query_id: 'no' }, N, /job/],
  ['RetryJob', {}, I, /^query_id: /],
  ['RetryJob', { query_id: 'no' }, N, /job/],
  ['RetryJob', { query_id: 'job', from_task: 'a b' }, undefined, "the job has no task 'a b'"],
  ['ListJobs', { state: 'bad' }, I, /^state: must be queued/],
  ['ListJobs', { after: 'zzz' }, I, /the page token is not one that a page came with/],
  ['ListJobs', { name: 'x'.repeat(5000) }, null, /^name: /],
  ['ListTasks', {}, I, /^query_id: /],
  ['ListTasks', { query_id: 'no' }, N, /^there is no job 'no'/],
  ['ListTasks', { query_id: 'job', state: 'bad' }, I, /^state: must be queued/],
  ['ListTasks', { query_id: 'job', after: 'zzz' }, I, /the page token is not one that a page came with/],
  ['WhyPending', {}, I, /^query_id: /],
  ['WhyPending', { query_id: 'no' }, N, /^there is no job 'no'/],
  ['RegisterWorker', {}, I, /^worker_id: /],
  ['RegisterWorker', registration({ worker_id: 'a b' }), I, /^worker_id: /],
  ['RegisterWorker', registration({ worker_id: 'x'.repeat(101) }), null, /^worker_id: must be at most 100 bytes/],
  ['RegisterWorker', registration({ incarnation: '' }), I, /^incarnation: /],
  ['RegisterWorker', registration({ slots: 100000 }), null, /^slots: /],
  ['RegisterWorker', registration({ capabilities_json: '[]' }), I, /^capabilities_json: must be an object/],
  ['RegisterWorker', registration({ capabilities_json: '{' }), I, /^capabilities_json: /],
  ['RegisterWorker', registration({ capabilities_json: '{"a":{}}' }), I, /^capabilities_json: a: /],
  [
    'RegisterWorker',
    registration({ capabilities_json: '{"a":[1]}' }),
    I,
    /^capabilities_json: a: a list must consist of texts/,
  ],
  ['RegisterWorker', registration({ capabilities_json: '{"":1}' }), I, /^capabilities_json: a name must not be empty/],
  ['RegisterWorker', registration({ capabilities_json: '{"a":1,"a":2}' }), I, /^capabilities_json: /],
  [
    'RegisterWorker',
    registration({ executor_types: Array.from({ length: 65 }, (_, i) => `e${i}`) }),
    E,
    'executor_types[64]: there may be at most 64',
  ],
  [
    'RegisterWorker',
    registration({ custom_operator_capabilities: Array.from({ length: 1025 }, (_, i) => `e${i}`) }),
    E,
    'custom_operator_capabilities[1024]: there may be at most 1024',
  ],
  ['RegisterWorker', registration({ custom_operator_capabilities: [''] }), I, /^custom_operator_capabilities\[0\]: /],
  ['Heartbeat', {}, I, /^worker_id: /],
  ['Heartbeat', { worker_id: 'w' }, I, /^incarnation: /],
  ['Heartbeat', { ...me, load: -1 }, I, /^load: /],
  ['Heartbeat', { ...me, load: NaN }, I, /^load: /],
  [
    'Heartbeat',
    { ...me, running: [ref({ lease_token: Buffer.alloc(3) })] },
    I,
    /^running\[0\]\.lease_token: must be (exactly )?16 bytes, got 3/,
  ],
  ['Heartbeat', { ...me, running: [ref({ query_id: '' })] }, I, /^running\[0\]\.query_id: /],
  ['Heartbeat', { ...me, held_jobs: ['a b'] }, I, /^held_jobs\[0\]: /],
  ['DeregisterWorker', {}, I, /^worker_id: /],
  ['GetTask', {}, I, /^worker_id: /],
  ['GetTask', { worker_id: 'w', capacity: 1 }, I, /^incarnation: /],
  ['GetTask', { worker_id: 'no', incarnation: 'i', capacity: 1 }, N, /unknown worker|worker/],
  ['ReportTaskStatus', {}, I, /^worker_id: /],
  ['ReportTaskStatus', { ...me, reports: [{}] }, I, /^reports\[0\]\.ref: is missing/],
  [
    'ReportTaskStatus',
    report({ state: 'TASK_STATE_CANCELED' }),
    I,
    /^reports\[0\]\.state: must be RUNNING, SUCCEEDED, FAILED/,
  ],
  ['ReportTaskStatus', report({ state: 99 }), I, /^reports\[0\]\.state: /],
  ['ReportTaskStatus', report({ result_json: bytes('{') }), I, /^reports\[0\]\.result_json: /],
  ['ReportTaskStatus', report({ result_json: bytes(`"${'x'.repeat(1100000)}"`) }), E, /^reports\[0\]\.result_json: /],
  ['ReportTaskStatus', report({}, { lease_token: Buffer.alloc(0) }), I, /^reports\[0\]\.ref\.lease_token: /],
  ['ReportTaskStatus', report({}, { stage_id: 2 ** 40 }), I, /^reports\[0\]\.ref\.stage_id: /],
  ['RegisterMapOutput', {}, I, 'query_id: is missing'],
  [
    'RegisterMapOutput',
    { ...ref({}), map_task: 0, worker_id: 'w', partitions: [{ reduce_partition: 1 }, { reduce_partition: 1 }] },
    I,
    /^partitions/,
  ],
  ['RegisterQueryResults', {}, I, /^ref: is missing|worker_id/],
  [
    'RegisterQueryResults',
    { ref: ref({}), worker_id: 'w', bytes: 5, ipc_payload: bytes('x') },
    I,
    /^bytes: is 5, but ipc_payload has 1/,
  ],
  ['SetNode', {}, I, /^worker_id: /],
  ['SetNode', { worker_id: 'w' }, I, /^set_draining, clear_blacklist: one of them must be set/],
  ['SetNode', { worker_id: 'no', set_draining: true, draining: true }, N, "there is no worker 'no'"],
  ['ListNodes', { capability: 'x' }, I, /^capability: must be KEY=VALUE/],
  ['PutTable', {}, I, /^table: is missing/],
  ['PutTable', { table: { name: 'a b', source: 'x', format: 'csv' } }, I, /^table\.name: /],
  ['PutTable', { table: { name: 'a', source: '', format: 'csv' } }, I, /^table\.source: /],
  ['PutTable', { table: { name: 'a', source: 'x', format: 'exe' } }, I, /^table\.format: /],
  ['DeleteTable', { name: 'nope' }, N, "there is no table 'nope'"],
];

scenario(`${requests.length} wrong requests: each has its status and its message`, async (world) => {
  const cluster = await world.cluster();
  await cluster.client.call('RegisterWorker', registration(me));
  await cluster.submit([{ name: 'a', executor: 'docker', inputs: {} }], { id: 'job' });
  const before = await snapshot(cluster);
  const wrong = [];
  for (const [method, request, code, message] of requests) {
    const error = await cluster.client.once(method, request).then(
      (answer) => ({ answer }),
      (it) => it,
    );
    const shown = `${method} ${JSON.stringify(request).slice(0, 120)}`;
    if (error.answer) wrong.push(`${shown}: accepted: ${JSON.stringify(error.answer)}`);
    else if (
      code === null ? ![grpcStatus[I], grpcStatus[E]].includes(error.code) : code && error.code !== grpcStatus[code]
    )
      wrong.push(`${shown}: ${error.message}`);
    else if (typeof message === 'string' ? error.details !== message : !message.test(error.details))
      wrong.push(`${shown}: ${error.details}`);
    if (leaks.test(error.details ?? '')) wrong.push(`${shown}: a leak: ${error.details}`);
  }
  assert.deepEqual(wrong, []);
  assert.deepEqual(await snapshot(cluster), before);
});

scenario('the corpus has at least 100 cases besides the trees', () => {
  assert.ok(flags.length + requests.length >= 100, `${flags.length} + ${requests.length}`);
});

// ---- bytes that are no gRPC ----

const preface = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const frame = (type, flag, stream, payload) => {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flag;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
};
const garbage = {
  noise: () => Buffer.from(Array.from({ length: 5000 }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 13) & 255)),
  http1: () => Buffer.from('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'),
  tls: () => Buffer.from('1603010200010001fc0303', 'hex'),
  prefaceThenNoise: () => Buffer.concat([Buffer.from(preface), Buffer.alloc(3000, 0xff)]),
  hugeFrame: () =>
    Buffer.concat([Buffer.from(preface), frame(4, 0, 0, Buffer.alloc(0)), Buffer.from('ffffff000000000001', 'hex')]),
  badHeaders: () =>
    Buffer.concat([Buffer.from(preface), frame(4, 0, 0, Buffer.alloc(0)), frame(1, 4, 1, Buffer.alloc(200, 0xff))]),
  settingsFlood: () =>
    Buffer.concat([Buffer.from(preface), ...Array.from({ length: 2000 }, () => frame(4, 0, 0, Buffer.alloc(0)))]),
  pingFlood: () =>
    Buffer.concat([
      Buffer.from(preface),
      frame(4, 0, 0, Buffer.alloc(0)),
      ...Array.from({ length: 2000 }, () => frame(6, 0, 0, Buffer.alloc(8))),
    ]),
  halfPreface: () => Buffer.from(preface.slice(0, 10)),
  nothing: () => Buffer.alloc(0),
};

scenario('bytes that are no gRPC do no harm', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const [host, port] = cluster.address.split(':');
  for (const [name, make] of Object.entries(garbage)) {
    for (let i = 0; i < 5; i++) {
      await new Promise((resolve) => {
        const socket = net.connect(Number(port), host, () =>
          socket.write(make(), () => setTimeout(() => socket.destroy(), 20)),
        );
        socket
          .on('error', () => {})
          .on('close', resolve)
          .on('data', () => {});
      });
    }
    assert.equal((await cluster.run([sleep('t', 0)])).state, 'succeeded', `after ${name}`);
  }
  assert.equal(cluster.coordinator.isOver, false);
});

scenario('a message that claims to be protobuf and is not is refused', async (world) => {
  const cluster = await world.cluster();
  const { grpc } = await import('../../examples/javascript/capstan.js');
  const raw = new grpc.Client(cluster.address, grpc.credentials.createInsecure());
  world.atEnd(() => raw.close());
  const send = (method, body) =>
    new Promise((resolve) => {
      raw.makeUnaryRequest(
        `/capstan.v1.${method}`,
        (it) => it,
        (it) => it,
        body,
        (error, answer) => resolve(error ?? { answer }),
      );
    });
  const bodies = [
    Buffer.from('ff'.repeat(20), 'hex'),
    Buffer.from('0aff', 'hex'),
    Buffer.from('0a02c328', 'hex'),
    Buffer.from('80'.repeat(11), 'hex'),
    Buffer.from('0b', 'hex'),
  ];
  for (const method of [
    'ControlPlane/SubmitTasks',
    'ControlPlane/GetQueryStatus',
    'ControlPlane/GetTask',
    'HeartbeatService/Heartbeat',
    'Cluster/SetNode',
  ]) {
    for (const body of bodies) {
      const error = await send(method, body);
      assert.equal(error.code, grpcStatus.INVALID_ARGUMENT, `${method} ${body.toString('hex')}: ${error.message}`);
      assert.doesNotMatch(error.details, leaks);
    }
  }
  assert.equal((await send('ControlPlane/Nope', Buffer.alloc(0))).code, grpcStatus.UNIMPLEMENTED);
  assert.equal((await send('../etc', Buffer.alloc(0))).code, grpcStatus.UNIMPLEMENTED);
  const large = await cluster.client
    .once('SubmitTasks', { tree_json: Buffer.alloc(66 * 1024 * 1024) })
    .catch((it) => it);
  assert.equal(large.code, grpcStatus.RESOURCE_EXHAUSTED);
  await until('it still answers', () => cluster.client.call('GetLeader'));
});

// sql-cluster.js - SQL over a cluster of the harness: submit, wait, fetch, and look at what ran where.
import fs from 'node:fs';
import path from 'node:path';
import { assert, binary, until } from './harness.js';
import { tableFromArrow } from './sql-table.js';

// Cut into stages however small the input is, nothing broadcast.
export const forced = { forced: true, single_task_bytes: 0, broadcast_bytes: 0, partitions: 3 };
export const broadcasting = { ...forced, broadcast_bytes: 1e12 };
// Small sides broadcast, others moved, and what lies side by side joined where it is, as in a cluster that is in use.
export const mixed = { ...forced, broadcast_bytes: 65536 };

const lower = (state) => state.replace(/^(QUERY|TASK)_STATE_/, '').toLowerCase();

// A plug-in that the build made, of the build that is tested. Plug-ins of a sanitized build need a sanitized worker.
export const plugin = (name) => path.resolve(path.dirname(binary), `../plugins/${name}.so`);

export class Sql {
  constructor(cluster) {
    this.cluster = cluster;
  }

  // `what` is SQL, or a physical plan as an object or bytes. Returns the id.
  async submit(what, { options, params, explain = false, id = '', ...more } = {}) {
    const isPlan = typeof what !== 'string';
    const answer = await this.cluster.client.call('SubmitQuery', {
      query_id: id,
      sql: isPlan ? '' : what,
      physical_plan_json: isPlan ? (Buffer.isBuffer(what) ? what : Buffer.from(JSON.stringify(what))) : '',
      params_json: params === undefined ? '' : JSON.stringify(params),
      options_json: options === undefined ? '' : JSON.stringify(options),
      explain,
      ...more,
    });
    return answer.query_id;
  }

  // Named data sets: { name: glob }.
  async tables(sources) {
    for (const [name, source] of Object.entries(sources)) {
      await this.cluster.client.call('PutTable', { table: { name, source, format: '' } });
    }
  }

  // The Arrow stream of the result, from byte `offset` on.
  async bytes(id, offset = 0) {
    const chunks = [];
    for await (const { payload } of this.cluster.client.stream('FetchQueryResults', { query_id: id, offset })) {
      chunks.push(payload);
    }
    return Buffer.concat(chunks);
  }

  // Waits for a success and returns its rows, as in sql-table.js.
  async table(id) {
    const { state, message } = await this.cluster.end(id);
    assert.equal(state, 'succeeded', message);
    return tableFromArrow(await this.bytes(id));
  }

  async query(what, options) {
    return this.table(await this.submit(what, options));
  }

  // The rows only, of a query that is not the subject.
  async rows(what, options) {
    return (await this.query(what, options)).rows;
  }

  async stages(id) {
    const { stages } = await this.cluster.client.status(id);
    return stages.map((stage) => ({ ...stage, id: stage.stage_id, parents: stage.parents }));
  }

  // All tasks: { stage: its name, stageId, task, attempt, state, worker, rows, bytes, message }.
  async tasks(id) {
    const names = Object.fromEntries((await this.stages(id)).map((stage) => [stage.id, stage.name]));
    return (await this.cluster.client.tasks(id)).map(({ ref, state, worker_id, rows, bytes, message, failures }) => ({
      stage: names[ref.stage_id],
      stageId: ref.stage_id,
      task: ref.task_id,
      attempt: ref.attempt,
      state: lower(state),
      worker: worker_id,
      rows,
      bytes,
      message,
      failures,
    }));
  }

  async tasksOf(id, stage) {
    return (await this.tasks(id)).filter((task) => task.stage === stage);
  }

  // Waits until all tasks of a stage are in that state.
  stageReaches(id, stage, state) {
    return until(`all tasks of ${stage} are ${state}`, async () => {
      const tasks = await this.tasksOf(id, stage);
      return tasks.length > 0 && tasks.every((task) => task.state === state) && tasks;
    });
  }

  // The attempts that were committed, from events: { stage, stageId, task, attempt, worker }.
  async completions(id) {
    const names = Object.fromEntries((await this.stages(id)).map((stage) => [stage.id, stage.name]));
    return (await this.cluster.events(id))
      .filter(({ type, ref }) => type === 'completed' && ref.attempt > 0)
      .map(({ ref, worker_id }) => ({
        stage: names[ref.stage_id],
        stageId: ref.stage_id,
        task: ref.task_id,
        attempt: ref.attempt,
        worker: worker_id,
      }));
  }
}

// Files below a folder that a process sees, with their paths: also in a file system that only it has mounted.
export function filesBelow(folder) {
  if (!fs.existsSync(folder)) return [];
  return fs.readdirSync(folder, { withFileTypes: true, recursive: true }).flatMap((entry) => {
    const file = path.join(entry.parentPath ?? entry.path, entry.name);
    return entry.isFile() ? [file] : [];
  });
}

// What a worker keeps of queries: map outputs in files, and what DuckDB wrote when memory was short.
export const shuffleFiles = (worker) =>
  filesBelow(worker.folder).filter((file) => /\/shuffle\/|duckdb_temp|\.tmp$|\.part$/.test(file));

// After the end of its jobs a worker keeps nothing.
export const nothingLeft = (...workers) =>
  until(
    `nothing is left of ended queries: ${workers.map((worker) => worker.id)}`,
    () => workers.every((worker) => shuffleFiles(worker).length === 0),
    { ms: 30000 },
  ).catch((error) => {
    throw new Error(`${error.message}\n${workers.flatMap(shuffleFiles).join('\n')}`);
  });

// A gate for tasks whose stage has the operator `hold` of plugins/hold.c.
export class Gate {
  constructor(world) {
    this.folder = world.folder('gate');
  }

  get custom() {
    return { op: 'hold', config: { folder: this.folder } };
  }

  // The processes that have brought rows of this task so far, one for each attempt.
  arrivals(who) {
    const file = path.join(this.folder, `at-${who}`);
    const lines = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n') : [];
    return lines.filter(Boolean).map(Number);
  }

  arrived(who, times = 1) {
    return until(`task ${who} is at the gate`, () => this.arrivals(who).length >= times && this.arrivals(who));
  }

  // Lets one task through, or all.
  open(who) {
    fs.writeFileSync(path.join(this.folder, who === undefined ? 'go' : `go-${who}`), '');
  }
}

// sql-cluster.js - SQL over a cluster of the harness: submit, wait, fetch, and look at what ran where.
import fs from 'node:fs';
import path from 'node:path';
import { assert, binary, endStates, until } from './harness.js';
import { tableFromArrow } from './sql-table.js';

// Cut into stages however small the input is, nothing broadcast.
export const forced = { forced: true, single_task_bytes: 0, broadcast_bytes: 0, partitions: 3 };
// Sides of joins broadcast whatever their size: the largest number that JSON has exactly means all.
export const broadcasting = { ...forced, broadcast_bytes: Number.MAX_SAFE_INTEGER };
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

  // Tasks of a query's own stages, without those that plan.
  async stageTasks(id) {
    return (await this.tasks(id)).filter(({ stage }) => /^s\d+$/.test(stage));
  }

  // Waits until so many tasks of stages, or all, are in that state, or the job is over. Returns those that are.
  async manyReach(id, many, state) {
    return until(`${many} tasks of ${id} are ${state}`, async () => {
      const found = (await this.stageTasks(id)).filter((task) => task.state === state);
      const isEnough = found.length >= many || endStates.has(lower((await this.cluster.client.status(id)).state));
      return isEnough && found;
    }, { every: 2 });
  }

  // Tasks that were run more than once: what faults have cost the job.
  async repeated(id) {
    return (await this.tasks(id)).filter(({ attempt }) => attempt > 1);
  }

  // Why a query was not cut, or ran in stages of one task each; nothing if tasks have shared it and passed on rows.
  async whyNotCut(id) {
    const stages = (await this.stages(id)).map(({ name, tasks }) => ({ name, tasks }));
    const isCut = stages.length >= 3 && stages.some(({ tasks }) => tasks >= 2); // the planning, and at least two
    return isCut ? '' : `it was not cut: ${JSON.stringify(stages)}`;
  }

  // Whether a stage has read rows that tasks of another one have written.
  async hasMovedRows(id) {
    const stages = await this.stages(id);
    const read = new Set(stages.flatMap(({ parents }) => parents));
    return (await this.stageTasks(id)).some(({ stageId, rows }) => read.has(stageId) && Number(rows) > 0);
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

// Results that are too large for the store, which others may fetch for a while.
export const resultFiles = (worker) => filesBelow(path.join(worker.folder, 'results'));

// Notes the map outputs that go to files from now on, also of jobs that are over by the time that somebody looks.
export class Spills {
  #names = new Set();

  constructor(world, ...workers) {
    for (const { folder } of workers) {
      const watch = fs.watch(path.join(folder, 'shuffle'), (_, name) => this.#names.add(name));
      world.atEnd(() => watch.close());
    }
  }

  // Files are called JOB.STAGE.TASK.ATTEMPT.arrows.
  of(id) {
    return [...this.#names].filter((name) => name.startsWith(`${id}.`));
  }

  // That rows which went from stage to stage in that job, if any did, lay in files. Returns whether any did.
  async assertSpilled(sql, id, what) {
    const hasMoved = await sql.hasMovedRows(id);
    if (hasMoved) await until(`${what}: rows of ${id} go to files`, () => this.of(id).length > 0, { ms: 5000 });
    return hasMoved;
  }
}

// After the end of its jobs a worker keeps nothing but results.
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

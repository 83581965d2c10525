// check_index.js - a history by what the properties of check.js ask for, and the walk through its transactions.

export const JOB_ENDS = { 2: 'succeeded', 3: 'failed', 4: 'canceled' };
export const JOB_TREE = 1;
export const TASK = { queued: 0, running: 1, succeeded: 2, failed: 3, canceled: 4, skipped: 5 };
export const OUTCOME = { pending: 1, completed: 2, failed: 3, lost: 4 };
const EVENT_REASSIGNED = 6;
export const taskState = (number) => Object.keys(TASK)[number];

export const keyOf = ({ job_id, stage, task }) => `${job_id}/${stage}/${task}`;
export const isEnd = (state) => Object.values(JOB_ENDS).includes(state);
export const isCommand = ({ does }) => !['sleep', 'sql'].includes(does);
export const groupBy = (list, by) => {
  const groups = new Map();
  for (const item of list) {
    const key = by(item);
    if (groups.has(key)) groups.get(key).push(item);
    else groups.set(key, [item]);
  }
  return groups;
};

// ---- the index ----

export class Index {
  constructor(history) {
    const of = groupBy(history, ({ e }) => e);
    const get = (e) => of.get(e) ?? [];
    const state = groupBy(get('state'), ({ table }) => table);
    const rows = (table) => (state.get(table) ?? []).map(({ row }) => row);
    this.meta = get('meta')[0] ?? { settings: {} };
    this.plans = new Map(get('plan').map((plan) => [plan.job, plan]));
    this.invoked = get('invoke');
    this.answers = get('ok');
    this.refused = get('fail');
    this.unknown = get('unknown');
    this.faults = get('fault');
    this.stalls = get('stall');
    this.audit = get('audit');
    this.healed = get('healed')[0];
    this.finished = get('finished')[0];
    this.unexpected = get('unexpected');
    this.jobs = new Map(rows('jobs').map((row) => [row.job_id, row]));
    this.tasks = new Map(rows('tasks').map((row) => [keyOf(row), row]));
    this.leases = rows('task_leases');
    this.attempts = groupBy(rows('execution_idempotency'), keyOf);
    this.attemptOf = new Map(rows('execution_idempotency').map((row) => [row.key, row]));
    this.stageOf = new Map(rows('stages').map((row) => [`${row.job_id}/${row.name}`, row.stage]));
    this.runs = groupBy(get('run'), ({ job, task }) => `${job}/${task}`);
    this.memory = get('memory');
    // The diaries of the witnesses: by token, by task, and by call.
    this.assigned = new Map(get('assigned').map((line) => [line.token, line]));
    this.reports = groupBy(get('report'), ({ job, stage, task }) => keyOf({ job_id: job, stage, task }));
    this.told = new Map(get('answer').map((line) => [line.call, line]));
    // Why attempts were given up.
    this.reasons = new Map(
      rows('task_events')
        .filter(({ event_type }) => event_type === EVENT_REASSIGNED)
        .map((row) => [`${keyOf(row)}/${row.attempt_id}`, row.details]),
    );
    this.canceled = new Set(this.invoked.filter(({ op }) => op === 'cancel').map(({ job }) => job));
  }

  // Of a planned task of a tree: its key in the tables; undefined if the job is not there.
  key(job, name) {
    const stage = this.stageOf.get(`${job}/${name}`);
    return stage === undefined ? undefined : `${job}/${stage}/0`;
  }

  // All planned tasks of trees that are there: { job, plan, task, key, row, attempts, runs }.
  *treeTasks() {
    for (const [job, plan] of this.plans) {
      if (plan.kind !== 'tree' || !this.jobs.has(job)) continue;
      for (const task of plan.tasks) {
        const key = this.key(job, task.name);
        const row = this.tasks.get(key);
        if (!row) continue;
        yield {
          job,
          plan,
          task,
          key,
          row,
          attempts: this.attempts.get(key) ?? [],
          runs: this.runs.get(`${job}/${task.name}`) ?? [],
        };
      }
    }
  }

  // The key that the committed attempt of a command had; undefined: none.
  committed(job, name) {
    const attempts = this.attempts.get(this.key(job, name)) ?? [];
    return attempts.find(({ status }) => status === OUTCOME.completed)?.key;
  }
}

export const resultOf = (row) => {
  try {
    return row.result ? JSON.parse(row.result) : null;
  } catch {
    return null;
  }
};

// ---- what was written, in order ----

// Goes through the transactions; `each` gets the rows of one, `states` and `leases` are as before it.
export function replay(index, each) {
  const states = new Map();
  const leases = new Map();
  for (const rows of groupBy(index.audit, ({ xid }) => xid).values()) {
    each(rows, states, leases);
    for (const { table, op, row } of rows) {
      if (table === 'tasks' && op !== 'DELETE') states.set(keyOf(row), row.state);
      if (table === 'task_leases' && op === 'DELETE') leases.delete(keyOf(row));
      else if (table === 'task_leases') leases.set(keyOf(row), row);
    }
  }
}

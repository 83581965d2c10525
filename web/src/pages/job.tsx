// One job: its stages as a graph, what each worker did, how even the work was, every task; why it waits or failed.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { api, hasEnded, type Job, type Stage, type Task } from '../api';
import { bytes, duration, moment, number, plural, short } from '../format';
import { readHistory } from '../history';
import { useEvents, useLater, useNow, useResource } from '../hooks';
import { Colored } from '../parts/editor';
import { Graph, stateOf } from '../parts/graph';
import { Skew, type Group } from '../parts/skew';
import { TaskTable, type RetryFrom } from '../parts/tasktable';
import { Timeline } from '../parts/timeline';
import { Action, Badge, Bar, Card, Copy, Empty, Failure } from '../parts/ui';
import { useAttempts, useTasks, type Tasks } from '../tasks';
import { useSession } from '../session';

const REPLAYED_MAX = 4000; // tasks: of larger jobs the past is not told event by event
const LAST = 2000;

interface PlanStage {
  id: number;
  sql?: string;
  what?: string;
  output?: { exchange?: string; keys?: string[]; partitions?: number };
}

interface Plan {
  stages: PlanStage[];
  first_job_stage?: number;
  single?: string;
}

// What a planning task has left as its result says what the other stages do.
export function planOf(result: unknown): Plan | undefined {
  const plan = result as Plan | null;
  return plan !== null && typeof plan === 'object' && Array.isArray(plan.stages) ? plan : undefined;
}

export function planStages(plan: Plan | undefined, stages: Stage[]): Map<number, PlanStage> {
  const found = new Map<number, PlanStage>();
  if (!plan) return found;
  const first = plan.first_job_stage ?? 1;
  const isWhole = stages.length === 1;
  for (const stage of plan.stages) found.set(isWhole ? 0 : first + stage.id, stage);
  return found;
}

function Head({ job, now, onDone }: { job: Job; now: number; onDone: () => void }) {
  const { canWrite, whyNot } = useSession();
  const isEnded = hasEnded(job.state);
  const act = (what: () => Promise<unknown>) => async () => {
    await what();
    onDone();
  };
  const stages = job.stages ?? [];
  const sum = (pick: (stage: Stage) => number) => stages.reduce((total, stage) => total + pick(stage), 0);
  const total = sum((stage) => stage.tasks);
  const parts = (['succeeded', 'failed', 'canceled', 'skipped', 'running'] as const).map((state) => ({ state, n: sum((stage) => stage[state]) }));
  return (
    <section class="card job-head" aria-label="Job">
      <header>
        <h1>
          {job.name ?? job.job_id} <Badge state={job.state} />
        </h1>
        <div class="row">
          {!isEnded && (
            <Action class="is-danger" onAct={act(() => api.cancel(job.job_id))} confirm="Cancel this job?" disabled={!canWrite} title={whyNot}>
              Cancel
            </Action>
          )}
          {isEnded && job.state !== 'succeeded' && (
            <Action class="is-main" onAct={act(() => api.retry(job.job_id))} disabled={!canWrite} title={whyNot ?? 'Runs again what did not succeed'}>
              Retry
            </Action>
          )}
          {job.kind === 'query' && job.state === 'succeeded' && (
            <a class="button" href={`#/sql?job=${encodeURIComponent(job.job_id)}`}>
              Rows
            </a>
          )}
        </div>
      </header>
      <dl class="facts is-wide">
        <dt>Id</dt>
        <dd>
          <code>{job.job_id}</code> <Copy text={job.job_id} label="Copy the id" />
        </dd>
        <dt>Kind</dt>
        <dd>{job.kind}</dd>
        <dt>Submitted</dt>
        <dd>{moment(job.submitted_at_ms)}</dd>
        <dt>Took</dt>
        <dd>{job.started_at_ms === null ? '–' : duration((isEnded ? (job.finished_at_ms ?? now) : now) - job.started_at_ms)}</dd>
        {total > 0 && (
          <>
            <dt>Tasks</dt>
            <dd>
              {number(total - sum((stage) => stage.queued + stage.running))} of {number(total)} done
            </dd>
          </>
        )}
      </dl>
      {total > 0 && <Bar parts={parts} total={total} label={parts.map(({ state, n }) => `${n} ${state}`).join(', ')} />}
      {job.message !== null && <pre class={`message ${job.state === 'failed' ? 'is-bad' : ''}`}>{job.message}</pre>}
    </section>
  );
}

function Why({ job }: { job: Job }) {
  const why = useResource(`why ${job.job_id}`, (signal) => api.why(job.job_id, signal), { everyMs: 3000 });
  const names = new Map(job.stages?.map((stage) => [stage.stage, stage.name] as const));
  const reasons = why.value?.reasons ?? [];
  if (reasons.length === 0) return null;
  return (
    <Card title="Why tasks wait">
      <ul class="reasons">
        {reasons.slice(0, 20).map((reason, i) => (
          <li key={i}>
            <strong>{names.get(reason.stage) ?? `stage ${reason.stage}`}</strong>
            {reason.tasks > 1 && <span class="soft"> and {number(reason.tasks - 1)} more</span>}: {reason.reason}
          </li>
        ))}
      </ul>
      {reasons.length > 20 && <p class="soft">and {number(reasons.length - 20)} more reasons</p>}
    </Card>
  );
}

function StageDetail({ stage, plan }: { stage: Stage; plan: PlanStage | undefined }) {
  return (
    <aside class="detail" aria-label="Stage">
      <header class="row">
        <h3>{stage.name ?? `stage ${stage.stage}`}</h3>
        <Badge state={stateOf(stage)} />
        <span class="soft">
          {plural(stage.tasks, 'task')}: {number(stage.succeeded)} succeeded, {number(stage.running)} running, {number(stage.queued)} queued,{' '}
          {number(stage.failed)} failed; {short(stage.rows)} rows, {bytes(stage.bytes)}
        </span>
      </header>
      {plan?.what && <pre>{plan.what}</pre>}
      {plan?.output?.exchange && (
        <p class="soft">
          output: {plan.output.exchange}
          {plan.output.keys ? ` by ${plan.output.keys.join(', ')}` : ''}
          {plan.output.partitions ? ` to ${plan.output.partitions} partitions` : ''}
        </p>
      )}
      {plan?.sql && (
        <pre class="sql" tabIndex={0} aria-label="SQL of the stage">
          <Colored sql={plan.sql} />
        </pre>
      )}
    </aside>
  );
}

// The statement itself, where it is known: a query that ran as one task has it in its plan, others if they were run here.
function Statement({ job, plan }: { job: Job; plan: Map<number, PlanStage> }) {
  const sql = plan.size === 1 ? [...plan.values()][0]?.sql : readHistory().find((past) => past.job === job.job_id)?.sql;
  if (!sql) return null;
  return (
    <Card title="Statement" extra={<Copy text={sql} label="Copy the statement" />}>
      <pre class="sql statement" tabIndex={0} aria-label="SQL statement">
        <Colored sql={sql} />
      </pre>
    </Card>
  );
}

function TreeResults({ job }: { job: Job }) {
  const [isOpen, setOpen] = useState(false);
  const results = useResource(isOpen ? `results ${job.job_id} ${job.finished_at_ms}` : 'none', (signal) =>
    isOpen ? api.results(job.job_id, signal) : Promise.resolve(undefined),
  );
  const text = results.value === undefined ? '' : JSON.stringify(results.value, null, 2);
  return (
    <Card
      title="Results"
      extra={
        <button class="button is-small" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? 'Hide' : 'Show'}
        </button>
      }
    >
      {results.error && <Failure error={results.error} />}
      {isOpen && text !== '' && (
        <pre class="results" tabIndex={0} aria-label="Results of the tasks">
          {text.length > 50_000 ? `${text.slice(0, 50_000)}\n…` : text}
        </pre>
      )}
    </Card>
  );
}

// Of a query a group per stage; of a tree, whose tasks are stages of their own, one of all.
function groupsOf(job: Job, tasks: Task[]): Group[] {
  if (job.kind === 'tree') return tasks.length > 0 ? [{ name: 'all tasks', tasks }] : [];
  const groups = new Map<number, Group>();
  for (const task of tasks) {
    const group = groups.get(task.stage);
    if (group) group.tasks.push(task);
    else groups.set(task.stage, { name: task.name ?? `stage ${task.stage}`, tasks: [task] });
  }
  return [...groups.values()];
}

interface OfTasks {
  job: Job;
  tasks: Tasks;
  version: string;
  now: number;
}

function TimelineCard({ job, tasks, version, now }: OfTasks) {
  const { list: attempts, missing } = useAttempts(tasks, useLater(version, 20));
  const from = attempts.reduce((least, one) => Math.min(least, one.from), job.started_at_ms ?? Infinity);
  const last = attempts.reduce((most, one) => Math.max(most, one.to ?? one.from), from + 1);
  const to = hasEnded(job.state) ? last : Math.max(now, from + 1);
  return (
    <Card
      title="Timeline"
      extra={
        <span class="soft">
          {plural(attempts.length, 'attempt')}
          {missing > 0 && `; ${plural(missing, 'earlier one')} not drawn`}
        </span>
      }
    >
      {attempts.length === 0 ? <Empty>No worker has had a task of it.</Empty> : <Timeline attempts={attempts} from={from} to={to} />}
    </Card>
  );
}

function SkewCard({ job, tasks, version, now }: OfTasks) {
  const later = useLater(`${version} ${now}`, 60);
  const groups = useMemo(() => groupsOf(job, tasks.list), [later]);
  if (groups.length === 0) return null;
  return (
    <Card title="Skew">
      <Skew groups={groups} now={now} />
    </Card>
  );
}

function Body({ job, refresh }: { job: Job; refresh: () => void }) {
  const { canWrite, whyNot } = useSession();
  const [selected, setSelected] = useState<number>();
  const isEnded = hasEnded(job.state);
  const now = useNow(!isEnded);
  const stages = job.stages ?? [];
  const total = stages.reduce((sum, stage) => sum + stage.tasks, 0);
  const isLarge = total > REPLAYED_MAX || total === 0;
  const tasks = useTasks(job.job_id, isEnded);
  const live = useEvents({ job: job.job_id, ...(isLarge ? { last: LAST } : {}) }, (events) => {
    tasks.take(events);
    refresh();
  });
  const done = tasks.list.filter((task) => task.state !== 'queued' && task.state !== 'running').length;
  const version = `${tasks.list.length} ${done} ${tasks.earlier.size} ${job.state}`;
  const isPlanned = job.kind === 'query' && (stages[0]?.succeeded ?? 0) > 0;
  const first = useResource(`plan ${job.job_id} ${isPlanned}`, async (signal) =>
    isPlanned ? (await api.tasks(job.job_id, { limit: 1 }, signal)).tasks[0]?.result : undefined,
  );
  const plan = useMemo(() => planStages(planOf(first.value), stages), [first.value, stages.length]);
  const notes = new Map([...plan].flatMap(([id, { what }]) => (what ? [[id, what] as const] : [])));
  const queued = stages.length === 0 ? !isEnded : stages.some((stage) => stage.queued > 0);
  const stage = stages.find((one) => one.stage === selected);
  // The stages that a plan made follow it, although they take nothing from it.
  const isCut = job.kind === 'query' && stages.length > 1 && stages[0]?.name === 'plan';
  const drawn = isCut ? stages.map((one) => (one.stage > 0 && one.parents.length === 0 ? { ...one, parents: [0] } : one)) : stages;
  const retryFrom: RetryFrom = {
    act: async (task) => {
      await api.retry(job.job_id, task.name!);
      refresh();
    },
    // The tasks of a query are retried by stage, and what passes between its stages goes with its end.
    question: ({ name }) =>
      job.kind === 'tree'
        ? `Run ${name} and all that depends on it again?`
        : `Run stage ${name} and all that depends on it again? What it reads is computed again, too.`,
    whyNot: (task) => {
      if (!canWrite) return whyNot;
      return isCut && task.stage === 0 ? 'the plan is kept: retry from a stage that it made' : undefined;
    },
  };
  return (
    <>
      <Head job={job} now={now} onDone={refresh} />
      {!isEnded && queued && <Why job={job} />}
      {job.kind === 'query' && <Statement job={job} plan={plan} />}
      <Card title="Stages" extra={<span class={`live is-${live}`}>{isEnded ? 'ended' : live}</span>}>
        {stages.length === 0 ? (
          <Empty>{total === 0 && tasks.list.length > 0 ? 'There are too many stages to draw; the tasks are below.' : 'There are no stages yet.'}</Empty>
        ) : (
          <Graph stages={drawn} notes={notes} selected={selected} onSelect={setSelected} />
        )}
        {stage && <StageDetail stage={stage} plan={plan.get(stage.stage)} />}
      </Card>
      <TimelineCard job={job} tasks={tasks} version={version} now={now} />
      <SkewCard job={job} tasks={tasks} version={version} now={now} />
      <Card title="Tasks" extra={!tasks.isWhole && <span class="soft">reading… {number(tasks.list.length)}</span>}>
        {tasks.error && <Failure error={tasks.error} what="Tasks cannot be listed" />}
        <TaskTable
          jobId={job.job_id}
          tasks={tasks.list}
          earlier={tasks.earlier}
          stage={selected}
          now={now}
          isCut={tasks.isCut}
          retryFrom={isEnded ? retryFrom : undefined}
        />
      </Card>
      {job.kind === 'tree' && isEnded && <TreeResults job={job} />}
    </>
  );
}

export function JobPage({ id }: { id: string }) {
  const [isEnded, setEnded] = useState(false);
  const job = useResource(`job ${id}`, (signal) => api.job(id, signal), { everyMs: isEnded ? 0 : 3000, leastMs: 400 });
  useEffect(() => setEnded(job.value !== undefined && hasEnded(job.value.state)), [job.value?.state]);
  if (job.error && !job.value) return <Failure error={job.error} what="The job cannot be shown" />;
  if (!job.value) return <Empty>…</Empty>;
  return <Body job={job.value} refresh={job.refresh} />;
}

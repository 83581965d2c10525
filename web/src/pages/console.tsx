// SQL: a statement, its rows, a picture of them, how it ran.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api, hasEnded, request, token, type Job, type Rows, type Stage } from '../api';
import { ago, bytes, duration, number, plural, short } from '../format';
import { readHistory, remember, type Past } from '../history';
import { go, useEvents, useNow, useResource } from '../hooks';
import { Chart } from '../parts/chart';
import { Colored, Editor } from '../parts/editor';
import { underWay } from '../parts/graph';
import { Grid } from '../parts/grid';
import { Action, Badge, Bar, Card, Empty, Failure, TabPanel, Tabs } from '../parts/ui';
import { useSession } from '../session';
import { planOf, planStages } from './job';

const DRAFT = 'capstan-sql-draft';
const FIRST_ROWS = 2000;

// Rows of the stages that nobody follows: those of the result. A query that was planned and cut has others than its first.
export function rowsOf(stages: Stage[]): number {
  const followed = new Set(stages.flatMap(({ parents }) => parents));
  const last = stages.filter(({ stage }) => !followed.has(stage) && (stages.length === 1 || stage !== 0));
  return last.reduce((sum, { rows }) => sum + rows, 0);
}

function Progress({ job, now }: { job: Job; now: number }) {
  const stages = job.stages ?? [];
  const started = job.started_at_ms ?? now;
  const seconds = Math.max(0.001, (now - started) / 1000);
  return (
    <div class="progress">
      <p class="soft">
        {job.state}, {duration(now - started)}
      </p>
      <table class="table">
        <tbody>
          {stages.slice(0, 30).map((stage) => (
            <tr key={stage.stage}>
              <th scope="row">{stage.name ?? stage.stage}</th>
              <td class="grow">
                <Bar
                  parts={[
                    { state: 'succeeded', n: stage.succeeded },
                    { state: 'failed', n: stage.failed },
                    { state: 'running', n: underWay(stage) },
                    { state: 'started', n: stage.running - underWay(stage) },
                  ]}
                  total={stage.tasks}
                  label={`${stage.succeeded} of ${plural(stage.tasks, 'task')} done`}
                />
              </td>
              <td class="num">
                {short(stage.succeeded)} / {short(stage.tasks)}
              </td>
              <td class="num soft">{short(stage.rows)} rows</td>
              <td class="num soft">{stage.running > 0 ? `${short(Math.round(stage.rows / seconds))}/s` : bytes(stage.bytes)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// A download that carries the token goes through the page; without one the browser does it alone.
function Download({ jobId, format, label }: { jobId: string; format: string; label: string }) {
  const path = api.resultsPath(jobId, format);
  const name = `${jobId}.${format}`;
  if (!token.get()) {
    return (
      <a class="button is-small" href={path} download={name}>
        {label}
      </a>
    );
  }
  return (
    <Action
      class="is-small"
      onAct={async () => {
        const blob = await (await request(path)).blob();
        const link = document.createElement('a');
        link.href = URL.createObjectURL(blob);
        link.download = name;
        link.click();
        window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      }}
    >
      {label}
    </Action>
  );
}

function PlanView({ job }: { job: Job }) {
  const stages = job.stages ?? [];
  const first = useResource(`plan ${job.job_id}`, async (signal) => (await api.tasks(job.job_id, { limit: 1 }, signal)).tasks[0]?.result ?? null);
  const result = planOf(first.value);
  const plan = planStages(result, stages);
  if (first.value === undefined) return <Empty>…</Empty>;
  if (plan.size === 0) return <Empty>This job has no plan to show.</Empty>;
  return (
    <div class="plan">
      <p class="soft">
        {result?.single ? `Ran as one task: ${result.single}.` : `${plural(plan.size, 'stage')}; `}
        <a href={`#/jobs/${encodeURIComponent(job.job_id)}`}>the job</a> shows them as a graph.
      </p>
      {[...plan].reverse().map(([id, stage]) => {
        const ran = stages.find((one) => one.stage === id);
        return (
          <section key={id}>
            <h3>
              {ran?.name ?? `stage ${id}`}{' '}
              {ran && (
                <span class="soft">
                  {plural(ran.tasks, 'task')}, {short(ran.rows)} rows, {bytes(ran.bytes)}
                </span>
              )}
            </h3>
            {stage.what && <pre>{stage.what}</pre>}
            {stage.sql && (
              <pre class="sql" tabIndex={0} aria-label={`SQL of stage ${id}`}>
                <Colored sql={stage.sql} />
              </pre>
            )}
          </section>
        );
      })}
    </div>
  );
}

function Explained({ rows }: { rows: Rows }) {
  const text = rows.rows[0]?.[0];
  return (
    <pre class="explain" tabIndex={0} aria-label="How it would run">
      {typeof text === 'string' ? text : ''}
    </pre>
  );
}

function Result({ job, isExplain }: { job: Job; isExplain: boolean }) {
  const [tab, setTab] = useState('rows');
  const total = rowsOf(job.stages ?? []);
  const first = useResource(`rows ${job.job_id} ${job.finished_at_ms}`, (signal) => api.rows(job.job_id, 0, FIRST_ROWS, signal));
  // What the stages count is what there is; a result that fits into the first page says it itself.
  const count = first.value && first.value.rows.length < FIRST_ROWS ? first.value.rows.length : Math.max(total, first.value?.rows.length ?? 0);
  if (first.error) return <Failure error={first.error} what="Its rows cannot be read" />;
  if (!first.value) return <Empty>Reading rows…</Empty>;
  if (isExplain) return <Explained rows={first.value} />;
  return (
    <>
      <div class="row between">
        <Tabs
          label="Result"
          value={tab}
          onChange={setTab}
          tabs={[{ id: 'rows', label: 'Rows' }, { id: 'chart', label: 'Chart' }, { id: 'plan', label: 'Plan' }]}
        />
        <div class="row">
          <span class="soft" data-testid="row-count">
            {plural(count, 'row')}
            {job.started_at_ms !== null && job.finished_at_ms !== null && ` in ${duration(job.finished_at_ms - job.started_at_ms)}`}
          </span>
          <span class="soft">download</span>
          <Download jobId={job.job_id} format="csv" label="CSV" />
          <Download jobId={job.job_id} format="parquet" label="Parquet" />
          <Download jobId={job.job_id} format="arrow" label="Arrow" />
        </div>
      </div>
      <TabPanel id={tab}>
        {tab === 'rows' && count === 0 && <Empty>No rows. Columns: {first.value.columns.map(({ name }) => name).join(', ')}</Empty>}
        {tab === 'rows' && count > 0 && <Grid jobId={job.job_id} columns={first.value.columns} first={first.value} total={count} />}
        {tab === 'chart' && <Chart columns={first.value.columns} rows={first.value.rows} total={count} />}
        {tab === 'plan' && <PlanView job={job} />}
      </TabPanel>
    </>
  );
}

function Run({ jobId, isExplain }: { jobId: string; isExplain: boolean }) {
  const { canWrite, whyNot } = useSession();
  const [isOver, setOver] = useState(false);
  const job = useResource(`job ${jobId}`, (signal) => api.job(jobId, signal), { everyMs: isOver ? 0 : 1000, leastMs: 200 });
  useEvents({ job: jobId, isOff: isOver }, () => job.refresh());
  const value = job.value;
  const isEnded = value !== undefined && hasEnded(value.state);
  useEffect(() => setOver(isEnded), [isEnded]);
  const now = useNow(!isEnded, 250);
  if (job.error && !value) return <Failure error={job.error} />;
  if (!value) return <Empty>…</Empty>;
  return (
    <Card
      title="Result"
      class="result-card"
      extra={
        <>
          <Badge state={value.state} />
          <a href={`#/jobs/${encodeURIComponent(jobId)}`}>job {jobId}</a>
          {!isEnded && (
            <Action class="is-danger is-small" onAct={async () => void (await api.cancel(jobId), job.refresh())} disabled={!canWrite} title={whyNot}>
              Cancel
            </Action>
          )}
        </>
      }
    >
      {!isEnded && <Progress job={value} now={now} />}
      {value.state === 'failed' && <pre class="message is-bad">{value.message}</pre>}
      {value.state === 'canceled' && <Empty>It was canceled{value.message ? `: ${value.message}` : ''}.</Empty>}
      {value.state === 'succeeded' && value.kind === 'query' && <Result job={value} isExplain={isExplain} />}
      {value.state === 'succeeded' && value.kind === 'tree' && <Empty>This job is a tree of tasks, it has no rows.</Empty>}
    </Card>
  );
}

function Side({ onPick, history }: { onPick: (sql: string) => void; history: Past[] }) {
  const tables = useResource('tables', (signal) => api.tables(signal), { everyMs: 15_000 });
  const now = useNow(true, 30_000);
  const names = tables.value?.tables ?? [];
  return (
    <div class="side">
      <Card title="Tables">
        {names.length === 0 && <Empty>None is named. Files can be read by their path.</Empty>}
        <ul class="picks">
          {names.map(({ name, source }) => (
            <li key={name}>
              <button class="link" title={source} onClick={() => onPick(`SELECT * FROM ${/^[a-z_]\w*$/.test(name) ? name : `"${name}"`} LIMIT 1000`)}>
                {name}
              </button>
            </li>
          ))}
        </ul>
      </Card>
      <Card title="History">
        {history.length === 0 && <Empty>What was run here.</Empty>}
        <ul class="picks" data-testid="history">
          {history.map((past) => (
            <li key={past.at}>
              <button class="link" title={past.sql} onClick={() => onPick(past.sql)}>
                {past.sql.replaceAll(/\s+/g, ' ').slice(0, 80)}
              </button>
              <span class="soft">{ago(past.at, now)}</span>
            </li>
          ))}
        </ul>
      </Card>
    </div>
  );
}

export function ConsolePage({ jobId }: { jobId: string | undefined }) {
  const { canWrite, whyNot } = useSession();
  const [sql, setSql] = useState(() => localStorage.getItem(DRAFT) ?? 'SELECT i, i * i AS square, i % 10 AS digit\nFROM range(1000) t(i)');
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const [history, setHistory] = useState(readHistory);
  const explained = useRef(new Set<string>());
  const isEmpty = useMemo(() => sql.trim() === '', [sql]);
  const change = (value: string) => {
    setSql(value);
    localStorage.setItem(DRAFT, value);
  };
  const run = async (explain: boolean) => {
    if (isEmpty || isBusy || !canWrite) return;
    setBusy(true);
    setError(undefined);
    try {
      const { job_id } = await api.submit(explain ? { sql, explain } : { sql });
      if (explain) explained.current.add(job_id);
      else setHistory(remember({ sql, at: Date.now(), job: job_id }));
      go(`#/sql?job=${encodeURIComponent(job_id)}`);
    } catch (caught) {
      setError(caught as Error);
    }
    setBusy(false);
  };
  return (
    <div class="console">
      <div class="console-main">
        <Card title="SQL" isMain>
          <Editor value={sql} onChange={change} onRun={() => void run(false)} label="SQL statement" />
          <div class="row tools">
            <button class="button is-main" disabled={isEmpty || isBusy || !canWrite} title={whyNot ?? 'Ctrl+Enter'} onClick={() => void run(false)}>
              Run
            </button>
            <button class="button" disabled={isEmpty || isBusy || !canWrite} title={whyNot ?? 'Shows how it would run'} onClick={() => void run(true)}>
              Explain
            </button>
            <span class="soft keys">Ctrl+Enter runs it</span>
            {sql.length > 10_000 && <span class="soft">{number(sql.length)} characters</span>}
          </div>
          {error && <Failure error={error} what="It was not taken" />}
        </Card>
        {jobId !== undefined && <Run key={jobId} jobId={jobId} isExplain={explained.current.has(jobId)} />}
      </div>
      <Side onPick={change} history={history} />
    </div>
  );
}

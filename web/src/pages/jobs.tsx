// All jobs, page by page. A page begins behind a key, not at a number, so the millionth costs what the first does.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, api, type Job } from '../api';
import { setValues, useEvents, useNow, useResource } from '../hooks';
import { JobRows } from '../parts/jobs';
import { Card, Choice, Empty, Failure } from '../parts/ui';

const LIMIT = 50;
const STATES = ['', 'queued', 'running', 'succeeded', 'failed', 'canceled'];

// The job with this id, if there is one.
async function byId(id: string, signal: AbortSignal): Promise<Job | undefined> {
  try {
    return await api.job(id, signal);
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 400)) return undefined;
    throw error;
  }
}

export function JobsPage({ values }: { values: URLSearchParams }) {
  const state = values.get('state') ?? '';
  const text = values.get('q') ?? '';
  const [typed, setTyped] = useState(text);
  const [trail, setTrail] = useState<string[]>([]); // the keys of the pages before, and of this one
  const after = trail.at(-1) ?? '';
  const page = useResource(
    `jobs ${state} ${text} ${after}`,
    async (signal) => {
      const [found, { jobs, next }] = await Promise.all([
        text !== '' && after === '' ? byId(text, signal) : undefined,
        api.jobs({ state, name: text, limit: LIMIT, after }, signal),
      ]);
      const isWanted = found !== undefined && (state === '' || found.state === state);
      return { jobs: isWanted ? [found, ...jobs.filter(({ job_id }) => job_id !== found.job_id)] : jobs, next };
    },
    { everyMs: trail.length === 0 ? 10_000 : 0, leastMs: 700 },
  );
  const live = useEvents({ last: 1, isOff: trail.length > 0 }, (events) => {
    if (events.some((event) => event.job_id !== null && (event.stage === null || event.type === 'assigned'))) page.refresh();
  });
  const now = useNow(true, 2000);
  useEffect(() => setTrail([]), [state, text]);
  useEffect(() => setTyped(text), [text]);
  const jobs = page.value?.jobs;
  return (
    <Card
      title="Jobs"
      isMain
      extra={trail.length === 0 ? <span class={`live is-${live}`}>{live}</span> : <span class="soft">page {trail.length + 1}</span>}
    >
      <form
        class="row tools"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          setValues({ q: typed.trim() });
        }}
      >
        <Choice
          label="State"
          value={state}
          onChange={(value) => setValues({ state: value })}
          options={STATES.map((value) => ({ value, label: value === '' ? 'all' : value }))}
        />
        <label class="search">
          <span class="hidden">Job id or name</span>
          <input
            type="search"
            placeholder="job id or exact name"
            value={typed}
            onInput={(event) => {
              setTyped(event.currentTarget.value);
              if (event.currentTarget.value === '') setValues({ q: '' });
            }}
          />
        </label>
        <button class="button">Search</button>
      </form>
      {page.error && !jobs && <Failure error={page.error} what="Jobs cannot be listed" />}
      {jobs && jobs.length === 0 && (
        <Empty>{text !== '' ? `No job has the id or the name '${text}'${state && ` and is ${state}`}.` : 'There are no such jobs.'}</Empty>
      )}
      {jobs && jobs.length > 0 && <JobRows jobs={jobs} now={now} withMessage />}
      <div class="row pager">
        <button class="button" disabled={trail.length === 0} onClick={() => setTrail([])}>
          Newest
        </button>
        <button class="button" disabled={trail.length === 0} onClick={() => setTrail(trail.slice(0, -1))}>
          Newer
        </button>
        <button class="button" disabled={!page.value?.next} onClick={() => setTrail([...trail, page.value!.next!])}>
          Older
        </button>
      </div>
    </Card>
  );
}

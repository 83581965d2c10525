// What goes on, at a glance.
import { useEffect, useRef, useState } from 'preact/hooks';
import { api, type CapstanEvent, type Overview } from '../api';
import { short } from '../format';
import { useEvents, useNow, useResource } from '../hooks';
import { JobRows } from '../parts/jobs';
import { EventLine } from '../parts/eventline';
import { Bar, Card, Empty, Failure, Spark } from '../parts/ui';
import { useSession } from '../session';

const POINTS = 90; // of the line, one a second
const RECENT = 12;

type Timed = Overview & { at: number }; // when it came, which may be long before it is shown

// Tasks that completed in each second. The leader counts them; with an observer they are counted here, as events.
function useThroughput(overview: Timed | undefined, seen: { n: number }, isObserver: boolean): number[] {
  const [values, setValues] = useState<number[]>([]);
  const before = useRef<{ at: number; n: number } | undefined>(undefined);
  useEffect(() => {
    if (!overview) return;
    const { at } = overview;
    const n = isObserver ? seen.n : overview.attempts_completed;
    const last = before.current;
    before.current = { at, n };
    // A counter that has fallen began again, with another leader.
    if (last && n >= last.n && at > last.at) {
      const rate = ((n - last.n) * 1000) / (at - last.at);
      setValues((old) => [...old.slice(1 - POINTS), rate]);
    }
  }, [overview]);
  return values;
}

function Tile({ name, value, note, state, href }: { name: string; value: string; note?: string | undefined; state?: string; href?: string }) {
  const inner = (
    <>
      <span class="tile-name">{name}</span>
      <span class={`tile-value ${state ? `is-${state}` : ''}`}>{value}</span>
      <span class="tile-note">{note ?? '\u00a0'}</span>
    </>
  );
  return href ? (
    <a class="tile" href={href}>
      {inner}
    </a>
  ) : (
    <div class="tile">{inner}</div>
  );
}

export function OverviewPage() {
  const { leader } = useSession();
  const [events, setEvents] = useState<CapstanEvent[]>([]);
  const seen = useRef({ n: 0 });
  const overview = useResource('overview', async (signal): Promise<Timed> => ({ ...(await api.overview(signal)), at: performance.now() }), { everyMs: 1000 });
  const running = useResource('running', (signal) => api.jobs({ state: 'running', limit: 8 }, signal), { everyMs: 5000, leastMs: 1000 });
  const failed = useResource('failed', (signal) => api.jobs({ state: 'failed', limit: 6 }, signal), { everyMs: 15_000, leastMs: 2000 });
  const live = useEvents({ last: RECENT }, (batch) => {
    for (const event of batch) if (event.type === 'completed' && event.task !== null) seen.current.n++;
    setEvents((old) => [...batch.slice(-RECENT).reverse(), ...old].slice(0, RECENT));
    if (batch.some((event) => event.stage === null || event.type === 'assigned')) running.refresh();
    if (batch.some((event) => event.type === 'failed' && event.stage === null)) failed.refresh();
  });
  const rates = useThroughput(overview.value, seen.current, leader?.role === 'observer');
  const now = useNow(true, 5000);
  const o = overview.value;
  const rate = rates.at(-1) ?? 0;
  const nodes = o ? o.nodes_healthy + o.nodes_stale + o.nodes_dead : 0;
  return (
    <>
      <h1 class="hidden">Overview</h1>
      {overview.error && !o && <Failure error={overview.error} what="The overview cannot be shown" />}
      <section class="tiles" aria-label="Now">
        <div class="tile is-wide">
          <span class="tile-name">Throughput</span>
          <span class="tile-value" data-testid="throughput">
            {short(Math.round(rate * 10) / 10)} <small>tasks/s</small>
          </span>
          <Spark values={rates} label={`Tasks completed per second, ${Math.round(rate)} now`} />
        </div>
        <Tile name="Running" value={o ? short(o.tasks_running) : '–'} note={o ? `${short(o.jobs_running)} jobs` : undefined} state={o && o.tasks_running > 0 ? 'running' : ''} href="#/jobs?state=running" />
        <Tile name="Queued" value={o ? short(o.tasks_queued) : '–'} note={o ? `${short(o.jobs_queued)} jobs` : undefined} href="#/jobs?state=queued" />
        <Tile name="Failed" value={o ? short(o.jobs_failed) : '–'} note={o ? `jobs; ${short(o.attempts_failed)} attempts` : undefined} state={o && o.jobs_failed > 0 ? 'failed' : ''} href="#/jobs?state=failed" />
        <Tile name="Stuck" value={o ? short(o.stuck_tasks) : '–'} note={o ? (o.stuck_tasks > 0 ? 'no worker can run these' : 'every task has a worker') : undefined} state={o && o.stuck_tasks > 0 ? 'stuck' : ''} />
        <div class="tile">
          <span class="tile-name">Slots</span>
          <span class="tile-value">
            {o ? short(o.slots_busy) : '–'} <small>of {o ? short(o.slots) : '–'}</small>
          </span>
          {o && <Bar parts={[{ state: 'running', n: o.slots_busy }]} total={o.slots} label={`${o.slots_busy} of ${o.slots} slots are busy`} />}
        </div>
        <Tile
          name="Nodes"
          value={o ? String(o.nodes_healthy) : '–'}
          note={o && nodes > o.nodes_healthy ? `${o.nodes_stale} stale, ${o.nodes_dead} dead` : 'all healthy'}
          state={o && nodes > o.nodes_healthy ? 'stuck' : ''}
          href="#/nodes"
        />
      </section>
      <div class="columns">
        <div>
          <Card title="Running now" extra={<a href="#/jobs?state=running">all</a>}>
            {running.error && !running.value && <Failure error={running.error} />}
            {running.value && running.value.jobs.length === 0 && <Empty>Nothing runs at the moment.</Empty>}
            {running.value && running.value.jobs.length > 0 && <JobRows jobs={running.value.jobs} now={now} />}
          </Card>
          <Card title="Failed lately" extra={<a href="#/jobs?state=failed">all</a>}>
            {failed.value && failed.value.jobs.length === 0 && <Empty>No job has failed.</Empty>}
            {failed.value && failed.value.jobs.length > 0 && <JobRows jobs={failed.value.jobs} now={now} withMessage />}
          </Card>
        </div>
        <Card title="Events" extra={<span class={`live is-${live}`}>{live}</span>}>
          {events.length === 0 && <Empty>Nothing has happened yet.</Empty>}
          <ul class="events-short">
            {events.map((event) => (
              <EventLine key={event.seq} event={event} />
            ))}
          </ul>
        </Card>
      </div>
    </>
  );
}

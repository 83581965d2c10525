// What has happened and what happens: the newest on top. The last ones of all, filtered here; of a job that is asked for by
// its id, all.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api, ApiError, type CapstanEvent } from '../api';
import { clock, number } from '../format';
import { setValues, useEvents, useLater, useResource } from '../hooks';
import { detailsOf, EventWhat, kindOf } from '../parts/eventline';
import { Card, Choice, Empty } from '../parts/ui';
import { VirtualTable } from '../parts/virtual';

const KEPT = 10_000;
const FIRST = 1000;
const TYPED_MS = 300; // nothing more has been typed for so long
const TYPES = [
  'created', 'pending', 'assigned', 'started', 'completed', 'failed', 'reassigned', 'cancelled', 'retried', 'skipped', 'stuck', 'joined', 'lost',
  'blacklisted', 'cleared', 'draining',
];

// The text, if it is the id of a job.
function useJobId(text: string): string | undefined {
  const typed = useLater(text.trim(), TYPED_MS);
  const job = useResource(`job of events ${typed}`, async (signal) => {
    if (typed === '' || /[\s/]/.test(typed)) return undefined;
    try {
      return (await api.job(typed, signal)).job_id;
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) return undefined;
      throw error;
    }
  });
  return text.trim() === typed ? job.value : undefined;
}

// Which events are there, of which those that fit are shown.
function Among({ n, job, onMore }: { n: number; job: string | undefined; onMore: (() => void) | undefined }) {
  const all = job !== undefined && n < KEPT ? 'all events' : `the last ${number(n)} events`;
  return (
    <>
      <span class="soft">
        among {all} {job === undefined ? '' : 'of the job that are kept'}
      </span>
      {onMore && (
        <button class="button is-small" onClick={onMore}>
          Look further back
        </button>
      )}
    </>
  );
}

export function EventsPage({ values }: { values: URLSearchParams }) {
  const type = values.get('type') ?? '';
  const text = values.get('q') ?? '';
  const kept = useRef<CapstanEvent[]>([]); // oldest first
  const [version, setVersion] = useState(0);
  const [isFollowing, setFollowing] = useState(true);
  const frozen = useRef<CapstanEvent[] | undefined>(undefined);
  const [last, setLast] = useState(FIRST);
  const job = useJobId(text);
  const isOther = useRef(false);
  const live = useEvents(job === undefined ? { last } : { job }, (batch) => {
    kept.current = [...(isOther.current ? [] : kept.current), ...batch].slice(-KEPT);
    isOther.current = false;
    if (isFollowing) setVersion((n) => n + 1);
  });
  // Behind what follows: the stream before has ended. What it left stays until another one begins.
  useEffect(() => {
    isOther.current = true;
    setFollowing(true);
  }, [job, last]);
  const shown = useMemo(() => {
    const from = isFollowing ? kept.current : (frozen.current ?? kept.current);
    const found: CapstanEvent[] = [];
    for (let i = from.length - 1; i >= 0; i--) {
      const event = from[i]!;
      if (type !== '' && event.type !== type) continue;
      if (text !== '' && !`${event.job_id ?? ''} ${event.worker_id ?? ''} ${detailsOf(event)}`.includes(text)) continue;
      found.push(event);
    }
    return found;
  }, [version, type, text, isFollowing]);
  return (
    <Card
      title="Events"
      isMain
      class="is-tall"
      extra={
        <>
          <span class="soft">{number(shown.length)} shown</span>
          {kept.current.length > 0 && (
            <Among
              n={kept.current.length}
              job={job}
              onMore={job === undefined && last < KEPT && kept.current.length >= last ? () => setLast(KEPT) : undefined}
            />
          )}
          <span class={`live is-${live}`}>{live}</span>
        </>
      }
    >
      <div class="row tools">
        <Choice
          label="Follow"
          value={isFollowing ? 'follow' : 'hold'}
          onChange={(value) => {
            frozen.current = kept.current;
            setFollowing(value === 'follow');
          }}
          options={[{ value: 'follow', label: 'Follow' }, { value: 'hold', label: 'Hold' }]}
        />
        <label>
          <span class="hidden">Type</span>
          <select value={type} onChange={(event) => setValues({ type: event.currentTarget.value })}>
            <option value="">all types</option>
            {TYPES.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="search">
          <span class="hidden">Job, worker or text</span>
          <input type="search" placeholder="job, worker or text" value={text} onInput={(event) => setValues({ q: event.currentTarget.value })} />
        </label>
      </div>
      {shown.length === 0 ? (
        <Empty>{kept.current.length === 0 ? 'Nothing has happened yet.' : 'None of these events fits.'}</Empty>
      ) : (
        <VirtualTable
          count={shown.length}
          rowHeight={28}
          label="Events"
          class="events"
          head={
            <div class="virtual-row" role="row">
              <span role="columnheader">#</span>
              <span role="columnheader">Time</span>
              <span role="columnheader">Type</span>
              <span role="columnheader">What</span>
              <span role="columnheader">Details</span>
            </div>
          }
          row={(i) => {
            const event = shown[i]!;
            return (
              <div class="virtual-row" role="row" key={event.seq} aria-rowindex={i + 2}>
                <span role="cell" class="soft num">
                  {event.seq}
                </span>
                <span role="cell" class="soft">
                  {clock(event.at_ms)}
                </span>
                <span role="cell" class={`word is-${kindOf(event.type)}`}>
                  {event.type}
                </span>
                <span role="cell" class="cut">
                  <EventWhat event={event} />
                </span>
                <span role="cell" class="cut soft" title={detailsOf(event)}>
                  {detailsOf(event)}
                </span>
              </div>
            );
          }}
        />
      )}
    </Card>
  );
}

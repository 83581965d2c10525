// What has happened and what happens: the newest on top, filtered here.
import { useMemo, useRef, useState } from 'preact/hooks';
import type { CapstanEvent } from '../api';
import { clock, number } from '../format';
import { setValues, useEvents } from '../hooks';
import { detailsOf, EventWhat, kindOf } from '../parts/eventline';
import { Card, Choice, Empty } from '../parts/ui';
import { VirtualTable } from '../parts/virtual';

const KEPT = 10_000;
const FIRST = 1000;
const TYPES = [
  'created', 'pending', 'assigned', 'started', 'completed', 'failed', 'reassigned', 'cancelled', 'retried', 'skipped', 'stuck', 'joined', 'lost',
  'blacklisted', 'cleared', 'draining',
];

export function EventsPage({ values }: { values: URLSearchParams }) {
  const type = values.get('type') ?? '';
  const text = values.get('q') ?? '';
  const kept = useRef<CapstanEvent[]>([]); // oldest first
  const [version, setVersion] = useState(0);
  const [isFollowing, setFollowing] = useState(true);
  const frozen = useRef<CapstanEvent[] | undefined>(undefined);
  const live = useEvents({ last: FIRST }, (batch) => {
    kept.current = [...kept.current, ...batch].slice(-KEPT);
    if (isFollowing) setVersion((n) => n + 1);
  });
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
        <Empty>{kept.current.length === 0 ? 'Nothing has happened yet.' : 'None of the events fits.'}</Empty>
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

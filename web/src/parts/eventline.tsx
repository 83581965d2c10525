// One event, in a line.
import type { CapstanEvent } from '../api';
import { clock } from '../format';

export function kindOf(type: string): string {
  switch (type) {
    case 'completed':
      return 'succeeded';
    case 'failed':
    case 'lost':
    case 'blacklisted':
      return 'failed';
    case 'assigned':
    case 'started':
      return 'running';
    case 'stuck':
    case 'reassigned':
    case 'draining':
    case 'retried':
      return 'stuck';
    case 'cancelled':
    case 'skipped':
      return 'canceled';
    default:
      return 'queued';
  }
}

export function detailsOf(event: CapstanEvent): string {
  const { details } = event;
  if (details === null || details === undefined) return '';
  if (typeof details === 'object' && 'message' in details) return String(details.message);
  return typeof details === 'string' ? details : JSON.stringify(details);
}

// Ids that are made begin with the time, so their ends tell them apart.
const shortId = (id: string) => (id.length > 20 ? `…${id.slice(-8)}` : id);

export function EventWhat({ event, isShort = false }: { event: CapstanEvent; isShort?: boolean }) {
  return (
    <>
      {event.job_id !== null && (
        <a href={`#/jobs/${encodeURIComponent(event.job_id)}`} title={event.job_id}>
          {isShort ? shortId(event.job_id) : event.job_id}
        </a>
      )}
      {event.stage !== null && (
        <span class="soft">
          {' '}
          {event.stage}.{event.task}
          {event.attempt !== null && event.attempt > 1 ? ` attempt ${event.attempt}` : ''}
        </span>
      )}
      {event.worker_id !== null && <span class="soft"> {event.job_id === null ? '' : 'on '}{event.worker_id}</span>}
    </>
  );
}

export function EventLine({ event }: { event: CapstanEvent }) {
  return (
    <li>
      <time class="soft">{clock(event.at_ms).slice(0, 8)}</time>
      <span class={`word is-${kindOf(event.type)}`}>{event.type}</span>
      <span class="cut">
        <EventWhat event={event} isShort />
      </span>
    </li>
  );
}

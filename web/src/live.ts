// Events as they happen: /v1/events, read with fetch so that the token can go along, and connected again, behind the last
// event that came, whenever the connection ends. Batches are handed on at most a few times a second, however many events
// there are.
import { ApiError, headers, query, token, type CapstanEvent } from './api';

export type LiveState = 'connecting' | 'live' | 'broken';

export interface LiveOptions {
  job?: string;
  last?: number; // begin so many events before the newest; else with the first one that there is
  onEvents: (events: CapstanEvent[]) => void;
  onState?: (state: LiveState) => void;
}

const BATCH_MS = 150;
const RETRY_MS_MAX = 5000;

// Splits a stream of server-sent events into the values of their data.
export class EventReader {
  #text = '';

  *take(piece: string): Generator<CapstanEvent> {
    this.#text += piece;
    let from = 0;
    for (let end; (end = this.#text.indexOf('\n\n', from)) >= 0; from = end + 2) {
      const frame = this.#text.slice(from, end);
      if (frame.startsWith('event: end')) continue; // the stream ends; the next connection finds out why
      const data = frame.indexOf('data: ');
      if (data >= 0) yield JSON.parse(frame.slice(data + 6)) as CapstanEvent;
    }
    this.#text = this.#text.slice(from);
  }
}

async function readAll(body: ReadableStream<BufferSource>, take: (event: CapstanEvent) => void): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const frames = new EventReader();
  for (let piece; !(piece = await reader.read()).done; ) for (const event of frames.take(piece.value)) take(event);
}

// All events of a job that there are.
export async function readEvents(job: string, take: (event: CapstanEvent) => void): Promise<void> {
  const response = await fetch(`/v1/events${query({ job, follow: false })}`, { headers: headers() });
  if (!response.ok || !response.body) throw new ApiError(response.status, {});
  await readAll(response.body, (event) => event.resync || take(event));
}

// Follows events until it is told to stop. Rests while the page is hidden.
export function follow(options: LiveOptions): () => void {
  let isOver = false;
  let lastSeq = 0;
  let retryMs = 250;
  let stop = new AbortController();
  let waiting: CapstanEvent[] = [];
  let timer = 0;
  let wake: () => void = () => {};

  const hand = () => {
    timer = 0;
    if (isOver || waiting.length === 0) return;
    const batch = waiting;
    waiting = [];
    options.onEvents(batch);
  };
  const take = (event: CapstanEvent) => {
    lastSeq = Math.max(lastSeq, event.seq);
    if (event.resync) return;
    waiting.push(event);
    if (timer === 0) timer = window.setTimeout(hand, BATCH_MS);
  };
  const connect = async () => {
    stop = new AbortController();
    const begin = lastSeq > 0 ? {} : { last: options.last };
    const more = lastSeq > 0 ? { 'Last-Event-ID': String(lastSeq) } : {};
    const response = await fetch(`/v1/events${query({ job: options.job, ...begin })}`, {
      headers: headers(more as Record<string, string>),
      signal: stop.signal,
    });
    if (!response.ok || !response.body) throw new ApiError(response.status, {});
    options.onState?.('live');
    retryMs = 250;
    await readAll(response.body, take);
  };
  const rest = (ms: number) =>
    new Promise<void>((resolve) => {
      wake = resolve;
      if (ms < Infinity) window.setTimeout(resolve, ms);
    });
  const run = async () => {
    while (!isOver) {
      if (document.hidden) {
        await rest(Infinity);
        continue;
      }
      options.onState?.('connecting');
      try {
        await connect();
      } catch (error) {
        if (isOver) return;
        if (error instanceof ApiError && (error.status === 401 || error.status === 404)) {
          options.onState?.('broken');
          if (error.status === 404 || !token.get()) return;
        }
      }
      if (isOver || document.hidden) continue;
      options.onState?.('broken');
      await rest(retryMs);
      retryMs = Math.min(retryMs * 2, RETRY_MS_MAX);
    }
  };
  const seen = () => {
    if (document.hidden) stop.abort();
    else wake();
  };
  document.addEventListener('visibilitychange', seen);
  void run();
  return () => {
    isOver = true;
    window.clearTimeout(timer);
    document.removeEventListener('visibilitychange', seen);
    stop.abort();
    wake();
  };
}

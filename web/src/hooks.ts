// What pages share: a resource that is fetched again when there is reason to, the route, events.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, type CapstanEvent } from './api';
import { follow, type LiveState } from './live';

export interface Resource<T> {
  value: T | undefined;
  error: ApiError | undefined;
  refresh: () => void;
}

// Fetches a value, and again: every `everyMs` (0: never by itself), and soon after a refresh(), but not more often than
// `leastMs`. One fetch is under way at a time. Rests while the page is hidden. `key` says what is fetched: with another
// one the old value is forgotten.
export function useResource<T>(
  key: string,
  fetcher: (signal: AbortSignal) => Promise<T>,
  { everyMs = 0, leastMs = 500 }: { everyMs?: number; leastMs?: number } = {},
): Resource<T> {
  const [state, setState] = useState<{ key: string; value?: T; error?: ApiError }>({ key });
  const latest = useRef(fetcher);
  latest.current = fetcher;
  const soon = useRef<() => void>(() => {});

  useEffect(() => {
    const stop = new AbortController();
    let isBusy = false;
    let isWanted = false;
    let timer = 0;
    let lastAt = -Infinity;
    const plan = (ms: number) => {
      window.clearTimeout(timer);
      timer = window.setTimeout(run, ms);
    };
    const run = async () => {
      if (isBusy || document.hidden) {
        isWanted = true;
        return;
      }
      isBusy = true;
      isWanted = false;
      lastAt = performance.now();
      try {
        const value = await latest.current(stop.signal);
        if (!stop.signal.aborted) setState({ key, value });
      } catch (error) {
        if (!stop.signal.aborted && error instanceof ApiError) setState((old) => (old.key === key ? { ...old, error } : { key, error }));
        else if (!stop.signal.aborted && !(error instanceof ApiError)) throw error;
      } finally {
        isBusy = false;
        if (!stop.signal.aborted) {
          if (isWanted) plan(leastMs);
          else if (everyMs > 0) plan(everyMs);
        }
      }
    };
    soon.current = () => {
      isWanted = true;
      if (!isBusy) plan(Math.max(0, lastAt + leastMs - performance.now()));
    };
    const seen = () => {
      if (!document.hidden && (isWanted || everyMs > 0)) plan(0);
    };
    document.addEventListener('visibilitychange', seen);
    void run();
    return () => {
      stop.abort();
      window.clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
      soon.current = () => {};
    };
  }, [key, everyMs, leastMs]);

  const refresh = useCallback(() => soon.current(), []);
  const isSame = state.key === key;
  return { value: isSame ? state.value : undefined, error: isSame ? state.error : undefined, refresh };
}

// Follows events while the component is there.
export function useEvents(
  { job, last, isOff = false }: { job?: string; last?: number; isOff?: boolean },
  onEvents: (events: CapstanEvent[]) => void,
): LiveState {
  const [state, setState] = useState<LiveState>('connecting');
  const latest = useRef(onEvents);
  latest.current = onEvents;
  useEffect(() => {
    if (isOff) return undefined;
    return follow({
      ...(job === undefined ? {} : { job }),
      ...(last === undefined ? {} : { last }),
      onEvents: (events) => latest.current(events),
      onState: setState,
    });
  }, [job, last, isOff]);
  return state;
}

// ---- the route: #/path?name=value ----

export interface Route {
  parts: string[];
  values: URLSearchParams;
}

export function readRoute(): Route {
  const [path = '', values = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  return { parts: path.split('/').filter(Boolean).map(decodeURIComponent), values: new URLSearchParams(values) };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    const change = () => setRoute(readRoute());
    window.addEventListener('hashchange', change);
    return () => window.removeEventListener('hashchange', change);
  }, []);
  return route;
}

export const go = (hash: string) => {
  location.hash = hash;
};

// Changes values of the route's query in place; an empty one goes.
export function setValues(changes: Record<string, string>): void {
  const { parts, values } = readRoute();
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') values.delete(name);
    else values.set(name, value);
  }
  const text = values.toString();
  history.replaceState(null, '', `#/${parts.map(encodeURIComponent).join('/')}${text === '' ? '' : `?${text}`}`);
  window.dispatchEvent(new HashChangeEvent('hashchange'));
}

// The time, each second while something counts it.
export function useNow(isCounting: boolean, everyMs = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!isCounting) return undefined;
    setNow(Date.now());
    const timer = window.setInterval(() => setNow(Date.now()), everyMs);
    return () => window.clearInterval(timer);
  }, [isCounting, everyMs]);
  return now;
}

// The value of some time ago: what is costly to draw follows in tasks of its own, one after the other.
export function useLater<T>(value: T, ms: number): T {
  const [late, setLate] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setLate(value), ms);
    return () => window.clearTimeout(timer);
  }, [value, ms]);
  return late;
}

export function useStored(key: string, initial: string): [string, (value: string) => void] {
  const [value, setValue] = useState(() => localStorage.getItem(key) ?? initial);
  return [
    value,
    (next) => {
      localStorage.setItem(key, next);
      setValue(next);
    },
  ];
}

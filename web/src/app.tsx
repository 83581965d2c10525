// The frame around all pages: where one is, who leads, what is live; and the question for a token.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { api, token } from './api';
import { duration } from './format';
import { useResource, useRoute, useStored } from './hooks';
import { Login } from './pages/login';
import { OverviewPage } from './pages/overview';
import { JobsPage } from './pages/jobs';
import { JobPage } from './pages/job';
import { NodesPage } from './pages/nodes';
import { EventsPage } from './pages/events';
import { ConsolePage } from './pages/console';
import { Dot } from './parts/ui';
import { SessionContext, sessionOf, type Session } from './session';

const PAGES = [
  { id: '', label: 'Overview', icon: 'M3 12h4l3-8 4 16 3-8h4' },
  { id: 'jobs', label: 'Jobs', icon: 'M4 6h16M4 12h16M4 18h10' },
  { id: 'nodes', label: 'Nodes', icon: 'M4 5h16v6H4zM4 14h16v6H4zM8 8h.01M8 17h.01' },
  { id: 'events', label: 'Events', icon: 'M12 7v5l3 2M21 12a9 9 0 1 1-9-9' },
  { id: 'sql', label: 'SQL', icon: 'M5 7l5 5-5 5M12 17h7' },
];

const THEMES = [
  { id: 'auto', label: 'as the system' },
  { id: 'light', label: 'light' },
  { id: 'dark', label: 'dark' },
];

function Icon({ d }: { d: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={d} />
    </svg>
  );
}

function Theme() {
  const [theme, setTheme] = useStored('capstan-theme', 'auto');
  useEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
  }, [theme]);
  return (
    <label class="theme">
      <span class="hidden">Colours</span>
      <select value={theme} onChange={(event) => setTheme(event.currentTarget.value)}>
        {THEMES.map(({ id, label }) => (
          <option key={id} value={id}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

function Where({ session, isReachable }: { session: Session; isReachable: boolean }) {
  const { leader } = session;
  if (!isReachable) {
    return (
      <div class="where" role="status">
        <Dot state="failed" /> cannot be reached; trying again
      </div>
    );
  }
  if (!leader) return <div class="where">…</div>;
  const state = leader.address === null ? 'failed' : leader.role === 'leader' ? 'succeeded' : 'queued';
  return (
    <div class="where" data-testid="leader">
      <Dot state={state} />
      <span class="role">{leader.role ?? 'unknown'}</span>
      {leader.address === null ? (
        <span>nobody leads</span>
      ) : (
        <span class="cut">
          {leader.role !== 'leader' && <span class="soft">leader </span>}
          {leader.node_id ?? leader.address} <span class="soft">epoch</span> {leader.epoch}
        </span>
      )}
      {leader.role === 'observer' && <span class="soft">as of {duration(leader.staleness_ms)} ago</span>}
    </div>
  );
}

function Notice({ session }: { session: Session }) {
  const { leader } = session;
  if (leader?.role === 'observer') {
    return (
      <p class="notice" data-testid="read-only">
        This is an observer: it shows a copy of what the leader knows, and changes nothing. The leader is at{' '}
        <code>{leader.address ?? 'an unknown address'}</code>.
      </p>
    );
  }
  if (leader?.role === 'standby') {
    return (
      <p class="notice" data-testid="read-only">
        This coordinator stands by and knows nothing of running jobs. The leader{' '}
        {leader.node_id !== null && <code>{leader.node_id}</code>} answers clients and workers at{' '}
        <code>{leader.address ?? 'an unknown address'}</code>; its dashboard is at the HTTP address that it was started with.
      </p>
    );
  }
  return null;
}

function Frame({ current, session, isReachable, children }: { current: string; session: Session; isReachable: boolean; children: ComponentChildren }) {
  const main = useRef<HTMLElement>(null);
  return (
    <div class="frame">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        To the content
      </a>
      <header class="top">
        <a class="brand" href="#/">
          <img src="/icon.svg" alt="" width="22" height="22" />
          Capstan
        </a>
        <nav aria-label="Pages">
          {PAGES.map(({ id, label, icon }) => (
            <a key={id} href={`#/${id}`} aria-current={current === id ? 'page' : undefined}>
              <Icon d={icon} />
              <span>{label}</span>
            </a>
          ))}
        </nav>
        <Where session={session} isReachable={isReachable} />
        <Theme />
        {token.get() && (
          <button
            class="button is-quiet is-small"
            onClick={() => {
              token.forget();
              location.reload();
            }}
          >
            Sign out
          </button>
        )}
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <Notice session={session} />
        {children}
      </main>
    </div>
  );
}

export function App() {
  const route = useRoute();
  const [isRefused, setRefused] = useState(false);
  const leader = useResource('leader', (signal) => api.leader(signal), { everyMs: 2000 });
  const page = route.parts[0] ?? '';
  const current = PAGES.some(({ id }) => id === page) ? page : '';
  useEffect(() => token.whenRefused(() => setRefused(true)), []);
  useEffect(() => {
    const label = PAGES.find(({ id }) => id === page)?.label ?? 'Capstan';
    document.title = `${route.parts[1] ?? label} · Capstan`;
  }, [page, route.parts[1]]);

  if (isRefused) return <Login onDone={() => setRefused(false)} />;
  const session = sessionOf(leader.value);
  const isReachable = leader.error === undefined || leader.error.status !== 0;
  return (
    <SessionContext.Provider value={session}>
      <Frame current={current} session={session} isReachable={isReachable}>
        {page === '' && <OverviewPage />}
        {page === 'jobs' && route.parts[1] === undefined && <JobsPage values={route.values} />}
        {page === 'jobs' && route.parts[1] !== undefined && <JobPage key={route.parts[1]} id={route.parts[1]} />}
        {page === 'nodes' && <NodesPage />}
        {page === 'events' && <EventsPage values={route.values} />}
        {page === 'sql' && <ConsolePage jobId={route.values.get('job') ?? undefined} />}
        {!PAGES.some(({ id }) => id === page) && <p class="empty">There is no such page.</p>}
      </Frame>
    </SessionContext.Provider>
  );
}

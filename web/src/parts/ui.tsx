// Small pieces that all pages are made of.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api';

export function Badge({ state }: { state: string }) {
  return <span class={`badge is-${state}`}>{state}</span>;
}

export function Dot({ state, label }: { state: string; label?: string }) {
  return <span class={`dot is-${state}`} role={label ? 'img' : undefined} aria-label={label} aria-hidden={!label} />;
}

export function Failure({ error, what }: { error: ApiError | Error; what?: string }) {
  const { detail, hint } = error instanceof ApiError ? error : { detail: null, hint: null };
  return (
    <div class="notice is-bad" role="alert">
      <strong>{what ?? 'That did not work'}:</strong> {error.message}
      {detail && <pre class="message">{detail}</pre>}
      {hint && <div class="hint">{hint}</div>}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Card(props: { title: string; isMain?: boolean; extra?: ComponentChildren; class?: string; children: ComponentChildren }) {
  const Title = props.isMain ? 'h1' : 'h2';
  return (
    <section class={`card ${props.class ?? ''}`} aria-label={props.title}>
      <header>
        <Title>{props.title}</Title>
        {props.extra && <div class="extra">{props.extra}</div>}
      </header>
      {props.children}
    </section>
  );
}

interface ActionProps {
  children: ComponentChildren;
  onAct: () => Promise<unknown> | void;
  confirm?: string;
  class?: string;
  disabled?: boolean;
  title?: string | undefined;
}

// A button whose work takes a moment, or that asks first: the question takes its place.
export function Action({ children, onAct, confirm, class: kind = '', disabled = false, title }: ActionProps) {
  const [phase, setPhase] = useState<'idle' | 'asking' | 'busy'>('idle');
  const [error, setError] = useState<Error>();
  const yes = useRef<HTMLButtonElement>(null);
  const first = useRef<HTMLButtonElement>(null);
  const act = async () => {
    setPhase('busy');
    setError(undefined);
    try {
      await onAct();
    } catch (caught) {
      setError(caught as Error);
    }
    setPhase('idle');
  };
  useEffect(() => {
    if (phase === 'asking') yes.current?.focus();
  }, [phase]);
  const back = () => {
    setPhase('idle');
    requestAnimationFrame(() => first.current?.focus());
  };
  if (phase === 'asking') {
    return (
      <span class="asking" role="group" aria-label={confirm} onKeyDown={(event) => event.key === 'Escape' && back()}>
        <span>{confirm}</span>
        <button ref={yes} class="button is-danger" onClick={act}>
          Yes
        </button>
        <button class="button" onClick={back}>
          No
        </button>
      </span>
    );
  }
  return (
    <span class="action">
      <button
        ref={first}
        class={`button ${kind}`}
        disabled={disabled || phase === 'busy'}
        title={title}
        onClick={confirm ? () => setPhase('asking') : act}
      >
        {children}
      </button>
      {error && (
        <span class="action-error" role="alert">
          {error.message}
        </span>
      )}
    </span>
  );
}

// Copies a text. Where a page may not (it is not secure), the text can still be selected.
export function Copy({ text, label }: { text: string; label: string }) {
  const [isDone, setDone] = useState(false);
  if (!navigator.clipboard) return null;
  return (
    <button
      class="button is-quiet is-small"
      aria-label={label}
      title={label}
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          setDone(true);
          window.setTimeout(() => setDone(false), 1200);
        });
      }}
    >
      {isDone ? 'copied' : 'copy'}
    </button>
  );
}

export interface Option {
  value: string;
  label: string;
  count?: number | undefined;
}

// A choice of a few, as radio buttons that look like one strip.
export function Choice(props: { label: string; options: Option[]; value: string; onChange: (value: string) => void }) {
  return (
    <div class="choice" role="radiogroup" aria-label={props.label}>
      {props.options.map(({ value, label, count }) => (
        <label key={value} class={value === props.value ? 'is-on' : ''}>
          <input
            type="radio"
            name={props.label}
            value={value}
            checked={value === props.value}
            onChange={() => props.onChange(value)}
          />
          {label}
          {count !== undefined && <span class="count">{count}</span>}
        </label>
      ))}
    </div>
  );
}

export interface Tab {
  id: string;
  label: string;
}

export function Tabs(props: { label: string; tabs: Tab[]; value: string; onChange: (id: string) => void }) {
  const strip = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    const at = props.tabs.findIndex(({ id }) => id === props.value);
    const next = props.tabs[(at + step + props.tabs.length) % props.tabs.length]!;
    props.onChange(next.id);
    requestAnimationFrame(() => strip.current?.querySelector<HTMLElement>('[aria-selected=true]')?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={props.label} ref={strip} onKeyDown={move}>
      {props.tabs.map(({ id, label }) => (
        <button
          key={id}
          role="tab"
          id={`tab-${id}`}
          aria-selected={id === props.value}
          aria-controls={`panel-${id}`}
          tabIndex={id === props.value ? 0 : -1}
          onClick={() => props.onChange(id)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ id, children }: { id: string; children: ComponentChildren }) {
  return (
    <div role="tabpanel" id={`panel-${id}`} aria-labelledby={`tab-${id}`} class="panel">
      {children}
    </div>
  );
}

// A bar of parts of a whole.
export function Bar({ parts, total, label }: { parts: { state: string; n: number }[]; total: number; label: string }) {
  return (
    <div class="bar" role="img" aria-label={label} title={label}>
      {parts
        .filter(({ n }) => n > 0)
        .map(({ state, n }) => (
          <span key={state} class={`is-${state}`} style={{ flexGrow: n, flexBasis: 0 }} />
        ))}
      {total > parts.reduce((sum, { n }) => sum + n, 0) && (
        <span class="is-rest" style={{ flexGrow: total - parts.reduce((sum, { n }) => sum + n, 0), flexBasis: 0 }} />
      )}
    </div>
  );
}

// A small line of the last values.
export function Spark({ values, label }: { values: number[]; label: string }) {
  const [width, height] = [240, 44];
  const top = Math.max(1, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${(height - 2 - (value / top) * (height - 6)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {points.length > 1 && (
        <>
          <polygon points={`0,${height} ${points.join(' ')} ${width},${height}`} />
          <polyline points={points.join(' ')} />
        </>
      )}
    </svg>
  );
}

// A text area with colours: the words lie behind it, the text area itself is transparent.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { wordsOf } from './sql';

const COLORED_MAX = 20_000; // longer statements stay plain, so that typing stays quick

export function Colored({ sql }: { sql: string }) {
  const words = useMemo(() => (sql.length > COLORED_MAX ? [] : wordsOf(sql)), [sql]);
  if (sql.length > COLORED_MAX) return <>{sql}</>;
  return (
    <>
      {words.map(({ kind, text }, i) =>
        kind === 'space' || kind === 'sign' || kind === 'name' ? text : <span key={i} class={`sql-${kind}`}>{text}</span>,
      )}
    </>
  );
}

interface Props {
  value: string;
  onChange: (value: string) => void;
  onRun: () => void;
  label: string;
}

export function Editor({ value, onChange, onRun, label }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const behind = useRef<HTMLPreElement>(null);
  const follow = () => {
    behind.current!.scrollTop = area.current!.scrollTop;
    behind.current!.scrollLeft = area.current!.scrollLeft;
  };
  useEffect(follow, [value]);
  const press = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onRun();
    }
  };
  return (
    <div class="editor">
      <pre ref={behind} aria-hidden="true">
        <code>
          <Colored sql={value} />
          {'\n'}
        </code>
      </pre>
      <textarea
        ref={area}
        value={value}
        aria-label={label}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        wrap="off"
        rows={8}
        onInput={(event) => onChange(event.currentTarget.value)}
        onKeyDown={press}
        onScroll={follow}
      />
    </div>
  );
}

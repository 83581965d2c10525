// The workers: how busy they are, what they can do, and who gets no tasks.
import { api, type Node } from '../api';
import { ago, plural } from '../format';
import { useEvents, useNow, useResource } from '../hooks';
import { Action, Badge, Bar, Card, Empty, Failure } from '../parts/ui';
import { useSession } from '../session';

const show = (value: unknown) => (typeof value === 'string' || typeof value === 'number' ? String(value) : JSON.stringify(value));

function NodeCard({ node, now, onDone }: { node: Node; now: number; onDone: () => void }) {
  const { canWrite, whyNot } = useSession();
  const set = (what: 'drain' | 'undrain' | 'clear') => async () => {
    await api.setNode(node.worker_id, what);
    onDone();
  };
  const state = node.status !== 'healthy' ? node.status : node.blacklisted ? 'blacklisted' : node.draining ? 'draining' : 'healthy';
  return (
    <article class="card node" aria-label={`Worker ${node.worker_id}`} data-worker={node.worker_id}>
      <header>
        <h2>{node.worker_id}</h2>
        <span class="badges">
          <Badge state={node.status} />
          {node.blacklisted && <Badge state="blacklisted" />}
          {node.draining && <Badge state="draining" />}
        </span>
      </header>
      <div class="node-load">
        <Bar parts={[{ state: 'running', n: Math.min(node.running_tasks, node.slots) }]} total={node.slots} label={`${node.running_tasks} of ${plural(node.slots, 'slot')} busy`} />
        <span>
          {node.running_tasks} <span class="soft">of {plural(node.slots, 'slot')}</span>
        </span>
      </div>
      <dl class="facts">
        <dt>Address</dt>
        <dd>{node.address ?? '–'}</dd>
        <dt>Seen</dt>
        <dd>{ago(node.last_seen_ms, now)}</dd>
        <dt>Failures</dt>
        <dd>{node.failures}</dd>
        <dt>Version</dt>
        <dd>{node.version ?? '–'}</dd>
        <dt>Executors</dt>
        <dd>{node.executor_types.map((name) => <span key={name} class="chip">{name}</span>)}</dd>
        {Object.keys(node.capabilities).length > 0 && (
          <>
            <dt>Capabilities</dt>
            <dd>
              {Object.entries(node.capabilities).map(([name, value]) => (
                <span key={name} class="chip">
                  <span class="soft">{name}</span> {show(value)}
                </span>
              ))}
            </dd>
          </>
        )}
        {node.custom_operator_capabilities.length > 0 && (
          <>
            <dt>Operators</dt>
            <dd>{node.custom_operator_capabilities.map((name) => <span key={name} class="chip">{name}</span>)}</dd>
          </>
        )}
      </dl>
      <footer class="row">
        {node.draining ? (
          <Action onAct={set('undrain')} disabled={!canWrite} title={whyNot}>
            Give tasks again
          </Action>
        ) : (
          <Action onAct={set('drain')} confirm={`Drain ${node.worker_id}?`} disabled={!canWrite || node.status === 'dead'} title={whyNot}>
            Drain
          </Action>
        )}
        {node.blacklisted && (
          <Action onAct={set('clear')} disabled={!canWrite} title={whyNot}>
            Clear blacklisting
          </Action>
        )}
        <span class="hidden">{state}</span>
      </footer>
    </article>
  );
}

export function NodesPage() {
  const nodes = useResource('nodes', (signal) => api.nodes(signal), { everyMs: 2000 });
  const live = useEvents({ last: 1 }, () => nodes.refresh());
  const now = useNow(true);
  const list = nodes.value?.nodes;
  const slots = list?.reduce((sum, node) => sum + (node.status === 'healthy' ? node.slots : 0), 0) ?? 0;
  const busy = list?.reduce((sum, node) => sum + (node.status === 'healthy' ? Math.min(node.running_tasks, node.slots) : 0), 0) ?? 0;
  return (
    <>
      <Card
        title="Nodes"
        isMain
        extra={
          <>
            {list && (
              <span class="soft">
                {plural(list.length, 'node')}, {busy} of {plural(slots, 'slot')} busy
              </span>
            )}
            <span class={`live is-${live}`}>{live}</span>
          </>
        }
      >
        {nodes.error && !list && <Failure error={nodes.error} what="Nodes cannot be listed" />}
        {list && list.length === 0 && (
          <Empty>
            No worker has joined. <code>capstan worker --join HOST:PORT</code> starts one.
          </Empty>
        )}
      </Card>
      <div class="node-list">{list?.map((node) => <NodeCard key={node.worker_id} node={node} now={now} onDone={nodes.refresh} />)}</div>
    </>
  );
}

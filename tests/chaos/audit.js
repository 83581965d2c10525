// audit.js - what the leaders write, as the database sees it.
//
// Triggers note every row of the tables that the checker follows, in the transaction that writes it: by which process
// (each has an application_name of its own), and who led, in which epoch, at that moment. Of all others that only a leader
// writes, they note once per transaction that one was written to, without its rows. So the history has every commit, and
// nothing that was rolled back. This is the test's own schema in the same database; Capstan knows nothing of it.

export const kept = {
  jobs: ['job_id', 'kind', 'state', 'parent_job_id'],
  tasks: ['job_id', 'stage', 'task', 'state', 'outcome', 'attempt_id', 'failures', 'last_assigned_node'],
  task_leases: ['job_id', 'stage', 'task', 'attempt_id', 'lease_token', 'node_id'],
  execution_idempotency: ['job_id', 'stage', 'task', 'attempt_id', 'node_id', 'status'],
};

const trigger = (table, op) => {
  const rows = op === 'DELETE' ? 'old' : 'new';
  const row = kept[table].map((column) => `'${column}', x.${column}`).join(', ');
  const name = `${table}_${op.toLowerCase()}`;
  return `
    CREATE FUNCTION chaos.${name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO chaos.audit (leader, epoch, tbl, op, row)
      SELECT l.node_id, l.epoch, '${table}', '${op}', jsonb_build_object(${row})
      FROM these x, capstan.cluster_leader l WHERE l.id = 1;
      RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_${name} AFTER ${op} ON capstan.${table}
      REFERENCING ${rows} TABLE AS these FOR EACH STATEMENT EXECUTE FUNCTION chaos.${name}();`;
};

// The inbox is none of these: applications write to it.
const noted = ['stages', 'map_outputs', 'results', 'payloads', 'distributed_nodes', 'task_events', 'data_sets'];

const notes = `
  CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    IF current_setting('chaos.noted', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
      PERFORM set_config('chaos.noted', pg_current_xact_id()::text, true);
      INSERT INTO chaos.audit (leader, epoch, tbl, op, row)
      SELECT l.node_id, l.epoch, TG_TABLE_NAME, TG_OP, '{}' FROM capstan.cluster_leader l WHERE l.id = 1;
    END IF;
    RETURN NULL;
  END $$;
  ${noted
    .map(
      (table) =>
        `CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE OR DELETE ON capstan.${table} EXECUTE FUNCTION chaos.note();`,
    )
    .join('\n')}`;

export const auditSql = `
  CREATE SCHEMA chaos;
  CREATE TABLE chaos.audit (
    n bigserial PRIMARY KEY,
    xid text NOT NULL DEFAULT pg_current_xact_id()::text,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    app text NOT NULL DEFAULT current_setting('application_name'),
    leader text, epoch bigint, tbl text NOT NULL, op text NOT NULL, row jsonb NOT NULL);
  CREATE FUNCTION chaos.took_over() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.audit (leader, epoch, tbl, op, row)
    VALUES (NEW.node_id, NEW.epoch, 'cluster_leader', TG_OP, jsonb_build_object('node_id', NEW.node_id, 'epoch', NEW.epoch));
    RETURN NULL;
  END $$;
  CREATE TRIGGER chaos_took_over AFTER UPDATE ON capstan.cluster_leader
    FOR EACH ROW WHEN (OLD.epoch IS DISTINCT FROM NEW.epoch) EXECUTE FUNCTION chaos.took_over();
  ${Object.keys(kept)
    .flatMap((table) => ['INSERT', 'UPDATE', 'DELETE'].map((op) => trigger(table, op)))
    .join('\n')}
  ${notes}`;

// What the checker needs of the database at the end.
export const stateQueries = {
  jobs: 'SELECT job_id, kind, state, parent_job_id, message FROM capstan.jobs',
  stages: `SELECT s.job_id, s.stage, s.name FROM capstan.stages s JOIN capstan.jobs j USING (job_id) WHERE j.kind = 1`,
  tasks: `SELECT t.job_id, t.stage, t.task, t.state, t.outcome, t.attempt_id, t.failures, t.last_assigned_node, t.message,
      CASE WHEN j.kind = 1 THEN convert_from(p.bytes, 'UTF8') END AS result
    FROM capstan.tasks t JOIN capstan.jobs j USING (job_id)
    LEFT JOIN capstan.payloads p ON p.job_id = t.job_id AND p.digest = t.result`,
  task_leases: 'SELECT job_id, stage, task, attempt_id, node_id FROM capstan.task_leases',
  execution_idempotency: `SELECT job_id, stage, task, attempt_id, encode(idempotency_key, 'hex') AS key, node_id, status,
      created_at_ms, changed_at_ms FROM capstan.execution_idempotency`,
  task_events: `SELECT seq, at_ms, event_type, job_id, stage, task, attempt_id, node_id, details FROM capstan.task_events
    ORDER BY seq`,
};
export const auditQuery =
  'SELECT n, xid, (extract(epoch FROM at) * 1000)::bigint AS at, app, leader, epoch, tbl AS table, op, row FROM chaos.audit ORDER BY n';

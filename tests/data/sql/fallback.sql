-- Queries that are one task, whatever is forced, since tasks could not share them, or SQL cannot say what the plan of DuckDB
-- does; fallback.txt has the reasons. Those of wide.sql are in single.txt, and both count for the tenth that may be one task.
-- `{ugly}` has files that only its maker knows of.

-- name: encrypted-parquet
SELECT cls, count(*), max(k) FROM read_parquet('{ugly}/secret.parquet', encryption_config = {footer_key_value: '0123456789112345'}) GROUP BY cls;

-- name: encrypted-parquet-join
SELECT f.id, s.name FROM facts f JOIN read_parquet('{ugly}/secret.parquet', encryption_config = {footer_key_value: '0123456789112345'}) s ON f.k = s.k WHERE f.id < 1000;

-- name: local-database
SELECT cls, count(*), max(k) FROM '{ugly}/local.duckdb' GROUP BY cls;

-- name: file-with-row-numbers-of-its-own
SELECT k % 10 AS m, sum(file_row_number), count(*) FROM '{ugly}/numbered.parquet' GROUP BY m;

-- name: file-with-column-of-its-folder
SELECT cls, count(*), max(k) FROM '{ugly}/by-class/*/*.parquet' GROUP BY cls;

-- name: rows-in-correlated-subquery
SELECT d.name, (d.cls, d.k) IN (SELECT (f.small, f.unsig) FROM facts f WHERE f.k = d.k) AS x FROM dims d;

-- name: rows-not-in-correlated-subquery
SELECT d.name FROM dims d WHERE (d.cls, d.k % 7) NOT IN (SELECT (f.small, f.unsig % 7) FROM facts f WHERE f.k = d.k) OR d.k = 3;

-- name: structs-by-order-in-correlated-subquery
SELECT d.name, {'a': d.k, 'b': d.cls} > ANY (SELECT {'a': f.k, 'b': f.small::BIGINT} FROM facts f WHERE f.k = d.k) AS x FROM dims d;

-- name: range-frame-over-sum
SELECT id, count(*) OVER (PARTITION BY k ORDER BY id + 1 RANGE BETWEEN 100 PRECEDING AND 200 FOLLOWING) FROM facts WHERE id < 3000;

-- name: cast-to-nested-enum
SELECT k, ['low']::ENUM('low', 'high')[], NULL::STRUCT(a ENUM('x')) FROM facts WHERE id < 100;

-- name: current-query
SELECT count(*) FROM facts GROUP BY current_query();

-- name: current-query-id
SELECT count(DISTINCT i) FROM (SELECT current_query_id() AS i FROM facts);

-- name: current-transaction-id
SELECT count(DISTINCT t) FROM (SELECT current_transaction_id() AS t FROM facts);

-- name: current-connection-id
SELECT count(*) FROM (SELECT DISTINCT current_connection_id(), d.k FROM facts f JOIN dims d ON f.k = d.k);

-- name: stats
SELECT count(DISTINCT x) FROM (SELECT stats(id) AS x FROM facts);

-- name: vector-type
SELECT count(DISTINCT x) FROM (SELECT vector_type(id) AS x FROM facts);

-- name: geometry-of-files
SELECT v, max(ST_AsText(g)) FROM '{ugly}/places.parquet' GROUP BY v;

-- name: geometry-of-files-in-a-condition
SELECT v, count(*) FROM '{ugly}/places.parquet' WHERE ST_AsText(g) LIKE '%7%' GROUP BY v;

-- name: variant-of-files
SELECT v, max(w::BIGINT) FROM '{ugly}/places.parquet' GROUP BY v;

-- name: geometry
SELECT count(DISTINCT ('POINT(' || (k // 10) || repeat(' ', (k % 3 + 1)::INTEGER) || '2)')::GEOMETRY) FROM facts WHERE k BETWEEN 1 AND 2000;

-- A schema in which everything is uneven: NULLs, NaN, infinities, both zeros, empty tables, one huge group, texts of all
-- kinds, every type, nested types, time zones, hive partitions, files with different columns, tiny row groups, CSV, JSON.
-- The same input gives the same rows, on every machine.
--
-- Set before: variables folder (exists), rows (of the table facts; 20,000 is enough to have everything in it).

SET TimeZone = 'UTC';
CREATE OR REPLACE TEMP MACRO pick(seed, key, n) AS CAST(hash(key, seed) % CAST(n AS UBIGINT) AS BIGINT);
CREATE OR REPLACE TEMP MACRO word(seed, key, words) AS words[pick(seed, key, len(words)) + 1];

-- Half of all rows have the same key; every tenth has none.
CREATE OR REPLACE TEMP TABLE facts AS
SELECT i AS id,
       CASE WHEN i % 10 = 3 THEN NULL WHEN i % 2 = 0 THEN 7 ELSE CAST(pick('k', i, 500) AS INTEGER) END AS k,
       CASE WHEN i % 17 = 0 THEN NULL ELSE CAST(pick('b', i, 10) - 5 AS TINYINT) END AS small,
       CAST(pick('u', i, 60000) AS USMALLINT) AS unsig,
       CASE WHEN i % 13 = 0 THEN NULL ELSE pick('big', i, 1000000000000) * (1 - 2 * (i % 2)) END AS big,
       CAST(i AS HUGEINT) * 100000000000000000000 AS huge,
       CASE i % 9 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE WHEN 2 THEN 'inf'::DOUBLE WHEN 3 THEN '-inf'::DOUBLE
                  WHEN 4 THEN -0.0::DOUBLE WHEN 5 THEN 0.0::DOUBLE ELSE pick('d', i, 1000) / 8 END AS dbl,
       CAST(pick('f', i, 1000) / 4 AS FLOAT) AS flt,
       CASE WHEN i % 11 = 0 THEN NULL ELSE CAST(pick('n', i, 2000001) - 1000000 AS DECIMAL(12, 3)) / 1000 END::DECIMAL(12, 3) AS price,
       CAST(pick('w', i, 1000000) AS DECIMAL(30, 10)) AS wide,
       word('t', i, [NULL, '', ' ', 'a', 'A', 'ä', 'zürich', '日本語', '🚀 go', 'o''clock', 'semi;colon', 'tab	x', 'back\slash',
                     '100%', 'under_score', 'a long text that does not fit into twelve bytes']) AS txt,
       CASE WHEN i % 7 = 0 THEN NULL ELSE i % 3 = 0 END AS flag,
       CASE WHEN i % 19 = 0 THEN NULL WHEN i % 97 = 0 THEN 'infinity'::DATE ELSE DATE '1999-12-25' + CAST(pick('day', i, 400) AS INTEGER) END AS day,
       TIMESTAMP '2000-01-01 00:00:00' + to_microseconds(pick('ts', i, 1000000000000)) AS ts,
       CASE WHEN i % 23 = 0 THEN NULL ELSE TIMESTAMPTZ '2020-03-29 00:30:00+00' + to_minutes(pick('tz', i, 100000)) END AS tstz,
       TIME '00:00:00' + to_seconds(pick('tm', i, 86400)) AS tm,
       to_days(CAST(pick('iv', i, 40) AS INTEGER)) + to_months(CAST(pick('im', i, 3) AS INTEGER)) AS span,
       CASE WHEN i % 5 = 0 THEN NULL ELSE encode(word('bl', i, ['', 'x', 'xyz', 'ÿ'])) END AS bin,
       CAST(format('00000000-0000-4000-8000-{:012d}', pick('uu', i, 1000)) AS UUID) AS uid,
       CASE WHEN i % 6 = 0 THEN NULL ELSE CAST(word('e', i, ['low', 'mid', 'high']) AS ENUM('low', 'mid', 'high')) END AS level,
       CASE WHEN i % 8 = 0 THEN NULL WHEN i % 8 = 1 THEN [] ELSE [pick('l1', i, 5), NULL, pick('l2', i, 5)] END AS list,
       CASE WHEN i % 12 = 0 THEN NULL ELSE {'a': pick('s1', i, 4), 'b': word('s2', i, ['x', 'y', NULL]), 'in': {'deep': i % 3}} END AS obj,
       MAP {'one': pick('m1', i, 3), 'two': NULL} AS map,
       [i % 2, i % 3, i % 5]::INTEGER[3] AS arr,
       json_object('k', i % 4, 'v', word('j', i, ['p', 'q'])) AS js
FROM (SELECT unnest(range(getvariable('rows'))) AS i);

CREATE OR REPLACE TEMP TABLE dims AS
SELECT CASE WHEN i % 25 = 24 THEN NULL ELSE CAST(i AS INTEGER) END AS k, 'name ' || i AS name, i % 4 AS cls,
       CASE WHEN i % 3 = 0 THEN NULL ELSE i / 2 END AS score, DATE '1999-12-01' + CAST(i AS INTEGER) AS since
FROM range(300) r(i);

COPY (FROM facts WHERE id % 3 = 0 ORDER BY id) TO (getvariable('folder') || '/facts-0.parquet') (FORMAT parquet, ROW_GROUP_SIZE 2048);
COPY (FROM facts WHERE id % 3 = 1 ORDER BY id) TO (getvariable('folder') || '/facts-1.parquet') (FORMAT parquet, ROW_GROUP_SIZE 2048);
COPY (FROM facts WHERE id % 3 = 2 ORDER BY id) TO (getvariable('folder') || '/facts-2.parquet') (FORMAT parquet, ROW_GROUP_SIZE 2048);
-- Small, but in three files, so that several tasks share it. Of rows whose k differs by 100 each file has one.
COPY (FROM dims WHERE (since - DATE '1999-12-01') % 3 = 0 ORDER BY name) TO (getvariable('folder') || '/dims-0.parquet') (FORMAT parquet);
COPY (FROM dims WHERE (since - DATE '1999-12-01') % 3 = 1 ORDER BY name) TO (getvariable('folder') || '/dims-1.parquet') (FORMAT parquet);
COPY (FROM dims WHERE (since - DATE '1999-12-01') % 3 = 2 ORDER BY name) TO (getvariable('folder') || '/dims-2.parquet') (FORMAT parquet);
COPY (FROM facts WHERE false) TO (getvariable('folder') || '/none.parquet') (FORMAT parquet);
COPY (SELECT * FROM dims WHERE k = 5) TO (getvariable('folder') || '/one.parquet') (FORMAT parquet);
COPY (SELECT id, k, txt, day, CAST(year(day) AS INTEGER) AS y, lpad(CAST(month(day) AS VARCHAR), 2, '0') AS mon FROM facts
      WHERE day IS NOT NULL AND isfinite(day)) TO (getvariable('folder') || '/hive') (FORMAT parquet, PARTITION_BY (y, mon), OVERWRITE_OR_IGNORE);
COPY (SELECT i AS a, 'x' || i AS b FROM range(100) r(i)) TO (getvariable('folder') || '/mixed-0.parquet') (FORMAT parquet);
COPY (SELECT 'y' || i AS b, i * 1.5 AS c, i::INTEGER AS a FROM range(50) r(i)) TO (getvariable('folder') || '/mixed-1.parquet') (FORMAT parquet);
-- The types of columns, and their order, drift from file to file; all files are read as the first one is. The casts lose
-- nothing: DuckDB 1.5.6 compares with constants before it casts, and so finds other rows than those that it shows otherwise.
COPY (SELECT id, k, day, txt, CAST(pick('n', id, 150) AS BIGINT) AS n, CAST(pick('p', id, 800) AS DECIMAL(12, 3)) / 8 AS x,
             CAST(pick('a', id, 24000) / 8 AS DECIMAL(12, 3)) AS price, ts, list, CAST(pick('d', id, 90) AS INTEGER) AS small
      FROM facts WHERE id < 1200 ORDER BY id) TO (getvariable('folder') || '/drift-0.parquet') (FORMAT parquet, ROW_GROUP_SIZE 512);
COPY (SELECT CAST(k AS SMALLINT) AS k, CAST(id AS INTEGER) AS id, CAST(day AS TIMESTAMP) AS day, unsig AS txt,
             CAST(pick('n', id, 150) AS DOUBLE) AS n, CAST(pick('p', id, 100) AS INTEGER) AS x, CAST(pick('a', id, 24000) / 8 AS DOUBLE) AS price,
             CAST(ts AS VARCHAR) AS ts, CAST(list AS INTEGER[]) AS list, pick('d', id, 90) AS small, flag AS more
      FROM facts WHERE id BETWEEN 1200 AND 2000 AND isfinite(coalesce(day, DATE '2000-01-01')) ORDER BY id)
TO (getvariable('folder') || '/drift-1.parquet') (FORMAT parquet, ROW_GROUP_SIZE 512);
COPY (SELECT id, CAST(k AS DOUBLE) AS k, CAST(day AS VARCHAR) AS day, day AS txt, CAST(pick('n', id, 150) AS UTINYINT) AS n,
             CAST(pick('p', id, 800) / 8 AS FLOAT) AS x, CAST(pick('a', id, 24000) / 8 AS DECIMAL(18, 5)) AS price, ts, list,
             CAST(pick('d', id, 90) AS VARCHAR) AS small
      FROM facts WHERE id BETWEEN 2001 AND 2600 ORDER BY id) TO (getvariable('folder') || '/drift-2.parquet') (FORMAT parquet, ROW_GROUP_SIZE 512);
COPY (SELECT id, k, txt, price, day FROM facts WHERE id < 3000 ORDER BY id) TO (getvariable('folder') || '/facts.csv') (HEADER, DELIMITER '|');
COPY (SELECT id, k, txt, list, obj FROM facts WHERE id < 2000 ORDER BY id) TO (getvariable('folder') || '/facts.json');
COPY (SELECT i, 'é' || i AS s FROM range(1000) r(i)) TO (getvariable('folder') || '/plain.csv') (HEADER);
-- Of the first file alone, one would say that code is a number. The uneven ones have quotes in the last of them only.
COPY (SELECT i AS id, i % 17 AS k, i AS code, if(i % 10 = 0, '"', 'n') || i AS name FROM range(700) r(i)) TO (getvariable('folder') || '/shared-0.csv') (HEADER);
COPY (SELECT i AS id, i % 17 AS k, i + 0.5 AS code, if(i % 10 = 0, '"', NULL) || i AS name FROM range(700, 800) r(i)) TO (getvariable('folder') || '/shared-1.csv') (HEADER);
COPY (SELECT i AS id, i % 17 AS k, '0' || i AS code, '"' || i AS name FROM range(800, 2000) r(i)) TO (getvariable('folder') || '/shared-2.csv') (HEADER);
COPY (SELECT i AS id, 'n' || i AS name FROM range(700) r(i)) TO (getvariable('folder') || '/uneven-0.csv') (HEADER);
COPY (SELECT i AS id, '"' || i AS name FROM range(700, 800) r(i)) TO (getvariable('folder') || '/uneven-1.csv') (HEADER);
COPY (SELECT id, k, txt, list FROM facts WHERE id < 500 ORDER BY id) TO (getvariable('folder') || '/shared-0.json');
COPY (SELECT id, k, txt, 'more' AS extra FROM facts WHERE id BETWEEN 500 AND 900 ORDER BY id) TO (getvariable('folder') || '/shared-1.json');
-- Columns that cannot go from stage to stage, or out, beside others.
COPY (SELECT i AS id, i % 7 AS v, ('POINT(' || i || ' 2)')::GEOMETRY AS g, 'n' || i AS n, i::VARIANT AS w FROM range(9000) r(i))
TO (getvariable('folder') || '/places.parquet') (FORMAT parquet, ROW_GROUP_SIZE 2048);

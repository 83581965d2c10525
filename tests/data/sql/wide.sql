-- Queries over all features of the dialect, on the tables of generate-tpch.sql and generate-ugly.sql. `{ugly}` is the
-- folder of the latter. `ordered` means that the order of the result is part of the answer; `volatile`, that each run has
-- another one, and only the types are compared; `volatile counted`, that each run has other rows, but always as many;
-- `empty`, that it has no rows, which no other query may be without; `fileless`, that it reads no files, so that there is
-- nothing to share out: it names none, or has no rows whatever is in them, or asks for names of columns.

-- name: constant fileless
SELECT 42;

-- name: constants-of-all-types
SELECT true, 1::TINYINT, -2::SMALLINT, 3, -4::BIGINT, 170141183460469231731687303715884105727::HUGEINT, -5::HUGEINT,
       1::UTINYINT, 2::USMALLINT, 3::UINTEGER, 18446744073709551615::UBIGINT,
       340282366920938463463374607431768211455::UHUGEINT, 0.1::FLOAT, 0.1::DOUBLE, 'nan'::DOUBLE, '-inf'::DOUBLE,
       -0.0::DOUBLE, 1.50::DECIMAL(9,2), -12345678901234567890.12::DECIMAL(38,2), 0.001::DECIMAL(3,3), 'text', 'o''clock',
       NULL, NULL::DATE FROM dims WHERE k % 100 = 5;

-- name: constants-of-time
SELECT DATE '2020-02-29', DATE '0044-03-15 (BC)', 'infinity'::DATE, '-infinity'::DATE, TIME '23:59:59.999999',
       '01:02:03.123456789'::TIME_NS, '12:00:00+05:30'::TIMETZ, '12:00:00-11:59:59'::TIMETZ, TIMESTAMP '1969-12-31 23:59:59.5',
       'infinity'::TIMESTAMP, TIMESTAMP_S '2020-01-01 00:00:01', TIMESTAMP_MS '2020-01-01 00:00:00.123',
       TIMESTAMP_NS '2020-01-01 00:00:00.123456789', TIMESTAMPTZ '2020-01-01 12:00:00+02', INTERVAL '1 year 2 months 3 days 4.5 seconds',
       INTERVAL '-5 minutes' FROM dims WHERE k % 100 = 5;

-- name: constants-nested
SELECT [1, NULL, 3], [], ['a'], [[1], []], {'a': 1, 'b': [DATE '2020-01-01']}, MAP {'k': 1, 'l': NULL}, MAP {1: ['x']},
       [1, 2, 3]::INTEGER[3], union_value(n := 5), {'it''s': {'in "quotes"': 1}}, '\x00\xFF'::BLOB,
       '6d3d1a80-1234-4000-8000-0123456789ab'::UUID, 'mid'::ENUM('low', 'mid', 'high'), '{"a": [1]}'::JSON FROM dims WHERE k % 100 = 5;

-- name: constant-with-nul
SELECT 'a' || chr(0) || 'b' AS x, length('a' || chr(0) || 'b') FROM dims WHERE name LIKE 'name 1__' OR name = 'x' || chr(0);

-- name: constant-row
SELECT row(1, 'a'), row(k, name) FROM dims WHERE k < 3;

-- name: select-star
SELECT * FROM dims;

-- name: select-all-types
SELECT * FROM facts WHERE id < 500;

-- name: projection-arithmetic
SELECT k + 1, k - 1, k * 2, k / 3, k // 3, k % 3, -k, big + k, small * unsig, huge + 1, dbl / 0, flt * 2, k ** 2, k & 3, k | 8, k << 2, xor(k, 5) FROM facts WHERE id < 300;

-- name: decimal-arithmetic
SELECT price + 1, price - wide, price * wide, price * price, price % 7, -price, price + k, price * 1.5, price / 3, wide + 0.0000000001,
       price + 1.5 - 2.25, (price + 1) * (price - 1) * 2, abs(price), round(price, 1), floor(price), price::INTEGER, price * 2::DECIMAL(38,0) FROM facts WHERE id < 300;

-- name: decimal-aggregates
SELECT k % 5, sum(price), avg(price), sum(price * 2), sum(wide), min(price), max(price * price), sum(price + wide) FROM facts GROUP BY 1;

-- name: casts
SELECT k::VARCHAR, encode(txt), big::DOUBLE, day::VARCHAR, ts::DATE, tstz::TIMESTAMP, ts::TIMESTAMPTZ, flag::INTEGER, level::VARCHAR, list::VARCHAR, obj::VARCHAR,
       TRY_CAST(txt AS INTEGER), price::DECIMAL(20,1), uid::VARCHAR, span::VARCHAR, list::DOUBLE[], arr::INTEGER[] FROM facts WHERE id < 400;

-- name: comparisons
SELECT id FROM facts WHERE (k < 100 AND k >= 10) OR k IS NULL OR (k <> 7 AND price > 0) OR txt = 'ä' OR k IS DISTINCT FROM 7 AND k IS NOT DISTINCT FROM small;

-- name: between
SELECT id FROM facts WHERE k BETWEEN 5 AND 20 AND id NOT BETWEEN 100 AND 200 AND (price BETWEEN -5.5 AND wide OR day BETWEEN DATE '2000-01-01' AND DATE '2000-02-01');

-- name: in-list
SELECT id, k FROM facts WHERE k IN (1, 2, 3, NULL) OR txt IN ('a', 'ä', '日本語') OR small NOT IN (1, 2);

-- name: in-long-list
SELECT id FROM facts WHERE k IN (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33) AND id NOT IN (2, 4, 6, 8, 10, 12, 14, 16, 18);

-- name: like
SELECT txt, count(*) FROM facts WHERE txt LIKE '%o%' OR txt ILIKE 'A%' OR txt LIKE '100\%' ESCAPE '\' OR txt SIMILAR TO '[a-z]' OR txt NOT LIKE '%' GROUP BY ALL;

-- name: regular-expressions
SELECT txt, regexp_matches(txt, '[a-z]+'), regexp_replace(txt, '[aeiou]', '*', 'g'), regexp_extract(txt, '(\w)(\w)', 2), regexp_split_to_array(txt, ' ') FROM facts WHERE id < 200 AND txt ~ '.*';

-- name: strings
SELECT upper(txt), lower(txt), length(txt), substring(txt, 2, 3), txt || '!', concat(txt, k), concat_ws('-', txt, k, NULL), replace(txt, 'a', 'b'), trim(txt), lpad(txt, 5, '*'),
       reverse(txt), left(txt, 2), right(txt, 2), strpos(txt, 'a'), contains(txt, 'o'), starts_with(txt, 'z'), md5(txt), ascii(txt), repeat(txt, 2), split_part(txt, ' ', 1), txt[1:2], format('{}-{}', k, txt), printf('%05d', k) FROM facts WHERE id < 300;

-- name: string-collation ordered
SELECT txt FROM facts WHERE txt COLLATE NOCASE = 'a' ORDER BY id LIMIT 50;

-- name: dates
SELECT year(day), month(ts), date_part('week', ts), extract(epoch FROM ts), date_trunc('month', ts), ts + INTERVAL 1 DAY, day - DATE '2000-01-01', age(ts, TIMESTAMP '2000-01-01'),
       strftime(ts, '%Y/%m'), dayname(ts), last_day(ts), make_date(2000, 1, k % 28 + 1), ts - ts, date_diff('hour', TIMESTAMP '2000-01-01', ts), time_bucket(INTERVAL 1 WEEK, ts), epoch_ms(ts), to_timestamp(id), span * 2, span + INTERVAL 1 MONTH FROM facts WHERE id < 300 AND isfinite(day);

-- name: date-parts
SELECT date_part(['year', 'month', 'day'], ts), datepart('dow', ts) FROM facts WHERE id < 100;

-- name: time-zones
SELECT tstz, tstz AT TIME ZONE 'America/New_York', ts AT TIME ZONE 'Europe/Berlin', date_trunc('day', tstz), tstz + INTERVAL 1 DAY, extract(hour FROM tstz), strftime(tstz, '%H:%M %Z') FROM facts WHERE id < 300;

-- name: case
SELECT CASE WHEN k < 10 THEN 'few' WHEN k IS NULL THEN NULL ELSE 'many' END, CASE k WHEN 7 THEN 1 WHEN 8 THEN 2 END, if(flag, 1, 2), coalesce(k, small, 0), nullif(k, 7), ifnull(txt, '-'), greatest(k, small), least(k, small, 3) FROM facts WHERE id < 300;

-- name: booleans
SELECT id, flag AND k > 3, flag OR k > 3, NOT flag, flag IS TRUE, flag IS NOT FALSE, flag = (k = 7) FROM facts WHERE id < 200 AND (flag IS NOT TRUE OR NOT (k = 3));

-- name: floats
SELECT CASE WHEN dbl = 0 THEN 0 ELSE dbl END AS d, count(*) FROM facts GROUP BY dbl;

-- name: float-comparisons
SELECT id, dbl, dbl > 1, dbl = 'nan'::DOUBLE, isnan(dbl), isinf(dbl), dbl = 0.0, sqrt(abs(flt)), round(dbl, 2), sign(dbl) FROM facts WHERE dbl >= 5 OR dbl = 0;

-- name: math
SELECT sin(k), cos(k), ln(k + 1), exp(small), power(k, 2), sqrt(k), ceil(flt), floor(flt), mod(k, 4), gcd(k, 12), factorial(k % 10), bit_count(k), even(flt), cbrt(k), pi(), radians(k) FROM facts WHERE id < 200 AND k IS NOT NULL;

-- name: try
SELECT TRY(1 / (k - 7)), TRY(txt::INTEGER), TRY(k::TINYINT) FROM facts WHERE id < 100;

-- name: random-values volatile counted
SELECT random() < 2, uuid() IS NOT NULL, random() FROM dims;

-- name: current-time volatile counted
SELECT now() > TIMESTAMPTZ '2020-01-01', current_date FROM dims;

-- name: group-by
SELECT k, count(*), count(price), sum(k), min(txt), max(day), avg(small) FROM facts GROUP BY k;

-- name: group-by-nothing
SELECT count(*), sum(big), avg(price), min(ts), max(ts), count(DISTINCT k), bool_and(flag), bool_or(flag), bit_and(k), bit_or(k), bit_xor(k), product(1 + small % 2) FROM facts;

-- name: group-by-empty
SELECT count(*), sum(k), max(txt), count(DISTINCT k), list(k) FROM none;

-- name: group-by-empty-with-key empty
SELECT k, count(*) FROM none GROUP BY k;

-- name: group-by-constant
SELECT 5, 'x', count(*) FROM facts GROUP BY 1, 2, k % 2;

-- name: group-by-expression
SELECT k % 10 + 1, upper(txt), count(*) FROM facts GROUP BY k % 10 + 1, upper(txt) HAVING count(*) > 5;

-- name: group-by-all-keys
SELECT k, small, flag FROM facts GROUP BY ALL;

-- name: grouping-sets
SELECT k % 3 AS a, small AS b, count(*), sum(price), grouping(a), grouping(a, b) FROM facts GROUP BY GROUPING SETS ((a, b), (a), (b), ());

-- name: rollup
SELECT cls, k % 5 AS m, count(*), avg(score) FROM dims GROUP BY ROLLUP (cls, m);

-- name: cube
SELECT flag, level, sum(unsig), GROUPING_ID(flag, level) FROM facts GROUP BY CUBE (flag, level);

-- name: grouping-sets-empty-table
SELECT k, count(*) FROM none GROUP BY GROUPING SETS ((k), ());

-- name: having
SELECT k, sum(price) AS s FROM facts GROUP BY k HAVING sum(price) > 100 AND count(*) < 50;

-- name: aggregates-with-filter
SELECT k % 4, count(*) FILTER (WHERE flag), sum(price) FILTER (WHERE price > 0), max(txt) FILTER (WHERE txt <> ''), count(DISTINCT k) FILTER (WHERE small > 0) FROM facts GROUP BY 1;

-- name: aggregates-distinct
SELECT flag, count(DISTINCT k), sum(DISTINCT small), avg(DISTINCT k), count(DISTINCT txt), max(DISTINCT k), count(*) FROM facts GROUP BY flag;

-- name: aggregates-distinct-tuple
SELECT count(DISTINCT (k, small)), count(DISTINCT row(flag, level)) FROM facts;

-- name: aggregates-ordered
SELECT k % 3, string_agg(txt, '; ' ORDER BY id), list(id ORDER BY id DESC), first(txt ORDER BY id), last(k ORDER BY id), array_agg(small ORDER BY small NULLS FIRST, id) FROM facts WHERE id < 300 GROUP BY 1;

-- name: aggregates-statistical
SELECT flag, stddev(k), stddev_pop(k), var_samp(k), var_pop(k), covar_pop(k, small), covar_samp(k, small), corr(k, unsig), skewness(k), kurtosis(k), entropy(k), regr_slope(k, small), regr_intercept(k, small), regr_r2(k, small), regr_count(k, small), regr_avgx(k, small), regr_sxx(k, small), sem(k) FROM facts GROUP BY flag;

-- name: aggregates-quantiles
SELECT flag, median(k), quantile_cont(k, 0.25), quantile_disc(k, 0.75), quantile_cont(price, [0.1, 0.5, 0.9]), quantile_disc(txt, 0.5), percentile_cont(0.3) WITHIN GROUP (ORDER BY k DESC), percentile_disc(0.3) WITHIN GROUP (ORDER BY k), mad(k), mode(small ORDER BY small) FROM facts GROUP BY flag;

-- name: aggregates-approximate
SELECT approx_count_distinct(k) BETWEEN 300 AND 700, approx_quantile(k, 0.5) IS NOT NULL, reservoir_quantile(k, 0.5, 100) IS NOT NULL FROM facts;

-- name: aggregates-arg
SELECT flag, arg_min(id, price), arg_max(id, price), min_by(txt, id), max_by(txt, id), arg_max(id, id, 3), max(k, 3), min(small, 2) FROM facts GROUP BY flag;

-- name: aggregates-other
SELECT k % 2, any_value(flag) IS NOT NULL, count_if(k = 7), fsum(flt), kahan_sum(flt), favg(flt), histogram(small), bitstring_agg(small, -5, 5), string_agg(DISTINCT small::VARCHAR, ',' ORDER BY small::VARCHAR), list_sort(list(DISTINCT small)), bool_and(id >= 0), first(1) FROM facts GROUP BY 1;

-- name: aggregates-map
SELECT flag, histogram(k % 4), map_from_entries(list((id, small) ORDER BY id)) FROM facts WHERE id < 50 GROUP BY flag;

-- name: aggregate-of-sum-overflow
SELECT sum(big), sum(huge), sum(unsig), avg(big), sum(id) FROM facts;

-- name: aggregate-twice
SELECT max(s), count(*) FROM (SELECT k, sum(price) AS s FROM facts GROUP BY k);

-- name: distinct
SELECT DISTINCT k % 7, flag FROM facts;

-- name: distinct-all-types
SELECT DISTINCT level, list, obj, map, arr, span FROM facts WHERE id < 2000;

-- name: distinct-on ordered
SELECT DISTINCT ON (k) k, id, txt FROM facts WHERE k < 50 ORDER BY k, id DESC;

-- name: distinct-on-expression ordered
SELECT DISTINCT ON (k % 5) k % 5, id FROM facts ORDER BY k % 5, id;

-- name: order-by ordered
SELECT id, k, price FROM facts ORDER BY k DESC NULLS LAST, price ASC NULLS FIRST, id;

-- name: order-by-many-types ordered
SELECT id, dbl, txt, day FROM facts WHERE id < 3000 ORDER BY dbl, txt DESC, day NULLS FIRST, id;

-- name: order-by-expression ordered
SELECT id FROM facts WHERE id < 1000 ORDER BY k % 3, -id;

-- name: order-by-position ordered
SELECT k, count(*) FROM facts GROUP BY k ORDER BY 2 DESC, 1;

-- name: order-by-all ordered
SELECT DISTINCT small, flag FROM facts ORDER BY ALL;

-- name: order-by-constant
SELECT id FROM facts WHERE id < 10 ORDER BY 1 + 1, length('x');

-- name: order-by-hidden ordered
SELECT name FROM dims ORDER BY since DESC, name;

-- name: order-by-nested ordered
SELECT id, list, obj FROM facts WHERE id < 500 ORDER BY list NULLS FIRST, obj, id;

-- name: top-n ordered
SELECT id, price FROM facts ORDER BY price DESC NULLS LAST, id LIMIT 7;

-- name: top-n-offset ordered
SELECT id, k FROM facts ORDER BY k NULLS LAST, id LIMIT 10 OFFSET 4990;

-- name: limit-all-rows
SELECT id FROM one, facts WHERE facts.k = one.k LIMIT 100000;

-- name: limit-offset-beyond empty
SELECT id FROM facts OFFSET 20000;

-- name: limit-zero empty fileless
SELECT id, txt FROM facts LIMIT 0;

-- name: limit-percent
SELECT count(*) FROM (SELECT id FROM facts LIMIT 10%);

-- name: limit-count
SELECT count(*) FROM (SELECT id FROM facts LIMIT 100 OFFSET 5);

-- name: limit-subquery
SELECT count(*) FROM (SELECT id FROM facts LIMIT (SELECT 5));

-- name: sample-system volatile
SELECT id FROM facts USING SAMPLE 10%;

-- name: sample-rows volatile counted
SELECT id FROM facts USING SAMPLE 5 ROWS;

-- name: sample-repeatable volatile counted
SELECT id FROM facts TABLESAMPLE reservoir(20 ROWS) REPEATABLE (42);

-- name: sample-bernoulli volatile
SELECT k FROM facts TABLESAMPLE bernoulli(20 PERCENT);

-- name: inner-join
SELECT f.id, d.name FROM facts f JOIN dims d ON f.k = d.k WHERE f.id < 2000;

-- name: left-join
SELECT f.id, d.name FROM facts f LEFT JOIN dims d ON f.k = d.k AND d.cls = 1 WHERE f.id < 2000;

-- name: right-join
SELECT f.id, d.name FROM (FROM facts WHERE id < 500) f RIGHT JOIN dims d ON f.k = d.k;

-- name: full-join
SELECT f.id, d.name FROM (FROM facts WHERE id < 500) f FULL JOIN dims d ON f.k = d.k;

-- name: full-join-using
SELECT k, count(*) FROM (SELECT k FROM facts WHERE id < 700) FULL JOIN (SELECT k FROM dims WHERE cls < 2) USING (k) GROUP BY k;

-- name: semi-join
SELECT name FROM dims SEMI JOIN facts USING (k);

-- name: anti-join
SELECT name FROM dims ANTI JOIN facts ON dims.k = facts.k;

-- name: cross-join
SELECT r_name, d.name FROM region CROSS JOIN dims d WHERE r_regionkey < 2 AND d.cls = 1;

-- name: natural-join
SELECT count(*), sum(score) FROM facts NATURAL JOIN (SELECT k, score FROM dims);

-- name: self-join
SELECT a.name, b.name FROM dims a JOIN dims b ON a.k = b.k + 1 WHERE a.cls = 2;

-- name: join-on-inequality
SELECT count(*) FROM dims a JOIN dims b ON a.since < b.since AND a.cls = b.cls;

-- name: join-on-inequality-only
SELECT count(*), sum(a.k - b.k) FROM dims a JOIN dims b ON a.k < b.k;

-- name: join-on-expression
SELECT count(*) FROM facts f JOIN dims d ON f.k % 10 = d.k AND f.id > d.cls * 100;

-- name: join-on-or
SELECT count(*) FROM (FROM facts WHERE id < 500) f JOIN dims d ON f.k = d.k OR f.small = d.cls;

-- name: left-join-on-inequality
SELECT d.name, count(f.id) FROM dims d LEFT JOIN (FROM facts WHERE id < 300) f ON f.k > d.k AND f.small > 3 GROUP BY d.name;

-- name: join-null-safe
SELECT count(*) FROM facts f JOIN dims d ON f.k IS NOT DISTINCT FROM d.k;

-- name: join-on-text
SELECT count(*) FROM facts a JOIN (SELECT DISTINCT txt FROM facts) b ON a.txt = b.txt;

-- name: join-on-floats
SELECT count(*) FROM (SELECT DISTINCT dbl FROM facts) a JOIN (SELECT dbl FROM facts WHERE id < 1000) b ON a.dbl = b.dbl;

-- name: join-on-different-widths
SELECT count(*) FROM facts a JOIN dims b ON a.small = b.k AND a.unsig > b.cls;

-- name: join-on-decimals
SELECT count(*) FROM (SELECT price FROM facts WHERE id < 1000) a JOIN (SELECT price::DECIMAL(20,3) AS p FROM facts WHERE id < 1000) b ON a.price = b.p;

-- name: join-with-empty
SELECT d.name, n.id FROM dims d LEFT JOIN none n ON d.k = n.k WHERE d.cls = 0;

-- name: join-three
SELECT d.cls, count(*), sum(o.score) FROM facts f JOIN dims d ON f.k = d.k JOIN one o ON o.k = d.k GROUP BY d.cls;

-- name: join-many
SELECT n_name, r_name, count(*), sum(o_totalprice) FROM customer JOIN orders ON c_custkey = o_custkey JOIN nation ON c_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey GROUP BY ALL;

-- name: asof-join
SELECT f.id, d.name FROM facts f ASOF JOIN dims d ON f.day >= d.since WHERE f.id < 1000;

-- name: asof-left-join
SELECT f.id, d.name FROM facts f ASOF LEFT JOIN dims d ON f.k = d.cls AND f.day > d.since WHERE f.id < 1000;

-- name: positional-join
SELECT a.r_name, b.n FROM (FROM region ORDER BY r_regionkey) a POSITIONAL JOIN (SELECT range AS n FROM range(7)) b;

-- name: lateral-join
SELECT d.name, x.id FROM dims d, LATERAL (SELECT id FROM facts f WHERE f.k = d.k ORDER BY id LIMIT 2) x WHERE d.cls = 1;

-- name: lateral-unnest
SELECT f.id, u.x FROM facts f, LATERAL (SELECT unnest(f.list) AS x) u WHERE f.id < 300;

-- name: lateral-series
SELECT d.k, g.i FROM dims d, generate_series(1, d.cls) g(i) WHERE d.k < 40;

-- name: lateral-left
SELECT d.name, x.c FROM dims d LEFT JOIN LATERAL (SELECT count(*) AS c FROM facts f WHERE f.k = d.k HAVING count(*) > 10) x ON true;

-- name: in-subquery
SELECT count(*) FROM facts WHERE k IN (SELECT k FROM dims WHERE cls = 2);

-- name: not-in-subquery
SELECT count(*) FROM facts WHERE k NOT IN (SELECT k FROM dims WHERE k IS NOT NULL AND cls = 2);

-- name: not-in-subquery-with-null
SELECT count(*) FROM facts WHERE k NOT IN (SELECT k FROM dims WHERE cls = 0);

-- name: in-subquery-as-value
SELECT id, k IN (SELECT k FROM dims WHERE cls = 0) AS x FROM facts WHERE id < 500;

-- name: in-subquery-of-rows
SELECT id, (k, small) IN (SELECT k, cls FROM dims) AS x FROM facts WHERE id < 500;

-- name: in-correlated-as-value
SELECT d.name, d.cls IN (SELECT f.small FROM facts f WHERE f.k = d.k) AS x FROM dims d;

-- name: not-in-correlated
SELECT d.name FROM dims d WHERE d.cls NOT IN (SELECT f.small FROM facts f WHERE f.k = d.k);

-- name: exists
SELECT name FROM dims d WHERE EXISTS (SELECT 1 FROM facts f WHERE f.k = d.k AND f.price > 990);

-- name: not-exists
SELECT name FROM dims d WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.k = d.k AND f.flag);

-- name: exists-as-value
SELECT name, EXISTS (SELECT 1 FROM facts f WHERE f.k = d.k AND f.small = d.cls) AS x FROM dims d;

-- name: exists-uncorrelated
SELECT name, EXISTS (SELECT 1 FROM none) AS x, EXISTS (SELECT 1 FROM facts) AS y FROM dims WHERE k < 3;

-- name: any-all
SELECT id, k > ANY (SELECT cls FROM dims) AS a, k >= ALL (SELECT cls FROM dims) AS b, k < ALL (SELECT score FROM dims) AS c FROM facts WHERE id < 200;

-- name: scalar-subquery
SELECT id, (SELECT max(score) FROM dims) AS m FROM facts WHERE price > (SELECT avg(price) FROM facts) AND id < 1000;

-- name: scalar-subquery-correlated
SELECT d.name, (SELECT count(*) FROM facts f WHERE f.k = d.k) AS n, (SELECT max(txt) FROM facts f WHERE f.k = d.k AND f.small > d.cls) AS t FROM dims d;

-- name: scalar-subquery-one-row
SELECT f.id, (SELECT name FROM dims d WHERE d.k = f.k) AS n FROM facts f WHERE f.id < 500;

-- name: scalar-subquery-empty
SELECT k, (SELECT id FROM none) AS x FROM dims WHERE k < 5;

-- name: subquery-nested
SELECT name FROM dims d WHERE d.k IN (SELECT f.k FROM facts f WHERE f.price > (SELECT avg(g.price) FROM facts g WHERE g.k = f.k));

-- name: subquery-in-from
SELECT a.m, b.n FROM (SELECT k % 5 AS m, count(*) AS c FROM facts GROUP BY 1) a JOIN (SELECT cls AS n FROM dims GROUP BY 1) b ON a.m = b.n;

-- name: array-of-subquery
SELECT d.k, ARRAY(SELECT f.id FROM facts f WHERE f.k = d.k ORDER BY f.id LIMIT 3) AS ids FROM dims d WHERE d.k < 20;

-- name: cte
WITH a AS (SELECT k, sum(price) AS s FROM facts GROUP BY k) SELECT a.k, a.s, b.s FROM a JOIN a b ON a.k = b.k + 1;

-- name: cte-materialized
WITH a AS MATERIALIZED (SELECT k, count(*) AS c FROM facts GROUP BY k) SELECT count(*), sum(x.c), max(y.c) FROM a x, a y WHERE x.k = y.k;

-- name: cte-chained
WITH a AS (SELECT k, price FROM facts WHERE price > 0), b AS MATERIALIZED (SELECT k, avg(price) AS p FROM a GROUP BY k), c AS (SELECT d.cls, b.p FROM b JOIN dims d USING (k))
SELECT cls, count(*), avg(p), (SELECT count(*) FROM b) FROM c GROUP BY cls;

-- name: cte-shadowing
WITH facts AS (SELECT id, k FROM facts WHERE id < 10) SELECT * FROM facts;

-- name: cte-recursive fileless
WITH RECURSIVE t(n, f) AS (SELECT 1, 1::HUGEINT UNION ALL SELECT n + 1, f * (n + 1) FROM t WHERE n < 20) SELECT * FROM t;

-- name: cte-recursive-over-table
WITH RECURSIVE t AS (SELECT k, 0 AS depth FROM dims WHERE k = 1 UNION SELECT d.k, t.depth + 1 FROM t JOIN dims d ON d.k = t.k * 2 WHERE t.depth < 8) SELECT * FROM t;

-- name: cte-recursive-using-key
WITH RECURSIVE t(a, b) USING KEY (a) AS (SELECT 1, 1 UNION SELECT a, b + 1 FROM t WHERE b < 5) SELECT * FROM t;

-- name: union
SELECT k FROM dims WHERE cls = 0 UNION SELECT k FROM facts WHERE id < 100;

-- name: union-all
SELECT k, name FROM dims UNION ALL SELECT id, txt FROM facts WHERE id < 100;

-- name: union-many
SELECT 1 AS x UNION ALL SELECT cls FROM dims UNION ALL SELECT small FROM facts WHERE id < 20 UNION ALL SELECT NULL;

-- name: union-by-name
SELECT k, name FROM dims WHERE k < 3 UNION BY NAME SELECT txt AS name, id FROM facts WHERE id < 3;

-- name: except
SELECT k FROM facts EXCEPT SELECT k FROM dims;

-- name: except-all
SELECT k FROM facts EXCEPT ALL SELECT k FROM dims;

-- name: intersect
SELECT k FROM facts INTERSECT SELECT k FROM dims;

-- name: intersect-all
SELECT small FROM facts INTERSECT ALL SELECT cls FROM dims;

-- name: set-operations-nested
(SELECT k FROM facts WHERE id < 1000 UNION SELECT 1000) EXCEPT (SELECT k FROM dims INTERSECT SELECT small FROM facts);

-- name: window-row-number
SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM facts WHERE id < 3000;

-- name: window-ranks
SELECT id, rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w, ntile(4) OVER (PARTITION BY k ORDER BY price, id) FROM facts WHERE id < 2000 WINDOW w AS (PARTITION BY k ORDER BY price);

-- name: window-lead-lag
SELECT id, lag(price) OVER w, lead(price, 2) OVER w, lag(txt, 1, 'none') OVER w, first_value(id) OVER w, last_value(id) OVER w, nth_value(id, 2) OVER w, lag(k IGNORE NULLS) OVER (ORDER BY id) FROM facts WHERE id < 2000 WINDOW w AS (PARTITION BY k % 10 ORDER BY id);

-- name: window-aggregates
SELECT id, sum(price) OVER (PARTITION BY k), count(*) OVER (), avg(small) OVER (PARTITION BY flag), max(txt) OVER (PARTITION BY k, flag), count(DISTINCT small) OVER (PARTITION BY k) FROM facts WHERE id < 2000;

-- name: window-frames
SELECT id, sum(small) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING), sum(small) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING),
       count(*) OVER (ORDER BY k RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING), sum(small) OVER (ORDER BY k GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW),
       sum(id) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) FROM facts WHERE id < 1000;

-- name: window-frame-exclude
SELECT id, sum(small) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW), count(*) OVER (ORDER BY k GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES), count(*) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) FROM facts WHERE id < 600;

-- name: window-range-dates
SELECT id, count(*) OVER (ORDER BY day RANGE BETWEEN INTERVAL 3 DAYS PRECEDING AND INTERVAL 1 DAY FOLLOWING), count(*) OVER (ORDER BY ts DESC RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) FROM facts WHERE id < 600 AND isfinite(day);

-- name: window-filter
SELECT id, count(*) FILTER (WHERE flag) OVER (PARTITION BY k), sum(price) FILTER (WHERE price > 0) OVER (ORDER BY id) FROM facts WHERE id < 1000;

-- name: window-over-aggregate
SELECT k % 7 AS g, sum(price) AS s, rank() OVER (ORDER BY sum(price) DESC) AS r, sum(sum(price)) OVER () AS t FROM facts GROUP BY 1;

-- name: window-quantile
SELECT id, median(price) OVER (PARTITION BY flag), quantile_cont(k, 0.3) OVER (PARTITION BY flag), string_agg(small::VARCHAR, ',') OVER (ORDER BY id ROWS 2 PRECEDING), list(small) OVER (ORDER BY id ROWS 1 PRECEDING) FROM facts WHERE id < 300;

-- name: window-ordered-argument
SELECT id, first_value(id ORDER BY price NULLS LAST, id) OVER (PARTITION BY k % 3), list(id ORDER BY id DESC) OVER (PARTITION BY k % 20) FROM facts WHERE id < 200;

-- name: qualify
SELECT k, id FROM facts QUALIFY row_number() OVER (PARTITION BY k ORDER BY id DESC) = 1;

-- name: qualify-rank
SELECT k, price FROM facts WHERE price IS NOT NULL QUALIFY rank() OVER (PARTITION BY k ORDER BY price DESC) <= 2;

-- name: unnest
SELECT id, unnest(list) AS x FROM facts WHERE id < 300;

-- name: unnest-two
SELECT id, unnest(list) AS x, unnest([1, 2]) AS y FROM facts WHERE id < 100;

-- name: unnest-struct
SELECT id, unnest(obj) FROM facts WHERE id < 100;

-- name: unnest-recursive
SELECT unnest([{'a': 1, 'b': [2, 3]}, {'a': 4, 'b': []}], recursive := true) FROM dims WHERE k % 100 = 5;

-- name: unnest-in-from
SELECT sum(x) FROM facts, unnest(list) AS u(x) WHERE id < 1000;

-- name: lists
SELECT id, list[1], list[-1], list[1:2], len(list), list_contains(list, 2), list_sort(list), list_distinct(list), list_append(list, 9), list_concat(list, [1]), list_sum(list), list_aggregate(list, 'max'), array_to_string(list, '-'), flatten([list, list]), list_position(list, 3), list_slice(list, 1, 2), list_reverse(list), list_zip(list, [1, 2]) FROM facts WHERE id < 200;

-- name: arguments-that-binding-erases
SELECT id, list_sort(list, 'DESC', 'NULLS FIRST'), list_reverse_sort(list), list_grade_up(list), strptime(ts::DATE::VARCHAR, '%Y-%m-%d'), strftime(ts, '%d.%m.%y'), try_strptime(txt, ['%Y', '%d']),
       json_transform(js, '{"k": "INTEGER"}'), from_json(js, '{"v": "VARCHAR"}'), json_extract(js, ['$.k', '$.v']), array_to_string(list, '+'), list_aggregate(list, 'quantile_cont', 0.25), list_string_agg(list::VARCHAR[]), list_any_value(list), list_approx_count_distinct(list),
       regexp_extract(txt, '(?P<a>\w)(.*)', ['first', 'rest']), regexp_replace(txt, 'A', 'b', 'i'), regexp_extract_all(txt, '\w+', 0), round(flt, 1), printf('%s-%d', txt, id), trim(txt, 'ax'), date_trunc('week', ts), substring(txt, 2), list_resize(list, 4, 0), range(k % 3), array_slice(list, 1, -1), list[2:], list[:2], list[:-:2], hash(id, txt), md5_number(txt), levenshtein(txt, 'abc'), datesub('month', DATE '2000-01-01', ts::DATE), bar(k, 0, 500, 10), list_where(list, [true, false, true]), list_select(list, [1, 3]), string_split(txt, 'o'), nfc_normalize(txt), strip_accents(txt), jaccard('abc', 'abd'), format('{:05.1f}', flt), chr(65 + small), array_cosine_similarity(arr::FLOAT[3], [1, 2, 3]::FLOAT[3]), map_concat(map, MAP {'three': 3::BIGINT})
FROM facts WHERE id < 60 AND k IS NOT NULL;

-- name: lambdas
SELECT id, list_transform(list, lambda x: x + 1), list_transform(list, lambda x, i: x * i + k), list_filter(list, lambda x: x > small), list_reduce(list_filter(list, lambda x: x IS NOT NULL), lambda a, b: a + b, 0::BIGINT), list_transform(list, lambda x: list_transform([1, 2], lambda y: x * y + id)) FROM facts WHERE id < 200;

-- name: list-comprehension
SELECT id, [x * 2 FOR x IN list IF x > 1] FROM facts WHERE id < 100;

-- name: structs
SELECT id, obj.a, obj.b, obj.in.deep, obj['a'], struct_extract(obj, 'b'), {'x': k, 'y': {'z': txt}}, struct_pack(p := id, q := small), struct_insert(obj, c := 1), row(k, txt), struct_update(obj, a := 5) FROM facts WHERE id < 200;

-- name: struct-filters
SELECT count(*) FROM facts WHERE obj.a = 2 AND obj.in.deep > 0 AND obj.b IS NOT NULL;

-- name: struct-star
SELECT obj.* FROM facts WHERE id < 50;

-- name: maps
SELECT id, map['one'], map_keys(map), map_values(map), map_entries(map), cardinality(map), map_contains(map, 'two'), map_from_entries([('a', k)]), map_extract(map, 'one'), element_at(map, 'one') FROM facts WHERE id < 100;

-- name: unions
SELECT id, u, union_tag(u), u.n FROM (SELECT id, CASE WHEN id % 2 = 0 THEN union_value(n := id)::UNION(n BIGINT, s VARCHAR) ELSE union_value(s := txt)::UNION(n BIGINT, s VARCHAR) END AS u FROM facts WHERE id < 100);

-- name: arrays
SELECT id, arr, arr[1], array_distance(arr::FLOAT[3], [1, 2, 3]::FLOAT[3]), array_value(k, id), array_cross_product(arr::DOUBLE[3], arr::DOUBLE[3]) FROM facts WHERE id < 100;

-- name: enums
SELECT e, count(*), max(e), e < 'high', e::VARCHAR, enum_code(e), e = 'mid' FROM (SELECT level::ENUM('low', 'mid', 'high') AS e FROM facts) GROUP BY e;

-- name: lists-of-enums ordered
SELECT k, list(level::ENUM('low', 'mid', 'high') ORDER BY id) AS levels FROM facts GROUP BY k ORDER BY k;

-- name: json
SELECT js->'k', js->>'v', json_extract(js, '$.k'), json_extract_string(js, '$.v'), json_type(js), json_keys(js), json_array_length('[1,2]'), to_json(obj), js::VARCHAR, json_valid(txt), (js->>'k')::INTEGER + 1 FROM facts WHERE id < 100;

-- name: blobs
SELECT bin, octet_length(bin), bin || '\x01'::BLOB, hex(bin), base64(bin), count(*) FROM facts GROUP BY bin;

-- name: bits
SELECT bit_count('0101'::BIT), bitstring('1', 4), k::BIT FROM dims WHERE k < 4;

-- name: uuids
SELECT uid, count(*) FROM facts WHERE uid < '00000000-0000-4000-8000-000000000100'::UUID GROUP BY uid;

-- name: intervals
SELECT span::VARCHAR AS s, count(*), min(span), max(span), max(span > INTERVAL 20 DAY), min(datepart('day', span)) FROM facts GROUP BY s;

-- name: hugeints
SELECT huge, huge // 7, huge % 1000, huge::VARCHAR, sum(huge) OVER () FROM facts WHERE huge > 1000000000000000000000 AND id < 200;

-- name: values fileless
SELECT * FROM (VALUES (1, 'a', NULL), (2, NULL, DATE '2020-01-01'), (NULL, 'c', NULL)) t(a, b, c);

-- name: values-join
SELECT d.name, v.x FROM dims d JOIN (VALUES (1, 'one'), (2, 'two'), (NULL, 'none')) v(k, x) ON d.k = v.k;

-- name: range-function fileless
SELECT range, range * 2 FROM range(3, 20, 4);

-- name: series-of-dates fileless
SELECT * FROM generate_series(DATE '2020-01-01', DATE '2020-03-01', INTERVAL 1 MONTH);

-- name: with-ordinality fileless
SELECT * FROM unnest(['a', 'b', 'c']) WITH ORDINALITY AS t(x, n);

-- name: repeat-function fileless
SELECT count(*) FROM repeat_row(1, 'x', num_rows := 3);

-- name: pivot
PIVOT (SELECT cls, k % 2 AS m, score FROM dims) ON m IN (0, 1) USING sum(score) GROUP BY cls;

-- name: pivot-without-list
PIVOT (SELECT cls, k % 2 AS m, score FROM dims) ON m USING sum(score);

-- name: unpivot
UNPIVOT (SELECT k, cls, score::BIGINT AS s FROM dims WHERE k < 5) ON cls, s INTO NAME what VALUE v;

-- name: columns-expression
SELECT min(COLUMNS(* EXCLUDE (name))), max(COLUMNS('k|cls')) FROM dims;

-- name: star-replace
SELECT * EXCLUDE (since) REPLACE (upper(name) AS name) FROM dims WHERE k < 5;

-- name: from-first
FROM dims SELECT cls, count(*) GROUP BY ALL;

-- name: alias-reuse ordered
SELECT k * 2 AS a, a + 1 AS b FROM dims WHERE a > 10 ORDER BY b LIMIT 5;

-- name: duplicate-names
SELECT k AS x, name AS x, cls AS "select", score AS "a ""b""" FROM dims WHERE k < 5;

-- name: empty-result empty fileless
SELECT k, name, since FROM dims WHERE 1 = 0;

-- name: impossible-filter
SELECT count(*), sum(id) FROM facts WHERE id < -5;

-- name: statistics-only
SELECT count(*), min(id), max(id) FROM facts;

-- name: hive-all
SELECT y, mon, count(*), min(id) FROM read_parquet('{ugly}/hive/*/*/*.parquet', hive_partitioning = true) GROUP BY ALL;

-- name: hive-pruned
SELECT mon, count(*) FROM read_parquet('{ugly}/hive/*/*/*.parquet', hive_partitioning = true) WHERE y = 2000 AND mon < '04' GROUP BY ALL;

-- name: hive-text-types
SELECT y, mon FROM read_parquet('{ugly}/hive/*/*/*.parquet', hive_partitioning = true, hive_types = {'y': VARCHAR, 'mon': INTEGER}) WHERE id < 100;

-- name: union-of-files-by-name
SELECT a, b, c FROM read_parquet(['{ugly}/mixed-0.parquet', '{ugly}/mixed-1.parquet'], union_by_name = true);

-- name: file-names
SELECT parse_filename(filename), count(*) FROM read_parquet('{ugly}/facts-*.parquet', filename = true) GROUP BY 1;

-- name: file-name-column
SELECT parse_filename(origin), max(id) FROM read_parquet('{ugly}/facts-*.parquet', filename = 'origin') WHERE k = 7 GROUP BY 1;

-- name: file-row-numbers
SELECT max(file_row_number), count(*) FROM read_parquet('{ugly}/facts-*.parquet', file_row_number = true) WHERE file_row_number < 5000;

-- name: virtual-columns
SELECT file_index, max(file_row_number) FROM read_parquet('{ugly}/facts-*.parquet') GROUP BY 1;

-- name: one-file-by-name
SELECT count(*), max(k) FROM '{ugly}/dims-0.parquet';

-- name: csv-by-name
SELECT i % 10 AS m, count(*), max(s) FROM '{ugly}/plain.csv' GROUP BY m;

-- name: csv-with-options
SELECT c.k, count(*), sum(price) FROM read_csv('{ugly}/facts.csv', delim = '|', header = true) c WHERE c.day > DATE '2000-01-01' GROUP BY c.k;

-- name: csv-join-parquet
SELECT d.name, c.txt FROM read_csv('{ugly}/facts.csv', delim = '|') AS c JOIN dims d ON c.k = d.k WHERE c.id < 100;

-- name: json-file
SELECT j.id, j.obj.a, len(j.list) FROM read_json('{ugly}/facts.json') j WHERE j.k = 7 AND j.id < 200;

-- name: json-file-by-name
SELECT k % 10 AS m, count(*), sum(id) FROM '{ugly}/facts.json' GROUP BY m;

-- name: csv-twice
SELECT a.i % 10 AS m, count(*), max(b.s) FROM '{ugly}/plain.csv' a JOIN '{ugly}/plain.csv' b USING (i) GROUP BY m;

-- name: csv-several
SELECT c.k, count(*), max(c.code), min(c.name), count(c.name) FROM read_csv('{ugly}/shared-*.csv', header = true) c WHERE c.id > 10 GROUP BY c.k;

-- name: csv-several-by-name ordered
SELECT id, code, name FROM '{ugly}/shared-*.csv' WHERE id % 97 = 3 ORDER BY id;

-- name: csv-uneven
SELECT id % 10 AS m, count(*), min(name), max(name) FROM '{ugly}/uneven-*.csv' GROUP BY m;

-- name: csv-list
SELECT count(*), sum(id), max(code) FROM read_csv(['{ugly}/shared-2.csv', '{ugly}/shared-0.csv', '{ugly}/shared-2.csv']);

-- name: csv-several-with-filename
SELECT parse_filename(filename) AS f, count(*), max(code) FROM read_csv('{ugly}/shared-*.csv', filename = true) GROUP BY f;

-- name: csv-several-join
SELECT c.name, d.name, f.txt FROM '{ugly}/shared-*.csv' c JOIN dims d ON c.k = d.k LEFT JOIN facts f ON f.id = c.id WHERE c.id % 50 = 0;

-- name: csv-and-parquet-union
SELECT k, count(*) FROM (SELECT k FROM '{ugly}/shared-*.csv' UNION ALL SELECT k FROM facts UNION ALL SELECT k FROM '{ugly}/shared-*.json') GROUP BY k;

-- name: json-several
SELECT j.k, count(*), max(j.extra), sum(len(j.list)) FROM read_json('{ugly}/shared-*.json') j GROUP BY j.k;

-- name: metadata fileless
SELECT column_name FROM (DESCRIBE SELECT * FROM dims);

-- name: summarize
SELECT * EXCLUDE (std) FROM (SUMMARIZE dims);

-- name: nothing-from-tables fileless
SELECT count(*) FROM (SELECT 1 UNION ALL SELECT 2) t, (SELECT 3) u;

-- name: deep-expression
SELECT ((((((((((k + 1) * 2) - 3) + 4) * 5) - 6) + 7) * 8) - 9) + 10) % 11, CASE WHEN k > 1 THEN CASE WHEN k > 2 THEN CASE WHEN k > 3 THEN 'd' ELSE 'c' END ELSE 'b' END ELSE 'a' END FROM dims;

-- name: many-columns
SELECT a.*, b.* FROM facts a JOIN facts b ON a.id = b.id WHERE a.id < 20;

-- name: tpch-correlated-exists ordered
SELECT o_orderpriority, count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM lineitem l WHERE l.l_orderkey = o.o_orderkey AND l.l_quantity > 45 AND l.l_shipdate > o.o_orderdate + INTERVAL 60 DAY) GROUP BY 1 ORDER BY 1;

-- name: tpch-running-total
SELECT o_custkey, o_orderdate, sum(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) FROM orders WHERE o_custkey < 100;

-- name: tpch-percent-of-total
SELECT n_name, sum(c_acctbal) * 100 / (SELECT sum(c_acctbal) FROM customer) FROM customer JOIN nation ON n_nationkey = c_nationkey GROUP BY 1;

-- name: tpch-top-per-group
SELECT * FROM (SELECT l_shipmode, l_orderkey, l_linenumber, l_extendedprice, rank() OVER (PARTITION BY l_shipmode ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber) AS r FROM lineitem) WHERE r <= 3;

-- name: tpch-q11-of-another-nation ordered
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM partsupp, supplier, nation
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'FRANCE'
GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (SELECT sum(ps_supplycost * ps_availqty) * 0.0001 FROM partsupp, supplier, nation
                                           WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'FRANCE')
ORDER BY value DESC, ps_partkey;

-- name: tpch-q20-of-other-parts ordered
SELECT s_name, s_address FROM supplier, nation
WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp
                    WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'f%')
                      AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM lineitem
                                         WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                                           AND l_shipdate >= DATE '1994-01-01'
                                           AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR))
  AND s_nationkey = n_nationkey AND n_name < 'H' ORDER BY s_name;

-- name: positional-join-of-files
SELECT count(*), sum(a.big) FROM facts a POSITIONAL JOIN (SELECT id FROM facts) b WHERE a.id = b.id;

-- name: file-names-unasked
SELECT parse_filename(filename), file_index, count(*), max(file_row_number) FROM read_parquet('{ugly}/facts-*.parquet') WHERE filename LIKE '%facts%' GROUP BY ALL;

-- name: any-less-correlated
SELECT d.k, d.cls < ANY (SELECT f.small FROM facts f WHERE f.k = d.k), d.cls >= ANY (SELECT f.small FROM facts f WHERE f.k = d.k) FROM dims d;

-- name: any-unlike-correlated
SELECT d.k, d.cls <> ANY (SELECT f.small FROM facts f WHERE f.k = d.k AND f.small > 100), d.cls > ALL (SELECT f.small FROM facts f WHERE f.k = d.k) FROM dims d;

-- name: any-enum-correlated
SELECT d.k, 'mid'::ENUM('low', 'mid', 'high') < ANY (SELECT f.level::ENUM('low', 'mid', 'high') FROM facts f WHERE f.k = d.k) AS a, 'high'::ENUM('low', 'mid', 'high') <> ALL (SELECT f.level::ENUM('low', 'mid', 'high') FROM facts f WHERE f.k = d.k) AS b FROM dims d;

-- name: row-numbers-called-as-duckdb-calls-them
SELECT count(*), max(delim_index), sum(delim_index) FROM (SELECT row_number() OVER () AS delim_index FROM facts);

-- name: row-numbers-called-as-duckdb-calls-them-correlated
SELECT t.delim_index AS n, (SELECT count(*) FROM dims d WHERE d.k = t.delim_index) AS c FROM (SELECT row_number() OVER () AS delim_index FROM facts) t WHERE n > 100;

-- name: geometry-that-nobody-reads
SELECT v, count(*), sum(id), min(n) FROM '{ugly}/places.parquet' WHERE id % 5 > 0 GROUP BY v;

-- name: geometry-that-nobody-reads-by-name
SELECT v, cls, count(*), sum(id), max(k) FROM read_parquet(['{ugly}/places.parquet', '{ugly}/dims-*.parquet'], union_by_name = true) GROUP BY ALL;

-- name: geometry-that-nobody-reads-joined
SELECT p.id, p.n, d.name FROM '{ugly}/places.parquet' p JOIN dims d ON p.id = d.k WHERE p.v < 5;

-- name: range-frame-over-difference
SELECT id, count(*) OVER (PARTITION BY k ORDER BY id - 1 RANGE BETWEEN 100 PRECEDING AND 200 FOLLOWING) FROM facts WHERE id < 3000;

-- name: files-by-name-grouped
SELECT c > 10, count(*), sum(a), min(b) FROM read_parquet('{ugly}/mixed-*.parquet', union_by_name = true) WHERE b > 'x3' GROUP BY 1;

-- name: sum-that-cannot-overflow
SELECT sum(r1.ps_suppkey), count(DISTINCT r0.c_mktsegment), count(*) FROM (SELECT * FROM customer q WHERE hash(q.c_custkey) % 6 = 0) r0 JOIN (SELECT * FROM partsupp q WHERE hash(q.ps_partkey) % 32 = 0) r1 ON r0.c_custkey = r1.ps_partkey AND r0.c_name < '%' WHERE (r0.c_custkey IS NOT NULL OR r1.ps_supplycost < 0.0);

-- name: grouping-sets-of-rollups
SELECT flag, level, small % 3 AS m, count(*), sum(price), grouping(flag, level, m) FROM facts GROUP BY GROUPING SETS (ROLLUP (flag, level), CUBE (m, level), (flag, m));

-- name: grouping-sets-with-distinct-and-filter
SELECT level, flag, count(DISTINCT k) FILTER (WHERE small > 0), sum(DISTINCT unsig % 100), string_agg(DISTINCT txt, '|' ORDER BY txt DESC) FROM facts GROUP BY CUBE (level, flag) HAVING count(*) > 100;

-- name: rollup-over-join-with-nulls
SELECT d.cls, f.level, count(*), count(d.k), grouping(d.cls), avg(f.price) FROM facts f LEFT JOIN dims d ON f.k = d.k GROUP BY ROLLUP (d.cls, f.level);

-- name: pivot-of-two-columns
PIVOT (SELECT level, flag, small, price FROM facts) ON level IN ('low', 'high'), flag IN (true, false) USING count(*) AS n, max(price) AS p GROUP BY small;

-- name: unpivot-with-nulls
SELECT what, count(*), count(v), sum(v) FROM (SELECT id, k::BIGINT AS k, small::BIGINT AS small, big FROM facts) s UNPIVOT INCLUDE NULLS (v FOR what IN (k, small, big)) GROUP BY what;

-- name: unpivot-in-tuples
SELECT a, count(x), sum(x), sum(y) FROM (FROM dims UNPIVOT ((x, y) FOR a IN ((k, cls) AS keys, (cls, k) AS turned))) GROUP BY a;

-- name: asof-join-backwards
SELECT f.id, f.k, d.name FROM facts f ASOF JOIN (SELECT * FROM dims WHERE score IS NOT NULL) d ON f.small = d.cls AND f.unsig <= d.k * 200 WHERE f.id % 5 = 0;

-- name: asof-join-of-timestamps-grouped
SELECT d.cls, count(*), min(f.ts), max(d.since) FROM facts f ASOF LEFT JOIN dims d ON f.ts > d.since::TIMESTAMP GROUP BY d.cls;

-- name: lateral-of-lateral
SELECT d.k, x.m, y.n FROM dims d, LATERAL (SELECT max(f.id) AS m FROM facts f WHERE f.k = d.k) x, LATERAL (SELECT count(*) AS n FROM facts g WHERE g.k = d.cls AND g.id < x.m) y WHERE d.k < 60;

-- name: lateral-of-aggregate-with-order
SELECT d.name, x.top FROM dims d JOIN LATERAL (SELECT list(f.id ORDER BY f.price DESC NULLS LAST, f.id)[1:3] AS top FROM facts f WHERE f.k = d.k AND f.small >= d.cls) x ON len(x.top) > 1;

-- name: qualify-over-groups
SELECT small, level, sum(price) AS s FROM facts GROUP BY small, level QUALIFY dense_rank() OVER (PARTITION BY level ORDER BY sum(price) DESC NULLS LAST) <= 2;

-- name: qualify-with-named-window
SELECT id, k, price FROM facts WHERE k IS NOT NULL WINDOW w AS (PARTITION BY k ORDER BY price DESC NULLS LAST, id) QUALIFY row_number() OVER w <= 2 AND lead(price) OVER w < price;

-- name: window-frames-by-groups
SELECT id, sum(price) OVER (PARTITION BY flag ORDER BY small NULLS LAST GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP), first_value(small) OVER (PARTITION BY flag ORDER BY small DESC NULLS LAST GROUPS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM facts WHERE id < 1500;

-- name: window-frames-of-decimals
SELECT id, count(*) OVER (PARTITION BY level ORDER BY price RANGE BETWEEN 12.5 PRECEDING AND 3.25 FOLLOWING), sum(unsig) OVER (PARTITION BY level ORDER BY price DESC RANGE BETWEEN 100 PRECEDING AND 50 PRECEDING) FROM facts WHERE id < 2000 AND price IS NOT NULL;

-- name: window-frames-per-row
SELECT id, sum(unsig) OVER (PARTITION BY k % 9 ORDER BY id ROWS BETWEEN small % 3 + 3 PRECEDING AND abs(small) FOLLOWING) FROM facts WHERE id < 2000 AND small IS NOT NULL;

-- name: window-with-nulls-ignored
SELECT id, first_value(k IGNORE NULLS) OVER w, last_value(small IGNORE NULLS) OVER w, nth_value(txt, 2 IGNORE NULLS) OVER w, lag(k, 2, -1 IGNORE NULLS) OVER (PARTITION BY flag ORDER BY id) FROM facts WHERE id < 2500 WINDOW w AS (PARTITION BY flag ORDER BY id ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING);

-- name: window-ranks-ordered-by-arguments
SELECT id, row_number(ORDER BY price NULLS FIRST, id) OVER (PARTITION BY k % 4 ORDER BY id ROWS 5 PRECEDING), lead(txt ORDER BY unsig, id) OVER (PARTITION BY level ORDER BY id) FROM facts WHERE id < 1000;

-- name: cte-recursive-beside-tables
WITH RECURSIVE steps(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM steps WHERE i < 9) SELECT s.i, count(f.id), max(f.price) FROM steps s LEFT JOIN facts f ON f.small + 5 = s.i GROUP BY s.i;

-- name: cte-recursive-over-aggregate
WITH RECURSIVE sizes AS MATERIALIZED (SELECT k % 16 AS g, count(*) AS n FROM facts WHERE k IS NOT NULL GROUP BY g), t(g, n, path) AS (SELECT g, n, [g] FROM sizes WHERE g = 1 UNION ALL SELECT s.g, t.n + s.n, list_append(t.path, s.g) FROM t JOIN sizes s ON s.g = t.g * 2) SELECT f.small, count(*), max(t.n), max(len(t.path)) FROM facts f JOIN t ON t.g = f.k % 16 GROUP BY f.small;

-- name: cte-read-by-both-sides-of-a-union
WITH c AS MATERIALIZED (SELECT k, level, sum(unsig) AS s FROM facts GROUP BY k, level) SELECT 'all' AS what, count(*) AS n, sum(s) AS s FROM c UNION ALL SELECT level::VARCHAR, count(*), max(s) FROM c WHERE k IN (SELECT k FROM c WHERE s > 100000) GROUP BY level;

-- name: semi-join-of-rows-with-nulls
SELECT id, k, small FROM facts f WHERE EXISTS (SELECT 1 FROM dims d WHERE d.k IS NOT DISTINCT FROM f.k AND d.cls = abs(f.small) % 4 AND d.score IS NULL) AND id < 4000;

-- name: anti-join-on-two-keys-with-nulls
SELECT id, k, small FROM facts f ANTI JOIN dims d ON f.k = d.k AND f.small <> d.cls WHERE id < 4000;

-- name: not-in-rows-with-nulls
SELECT count(*), sum(id) FROM facts WHERE (k, small) NOT IN (SELECT k, cls FROM dims WHERE k IS NOT NULL AND k > 3);

-- name: except-all-of-several-columns
SELECT k, level, flag FROM facts EXCEPT ALL SELECT k, level, flag FROM facts WHERE id % 3 = 1;

-- name: intersect-all-with-nested-types
SELECT list, obj FROM facts WHERE id < 6000 INTERSECT ALL SELECT list, obj FROM facts WHERE id > 3000;

-- name: union-by-name-of-different-types
SELECT x, count(*), count(y), max(z) FROM (SELECT small AS x, price AS y FROM facts UNION ALL BY NAME SELECT cls AS x, score AS y, name AS z FROM dims) GROUP BY x;

-- name: distinct-on-several-with-ties ordered
SELECT DISTINCT ON (level, flag) level, flag, price, id FROM facts WHERE price IS NOT NULL ORDER BY level NULLS FIRST, flag DESC NULLS LAST, price DESC, id;

-- name: distinct-of-zones-and-unicode
SELECT DISTINCT tstz AT TIME ZONE 'Asia/Kolkata' > TIMESTAMP '2020-04-15 12:00:00' AS late, upper(txt) AS u, length(txt), strlen(txt), unicode(txt), reverse(txt) FROM facts;

-- name: groups-of-days-across-a-change-of-clocks
SELECT date_trunc('day', tstz AT TIME ZONE 'Europe/Zurich') AS local_day, count(*), min(tstz), max(tstz - date_trunc('day', tstz)) FROM facts WHERE tstz < TIMESTAMPTZ '2020-04-05 00:00:00+02' GROUP BY local_day;

-- name: aggregates-ordered-by-two-with-filter
SELECT level, string_agg(txt, ',' ORDER BY unsig DESC, id) FILTER (WHERE flag), array_agg(DISTINCT small ORDER BY small DESC NULLS LAST), first(id ORDER BY price NULLS LAST, id) FILTER (WHERE small > 0), arg_min(txt, unsig::BIGINT * 100000 + id) FILTER (WHERE txt IS NOT NULL) FROM facts WHERE id < 5000 GROUP BY level;

-- name: quantiles-of-times-and-intervals
SELECT flag, quantile_disc(day, [0.25, 0.75]) FILTER (WHERE isfinite(day)), median(ts), quantile_cont(ts, 0.9), quantile_disc(tm, 0.1), quantile_disc(span, 0.5 ORDER BY span DESC), mad(price) FROM facts GROUP BY flag;

-- name: list-functions-over-groups
SELECT k % 6 AS g, list_sum(list_transform(list(small ORDER BY id), lambda x: coalesce(x, 0) * 2)), len(list_filter(list(price), lambda p: p > 0)), list_unique(list(txt)), list_sort(list_intersect(list(small), [1, 2, 30])), flatten(list([id % 2] ORDER BY id))[1:5] FROM facts WHERE id < 4000 GROUP BY g;

-- name: structs-and-maps-as-keys
SELECT obj.in AS deep, map['one'] AS one, {'l': level, 'f': flag} AS pair, count(*), max(obj.a) FROM facts GROUP BY ALL;

-- name: maps-of-groups-joined
SELECT d.name, m.counts[d.cls], map_keys(m.counts) FROM dims d JOIN (SELECT k, histogram(abs(small)::BIGINT) AS counts FROM facts WHERE small IS NOT NULL GROUP BY k) m ON m.k = d.k;

-- name: decimals-of-all-widths-grouped
SELECT (price / 10)::DECIMAL(4, 0) AS p, sum(price::DECIMAL(18, 6) * 3), sum(wide::DECIMAL(38, 4)), avg(price::DECIMAL(38, 10)), max(round(wide, -2)), sum(price) % 1.5 FROM facts GROUP BY p;

-- name: hive-joined-by-its-folders
SELECT a.y, a.mon, count(*), max(a.id), max(b.id) FROM read_parquet('{ugly}/hive/*/*/*.parquet', hive_partitioning = true) a JOIN read_parquet('{ugly}/hive/*/*/*.parquet', hive_partitioning = true) b ON a.y = b.y AND a.mon = b.mon AND a.id = b.id WHERE b.k = 7 GROUP BY a.y, a.mon;

-- name: hive-window-by-folder
SELECT y, mon, id, row_number() OVER (PARTITION BY y, mon ORDER BY id) AS n FROM read_parquet('{ugly}/hive/*/*/*.parquet', hive_partitioning = true) QUALIFY n <= 2;

-- name: aggregates-of-bits
SELECT k, bit_and(unsig), bit_or(unsig), bit_xor(unsig), bit_count(bit_xor(unsig)) FROM facts GROUP BY k;

-- name: aggregates-of-the-first-few
SELECT cls, min(name, 3), max(name, 2), min(since, 2), count_if(score > 10) FROM dims GROUP BY cls;

-- name: aggregates-arg-of-the-first-few
SELECT level, arg_max(txt, id, 3), arg_min(id, id, 2), arg_max(day, id) FROM facts GROUP BY level;

-- name: aggregates-of-regressions
SELECT cls, regr_count(score, k), round(regr_slope(score, k), 6), round(regr_r2(score, k), 6), round(covar_pop(score, k), 4)
FROM dims GROUP BY cls;

-- name: histograms-of-groups
SELECT flag, histogram(small), histogram(level) FROM facts GROUP BY flag;

-- name: truths-of-groups-with-filters
SELECT level, bool_and(flag) FILTER (WHERE id % 3 = 0), bool_or(flag) FILTER (WHERE k = 7), count(flag) FILTER (WHERE NOT flag)
FROM facts GROUP BY level HAVING count(*) > 10;

-- name: window-shares-of-partitions
SELECT id, ntile(5) OVER w, cume_dist() OVER w, percent_rank() OVER w, dense_rank() OVER w
FROM facts WHERE k < 20 WINDOW w AS (PARTITION BY k ORDER BY id);

-- name: window-nth-without-nulls
SELECT id, nth_value(day, 2 IGNORE NULLS) OVER w, lead(small, 3, -99::TINYINT) OVER w
FROM facts WHERE id < 3000 WINDOW w AS (PARTITION BY level ORDER BY id ROWS BETWEEN 5 PRECEDING AND 2 FOLLOWING);

-- name: window-of-windows
SELECT k, max(gap) FROM (SELECT k, id - lag(id) OVER (PARTITION BY k ORDER BY id) AS gap FROM facts) GROUP BY k
HAVING max(gap) > 0;

-- name: texts-taken-apart
SELECT txt, count(*), any_value(string_split(txt, ' ')), min(regexp_extract_all(txt, '[a-z]+')), max(levenshtein(txt, 'a')),
       min(translate(txt, 'aäz', 'xyz')), max(printf('%5s|', txt)), min(reverse(txt)) FROM facts WHERE txt IS NOT NULL GROUP BY txt;

-- name: buckets-of-time-in-zones
SELECT time_bucket(INTERVAL '3 hours', tstz) AS t, count(*), min(tstz AT TIME ZONE 'Europe/Zurich'), max(date_part('hour', tstz))
FROM facts WHERE tstz < TIMESTAMPTZ '2020-04-05 00:00:00+00' GROUP BY t;

-- name: nested-fields-as-keys
SELECT obj.in.deep, obj.b, count(*), sum(obj.a) FROM facts GROUP BY ALL;

-- name: maps-taken-apart
SELECT map['one'] AS one, count(*), min(map_keys(map)), min(cardinality(map)), max(map_entries(map)) FROM facts GROUP BY one;

-- name: json-taken-apart
SELECT js->>'v' AS v, sum((js->'k')::INTEGER), count(DISTINCT json_extract_string(js, '$.k')), min(json_type(js, '$.k'))
FROM facts GROUP BY v;

-- name: lists-put-together
SELECT k, list_sort(flatten(list(list_filter(list, lambda x: x IS NOT NULL)))) AS all, max(len(list)), min(list_sum(list))
FROM facts WHERE k BETWEEN 10 AND 30 GROUP BY k;

-- name: arrays-measured
SELECT arr, count(*), round(max(array_distance(arr::FLOAT[3], [1, 1, 1]::FLOAT[3])), 4), sum(arr[2]) FROM facts GROUP BY arr;

-- name: intervals-of-groups
SELECT k, epoch(max(span)), epoch(min(span)), count(DISTINCT span), epoch(max(age(DATE '2001-01-01', day)))
FROM facts WHERE isfinite(day) AND k < 50 GROUP BY k;

-- name: correlated-in-correlated
SELECT d.k, d.name FROM dims d WHERE EXISTS (SELECT 1 FROM facts f WHERE f.k = d.k AND f.id > (
       SELECT avg(g.id) FROM facts g WHERE g.k = f.k AND g.small > d.cls));

-- name: aggregates-of-both-sides-of-a-union ordered
SELECT src, n, total FROM (SELECT 'f' AS src, k AS n, sum(unsig) AS total FROM facts GROUP BY k
       UNION ALL SELECT 'd', cls, count(*) FROM dims GROUP BY cls) ORDER BY total DESC NULLS LAST, src, n LIMIT 25;

-- name: windows-in-set-operations
SELECT k, rank() OVER (ORDER BY k) AS r FROM dims WHERE cls = 1 EXCEPT
SELECT k, rank() OVER (ORDER BY k) AS r FROM dims WHERE cls = 1 AND score IS NULL;

-- name: customers-without-orders-by-nation
SELECT n_name, count(*) AS n, sum(c_acctbal) FROM customer JOIN nation ON c_nationkey = n_nationkey
       ANTI JOIN orders ON o_custkey = c_custkey GROUP BY n_name;

-- name: semi-join-of-aggregates
SELECT l_returnflag, count(*), sum(l_quantity) FROM lineitem SEMI JOIN
       (SELECT o_custkey, max(o_orderkey) AS last FROM orders GROUP BY o_custkey) ON last = l_orderkey GROUP BY l_returnflag;

-- name: full-join-of-aggregates
SELECT a.k, a.n, b.m FROM (SELECT k, count(*) AS n FROM facts WHERE small > 2 GROUP BY k) a
       FULL JOIN (SELECT k, sum(score) AS m FROM dims WHERE cls < 2 GROUP BY k) b ON a.k = b.k;

-- name: ordered-by-all-of-a-join ordered
SELECT d.cls, f.level, f.day FROM facts f JOIN dims d USING (k) WHERE f.id < 2500 AND f.day IS NOT NULL ORDER BY ALL LIMIT 300;

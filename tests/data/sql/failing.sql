-- Queries that one DuckDB does not answer. Cut into stages, they must fail with the same text, whichever task finds it.
-- What DuckDB fails at with some rows only is in random.sql, too, where those rows are not asked for.

-- name: more-than-one-row-correlated
-- fails: More than one row returned by a subquery used as an expression
SELECT d.name, (SELECT f.txt FROM facts f WHERE f.k = d.k) FROM dims d;

-- name: more-than-one-row-correlated-twice
-- fails: More than one row returned by a subquery used as an expression
SELECT d.name FROM dims d WHERE (SELECT f.id FROM facts f WHERE f.k = d.k AND f.small = d.cls) > 100;

-- name: more-than-one-row-of-nulls
-- fails: More than one row returned by a subquery used as an expression
SELECT d.name, (SELECT f.txt FROM facts f WHERE f.k IS NOT DISTINCT FROM d.k) FROM dims d WHERE d.k IS NULL;

-- name: more-than-one-row-that-only-counts
-- fails: More than one row returned by a subquery used as an expression
SELECT count(*) FROM (SELECT d.k, (SELECT f.id FROM facts f WHERE f.k = d.k) AS v FROM dims d) WHERE v IS NOT NULL;

-- name: more-than-one-row-that-nobody-reads
-- fails: More than one row returned by a subquery used as an expression
SELECT count(*) FROM (SELECT d.k, (SELECT f.id FROM facts f WHERE f.k = d.k) AS v FROM dims d);

-- name: several-columns-in-a-correlated-subquery
-- fails: Correlated IN/ANY/ALL with multiple columns not yet supported
SELECT d.name, (d.cls, d.k) IN (SELECT f.small, f.unsig FROM facts f WHERE f.k = d.k) AS x FROM dims d;

-- name: more-than-one-row
-- fails: More than one row returned by a subquery used as an expression
SELECT count(*) FROM facts WHERE id > (SELECT k FROM dims WHERE k < 3);

-- name: error-of-the-query
-- fails: row 19999 is bad
SELECT sum(CASE WHEN id = 19999 THEN error('row ' || id || ' is bad') ELSE id END) FROM facts;

-- name: error-in-a-condition-of-a-join
-- fails: no such class
SELECT count(*) FROM facts f JOIN dims d ON f.k = d.k AND CASE WHEN d.cls = 3 THEN error('no such class') ELSE f.id END > d.k;

-- name: cast-of-a-text
-- fails: Could not convert string 'zürich' to INT32
SELECT k, sum(CAST(txt AS INTEGER)) FROM facts WHERE txt IN ('zürich') GROUP BY k;

-- name: cast-of-a-number-out-of-range
-- fails: can't be cast
SELECT CAST(id AS UTINYINT) FROM facts WHERE id > 19000;

-- name: cast-of-a-sum-out-of-range
-- fails: can't be cast because the value is out of range for the destination type INT16
SELECT k, CAST(sum(id) AS SMALLINT) FROM facts GROUP BY k;

-- name: cast-of-a-date
-- fails: invalid date field format
SELECT max(CAST(txt AS DATE)) FROM facts WHERE txt = 'a';

-- name: overflow-of-a-product
-- fails: Overflow in multiplication of
SELECT max(big * 9223372036854775807) FROM facts;

-- name: overflow-of-a-sum-of-columns
-- fails: Overflow in addition of
SELECT f.k, count(*) FROM facts f JOIN dims d ON f.k = d.k GROUP BY f.k HAVING max(f.id + 9223372036854775807) > 0;

-- name: overflow-of-a-decimal
-- fails: Overflow in multiplication of
SELECT max(CAST(wide AS DECIMAL(38, 10)) * CAST(10000000000000000000000000 AS DECIMAL(38, 0))) FROM facts;

-- name: overflow-of-a-sum
-- fails: Overflow
SELECT sum(CAST(id AS HUGEINT) * 1000000000000000000 * 1000000000000000) FROM facts;

-- name: overflow-of-a-sum-by-groups
-- fails: Overflow
SELECT k, sum(CAST(id AS HUGEINT) * 1000000000000000000 * 1000000000000000) FROM facts GROUP BY k;

-- name: division-out-of-range
-- fails: Overflow in division of
SELECT DISTINCT (-9223372036854775808 + id * 0) // (id - 20000) FROM facts;

-- name: root-of-a-negative-number
-- fails: cannot take square root of a negative number
SELECT avg(sqrt(5 - id)) FROM facts;

-- name: logarithm-of-zero
-- fails: cannot take logarithm of zero
SELECT k, ln(min(id) * 0) FROM facts GROUP BY k;

-- name: limit-below-zero
-- fails: Type INT32 with value -1 can't be cast because the value is out of range for the destination type UINT64
SELECT id FROM facts ORDER BY id LIMIT (SELECT -1);

-- name: pattern-that-cannot-be-read
-- fails: missing ]
SELECT count(*) FROM facts f JOIN dims d ON f.k = d.k WHERE regexp_matches(f.txt, '[' || d.name);

-- name: spread-of-all
-- fails: STDDEV_SAMP is out of range
SELECT stddev(dbl) FROM facts;

-- name: spread-by-groups
-- fails: VARPOP is out of range
SELECT k, var_pop(dbl) FROM facts WHERE NOT isnan(dbl) GROUP BY k;

-- name: spread-of-an-infinite-number
-- fails: STDDEV_POP is out of range
SELECT stddev_pop(dbl) FROM facts WHERE id IN (2, 19999);

-- name: spread-of-two-rows-far-apart
-- fails: VARSAMP is out of range
SELECT var_samp(if(id = 0, 1e200, -1e200)) FROM facts WHERE id IN (0, 19999);

-- name: spread-of-two-rows-far-apart-by-groups
-- fails: STDDEV_SAMP is out of range
SELECT id % 2, stddev(if(id < 100, 1e200, -1e200)) FROM facts WHERE id IN (0, 1, 19998) GROUP BY 1;

-- name: correlation-of-two-rows-far-apart
-- fails: out of range
SELECT corr(if(id = 0, 1e200, -1e200), id) FROM facts WHERE id IN (0, 19999);

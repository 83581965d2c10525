-- Queries that have shown a difference once, most of them random ones, made smaller.

-- name: count-if-of-no-rows
SELECT count_if(r0."p_name" < 'a') FROM part r0 JOIN region r1 ON r0."p_partkey" = r1."r_regionkey" WHERE r0."p_size" < 0;

-- name: count-if-of-nulls-only
SELECT r0."r_regionkey", count_if(r0."r_regionkey" < 0) FROM region r0 JOIN region r1 ON r0."r_regionkey" = r1."r_regionkey"
RIGHT JOIN nation r2 ON r0."r_regionkey" = r2."n_nationkey" GROUP BY r0."r_regionkey";

-- name: count-if-of-an-empty-rollup
SELECT r0."l_orderkey", r0."l_shipdate", count_if(r0."l_returnflag" < 'a') FROM lineitem r0
JOIN region r1 ON r0."l_orderkey" = r1."r_regionkey" WHERE r0."l_linenumber" < 0 GROUP BY ROLLUP (r0."l_orderkey", r0."l_shipdate");

-- name: a-column-twice-in-a-refined-result
SELECT r0."r_regionkey", r0."r_regionkey" FROM region r0 WHERE r0."r_regionkey" < 0
OR EXISTS (SELECT 1 FROM lineitem r1 WHERE r1."l_orderkey" = r0."r_regionkey" AND r1."l_linenumber" < 0);

-- name: rows-of-a-subquery-that-nobody-asks-for
SELECT o.name, (SELECT n.n_name FROM nation n WHERE n.n_regionkey = o.k) FROM one o;

-- name: rows-of-a-subquery-that-nobody-asks-for-without-keys
SELECT o.name, (SELECT d.name FROM dims d WHERE d.k = o.k) FROM one o;

-- name: casts-of-rows-that-are-left-out
SELECT f.k, sum(CAST(d.name AS INTEGER)) FROM facts f JOIN (SELECT k, substr(name, 6) AS name FROM dims WHERE name LIKE 'name %') d
ON f.k = d.k WHERE f.txt <> 'zürich' GROUP BY f.k;

-- name: grouping-of-groups-that-become-the-same
SELECT r0."r_comment", r0."r_regionkey", coalesce(r0."r_comment", 'a'), count(*),
grouping(r0."r_comment", r0."r_regionkey", coalesce(r0."r_comment", 'a')) FROM region r0
GROUP BY CUBE (r0."r_comment", r0."r_regionkey", coalesce(r0."r_comment", 'a'));

-- name: conditions-on-files-of-several-kinds-below-a-join
SELECT r0."id" FROM (SELECT * FROM drift q WHERE hash(q."id") % 10 = 0) r0
JOIN region r1 ON r0."id" = r1."r_regionkey" AND r0."day" < DATE '1995-06-17';

-- name: conditions-on-files-of-several-kinds-below-two-joins
SELECT r1."k", r1."list", count(*) FROM (SELECT * FROM orders q WHERE hash(q."o_orderkey") % 60 = 0) r0
JOIN (SELECT * FROM drift q WHERE hash(q."id") % 10 = 0) r1 ON r0."o_orderkey" = r1."id" AND r1."small" IN (0)
JOIN (SELECT * FROM part q WHERE hash(q."p_partkey") % 8 = 0) r2 ON r0."o_orderkey" = r2."p_partkey"
GROUP BY r1."k", r1."list";

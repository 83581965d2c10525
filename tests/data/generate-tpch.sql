-- The tables of TPC-H, with values of our own making: the schema, the ranges and the relations between tables are those
-- of the benchmark, the rows are not. The same input gives the same rows, on every machine.
--
-- Set before: variables folder (exists), scale (1 = about 6 million lines), row_group (rows per row group).
-- Lines and orders come in several files.

CREATE OR REPLACE TEMP MACRO pick(seed, key, n) AS CAST(hash(key, seed) % CAST(n AS UBIGINT) AS BIGINT);
CREATE OR REPLACE TEMP MACRO word(seed, key, words) AS words[pick(seed, key, len(words)) + 1];
CREATE OR REPLACE TEMP MACRO rows_of(n) AS greatest(1, CAST(n * getvariable('scale') AS BIGINT));
CREATE OR REPLACE TEMP MACRO money(seed, key, low, high) AS
    CAST((low * 100 + pick(seed, key, (high - low) * 100 + 1)) / 100 AS DECIMAL(15, 2));
CREATE OR REPLACE TEMP MACRO phone(seed, key, nation) AS
    concat_ws('-', nation + 10, 100 + pick(seed || 'a', key, 900), 100 + pick(seed || 'b', key, 900),
              1000 + pick(seed || 'c', key, 9000));
CREATE OR REPLACE TEMP MACRO remark(seed, key) AS
    concat_ws(' ', word(seed || '1', key, getvariable('adverbs')), word(seed || '2', key, getvariable('adjectives')),
              word(seed || '3', key, getvariable('nouns')), word(seed || '4', key, getvariable('verbs')),
              word(seed || '5', key, getvariable('adverbs')));

SET VARIABLE adverbs = ['quickly', 'slowly', 'carefully', 'blithely', 'furiously', 'never', 'daringly'];
SET VARIABLE adjectives = ['special', 'pending', 'regular', 'final', 'ironic', 'bold', 'even', 'silent', 'express'];
SET VARIABLE nouns = ['requests', 'deposits', 'packages', 'accounts', 'foxes', 'theodolites', 'Customer Complaints',
                      'Customer Recommends', 'instructions', 'pinto beans'];
SET VARIABLE verbs = ['sleep', 'haggle', 'nag', 'wake', 'cajole', 'integrate', 'boost', 'detect'];
SET VARIABLE colors = ['almond', 'antique', 'azure', 'beige', 'black', 'blue', 'chocolate', 'coral', 'cream', 'forest',
                       'frosted', 'green', 'honeydew', 'indian', 'ivory', 'khaki', 'lemon', 'linen', 'maroon', 'navy',
                       'olive', 'orchid', 'peach', 'plum', 'red', 'rose', 'salmon', 'sienna', 'snow', 'steel', 'tan',
                       'thistle', 'tomato', 'violet', 'wheat', 'white'];

CREATE OR REPLACE TEMP TABLE region AS
SELECT CAST(i - 1 AS INTEGER) AS r_regionkey, name AS r_name, remark('region', i) AS r_comment
FROM (SELECT unnest(['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST']) AS name, unnest(range(1, 6)) AS i);

CREATE OR REPLACE TEMP TABLE nation AS
SELECT CAST(i AS INTEGER) AS n_nationkey, name AS n_name, CAST(region AS INTEGER) AS n_regionkey,
       remark('nation', i) AS n_comment
FROM (VALUES (0, 'ALGERIA', 0), (1, 'ARGENTINA', 1), (2, 'BRAZIL', 1), (3, 'CANADA', 1), (4, 'EGYPT', 4),
             (5, 'ETHIOPIA', 0), (6, 'FRANCE', 3), (7, 'GERMANY', 3), (8, 'INDIA', 2), (9, 'INDONESIA', 2),
             (10, 'IRAN', 4), (11, 'IRAQ', 4), (12, 'JAPAN', 2), (13, 'JORDAN', 4), (14, 'KENYA', 0),
             (15, 'MOROCCO', 0), (16, 'MOZAMBIQUE', 0), (17, 'PERU', 1), (18, 'CHINA', 2), (19, 'ROMANIA', 3),
             (20, 'SAUDI ARABIA', 4), (21, 'VIETNAM', 2), (22, 'RUSSIA', 3), (23, 'UNITED KINGDOM', 3),
             (24, 'UNITED STATES', 1)) t(i, name, region);

CREATE OR REPLACE TEMP TABLE supplier AS
SELECT k AS s_suppkey, format('Supplier#{:09d}', k) AS s_name, 'Address ' || pick('sa', k, 100000) AS s_address,
       CAST(pick('sn', k, 25) AS INTEGER) AS s_nationkey, phone('sp', k, pick('sn', k, 25)) AS s_phone,
       money('sb', k, -999, 9999) AS s_acctbal, remark('sc', k) AS s_comment
FROM (SELECT unnest(range(1, rows_of(10000) + 1)) AS k);

CREATE OR REPLACE TEMP TABLE customer AS
SELECT k AS c_custkey, format('Customer#{:09d}', k) AS c_name, 'Address ' || pick('ca', k, 100000) AS c_address,
       CAST(pick('cn', k, 25) AS INTEGER) AS c_nationkey, phone('cp', k, pick('cn', k, 25)) AS c_phone,
       money('cb', k, -999, 9999) AS c_acctbal,
       word('cm', k, ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'MACHINERY', 'HOUSEHOLD']) AS c_mktsegment,
       remark('cc', k) AS c_comment
FROM (SELECT unnest(range(1, rows_of(150000) + 1)) AS k);

CREATE OR REPLACE TEMP TABLE part AS
SELECT k AS p_partkey,
       concat_ws(' ', word('p1', k, getvariable('colors')), word('p2', k, getvariable('colors')),
                 word('p3', k, getvariable('colors'))) AS p_name,
       'Manufacturer#' || (1 + pick('pm', k, 5)) AS p_mfgr,
       'Brand#' || (1 + pick('pm', k, 5)) || (1 + pick('pb', k, 5)) AS p_brand,
       concat_ws(' ', word('t1', k, ['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO']),
                 word('t2', k, ['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED']),
                 word('t3', k, ['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'])) AS p_type,
       CAST(1 + pick('ps', k, 50) AS INTEGER) AS p_size,
       concat_ws(' ', word('c1', k, ['SM', 'LG', 'MED', 'JUMBO', 'WRAP']),
                 word('c2', k, ['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'])) AS p_container,
       CAST((90000 + (k // 10) % 20001 + 100 * (k % 1000)) / 100 AS DECIMAL(15, 2)) AS p_retailprice,
       remark('pc', k) AS p_comment
FROM (SELECT unnest(range(1, rows_of(200000) + 1)) AS k);

-- The i-th supplier of a part, so that lines can name one of the four.
CREATE OR REPLACE TEMP MACRO supplier_of(part, i, suppliers) AS
    (part + i * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1;

CREATE OR REPLACE TEMP TABLE partsupp AS
SELECT p_partkey AS ps_partkey, supplier_of(p_partkey, i, rows_of(10000)) AS ps_suppkey,
       CAST(1 + pick('pq', p_partkey * 4 + i, 9999) AS INTEGER) AS ps_availqty,
       money('pp', p_partkey * 4 + i, 1, 1000) AS ps_supplycost, remark('po', p_partkey * 4 + i) AS ps_comment
FROM part, range(4) r(i);

-- Two thirds of the customers have orders.
CREATE OR REPLACE TEMP TABLE order_base AS
SELECT k AS orderkey, 3 * pick('oc', k, greatest(1, rows_of(150000) // 3)) + 1 + pick('od', k, 2) AS custkey,
       DATE '1992-01-01' + CAST(pick('ot', k, 2406) AS INTEGER) AS orderdate, 1 + pick('on', k, 7) AS n_lines
FROM (SELECT unnest(range(1, rows_of(1500000) + 1)) AS k);

CREATE OR REPLACE TEMP TABLE lineitem AS
SELECT *, CAST(l_quantity * price AS DECIMAL(15, 2)) AS l_extendedprice
FROM (SELECT orderkey AS l_orderkey, 1 + pick('lp', key, rows_of(200000)) AS l_partkey,
             supplier_of(1 + pick('lp', key, rows_of(200000)), pick('ls', key, 4), rows_of(10000)) AS l_suppkey,
             line AS l_linenumber, CAST(1 + pick('lq', key, 50) AS DECIMAL(15, 2)) AS l_quantity,
             CAST(pick('ld', key, 11) / 100 AS DECIMAL(15, 2)) AS l_discount,
             CAST(pick('lt', key, 9) / 100 AS DECIMAL(15, 2)) AS l_tax,
             CASE WHEN received > DATE '1995-06-17' THEN 'N' ELSE word('lr', key, ['R', 'A']) END AS l_returnflag,
             CASE WHEN shipped > DATE '1995-06-17' THEN 'O' ELSE 'F' END AS l_linestatus,
             shipped AS l_shipdate, orderdate + CAST(30 + pick('lc', key, 61) AS INTEGER) AS l_commitdate,
             received AS l_receiptdate,
             word('li', key, ['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN']) AS l_shipinstruct,
             word('lm', key, ['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB']) AS l_shipmode,
             remark('lo', key) AS l_comment, 900 + pick('lp', key, rows_of(200000)) % 1000 AS price
      FROM (SELECT *, orderkey * 8 + line AS key, orderdate + CAST(1 + pick('lh', orderkey * 8 + line, 121) AS INTEGER) AS shipped,
                   orderdate + CAST(2 + pick('lh', orderkey * 8 + line, 121) + pick('lv', orderkey * 8 + line, 30) AS INTEGER) AS received
            FROM order_base, range(1, n_lines + 1) r(line)));

CREATE OR REPLACE TEMP TABLE orders AS
SELECT orderkey AS o_orderkey, custkey AS o_custkey,
       CASE WHEN every_f THEN 'F' WHEN every_o THEN 'O' ELSE 'P' END AS o_orderstatus,
       CAST(total AS DECIMAL(15, 2)) AS o_totalprice, orderdate AS o_orderdate,
       word('op', orderkey, ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW']) AS o_orderpriority,
       format('Clerk#{:09d}', 1 + pick('ok', orderkey, rows_of(1000))) AS o_clerk, CAST(0 AS INTEGER) AS o_shippriority,
       remark('oo', orderkey) AS o_comment
FROM order_base JOIN (SELECT l_orderkey, bool_and(l_linestatus = 'F') AS every_f, bool_and(l_linestatus = 'O') AS every_o,
                             sum(l_extendedprice * (1 + l_tax) * (1 - l_discount)) AS total
                      FROM lineitem GROUP BY 1) ON l_orderkey = orderkey;

COPY (FROM region ORDER BY 1) TO (getvariable('folder') || '/region.parquet') (FORMAT parquet);
COPY (FROM nation ORDER BY 1) TO (getvariable('folder') || '/nation.parquet') (FORMAT parquet);
COPY (FROM supplier ORDER BY 1) TO (getvariable('folder') || '/supplier.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (FROM customer ORDER BY 1) TO (getvariable('folder') || '/customer.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (FROM part ORDER BY 1) TO (getvariable('folder') || '/part.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (FROM partsupp ORDER BY 1, 2) TO (getvariable('folder') || '/partsupp.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (FROM orders WHERE o_orderkey % 2 = 0 ORDER BY 1) TO (getvariable('folder') || '/orders-0.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (FROM orders WHERE o_orderkey % 2 = 1 ORDER BY 1) TO (getvariable('folder') || '/orders-1.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment FROM lineitem WHERE l_orderkey % 3 = 0 ORDER BY 1, 4) TO (getvariable('folder') || '/lineitem-0.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment FROM lineitem WHERE l_orderkey % 3 = 1 ORDER BY 1, 4) TO (getvariable('folder') || '/lineitem-1.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));
COPY (SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment FROM lineitem WHERE l_orderkey % 3 = 2 ORDER BY 1, 4) TO (getvariable('folder') || '/lineitem-2.parquet') (FORMAT parquet, ROW_GROUP_SIZE (getvariable('row_group')));

/*
 * demo_sales.h - the tables that `capstan demo` asks about: customers, and what they bought, as Parquet files.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_MAIN_DEMO_SALES_H
#define CAPSTAN_MAIN_DEMO_SALES_H

#include "base/check.h"
#include "base/err.h"

/* Asks for a join and a group over the tables `sales` and `customers`. */
extern const char demo_sales_query[];

/* Writes customers.parquet and sales-*.parquet into the folder. */
MUST_USE enum err demo_sales_make(const char *folder, struct error *e);

#endif

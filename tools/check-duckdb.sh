#!/bin/sh
# check-duckdb.sh FOLDER - does FOLDER/lib/libduckdb.so export every function that FOLDER/include/duckdb.h declares?
# Header and library come from two packages, so this is worth a check.
set -eu
folder=$1
header=$folder/include/duckdb.h

declared=$(awk '
    { sub(/\/\/.*/, "") }
    /^[ \t]*DUCKDB_C_API/ { open = 1 }
    open { text = text " " $0 }
    open && /;/ {
        if (match(text, /duckdb_[a-z0-9_]*[ \t]*\(/)) {
            name = substr(text, RSTART, RLENGTH)
            sub(/[ \t]*\($/, "", name)
            print name
        }
        open = 0
        text = ""
    }' "$header" | LC_ALL=C sort -u)
exported=$(nm -D --defined-only "$folder/lib/libduckdb.so" | awk '$3 ~ /^duckdb_/ { print $3 }' | LC_ALL=C sort -u)

count=$(printf '%s\n' "$declared" | grep -c .) || count=0
missing=$(printf '%s\n=\n%s\n' "$exported" "$declared" |
    awk '/^=$/ { declared = 1; next } !declared { have[$1] = 1; next } !have[$1]')

if [ "$count" -lt 100 ]; then
    echo "not ok: found only $count functions in $header"
elif [ -n "$missing" ]; then
    echo "not ok: declared in duckdb.h, but not exported by libduckdb.so:"
    printf '%s\n' "$missing" | sed 's/^/  /'
else
    echo "ok: libduckdb.so exports all $count functions of duckdb.h"
    echo '1 passed, 0 failed'
    exit 0
fi
echo '0 passed, 1 failed'
exit 1

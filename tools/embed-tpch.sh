#!/bin/sh
# embed-tpch.sh GENERATOR.sql QUERIES.sql - prints the C source that holds both texts: those of main/tpch.h.
set -eu
export LC_ALL=C

literal() { # FILE: its text as string literals, one a line
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n"/' "$1"
}

echo "/* Made from $1 and $2 by tools/embed-tpch.sh. */"
echo '#include "main/tpch.h"'
echo
echo 'const char tpch_generator[] ='
literal "$1"
echo '    ;'
echo
echo 'const char tpch_queries_text[] ='
literal "$2"
echo '    ;'

#!/bin/sh
# embed-migrations.sh FOLDER - prints the C source that holds the migrations of FOLDER: the table of store/migration.h.
#
# The files are NNNN-name.DIALECT.up.sql, each with a NNNN-name.DIALECT.down.sql; the numbers of a dialect must run from
# 1 on without a gap.
set -eu
export LC_ALL=C
cd "$1"

fail() {
    echo "embed-migrations: $1" >&2
    exit 1
}

literal() { # FILE: its text as string literals, one a line
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/        "/' -e 's/$/\\n"/' "$1"
}

echo '/* Made from src/store/migrations by tools/embed-migrations.sh. */'
echo '#include "store/migration.h"'
echo
echo '#include <stddef.h>'
echo
echo 'const struct migration migrations[] = {'
dialect=
for up in $(printf '%s\n' * | sed -n 's/^[0-9]\{4\}-[a-z0-9-]*\.\([a-z]*\)\.up\.sql$/\1 &/p' | sort | cut -d ' ' -f 2); do
    stem=${up%.up.sql}
    down=$stem.down.sql
    [ -f "$down" ] || fail "$up has no $down"
    number=$(expr "${up%%-*}" + 0) || fail "$up: 0 is the empty schema"
    name=${stem#*-}
    [ "${name##*.}" = "$dialect" ] || expected=1
    dialect=${name##*.}
    [ "$number" -eq "$expected" ] || fail "$up: the next step of $dialect is $expected"
    expected=$((expected + 1))
    printf '    {%s, "%s", "%s",\n' "$number" "${name%.*}" "$dialect"
    literal "$up"
    echo '        ,'
    literal "$down"
    echo '    },'
done
echo '    {0, NULL, NULL, NULL, NULL},'
echo '};'
[ -n "$dialect" ] || fail "there are no migrations in $1"
for file in *; do
    case $file in
    [0-9][0-9][0-9][0-9]-*.*.up.sql) ;;
    [0-9][0-9][0-9][0-9]-*.*.down.sql) [ -f "${file%.down.sql}.up.sql" ] || fail "$file has no .up.sql" ;;
    *) fail "$file is not called NNNN-name.DIALECT.up.sql or .down.sql" ;;
    esac
done

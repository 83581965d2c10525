#!/bin/sh
# read.sh FILE... - has a reader that nobody here wrote look at Arrow streams. Run by the test, from the root.
#
# Installs the packages of package-lock.json once. Leaves with 77 if there is no Node at all.
set -eu
cd "$(dirname "$0")"
root=$PWD/../../..

node=node
[ ! -x "$root/.cache/node/bin/node" ] || node=$root/.cache/node/bin/node
command -v "$node" >/dev/null && command -v npm >/dev/null || exit 77

stamp=node_modules/.lock.sum
sum=$(cksum <package-lock.json)
if [ ! -f $stamp ] || [ "$(cat $stamp)" != "$sum" ]; then
    npm ci --ignore-scripts --no-audit --no-fund >&2
    echo "$sum" >$stamp
fi
exec "$node" read.mjs "$@"

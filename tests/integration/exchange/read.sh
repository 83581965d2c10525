#!/bin/sh
# read.sh FILE... - has a reader that nobody here wrote look at Arrow streams. Run by the test, from the root.
#
# Installs the packages of package-lock.json once.
set -eu
cd "$(dirname "$0")"
root=$PWD/../../..

node=node
[ ! -x "$root/.cache/node/bin/node" ] || node=$root/.cache/node/bin/node
for program in "$node" npm; do
    if ! command -v "$program" >/dev/null; then
        echo "$program is missing, and nobody else can say whether this is Arrow: run ./dev setup" >&2
        exit 1
    fi
done

stamp=node_modules/.lock.sum
sum=$(cksum <package-lock.json)
if [ ! -f $stamp ] || [ "$(cat $stamp)" != "$sum" ]; then
    npm ci --ignore-scripts --no-audit --no-fund >&2
    echo "$sum" >$stamp
fi
exec "$node" read.mjs "$@"

#!/bin/sh
# build-web.sh OUT.c - builds the dashboard of web/ and writes it as the C source that the coordinator serves it from. Run
# through make. Its packages are installed once, as pinned in web/package-lock.json.
set -eu
cd "$(dirname "$0")/.."
out=$1

# The machine's own Node if it is new enough, else the one that setup.sh has fetched.
node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node

mkdir -p build/web
log=build/web/build.log
say_failed() { # WHAT
    cat "$log" >&2
    echo "build-web.sh: $1" >&2
    exit 1
}

# Several builds may run at a time.
exec 9>build/web/lock
flock 9
tools/npm-install.sh web
(cd web && "$node" node_modules/vite/bin/vite.js build) >"$log" 2>&1 || say_failed 'the dashboard does not build'
"$node" web/embed.js build/web/dist >"$out.new" 2>"$log" || say_failed 'the dashboard cannot be embedded'
mv "$out.new" "$out"

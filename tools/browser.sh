#!/bin/sh
# browser.sh [--binary FILE] [NAME] - the dashboard in a real browser, against real clusters. Run through ./dev test.
#
#   --binary FILE    the capstan to test, else build/release/bin/capstan
#   NAME             only tests with NAME in their name
#
# First its types are checked. Pictures of all pages are left in build/browser. The last line of output is
# `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."

binary=build/release/bin/capstan
name=
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$2 && shift ;;
    -*)
        echo "browser.sh: unknown option '$1'" >&2
        exit 2
        ;;
    *) name=$1 ;;
    esac
    shift
done
[ -x "$binary" ] || {
    echo "browser.sh: there is no $binary" >&2
    echo '  hint: ./dev build' >&2
    exit 1
}
export CAPSTAN_BIN="$binary"

# The machine's own Node if it is new enough, else the one that setup.sh has fetched.
node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node

for folder in examples/javascript tests/e2e tests/browser web; do
    tools/npm-install.sh "$folder"
done

mkdir -p build/browser
"$node" tests/browser/node_modules/typescript/bin/tsc -p web >build/browser/types.log || {
    cat build/browser/types.log
    echo 'not ok: the types of the dashboard'
    echo '0 passed, 1 failed'
    exit 1
}
echo 'ok: the types of the dashboard'
exec "$node" --test --test-concurrency=1 ${name:+--test-name-pattern="$name"} \
    --test-reporter=./tests/e2e/reporter.js --test-reporter-destination=stdout tests/browser/*.test.js

#!/bin/sh
# package-test.sh - the tests of tests/package: builds the .deb, looks into it, installs it. Run through ./dev test.
#
# Needs a release build. The last line of output is `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."

# The machine's own Node if it is new enough, else the one that setup.sh has fetched.
node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
tools/npm-install.sh examples/javascript
tools/npm-install.sh tests/package

make --no-print-directory -s V=release installable

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
run() { # COMMAND...
    "$@" >"$scratch/log" 2>&1 || :
    cat "$scratch/log"
    counts=$(tail -n 1 "$scratch/log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    [ -n "$counts" ] || {
        echo "package-test.sh: $1 died" >&2
        counts='0 1'
    }
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
}

CAPSTAN_DEB=$(packaging/debian/build.sh --fast "$scratch")
export CAPSTAN_DEB
run "$node" --test --test-concurrency=1 --test-reporter=./tests/e2e/reporter.js --test-reporter-destination=stdout \
    tests/package/*.test.js
run tests/package/machine.sh "$CAPSTAN_DEB"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

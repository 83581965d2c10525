#!/bin/sh
# npm-install.sh FOLDER - the npm packages of a folder, if they are not yet those of its package-lock.json.
#
# Several suites may ask at the same time: one installs, the others wait.
set -eu
cd "$(dirname "$0")/../$1"

stamp=node_modules/.lock.sum
sum=$(cksum <package-lock.json)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
exec 9<package-lock.json
flock 9
[ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$sum" ] || exit 0
npm ci --ignore-scripts --no-audit --no-fund >"$log" 2>&1 || {
    cat "$log" >&2
    echo "npm-install.sh: npm could not install the packages of $1" >&2
    exit 1
}
echo "$sum" >"$stamp"

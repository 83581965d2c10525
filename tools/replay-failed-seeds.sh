#!/bin/sh
# replay-failed-seeds.sh SIM FILE - runs the simulator on every seed that ever failed. FILE has one `seed options...` a
# line; # starts a comment.
set -eu
sim=$1
file=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

passed=0
failed=0
while read -r line; do
    line=${line%%#*}
    # shellcheck disable=SC2086 # a seed and its options, as words
    set -- $line
    [ $# -gt 0 ] || continue
    if "$sim" --seed "$@" >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "not ok: sim --seed $*"
        tail -n 20 "$log"
    fi
done <"$file"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

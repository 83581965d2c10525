#!/bin/sh
# soak.sh MINUTES - runs the simulator on seeds that nobody has run before, for that long. The first seed comes from the
# date, so that every soak sees new runs; what fails prints its seed, which belongs into tests/sim/failed-seeds.txt.
set -eu
cd "$(dirname "$0")/.."
end=$(($(date +%s) + $1 * 60))
first=$(($(date +%s) * 1000))
start=$first
step=500
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

while [ "$(date +%s)" -lt "$end" ]; do
    last=$((first + step - 1))
    if ! build/release/bin/sim --seeds "$first..$last" >"$log" 2>&1; then
        failed=$((failed + 1))
        cat "$log"
    fi
    echo "soak: seeds $first..$last done, $failed blocks of seeds with failures"
    first=$((last + 1))
done
echo "soak: $((first - start)) seeds, from $start"
[ "$failed" -eq 0 ]

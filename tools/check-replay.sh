#!/bin/sh
# check-replay.sh SIM OTHER-SIM - the same seed gives the same trace: twice from one program, and from another build
# of it, so that neither memory addresses nor optimisation can leak into a run.
set -eu
sim=$1
other=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

passed=0
failed=0
for seed in 1 2 3; do
    "$sim" --seed "$seed" --trace >"$scratch/first"
    "$sim" --seed "$seed" --trace >"$scratch/again"
    "$other" --seed "$seed" --trace >"$scratch/other"
    lines=$(wc -l <"$scratch/first")
    for run in again other; do
        if [ "$lines" -gt 100 ] && cmp -s "$scratch/first" "$scratch/$run"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "not ok: seed $seed: the trace ($lines lines) differs ($run)"
            diff "$scratch/first" "$scratch/$run" | head -10
        fi
    done
    echo "seed $seed: $lines lines of trace"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

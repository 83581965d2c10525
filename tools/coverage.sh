#!/bin/sh
# coverage.sh MINIMUM - line coverage of src/core by the unit tests and the simulator, from the coverage build.
# Prints each file and the total, lists the lines that never ran in build/coverage/uncovered.txt, and fails below MINIMUM
# percent. A line of a header counts once, however many files include it.
set -eu
cd "$(dirname "$0")/.."
minimum=$1
folder=build/coverage

run() { # NAME OPTION...: runs a program of the coverage build; its failure is ours
    name=$1
    shift
    [ -x "$folder/bin/$name" ] || return 0
    "$folder/bin/$name" "$@" >"$folder/$name.log" 2>&1 || {
        tail -n 40 "$folder/$name.log"
        echo "not ok: $name"
        echo '0 passed, 1 failed'
        exit 1
    }
}

find "$folder/obj" -name '*.gcda' -exec rm -f {} +
for program in "$folder"/bin/unit-*; do
    run "${program##*/}"
done
run sim --seeds 1..50

find "$folder/obj/src/core" -name '*.gcno' 2>/dev/null | LC_ALL=C sort | while read -r object; do
    gcov -t "$object" 2>/dev/null
done | awk -v minimum="$minimum" -v uncovered="$folder/uncovered.txt" '
    {
        count = $0; sub(/:.*/, "", count); gsub(/[ *]/, "", count)
        rest = substr($0, index($0, ":") + 1)
        line = rest; sub(/:.*/, "", line); line += 0
        text = substr(rest, index(rest, ":") + 1)
    }
    line == 0 { if (text ~ /^Source:/) file = substr(text, 8); next }
    count == "-" || file !~ /^src\/core\// { next }
    {
        key = file ":" line
        if (!(key in ran)) { ran[key] = 0; lines[file]++; order[++keys] = key }
        if (count ~ /^[0-9]/ && count + 0 > 0 && !ran[key]) { ran[key] = 1; covered[file]++ }
    }
    END {
        printf "" >uncovered
        for (i = 1; i <= keys; i++) if (!ran[order[i]]) print order[i] >uncovered
        sorter = "LC_ALL=C sort"
        for (file in lines) {
            printf "%-40s %6d lines %6.1f %%\n", file, lines[file], 100 * covered[file] / lines[file] | sorter
            all += lines[file]; all_covered += covered[file]
        }
        close(sorter)
        percent = all ? 100 * all_covered / all : 0
        printf "%-40s %6d lines %6.1f %% (at least %d %% wanted)\n", "src/core", all, percent, minimum
        ok = all > 0 && percent >= minimum
        printf "%d passed, %d failed\n", ok, !ok
        exit !ok
    }'

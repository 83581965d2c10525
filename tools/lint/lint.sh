#!/bin/sh
# lint.sh ROOT [CHECK] - the house rules, on the tree under ROOT; with a CHECK, only that one. Run through ./dev lint.
#
# Each violation is printed as FILE:LINE: MESSAGE, the last line is `N passed, N failed` with one count per check.
# tests/lint/selftest.sh shows that each of them can fail.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
house=$(cd "$here/../.." && pwd)
only=${2:-}
cd "$1"

cache=$house/.cache/lint
mkdir -p "$cache"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

make -s -C "$house" generated
flags=$(make -s -C "$house" show-flags)
jobs=$(getconf _NPROCESSORS_ONLN)

# All C files; their code without comments and literals; all text files.
"$here/sources.sh" . >"$scratch/sources"
grep '\.c$' "$scratch/sources" >"$scratch/c" || :
grep '\.h$' "$scratch/sources" >"$scratch/h" || :
xargs -r awk -f "$here/code.awk" <"$scratch/sources" >"$scratch/code"
find . -type d \( -name .git -o -name .cache -o -name build -o -name node_modules \) -prune -o \
    -type f ! -name LICENSE ! -name '*.png' -print | sed 's|^\./||' | LC_ALL=C sort >"$scratch/texts"

check_format() {
    xargs -r clang-format --dry-run -Werror --style="file:$house/.clang-format" \
        <"$scratch/sources" >"$scratch/format" 2>&1 && return
    sed -n 's/^\([^: ]*:[0-9]*\):[0-9]*: error:.*/\1: not formatted; run .\/dev fmt/p' "$scratch/format" |
        awk -F: '!seen[$1]++' | grep . || head -n 1 "$scratch/format"
}

check_tidy() {
    find "$cache" -type f -mtime +30 -exec rm -f {} +
    # CAPSTAN_LINT=quick, as ./dev test has a time to keep: the product's sources only.
    if [ "${CAPSTAN_LINT:-}" = quick ]; then grep '^src/' "$scratch/c"; else cat "$scratch/c"; fi |
        xargs -r -P "$jobs" -I '{}' "$here/tidy.sh" "$cache" "$house/.clang-tidy" "$flags" '{}' |
        LC_ALL=C sort -u
}

check_headers() {
    while read -r header; do
        # shellcheck disable=SC2086 # flags are words
        printf '#include "%s"\n' "$header" |
            gcc $flags -I. -Wall -Werror -fsyntax-only -x c - >"$scratch/header" 2>&1 && continue
        printf '%s:1: does not stand alone: %s\n' "$header" "$(grep -m 1 'error' "$scratch/header")"
    done <"$scratch/h"
}

check_direction() {
    awk -v what=own -f "$here/includes.awk" "$here/edges.txt" "$here/third-party.txt" "$scratch/code"
}

check_third_party() {
    awk -v what=foreign -f "$here/includes.awk" "$here/edges.txt" "$here/third-party.txt" "$scratch/code"
}

check_banned() {
    awk -f "$here/banned.awk" "$here/banned.txt" "$scratch/code"
}

# How long a comparison takes must not tell how much of a secret was right.
check_secrets() {
    grep -E '^src/(coordinator/auth|worker/serve)\.c:' "$scratch/code" |
        grep -E '(^|[^A-Za-z0-9_])(mem|str|strn|strcase|strncase|b)cmp *\([^;]*(token|digest|secret)' |
        sed 's/^\([^:]*:[0-9]*\):.*/\1: compares a secret; use sha256_equal, which takes the same time for all/'
    # sha256_equal itself; and whoever looks for the token that was sent looks at all of them.
    grep -E '^src/base/sha256\.c:' "$scratch/code" |
        grep -E '(^|[^A-Za-z0-9_])(mem|str|strn|b)cmp *\(' |
        sed 's/^\([^:]*:[0-9]*\):.*/\1: stops at the first difference; look at all bytes/'
    grep -E '^src/coordinator/auth\.c:' "$scratch/code" | awk -F: '
        { code = substr($0, length($1 FS $2 FS) + 1) }
        code ~ /^static .*[ *]find\(/ { is_in = 1 }
        is_in && code ~ /^    for / { is_loop = 1 }
        is_in && is_loop && code ~ /(^|[^A-Za-z0-9_])(break|return|goto)[^A-Za-z0-9_]/ {
            print $1 ":" $2 ": stops at the token that was sent; look at all of them"
        }
        code ~ /^    }/ { is_loop = 0 }
        code ~ /^}/ { is_in = 0 }'
}

# The patterns are written so that they do not match themselves.
check_marks() {
    xargs -r grep -nHIwE 'TOD[O]|FIXM[E]|XX[X]|HAC[K]' <"$scratch/texts" |
        sed 's/^\([^:]*:[0-9]*\):.*/\1: a mark for later; do it now or leave it out/'
}

check_paths() {
    xargs -r grep -nHIE '(^|[^A-Za-z0-9._/~-])/(home|root|work|Users|mnt)/[A-Za-z0-9._]' <"$scratch/texts" |
        sed 's/^\([^:]*:[0-9]*\):.*/\1: an absolute path of one machine/'
}

check_readmes() {
    for folder in src/*/ tests/*/; do
        [ ! -d "$folder" ] || [ -s "${folder}README.md" ] ||
            echo "${folder}README.md:1: missing; say what the folder is for"
    done
}

# A trap of the semantics has a test that is named after its number.
check_traps() {
    [ -f docs/semantics.md ] || return 0
    awk '/^## / { is_there = /Traps/ } is_there && /^[0-9]+\. \(/ { print FNR, $1 + 0 }' docs/semantics.md |
        while read -r line number; do
            name=$(printf 'trap_%02d_' "$number")
            grep -E '^tests/.*\.(c|js)$' "$scratch/texts" | xargs -r grep -lF "$name" | grep -q . ||
                echo "docs/semantics.md:$line: trap $number has no test; name one $name..."
        done
}

passed=0
failed=0
check() { # NAME FUNCTION
    [ -z "$only" ] || [ "$only" = "$1" ] || return 0
    status=0
    "$2" >"$scratch/found" || status=$?
    [ "$status" -lt 2 ] || echo "the check itself failed with status $status" >>"$scratch/found"
    if [ -s "$scratch/found" ]; then
        failed=$((failed + 1))
        cat "$scratch/found"
        echo "not ok: $1"
    else
        passed=$((passed + 1))
        echo "ok: $1"
    fi
}

check format check_format
check tidy check_tidy
check headers check_headers
check direction check_direction
check third-party check_third_party
check banned check_banned
check secrets check_secrets
check marks check_marks
check paths check_paths
check readmes check_readmes
check traps check_traps
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

#!/bin/sh
# build.sh [NAME]... - builds earlier releases out of git, and the one after today's; each once. Run through ./dev soak upgrade.
#
# NAME is one of releases.txt, or `next`: the working tree with one more step of the schema, which stands for the release after
# this one. Without names all of them. They lie in build/upgrade/NAME and share the third-party files of .cache/.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD

die() {
    echo "build.sh: $1" >&2
    [ $# -lt 2 ] || echo "  hint: $2" >&2
    exit 1
}

compile() { # FOLDER
    ln -sfn "$root/.cache" "$1/.cache"
    plugins=
    [ ! -f "$1/tests/e2e/plugins/hold.c" ] || plugins=build/release/plugins/hold.so
    log=$1/build.log
    # shellcheck disable=SC2086 # no name, or one
    make -C "$1" --no-print-directory -s -j"$(getconf _NPROCESSORS_ONLN)" V=release build/release/bin/capstan $plugins \
        >"$log" 2>&1 || {
        tail -n 30 "$log" >&2
        die "the release in $1 cannot be built"
    }
}

released() { # NAME COMMIT
    folder=build/upgrade/$1
    [ ! -x "$folder/build/release/bin/capstan" ] || [ "$(cat "$folder/commit" 2>/dev/null)" != "$2" ] || return 0
    git cat-file -e "$2^{commit}" 2>/dev/null || die "there is no commit $2 here" 'fetch the whole history: git fetch --unshallow'
    if [ "$(cat "$folder/commit" 2>/dev/null)" != "$2" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        git archive "$2" | tar -x -C "$folder"
        echo "$2" >"$folder/commit"
    fi
    compile "$folder"
}

next() {
    folder=build/upgrade/next
    mkdir -p "$folder"
    # With their times, so that only what has changed is built again.
    git ls-files -co --exclude-standard -- . ':!tests/e2e/node_modules' | while IFS= read -r file; do
        [ ! -f "$file" ] || echo "$file"
    done | tar -c -T - | tar -x -C "$folder"
    version=$(find src/store/migrations -name '*.postgres.up.sql' | wc -l)
    step=$(printf '%s/src/store/migrations/%04d-next' "$folder" $((version + 1)))
    echo 'CREATE TABLE capstan.next (id bigint PRIMARY KEY);' >"$step.postgres.up.sql"
    echo 'DROP TABLE capstan.next;' >"$step.postgres.down.sql"
    echo 'CREATE TABLE next (id INTEGER PRIMARY KEY);' >"$step.sqlite.up.sql"
    echo 'DROP TABLE next;' >"$step.sqlite.down.sql"
    compile "$folder"
}

[ $# -gt 0 ] || {
    # shellcheck disable=SC2046 # names are words
    set -- $(sed -n 's/^\([a-z][a-z0-9.-]*\) .*/\1/p' tests/upgrade/releases.txt) next
}
for name in "$@"; do
    if [ "$name" = next ]; then
        next
        continue
    fi
    commit=$(sed -n "s/^$name  *\([0-9a-f]*\).*/\1/p" tests/upgrade/releases.txt)
    [ -n "$commit" ] || die "there is no release '$name'" 'tests/upgrade/releases.txt has those that there are'
    released "$name" "$commit"
done

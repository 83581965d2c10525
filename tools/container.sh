#!/bin/sh
# container.sh - builds the image of packaging/container and runs it for real; the units on a machine that systemd runs; the
# pods of packaging/kubernetes as containers. Run through ./dev soak container.
#
# Needs root and podman with a runtime (crun or runc), netavark and aardvark-dns. What it builds is kept in build/container,
# apart from other images of this machine, and makes the next time shorter. Debian's image comes from its registry or, where
# that cannot be reached, out of debootstrap (CAPSTAN_DEBIAN_MIRROR names another mirror than deb.debian.org).
set -eu
cd "$(dirname "$0")/.."

die() { # MESSAGE HINT
    echo "container.sh: $1" >&2
    echo "  hint: $2" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || die 'this needs root' 'containers get addresses of their own, and files of other users'
command -v podman >/dev/null || die 'there is no podman' \
    'apt-get install --no-install-recommends podman crun runc netavark aardvark-dns debootstrap'

state=$PWD/build/container
mkdir -p "$state"
exec 9>"$state/lock"
flock 9
scratch=$(mktemp -d)
chmod 755 "$scratch" # users of containers look into folders below it
finish() {
    for name in capstan dashboard machine; do
        podman rm --force --time 0 --volumes "$name" >/dev/null 2>&1 || :
    done
    podman volume rm --force capstan >/dev/null 2>&1 || :
    podman image prune --force >/dev/null 2>&1 || :
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT TERM

# ---- an engine apart from that of this machine ----

# Limits of containers are at most those of this process, which may not be allowed to raise its own; podman itself has
# no more processes than there are numbers for.
least() { printf '%s\n' "$@" | sed 's/unlimited/1048576/' | sort -n | head -n 1; }
limit() { awk -v name="$1" 'index($0, name) == 1 { print $(NF - 1) }' /proc/self/limits; }
settings() { # [RUNTIME]
    files=$(least 1048576 "$(limit 'Max open files')")
    processes=$(least 1048576 "$(limit 'Max processes')" "$(cat /proc/sys/kernel/pid_max)")
    printf '[containers]\ndefault_ulimits = ["nofile=%s:%s", "nproc=%s:%s"]\n' "$files" "$files" "$processes" "$processes"
    [ -z "${1:-}" ] || printf '[engine]\nruntime = "%s"\n' "$1"
}
export CONTAINERS_CONF="$scratch/containers.conf" CONTAINERS_STORAGE_CONF="$scratch/storage.conf"
settings >"$CONTAINERS_CONF"
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' "$state" "$state" \
    >"$CONTAINERS_STORAGE_CONF"

debian=docker.io/library/debian:12-slim
make_debian() {
    command -v debootstrap >/dev/null || die "$debian cannot be fetched, and there is no debootstrap to make it" \
        'apt-get install debootstrap, or let this machine reach docker.io'
    mirror=${CAPSTAN_DEBIAN_MIRROR:-http://deb.debian.org/debian}
    echo "container: $debian cannot be fetched, so debootstrap makes it"
    debootstrap --variant=minbase bookworm "$scratch/debian" "$mirror" >"$scratch/log" || {
        tail -n 20 "$scratch/log" >&2
        die "debootstrap failed at $mirror" 'CAPSTAN_DEBIAN_MIRROR names another mirror'
    }
    printf 'deb %s %s main\n' "$mirror" bookworm "$mirror" bookworm-updates "$mirror-security" bookworm-security \
        >"$scratch/debian/etc/apt/sources.list"
    printf '%s\n' 'path-exclude=/usr/share/doc/*' 'path-include=/usr/share/doc/*/copyright' 'path-exclude=/usr/share/man/*' \
        >"$scratch/debian/etc/dpkg/dpkg.cfg.d/docker" # as in the image of the registry
    rm -rf "$scratch"/debian/var/cache/apt/archives/*.deb "$scratch"/debian/var/lib/apt/lists/*
    tar -C "$scratch/debian" -c . | podman import --change 'CMD ["bash"]' - "$debian" >/dev/null 2>&1
    rm -rf "$scratch/debian"
}
podman image exists "$debian" || timeout 120 podman pull --quiet "$debian" >/dev/null 2>&1 || make_debian

works() { podman run --rm --network=none "$debian" true 2>"$scratch/log"; }
works || {
    cp "$scratch/log" "$scratch/first"
    for runtime in runc crun; do
        path=$(command -v "$runtime") || continue
        settings "$path" >"$CONTAINERS_CONF"
        ! works || break
    done
    works || die "no container can be started here: $(cat "$scratch/first" "$scratch/log")" 'runc or crun must be able to run'
}

# ---- the images ----

# npm in there asks whom npm asks here, and trusts whom it trusts here.
authority=$(npm config get cafile 2>/dev/null || :)
[ -r "$authority" ] || authority=${NODE_EXTRA_CA_CERTS:-}
{
    echo "registry=$(npm config get registry 2>/dev/null || echo https://registry.npmjs.org/)"
    [ ! -r "$authority" ] || echo cafile=/etc/authority.pem
} >"$scratch/npmrc"
set -- --volume="$scratch/npmrc:/etc/npmrc:ro"
[ ! -r "$authority" ] || set -- "$@" --volume="$(readlink -f "$authority"):/etc/authority.pem:ro"

. tests/package/container/checks.sh
build=$(block docs/install.md sh 'podman build' | sed -n 's/^podman build //p')
[ -n "$build" ] || die 'docs/install.md does not say how the image is built' 'tests/package/container/README.md'
logged() { # COMMAND...: its output is shown if it fails
    "$@" >"$scratch/log" 2>&1 || {
        tail -n 50 "$scratch/log" >&2
        die "failed: $*" "the output is above"
    }
}
echo 'container: building the image; the first time that takes minutes'
# shellcheck disable=SC2086 # words
logged podman build "$@" --target build --tag capstan-build $build
# shellcheck disable=SC2086
logged podman build "$@" $build
logged podman build --format docker --tag capstan-machine --file tests/package/container/Containerfile.systemd \
    tests/package/container

# ---- what is run ----

passed=0
failed=0
run() { # COMMAND...: its last line is `N passed, N failed`
    "$@" >"$scratch/log" 2>&1 || :
    cat "$scratch/log"
    counts=$(tail -n 1 "$scratch/log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    [ -n "$counts" ] || {
        echo "container.sh: $1 died" >&2
        counts='0 1'
    }
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
}

node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
tools/npm-install.sh tests/package

echo 'container: the image'
run tests/package/container/image.sh

echo 'container: the units, run by systemd'
logged podman run --detach --name machine --hostname machine --systemd=always --privileged \
    --volume "$PWD/docs:/docs:ro" --volume "$PWD/tests/package/container:/checks:ro" capstan-machine
run podman exec machine /checks/systemd.sh first
logged podman restart --time 100 machine
run podman exec machine /checks/systemd.sh rebooted

echo 'container: the pods of the manifests'
mkdir "$scratch/pods"
export CAPSTAN_SCRATCH="$scratch/pods" CAPSTAN_IMAGE=localhost/capstan CAPSTAN_BUILD_IMAGE=localhost/capstan-build
run "$node" --test --test-reporter=./tests/e2e/reporter.js --test-reporter-destination=stdout \
    tests/package/container/kubernetes.test.js

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

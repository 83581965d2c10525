#!/bin/sh
# image.sh - the image `capstan` as docs/install.md runs it: alone, with a volume, with its dashboard for this machine, with
# a read-only file system. Run by tools/container.sh. Prints a line for each check, and at the end `N passed, N failed`.
set -eu
cd "$(dirname "$0")/../../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tests/package/container/checks.sh

page=docs/install.md
line() { # WORDS: the first command of the page that has them in it
    block $page sh "$1" | awk -v words="$1" 'index($0, words) { on = 1 } on { print } on && !/\\$/ { exit }'
}
state() { podman inspect --format "{{.State.$2}}" "$1"; }
healthy() { until_true 60 podman healthcheck run "$1"; }

runs() {
    sh -e -c "$(line 'podman run -d --name capstan ')"
    healthy capstan
    sh -e -c "$(line 'podman exec')" | tee "$scratch/out"
    has 42 "$(cat "$scratch/out")"
}

users() {
    is 'uid=10001(capstan) gid=10001(capstan) groups=10001(capstan)' "$(podman exec capstan id)"
    is 'uid=10002(capstan-worker) gid=10002(capstan-worker) groups=10002(capstan-worker)' \
        "$(podman exec capstan id capstan-worker)"
}

no_secrets() {
    is capstan.conf "$(podman exec capstan ls /etc/capstan)"
}

no_orphans() { # what a command leaves behind is taken in by tini, and does not stay as a zombie
    echo '{"tasks": [{"name": "t", "executor": "command", "inputs": {"argv": ["sh", "-c", "(sleep 0.2; true) & exit 0"]}}]}' |
        podman exec --interactive capstan capstan run -
    no_zombies() { podman exec capstan sh -c '! grep -l "^State:.Z" /proc/[0-9]*/status'; }
    until_true 20 no_zombies
}

# A task runs while the container is stopped: it is finished, and everything ends well.
drains() {
    echo '{"tasks": [{"name": "t", "executor": "command", "inputs": {"argv": ["sh", "-c",
        "touch /tmp/started; until test -e /var/lib/capstan/up/go; do sleep 0.1; done"]}}]}' |
        podman exec --interactive capstan capstan submit - >"$scratch/job"
    until_true 20 podman exec capstan test -e /tmp/started
    podman stop capstan &
    until_true 20 sh -c 'podman logs capstan 2>&1 | grep -q "leaving: no new tasks, 1 to finish"'
    touch "$(podman volume inspect --format '{{.Mountpoint}}' capstan)/go"
    wait $!
    is 0 "$(state capstan ExitCode)"
}

keeps() {
    podman start capstan
    healthy capstan
    podman exec capstan capstan jobs | tee "$scratch/out"
    is 0 "$(grep -c 'queued\|running\|failed' "$scratch/out" || :)"
    grep -q "$(head -n 1 "$scratch/job" | grep -o '[0-9a-f-]\{36\}').*succeeded" "$scratch/out"
}

# On any free port instead of 7480, which may be in use.
dashboard() {
    sh -e -c "$(line '-p 127.0.0.1:7480:7480' | sed 's/127.0.0.1:7480:7480/127.0.0.1::7480/; s/-v [^ ]* //
        s/--name capstan /--name dashboard --read-only /')"
    healthy dashboard
    url=http://$(podman port dashboard 7480)
    until_true 20 sh -c 'podman logs dashboard 2>/dev/null | grep -q "#token="'
    token=$(podman logs dashboard 2>/dev/null | sed -n 's/.*#token=//p')
    curl -fsS "$url/" | grep -i '<!doctype html>'
    is 200 "$(curl -sS -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "$url/v1/nodes")"
    is 401 "$(curl -sS -o /dev/null -w '%{http_code}' "$url/v1/nodes")"
}

unhealthy() { # the health check can fail
    code=0
    podman exec capstan sh -c 'HEALTH_URL=http://127.0.0.1:7480/no-such-page; curl -fsSk -o /dev/null "$HEALTH_URL"' || code=$?
    [ $code -ne 0 ]
    podman inspect --format '{{.Config.Healthcheck}}' capstan | grep 'HEALTH_URL'
}

refuses() { # wrong arguments end with the program's own exit code
    code=0
    podman run --rm capstan worker --no-such-flag || code=$?
    is 2 $code
}

check 'the lines of docs/install.md start it, it becomes healthy, and a query is answered' runs
check 'users and groups have the numbers that manifests name' users
check 'there are no tokens in it' no_secrets
check 'it has a health check, which can fail' unhealthy
check 'what commands leave behind does not stay' no_orphans
check 'stopping it drains the workers, and ends with 0' drains
check 'what is in the volume is there the next time' keeps
check 'the dashboard can be reached as docs/install.md says, also with a read-only file system' dashboard
check 'exit codes are those of the program' refuses
ends

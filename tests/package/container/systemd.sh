#!/bin/sh
# systemd.sh first|rebooted - the .deb on a machine that systemd runs: its units for real, with all of their hardening.
#
# Is run by tools/container.sh, as root, inside of a machine of its own: /package has the .deb, /docs the documentation,
# /checks this folder. `first` installs the package and uses it; then the machine is started anew; `rebooted` looks what
# came up by itself, and removes it. Prints a line for each check, and at the end `N passed, N failed`.
set -eu
. /checks/checks.sh

has_started() {
    case $(systemctl is-system-running) in running | degraded) ;; *) return 1 ;; esac
}
until_true 60 has_started # before, /tmp is not there to stay
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

ctl() { timeout 60 capstan "$@" --token-file /etc/capstan/admin.token; }
property() { systemctl show --property="$2" --value "$1"; }
state_is() { [ "$(property "$1" ActiveState)" = "$2" ]; }
worker=capstan-worker@1
types() { sh -e -c "$(block /docs/install.md sh "$1")"; }

# Runs a shell command as a task, and prints its output. A task that fails is not tried again.
task() { # COMMAND
    printf '%s' "$1" >"$scratch/command"
    jq -Rs '{tasks: [{name: "t", executor: "command", retry: {max_attempts: 1}, inputs: {argv: ["sh", "-c", .]}}]}' \
        <"$scratch/command" >"$scratch/tree.json"
    ctl run "$scratch/tree.json" --json
}

# ---- the first time ----

installs() {
    apt-get install -y --no-install-recommends /package/capstan_*.deb
    state_is capstan-coordinator inactive
    state_is $worker inactive
}

starts() {
    types 'systemctl enable' | tee "$scratch/out"
    has 42 "$(cat "$scratch/out")"
    state_is capstan-coordinator active
    state_is $worker active
}

runs_as_users() {
    is 'capstan capstan-worker' "$(ps -o user:20= -p "$(property capstan-coordinator MainPID)" | tr -d ' ') $(
        ps -o user:20= -p "$(property $worker MainPID)" | tr -d ' ')"
}

# What the unit keeps from tasks is there, and open to their user: it is the unit that stands in the way.
prepares() {
    mkdir -p /srv/data
    chmod 1777 /srv/data
    useradd --create-home somebody
    chmod 755 ~somebody
    echo secret >~somebody/file
    echo CAPSTAN_LOG_LEVEL=info >/etc/capstan/coordinator.env
    chmod 644 /etc/capstan/coordinator.env ~somebody/file
    su -s /bin/sh capstan-worker -c 'cat ~somebody/file /etc/capstan/coordinator.env && touch /srv/data/x && rm /srv/data/x'
    systemctl restart $worker # paths that a unit hides are those that are there when it starts
}

may() {
    # shellcheck disable=SC2016 # for the shell of the task
    task 'set -e; test "$(id -un)" = capstan-worker; cat /etc/passwd /proc/meminfo /proc/cpuinfo >/dev/null
        touch here /tmp/there /var/tmp/there; getent hosts localhost; echo a | tr a b; nice true
        perl -e "fork // die; wait; print 2 + 2"; (ulimit -n 100; ulimit -v 1000000; true)
        test -e /dev/null && test -e /dev/urandom; sh -c "sleep 0.1 & wait"'
}

# One task for all: a worker whose tasks keep failing is not given any for a while.
may_not() {
    # shellcheck disable=SC2016
    task 'touch /tmp/x; may=
        while read -r command; do
            if sh -c "$command" </dev/null; then may="$may ($command)"; fi
        done <<END
            cat /etc/capstan/tokens
            cat /etc/capstan/admin.token
            cat /etc/capstan/coordinator.env
            ls /var/lib/capstan/coordinator
            ls ~somebody
            touch /srv/data/x
            touch /usr/x
            sudo -n true
            unshare --user true
            test -e /proc/1
            test -e /dev/kmsg
            chmod u+s /tmp/x
            date -s 2020-01-01
END
        [ -z "$may" ] || { echo "a task may:$may" >&2; exit 1; }'
}

tmp_is_private() {
    task 'touch /tmp/of-the-task'
    [ ! -e /tmp/of-the-task ]
}

calls_http() {
    echo '{"tasks": [{"name": "t", "executor": "http", "inputs": {"url": "http://localhost:7480/healthz"}}]}' \
        >"$scratch/tree.json"
    ctl run "$scratch/tree.json" --json
}

queries() {
    has 12345678 "$(ctl sql "SELECT count(*) AS n FROM (SELECT DISTINCT i FROM range(12345678) t(i))")"
}

# The settings that the page shows for `systemctl edit`, and what they are for.
edits() {
    mkdir -p /etc/systemd/system/capstan-worker@.service.d
    block /docs/install.md ini ReadWritePaths >/etc/systemd/system/capstan-worker@.service.d/override.conf
    systemctl daemon-reload
    systemctl restart $worker
    task 'touch /srv/data/x && cat ~somebody/file'
    [ -e /srv/data/x ]
}

# A task runs, the worker is stopped: it waits for the task, whose one attempt ends well.
drains() {
    rm -f /srv/data/started /srv/data/go
    task 'touch /srv/data/started; until test -e /srv/data/go; do sleep 0.1; done; echo done' >"$scratch/out" 2>&1 &
    job=$!
    until_true 20 test -e /srv/data/started
    systemctl stop --no-block $worker
    until_true 20 state_is $worker deactivating
    until_true 20 sh -c "journalctl --unit=$worker | grep -q 'drain: leaving: no new tasks, 1 to finish'"
    kill -0 $job
    touch /srv/data/go
    wait $job || {
        cat "$scratch/out"
        return 1
    }
    until_true 20 state_is $worker inactive
    is 'success 0' "$(property $worker Result) $(property $worker ExecMainStatus)"
    systemctl start $worker
}

comes_back() { # UNIT
    before=$(property "$1" MainPID)
    systemctl kill --signal=KILL "$1"
    until_true 30 sh -c "p=\$(systemctl show --property=MainPID --value $1); [ \$p != 0 ] && [ \$p != $before ]"
    until_true 30 state_is "$1" active
    task 'echo back'
    is 1 "$(property "$1" NRestarts)"
}

gives_up() {
    echo CAPSTAN_SLOTS=many >/etc/capstan/worker-2.env
    systemctl start capstan-worker@2 || :
    until_true 20 state_is capstan-worker@2 failed
    is '0 2' "$(property capstan-worker@2 NRestarts) $(property capstan-worker@2 ExecMainStatus)"
    systemctl reset-failed capstan-worker@2
}

upgrade_leaves_alone() {
    before="$(property capstan-coordinator MainPID) $(property $worker MainPID)"
    apt-get install -y --reinstall /package/capstan_*.deb
    is "$before" "$(property capstan-coordinator MainPID) $(property $worker MainPID)"
}

coordinator_stops() {
    systemctl stop capstan-coordinator
    is 'inactive success 0' "$(property capstan-coordinator ActiveState) $(property capstan-coordinator Result) $(
        property capstan-coordinator ExecMainStatus)"
    systemctl start capstan-coordinator
    task 'echo again'
}

# ---- after the machine was started anew ----

came_up() {
    until_true 30 state_is capstan-coordinator active
    until_true 30 state_is $worker active
    task 'echo up'
    ctl jobs | grep 'succeeded.*query'
}

removes() {
    apt-get remove -y capstan
    is '' "$(pgrep -x capstan)"
    [ -s /etc/capstan/tokens ]
    [ -s /var/lib/capstan/coordinator/state.db ]
}

purges() {
    apt-get purge -y capstan
    [ ! -e /etc/capstan ]
    [ ! -e /var/lib/capstan ]
    is '' "$(getent passwd capstan capstan-worker)"
}

case $1 in
first)
    check 'apt installs the package, which starts nothing' installs
    check 'the lines of docs/install.md start a coordinator and a worker, and get an answer' starts
    check 'the coordinator and the worker run as their users' runs_as_users
    check 'what the units keep from tasks is there to be had without them' prepares
    check 'tasks can do what ordinary commands do' may
    check 'tasks cannot read secrets, write elsewhere, or become more than they are' may_not
    check '/tmp of tasks is their own' tmp_is_private
    check 'the executor http resolves names and connects' calls_http
    check 'queries run' queries
    check 'settings of `systemctl edit`, as docs/install.md shows them, open the folders that they name' edits
    check 'stopping a worker drains it' drains
    check 'a worker that is killed comes back' comes_back $worker
    check 'a coordinator that is killed comes back' comes_back capstan-coordinator
    check 'a worker with wrong settings is not started again and again' gives_up
    check 'an upgrade leaves alone what runs' upgrade_leaves_alone
    check 'a coordinator stops in order' coordinator_stops
    ;;
rebooted)
    check 'both come up with the machine, and jobs are still there' came_up
    check 'removing the package stops both, and keeps state and tokens' removes
    check 'purging it takes everything' purges
    ;;
esac
ends

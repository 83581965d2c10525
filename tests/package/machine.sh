#!/bin/sh
# machine.sh PACKAGE - installs the .deb, uses it as its users would, removes and purges it. Then the same for what
# `make install` installs. Commands of the documentation that change a machine are typed here.
#
# As root all of that happens on a copy of this machine: an overlay of its file system that is thrown away, with mounts,
# processes and network of its own, and without the folder of the sources. Where that is not possible, the package is
# only unpacked, and run from there. Prints a line for each check, and at the end `N passed, N failed`.
set -eu
package=$(readlink -f "$1")
sources=$(cd "$(dirname "$0")/../.." && pwd)

# ---- checks ----

passed=0
failed=0
check() { # SENTENCE COMMAND...
    sentence=$1
    shift
    if "$@" >"$scratch/check.log" 2>&1; then
        passed=$((passed + 1))
        echo "ok: $sentence"
    else
        failed=$((failed + 1))
        echo "not ok: $sentence"
        tail -n 30 "$scratch/check.log" | sed 's/^/    /'
    fi
}

is() { # WANTED GOT
    [ "$1" = "$2" ] || {
        printf 'wanted: %s\ngot:    %s\n' "$1" "$2"
        return 1
    }
}

refused() { # COMMAND...: must end with the exit code of a refusal
    code=0
    "$@" || code=$?
    is 4 "$code"
}

until_true() { # SECONDS COMMAND...
    end=$(($(date +%s) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# ---- what is done with an installed program, wherever that is ----

tree='{"name": "hello", "tasks": [
    {"name": "who", "executor": "command", "inputs": {"argv": ["sh", "-c", "echo \"{\\\"name\\\": \\\"$(id -un)\\\"}\""]}},
    {"name": "greet", "executor": "command", "depends_on": ["who"], "inputs": {"argv": ["echo", "hello ${results.who.json.name}"]}}]}'

runs_tree() { # WHO CAPSTAN...: a tree whose commands run as WHO
    who=$1
    shift
    printf '%s' "$tree" >"$scratch/tree.json"
    "$@" run "$scratch/tree.json" --json | tee /dev/stderr | grep -q "hello $who"
}

runs_query() { # CAPSTAN...
    is '{"columns":[{"name":"n","type":"BIGINT"}],"rows":[[500000]]}' \
        "$("$@" sql 'SELECT count(*) AS n FROM range(1000000) t(i) WHERE i % 2 = 0' -o json)"
}

# The library that the worker has open is the one of the installation.
has_library() { # FILE PID-OF-UP
    for pid in $(cat "/proc/$2/task/$2/children"); do
        ! grep -q libduckdb "/proc/$pid/maps" || found=$(awk '/libduckdb/ { print $NF; exit }' "/proc/$pid/maps")
    done
    is "$1" "${found:-}"
}

# ---- on a machine of its own ----

# Words before a command that make it one of USER, with all its groups, in its home, with a clean environment.
as() { # USER
    home=$(getent passwd "$1" | cut -d: -f6)
    [ -d "$home" ] || home=/
    echo "setpriv --reuid=$1 --regid=$(id -g "$1") --init-groups env -i -C $home HOME=$home PATH=/usr/sbin:/usr/bin:/bin"
}

starts_up() {
    # shellcheck disable=SC2046 # words
    $(as capstan) capstan up --workers 1 --slots 2 --json >"$scratch/up.log" 2>&1 &
    up=$!
    until_true 20 grep -q '"ready":true' "$scratch/up.log" || {
        cat "$scratch/up.log"
        return 1
    }
}

stops() { # PID
    kill "$1"
    wait "$1"
}

# Where the program and its settings are installed.
prefix=/usr
etc=/etc/capstan

# The commands of the documentation, which is installed, too: of the block of sh that has WORDS in it.
block() { # PAGE WORDS
    awk -v words="$2" '/^```sh$/ { inside = 1; text = ""; next }
        /^```$/ { if (inside && index(text, words)) printf "%s", text; inside = 0 }
        inside { text = text $0 "\n" }' "$prefix/share/doc/capstan/docs/$1" | sed 's/10\.0\.0\.1\b/127.0.0.1/'
}

# Types them as a reader would, who is root already. They must be there.
types() { # PAGE WORDS
    block "$1" "$2" >"$scratch/typed.sh"
    [ -s "$scratch/typed.sh" ] && sh -e -c 'sudo() { "$@"; } && . "$1"' - "$scratch/typed.sh"
}

# What a unit starts, as its user with its groups: systemd itself is not here to do it.
unit() { # UNIT INSTANCE: prints the command
    file=$prefix/lib/systemd/system/$1
    groups=$(sed -n 's/^SupplementaryGroups=/,/p' "$file")
    user=$(sed -n 's/^User=//p' "$file")
    install -d -m 0700 -o "$user" -g "$user" "$(sed -n 's/^WorkingDirectory=//p' "$file" | sed "s/%i/$2/")"
    echo "exec setpriv --reuid=$user --regid=$user --groups=$user$groups env -i PATH=/usr/bin:/bin" \
        "$(sed -n 's/^ExecStart=//p' "$file" | sed "s/%H/$(uname -n)/g; s/%i/$2/g")"
}

starts_units() {
    sh -c "$(unit capstan-coordinator.service '')" >"$scratch/coordinator.log" 2>&1 &
    coordinator=$!
    sh -c "$(unit capstan-worker@.service 1)" >"$scratch/worker.log" 2>&1 &
    worker=$!
    until_true 60 sh -c "$prefix/bin/capstan nodes --token-file $etc/admin.token --json | grep -q '\"status\":\"healthy\"'" || {
        cat "$scratch/coordinator.log" "$scratch/worker.log"
        return 1
    }
}

cannot_read() { # FILE: no task can. One that fails would count against the worker, so this one succeeds
    printf '{"tasks": [{"name": "t", "executor": "command", "inputs": {"argv": ["sh", "-c", "! cat %s"]}}]}' "$1" \
        >"$scratch/read.json"
    admin run "$scratch/read.json" --json | tee /dev/stderr | grep -q 'Permission denied'
}

# SIGTERM to the worker alone: what it runs ends well, and so does it.
drains() {
    echo '{"tasks": [{"name": "slow", "executor": "command", "inputs": {"argv": ["sleep", "1.5"]}}]}' >"$scratch/slow.json"
    job=$(admin submit "$scratch/slow.json")
    until_true 60 sh -c "capstan job $job --token-file /etc/capstan/admin.token --json | grep -q '\"running\":1'" &&
        stops "$worker" && admin job "$job" --json | tee /dev/stderr | grep -q '"state":"succeeded"'
}

admin() { # VERB...: as root, who alone can read the token
    "$prefix/bin/capstan" "$@" --token-file "$etc/admin.token"
}

modes() { # FILE...: of the folder of settings
    (cd "$etc" && stat -c '%n %U:%G %a' "$@")
}

token_modes='admin.token root:root 600
tokens root:capstan 640
worker.token root:capstan-worker 640'

links_a_worker() {
    examples=/usr/share/doc/capstan/examples
    cc -std=c17 $examples/operator-worker/worker.c $examples/operator-plugin/add_five.c \
        @/usr/lib/capstan/capstan-worker.flags -o "$scratch/own-worker" &&
        "$scratch/own-worker" --help | grep -q -- --require-ops
}

links_a_client() {
    cc -std=c17 /usr/share/doc/capstan/examples/c-client/client.c -lcapstan -o "$scratch/own-client" &&
        ldd "$scratch/own-client" | grep -q 'libcapstan.so.0 => /.*lib/libcapstan.so.0'
}

completes() {
    bash -c '. /usr/share/bash-completion/completions/capstan; COMP_WORDS=(capstan wor) COMP_CWORD=1; _capstan; echo "${COMPREPLY[0]}"' |
        grep -qx worker
}

verifies_units() {
    systemd-analyze verify --man=no /usr/lib/systemd/system/capstan-coordinator.service \
        /usr/lib/systemd/system/capstan-worker@.service
}

# No file, folder or user of ours. What dpkg writes down is not looked at.
is_gone() { # UPPER
    left=$(find "$1" -path "$1/tmp" -prune -o -path "$1/var/lib/dpkg" -prune -o -name '*capstan*' ! -type c -print)
    is '' "$left" && ! getent passwd capstan && ! getent passwd capstan-worker && ! getent group capstan &&
        ! getent group capstan-worker
}

# ---- with certificates, as docs/security.md and docs/install.md make them ----

makes_certificates() {
    mkdir "$scratch/secrets"
    cd "$scratch/secrets"
    types security.md 'openssl req -x509'
}

# The three keys of capstan.conf, and what docs/install.md says about who may read the files.
places_certificates() {
    cp "$scratch/secrets/ca.pem" "$scratch/secrets/node.pem" "$scratch/secrets/node.key" "$etc"
    sed -i 's/^# tls-/tls-/' "$etc/capstan.conf"
    types install.md 'node.key' && is 'ca.pem root:root 644
node.pem root:root 644
node.key root:capstan-worker 640' "$(modes ca.pem node.pem node.key)"
}

# What docs/security.md says a node of everything is that other machines may join.
opens_up() {
    cd "$scratch/secrets"
    {
        echo ADDRESS=127.0.0.1
        block security.md '$TLS &' | grep '^TLS='
        block security.md 'capstan up --listen 0.0.0.0' | sed 's/^capstan up /exec &/'
    } >open.sh
    sh -e open.sh >up.log 2>&1 &
    up=$!
    until_true 30 grep -q '^ready' up.log || {
        cat open.sh up.log
        return 1
    }
    runs_query env CAPSTAN_SERVER=127.0.0.1:7400 CAPSTAN_TOKEN_FILE=cluster.token CAPSTAN_TLS_CA=ca.pem \
        CAPSTAN_TLS_CERT=node.pem CAPSTAN_TLS_KEY=node.key capstan
}

with_certificates() {
    check 'certificates are made as docs/security.md says' makes_certificates
    check 'those who need them can read them after what docs/install.md says' places_certificates
    export CAPSTAN_TLS_CA="$etc/ca.pem"
    check 'the units start a coordinator and a worker with TLS' starts_units
    check 'an administrator runs a query over TLS' runs_query admin
    check 'the worker stops' stops "$worker"
    check 'and so does the coordinator' stops "$coordinator"
    unset CAPSTAN_TLS_CA
    check 'a node of everything that listens for other machines starts as docs/security.md says' opens_up
    check 'and stops as well' stops "$up"
}

# ---- what make install installs, after the package has gone ----

makes_users() {
    types install.md 'sudo useradd' && is "$token_modes" "$(modes admin.token tokens worker.token)"
}

from_make() {
    prefix=/usr/local
    etc=/usr/local/etc/capstan
    cp -a "$scratch/local/." /
    check 'users and tokens are made as docs/install.md says' makes_users
    check 'the units of make install start a coordinator and a worker' starts_units
    check 'whose commands run as the user of workers' runs_tree capstan-worker admin
    check 'they stop' stops "$worker"
    check 'both of them' stops "$coordinator"
}

# shellcheck disable=SC2046 # words
on_machine() {
    # shellcheck disable=SC2015 # one of them will do
    ip link set lo up 2>/dev/null || perl -e '
        use Socket; socket(my $s, PF_INET, SOCK_DGRAM, 0);
        ioctl($s, 0x8914, pack("a16 s", "lo", 0x1 | 0x40)) or die "lo: $!";' # SIOCSIFFLAGS: up, running
    check 'the package installs' dpkg --no-triggers --force-unsafe-io -i "$package"
    check 'nothing runs after the installation' is '' "$(pgrep -x capstan || :)"
    check 'the program is in the path, and the sources are not there' sh -c "command -v capstan && ! [ -e '$sources/Makefile' ]"
    check 'it says the version of its package' is "capstan $(dpkg-query -W -f '${Version}' capstan)" "$(capstan version)"
    check 'all libraries are found' sh -c '! ldd /usr/bin/capstan /usr/lib/capstan/libduckdb.so | grep "not found"'
    check 'tokens can be read by those who need them' is "$token_modes" "$(modes admin.token tokens worker.token)"
    check 'bash completes it' completes
    check 'the user capstan starts everything with up' starts_up
    check 'runs a tree' runs_tree capstan $(as capstan) capstan
    check 'runs a query' runs_query $(as capstan) capstan
    check 'with the DuckDB of the package' has_library /usr/lib/capstan/libduckdb.so "$(pgrep -xo capstan)"
    check 'and stops it' stops "$up"
    check 'the units start a coordinator and a worker' starts_units
    check 'an administrator runs a tree' runs_tree capstan-worker admin
    check 'an administrator runs a query' runs_query admin
    check 'another user is refused' refused $(as nobody) capstan nodes
    check 'a task cannot read the tokens' cannot_read /etc/capstan/tokens
    check 'nor that of the administrator' cannot_read /etc/capstan/admin.token
    check 'nor the state' cannot_read /var/lib/capstan/coordinator/state.db
    check 'the worker finishes what it runs when it is stopped' drains
    check 'the coordinator stops' stops "$coordinator"
    with_certificates
    ! command -v systemd-analyze >/dev/null || check 'systemd finds nothing wrong with the units' verifies_units
    check 'a worker of one'"'"'s own links with what is installed' links_a_worker
    check 'and so does a client' links_a_client
    check 'a second installation keeps the tokens' sh -c "sum=\$(cat /etc/capstan/tokens | cksum) &&
        dpkg --no-triggers --force-unsafe-io -i '$package' && [ \"\$(cat /etc/capstan/tokens | cksum)\" = \"\$sum\" ]"
    check 'a removal keeps settings and state' sh -c 'dpkg --no-triggers -r capstan && ! [ -e /usr/bin/capstan ] &&
        [ -s /etc/capstan/capstan.conf ] && [ -s /var/lib/capstan/coordinator/state.db ]'
    check 'a purge takes them' dpkg --no-triggers --purge capstan
    check 'and leaves nothing' is_gone /tmp/upper
    from_make
}

# ---- unpacked only ----

unpacked() {
    root=$scratch/root
    mkdir "$root" "$scratch/home"
    check 'the package can be unpacked' dpkg-deb -x "$package" "$root"
    (cd "$scratch/home" && HOME=$scratch/home exec "$root/usr/bin/capstan" up --data "$scratch/home/data" --workers 1 \
        --listen 127.0.0.1:0 --json) >"$scratch/up.log" 2>&1 &
    up=$!
    check 'it starts from there' until_true 20 grep -q '"ready":true' "$scratch/up.log"
    HOME=$scratch/home CAPSTAN_SERVER=$(sed -n 's/.*"address":"\([^"]*\)".*/\1/p' "$scratch/up.log" | tail -n 1)
    export HOME CAPSTAN_SERVER
    check 'runs a tree' runs_tree "$(id -un)" "$root/usr/bin/capstan"
    check 'runs a query' runs_query "$root/usr/bin/capstan"
    check 'with the DuckDB of the package' has_library "$root/usr/lib/capstan/libduckdb.so" "$up"
    check 'and stops' stops "$up"
}

# ---- where ----

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# In namespaces of its own: the overlay, and the copy of this script inside it.
enter() {
    base=$1
    mount -t tmpfs tmpfs "$base"
    mkdir "$base/upper" "$base/work" "$base/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
    mount -t proc proc "$base/root/proc"
    mount --rbind /dev "$base/root/dev"
    mount -t tmpfs tmpfs "$base/root/tmp"
    mkdir "$base/root/tmp/upper" && mount --bind "$base/upper" "$base/root/tmp/upper"
    cp "$package" "$0" "$base/root/tmp/"
    [ "${CAPSTAN_MACHINE:-}" != try ] || exec chroot "$base/root" /bin/true
    BUILD=$sources/build/release PREFIX=/usr/local SYSCONFDIR=/usr/local/etc DESTDIR=$base/root/tmp/local \
        "$sources/packaging/install.sh" install
    [ ! -d "$base/root$sources" ] || mount -t tmpfs tmpfs "$base/root$sources"
    exec chroot "$base/root" env -i PATH="$PATH" CAPSTAN_MACHINE=inside SOURCES="$sources" \
        sh /tmp/machine.sh "/tmp/$(basename "$package")"
}

case ${CAPSTAN_MACHINE:-} in
try | begin) enter "$2" ;;
inside)
    sources=$SOURCES
    scratch=/tmp
    on_machine
    finish
    ;;
*)
    scratch=$(mktemp -d)
    trap 'kill "${up:-}" 2>/dev/null || :; rm -rf "$scratch"' EXIT
    space() { # try|begin
        CAPSTAN_MACHINE=$1 unshare --mount --net --pid --fork --kill-child --propagation private \
            sh "$0" "$package" "$scratch/machine"
    }
    mkdir "$scratch/machine"
    if [ "$(id -u)" -eq 0 ] && space try >/dev/null 2>&1; then
        space begin
    else
        echo 'no machine of its own can be made here (that needs root): the package is only unpacked'
        unpacked
        finish
    fi
    ;;
esac

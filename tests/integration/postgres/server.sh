#!/bin/sh
# server.sh - a PostgreSQL server for tests, in a folder of its own.
#
#   server.sh start DIR [--fsync=off] [NAME=VALUE]...   makes a cluster in DIR, starts it, prints its URL
#   server.sh url DIR                                   prints the URL
#   server.sh restart DIR                               stops it if it runs, starts it again
#   server.sh stop DIR                                  stops it; DIR stays
#   server.sh kill DIR                                  kill -9 of all its processes at once, as if all of
#                                                       them crashed; the loss of power is not tested
#   server.sh follow DIR PRIMARY                        makes a copy in DIR of the server in PRIMARY, and starts it: a hot
#                                                       standby that follows; it waits for no standby of its own
#   server.sh promote DIR                               the standby takes writes from now on
#   server.sh remove DIR                                stops it and removes DIR
#
# It listens on a socket in DIR only, so servers do not get into each other's way. PostgreSQL refuses to run as root: for
# root, it runs as the user postgres. NAME=VALUE are settings of the server. PG_BIN names the folder with the server's
# programs; without it the newest that is installed is taken.
set -eu

die() {
    echo "server.sh: $1" >&2
    exit 1
}

find_bin() {
    if [ -n "${PG_BIN:-}" ]; then
        echo "$PG_BIN"
        return
    fi
    newest=
    for folder in /usr/lib/postgresql/*/bin /usr/local/pgsql/bin; do
        [ ! -x "$folder/initdb" ] || newest=$folder
    done
    if [ -z "$newest" ] && command -v initdb >/dev/null; then
        newest=$(dirname "$(command -v initdb)")
    fi
    [ -n "$newest" ] || die "no PostgreSQL server is installed; set PG_BIN"
    echo "$newest"
}

as_owner() {
    if [ "$(id -u)" -ne 0 ]; then
        "$@"
    elif command -v runuser >/dev/null; then
        (cd / && runuser -u postgres -- "$@")
    else
        command=
        for word in "$@"; do
            command="$command '$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'"
        done
        (cd / && su postgres -s /bin/sh -c "$command")
    fi
}

url() {
    echo "postgres://postgres@/postgres?host=$dir&port=5432"
}

launch() {
    as_owner "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 120 -s start >&2 || {
        tail -n 20 "$dir/log" >&2
        die "the server in $dir does not start"
    }
}

make_folder() {
    [ ! -e "$dir/data" ] || die "$dir has a server already"
    mkdir -p "$dir"
    if [ "$(id -u)" -eq 0 ]; then
        chown postgres "$dir"
        chmod 755 "$dir"
    fi
}

create() { # SETTING...
    make_folder
    as_owner "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/initdb.log" 2>&1 || {
        cat "$dir/initdb.log" >&2
        die "initdb failed"
    }
    {
        echo "listen_addresses = ''"
        echo "port = 5432"
        echo "unix_socket_directories = '$dir'"
        echo "log_line_prefix = '%m [%p] '"
        # After a crash the server would fsync every file on its own, which takes longer than any test.
        echo "recovery_init_sync_method = syncfs"
        for setting in "$@"; do
            case $setting in
            --fsync=off) echo "fsync = off" ;;
            --*) die "unknown option $setting" ;;
            *=*) echo "${setting%%=*} = '${setting#*=}'" ;;
            *) die "a setting is NAME=VALUE, not $setting" ;;
            esac
        done
    } >>"$dir/data/postgresql.conf"
    launch
}

# Of settings that are there twice, the last counts.
follow() { # PRIMARY
    make_folder
    as_owner "$bin/pg_basebackup" -D "$dir/data" -h "$1" -p 5432 -U postgres -R -X stream -c fast --no-sync >&2
    printf "%s\n" "unix_socket_directories = '$dir'" "synchronous_standby_names = ''" >>"$dir/data/postgresql.conf"
    launch
}

promote() {
    as_owner "$bin/pg_ctl" -D "$dir/data" -w -t 120 -s promote >&2
}

# Also not if it is dead and only waits for somebody to ask how it ended.
is_alive() { # PID
    grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null
}

running_pid() {
    [ -s "$dir/data/postmaster.pid" ] || return 0
    pid=$(head -n 1 "$dir/data/postmaster.pid")
    ! is_alive "$pid" || echo "$pid"
}

children_of() { # PID
    for stat in /proc/[0-9]*/stat; do
        # The name in parentheses may contain blanks; the parent is the second field after it.
        sed -n "s/^\([0-9]*\) (.*) [A-Z] $1 .*/\1/p" "$stat" 2>/dev/null || :
    done
}

stop() { # MODE
    [ -z "$(running_pid)" ] || as_owner "$bin/pg_ctl" -D "$dir/data" -m "$1" -w -t 120 -s stop >&2
}

# The postmaster is stopped first, so that it neither forks nor notices that its children go.
crash() {
    pid=$(running_pid)
    [ -n "$pid" ] || die "no server runs in $dir"
    kill -STOP "$pid"
    children=$(children_of "$pid")
    # shellcheck disable=SC2086 # process ids are words
    kill -KILL $children "$pid" 2>/dev/null || :
    for child in $children "$pid"; do
        while is_alive "$child"; do
            sleep 0.01
        done
    done
    # A new server would take the dead one for alive as long as its process has not been collected.
    rm -f "$dir/data/postmaster.pid" "$dir/.s.PGSQL.5432" "$dir/.s.PGSQL.5432.lock"
}

[ $# -ge 2 ] || die "usage: server.sh start|url|restart|stop|kill|follow|promote|remove DIR"
verb=$1
case $2 in
/*) dir=$2 ;;
*) dir=$PWD/$2 ;;
esac
shift 2
[ ${#dir} -le 80 ] || die "the path of the folder is too long for a socket: $dir"
bin=$(find_bin)
case $verb in
start) create "$@" && url ;;
url) url ;;
restart) stop fast && launch ;;
stop) stop fast ;;
kill) crash ;;
follow) follow "$@" && url ;;
promote) promote ;;
remove) stop immediate && rm -rf "$dir" ;;
*) die "unknown verb $verb" ;;
esac

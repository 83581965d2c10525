#!/bin/sh
# install.sh install|uninstall|list - puts what was built where it belongs, or takes it away again. Run through
# `make install` and `make uninstall`, which say where:
#
#   BUILD       folder of the build that is installed
#   PREFIX      /usr/local: programs, library, headers, documentation
#   SYSCONFDIR  /etc for PREFIX=/usr, else PREFIX/etc: settings. A file that is there is kept, and taken away only if
#               nobody has changed it
#   DESTDIR     a folder that stands for / while a package is made
#
# One list below says what goes where, for all three.
set -eu
cd "$(dirname "$0")/.."
action=$1
: "${BUILD:?}" "${PREFIX:?}" "${SYSCONFDIR:?}" "${DESTDIR=}"
made=$BUILD/install

file() { # MODE SOURCE TARGET
    case $action in
    install) install -D -m "$1" "$2" "$DESTDIR$3" ;;
    uninstall) rm -f "$DESTDIR$3" ;;
    list) echo "$3" ;;
    esac
}

link() { # WHERE-TO TARGET
    case $action in
    install) ln -sf "$1" "$DESTDIR$2" ;;
    uninstall) rm -f "$DESTDIR$2" ;;
    list) echo "$2" ;;
    esac
}

config() { # SOURCE TARGET
    case $action in
    install) [ -e "$DESTDIR$2" ] || install -D -m 644 "$1" "$DESTDIR$2" ;;
    uninstall)
        if cmp -s "$1" "$DESTDIR$2"; then
            rm -f "$DESTDIR$2"
        elif [ -e "$DESTDIR$2" ]; then
            echo "kept, for it was changed: $DESTDIR$2"
        fi
        ;;
    list) echo "$2" ;;
    esac
}

folder() { # FOLDER TARGET: all files in it, but what builds and npm leave there
    find "$1" -name node_modules -prune -o -name '*.so' -prune -o -type f \( ! -perm -u+x -o -name '*.sh' \) -print |
        LC_ALL=C sort | while read -r path; do
        mode=644
        [ ! -x "$path" ] || mode=755
        file $mode "$path" "$2${path#"$1"}"
    done
}

# Text with the places in it: units, settings and examples are written for /usr and /etc.
place() { # SOURCE NAME
    sed -e "s|/usr/bin/capstan|$PREFIX/bin/capstan|g" -e "s|/usr/lib/capstan/|$PREFIX/lib/capstan/|g" \
        -e "s|/etc/capstan|$SYSCONFDIR/capstan|g" "$1" >"$made/$2"
}

make_settings() {
    rm -rf "$made"
    mkdir -p "$made"
    for settings in packaging/etc/*.conf; do
        place "$settings" "$(basename "$settings")"
    done
}

make_texts() {
    "$BUILD/bin/capstan" help --man | sed "s|/etc/capstan|$SYSCONFDIR/capstan|g" >"$made/capstan.1"
    "$BUILD/bin/capstan" completion bash >"$made/completion"
    sed -e "s|-I[^ ]*/include|-I$PREFIX/include|" -e "s|-L[^ ]*/lib|-L$PREFIX/lib/capstan|" \
        "$BUILD/lib/capstan-worker.flags" >"$made/capstan-worker.flags"
    sed "s|^prefix=.*|prefix=$PREFIX|" "$BUILD/lib/capstan.pc" >"$made/capstan.pc"
    for unit in packaging/systemd/*.service; do
        place "$unit" "$(basename "$unit")"
    done
}

everything() {
    lib=$PREFIX/lib/capstan
    share=$PREFIX/share
    file 755 "$BUILD/bin/capstan" "$PREFIX/bin/capstan"
    file 644 .cache/duckdb/lib/libduckdb.so "$lib/libduckdb.so"
    file 644 "$BUILD/lib/libcapstan_worker.a" "$lib/libcapstan_worker.a"
    file 644 "$made/capstan-worker.flags" "$lib/capstan-worker.flags"
    file 755 packaging/make-tokens "$lib/make-tokens"
    folder include/capstan "$PREFIX/include/capstan"
    file 644 "$BUILD/lib/libcapstan.so.0" "$PREFIX/lib/libcapstan.so.0"
    link libcapstan.so.0 "$PREFIX/lib/libcapstan.so"
    file 644 "$BUILD/lib/libcapstan.a" "$PREFIX/lib/libcapstan.a"
    file 644 "$made/capstan.pc" "$PREFIX/lib/pkgconfig/capstan.pc"
    file 644 "$made/capstan.1" "$share/man/man1/capstan.1"
    file 644 "$made/completion" "$share/bash-completion/completions/capstan"
    for unit in packaging/systemd/*.service; do
        file 644 "$made/$(basename "$unit")" "$PREFIX/lib/systemd/system/$(basename "$unit")"
    done
    for settings in packaging/etc/*.conf; do
        config "$made/$(basename "$settings")" "$SYSCONFDIR/capstan/$(basename "$settings")"
    done
    file 644 README.md "$share/doc/capstan/README.md"
    file 644 packaging/debian/copyright "$share/doc/capstan/copyright"
    folder docs "$share/doc/capstan/docs"
    folder examples "$share/doc/capstan/examples"
    folder proto "$share/doc/capstan/proto"
    for kind in grafana prometheus kubernetes; do
        folder "packaging/$kind" "$share/doc/capstan/$kind"
    done
}

# Folders that are nobody's but ours, and have nothing in them any more.
remove_folders() {
    for folder in lib/capstan include/capstan share/doc/capstan; do
        [ ! -d "$DESTDIR$PREFIX/$folder" ] || find "$DESTDIR$PREFIX/$folder" -depth -type d -empty -delete
    done
    [ ! -d "$DESTDIR$SYSCONFDIR/capstan" ] || find "$DESTDIR$SYSCONFDIR/capstan" -depth -type d -empty -delete
}

case $action in
install)
    make_settings
    make_texts
    ;;
uninstall) make_settings ;;
list) ;;
*)
    echo "install.sh: '$action' is none of install, uninstall, list" >&2
    exit 2
    ;;
esac
everything
[ "$action" != uninstall ] || remove_folders

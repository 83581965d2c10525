#!/bin/sh
# build.sh [--fast] [FOLDER] - makes FOLDER/capstan_VERSION_ARCHITECTURE.deb (build/package without FOLDER) from the
# release build (or from the folder CAPSTAN_BUILD), and prints its name. Run through ./dev package, which builds first.
# --fast compresses little, for tests.
#
# The version is that of src/cli/version.h; what the package depends on is found out by dpkg-shlibdeps from the program
# and from DuckDB's library; two builds of one commit are the same, byte by byte.
set -eu
cd "$(dirname "$0")/../.."

compression='-Zxz'
folder=build/package
for argument in "$@"; do
    case $argument in
    --fast) compression='-Zgzip -z1' ;;
    -*)
        echo "package: unknown argument '$argument'" >&2
        echo '  hint: ./dev package [--fast]' >&2
        exit 2
        ;;
    *) folder=$argument ;;
    esac
done

version=$(sed -n 's/^#define CAPSTAN_VERSION "\(.*\)"$/\1/p' src/cli/version.h)
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
mkdir "$root"

BUILD=${CAPSTAN_BUILD:-build/release} PREFIX=/usr SYSCONFDIR=/etc DESTDIR=$root packaging/install.sh install

strip --strip-unneeded "$root/usr/bin/capstan" "$root/usr/lib/libcapstan.so.0"
strip --strip-debug --enable-deterministic-archives "$root/usr/lib/capstan/libcapstan_worker.a" "$root/usr/lib/libcapstan.a"
gzip -9n "$root/usr/share/man/man1/capstan.1"
install -d "$root/var/lib/capstan"
{
    printf 'capstan (%s) stable; urgency=medium\n\n  * Version %s.\n\n' "$version" "$version"
    printf ' -- Capstan <maintainers@capstan.invalid>  %s\n' "$date"
} | gzip -9n >"$root/usr/share/doc/capstan/changelog.gz"

mkdir -p "$scratch/debian"
printf 'Source: capstan\n\nPackage: capstan\nArchitecture: any\n' >"$scratch/debian/control"
depends=$(cd "$scratch" && dpkg-shlibdeps -O -eroot/usr/bin/capstan -eroot/usr/lib/libcapstan.so.0 \
    -eroot/usr/lib/capstan/libduckdb.so 2>"$scratch/log" | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || {
    cat "$scratch/log" >&2
    echo 'package: dpkg-shlibdeps does not say what it depends on' >&2
    exit 1
}

install -d -m 755 "$root/DEBIAN"
size=$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" -e "s/@DEPENDS@/$depends/" \
    packaging/debian/control >"$root/DEBIAN/control"
install -m 644 packaging/debian/conffiles packaging/debian/triggers "$root/DEBIAN/"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs md5sum) >"$scratch/sums"
mv "$scratch/sums" "$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/md5sums"
find "$root" -type d -exec chmod 755 {} +

mkdir -p "$folder"
package=$folder/capstan_${version}_$architecture.deb
# shellcheck disable=SC2086 # compression is two words
dpkg-deb --root-owner-group $compression --build "$root" "$package" >/dev/null
echo "$package"

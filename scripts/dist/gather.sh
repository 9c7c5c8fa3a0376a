#!/bin/sh
# Gathers what several machines made of one version into the flat folder that a release publishes, under the names that
# docs/guide/install.md tells. Refuses what nobody should publish.
#
#   scripts/dist/gather.sh OUT FOLDER...      OUT must not exist; scripts/dist.sh has written each FOLDER
#
# OUT gets every file of the FOLDERs once, weir-VERSION-apt.tar.gz with one Debian repository for all architectures, and
# one SHA256SUMS, signed. Crates stay out: `cargo publish` uploads them.
#
# Environment, as in scripts/dist.sh: WEIR_SIGN_KEY, WEIR_URL, WEIR_APT_URL and SOURCE_DATE_EPOCH (default: the last
# commit's).
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
export LC_ALL=C TZ=UTC
umask 022
fail() {
    echo "gather.sh: $*" >&2
    exit 1
}

[ $# -ge 2 ] || fail "usage: gather.sh OUT FOLDER..."
out=$1
shift
[ ! -e "$out" ] || fail "$out exists already"
[ -n "${WEIR_SIGN_KEY:-}" ] || fail "a release is signed: set WEIR_SIGN_KEY"
WEIR_APT_URL=${WEIR_APT_URL:-${WEIR_URL:?a release has an address: set WEIR_URL}/apt}
export WEIR_APT_URL
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

beside=$(mktemp -d "$out.XXXXXX")
work=$(mktemp -d)
trap 'rm -rf "$beside" "$work"' EXIT
chmod 755 "$beside"

for folder in "$@"; do
    (cd "$folder" && sha256sum --check --strict --quiet SHA256SUMS) || fail "$folder is not what its SHA256SUMS says"
    for file in "$folder"/*; do
        name=${file##*/}
        case $name in SHA256SUMS | SHA256SUMS.asc | apt | crates) continue ;; esac
        grep -q "^[0-9a-f]*  $name\$" "$folder/SHA256SUMS" || fail "SHA256SUMS of $folder does not list $name"
        if [ -e "$beside/$name" ]; then
            cmp -s "$file" "$beside/$name" || fail "$name has different content in $folder"
        fi
        cp "$file" "$beside/$name"
    done
done

# What must not be published.
set -- "$beside"/weir_*.deb
[ -e "$1" ] || fail "there is no Debian package"
version=$(dpkg-deb --field "$1" Version)
for deb in "$@"; do
    case $(dpkg-deb --field "$deb" Maintainer) in
        *weir.invalid*) fail "${deb##*/} has no maintainer: make it with WEIR_MAINTAINER" ;;
    esac
done
for file in "$beside"/*; do
    case ${file##*/} in
        weir-"$version"-* | weir_"$version"_* | weir-key.asc) ;;
        weir.rb) ! grep -q 'weir\.invalid' "$file" || fail "weir.rb has no address: make it with WEIR_URL" ;;
        *) fail "${file##*/} is no file of version $version" ;;
    esac
done

"$here/apt.sh" "$work/apt" "$@"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu -cf - apt |
    gzip -9nc >"$beside/weir-$version-apt.tar.gz"
gpg --batch --armor --export "$WEIR_SIGN_KEY" >"$beside/weir-key.asc"
(cd "$beside" && sha256sum -- *) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$beside/SHA256SUMS"
"$here/sign.sh" "$beside/SHA256SUMS" "$beside/SHA256SUMS.asc" --armor --detach-sign
mv -T "$beside" "$out" # never into a folder that another run has made meanwhile
echo "$out"

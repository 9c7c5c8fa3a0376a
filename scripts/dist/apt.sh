#!/bin/sh
# Makes a Debian repository of these packages, of one version for any number of architectures.
#
#   scripts/dist/apt.sh FOLDER DEB...
#
# Environment, as in scripts/dist.sh: SOURCE_DATE_EPOCH and WEIR_APT_URL, which must be set; WEIR_SIGN_KEY.
set -eu
here=$(dirname "$0")
apt=$1
shift
export LC_ALL=C TZ=UTC
umask 022

pool=pool/main/w/weir
rm -rf "$apt"
mkdir -p "$apt/$pool"
cp "$@" "$apt/$pool/"
architectures=
for deb in "$@"; do
    architecture=$(dpkg-deb --field "$deb" Architecture)
    index=$apt/dists/stable/main/binary-$architecture
    [ ! -e "$index" ] || { echo "apt.sh: two packages for $architecture" >&2; exit 1; }
    architectures="$architectures $architecture"
    mkdir -p "$index"
    (cd "$apt" && dpkg-scanpackages --arch "$architecture" pool 2>/dev/null) >"$index/Packages"
    gzip -9nk "$index/Packages"
done

release=$apt/dists/stable/Release
{
    printf 'Origin: Weir\nLabel: Weir\nSuite: stable\nCodename: stable\n'
    printf 'Architectures:%s\nComponents: main\nDescription: Weir API gateway\n' "$architectures"
    printf 'Date: %s\nSHA256:\n' "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
    (cd "$apt/dists/stable" && for file in main/binary-*/Packages*; do
        printf ' %s %s %s\n' "$(sha256sum "$file" | cut -d' ' -f1)" "$(stat -c %s "$file")" "$file"
    done)
} >"$release"

# weir.sources is for /etc/apt/sources.list.d of the machines that use the repository. `Trusted: yes` would let whoever
# answers for the server install any program as root, so this script never writes it.
notice= trust=
if [ -n "${WEIR_SIGN_KEY:-}" ]; then
    "$here/sign.sh" "$release" "$apt/dists/stable/Release.gpg" --armor --detach-sign
    "$here/sign.sh" "$release" "$apt/dists/stable/InRelease" --clearsign
    gpg --batch --export "$WEIR_SIGN_KEY" >"$apt/weir.gpg"
    trust='Signed-By: /etc/apt/keyrings/weir.gpg
'
else
    notice='# This repository is not signed: apt refuses it. To sign it, make it with WEIR_SIGN_KEY. To try it without a
# signature, add the line `Trusted: yes`: apt then installs whatever this address sends, as root.
'
fi
printf '%sTypes: deb\nURIs: %s\nSuites: stable\nComponents: main\n%s' "$notice" "$WEIR_APT_URL" "$trust" \
    >"$apt/weir.sources"

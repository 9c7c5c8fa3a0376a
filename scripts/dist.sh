#!/bin/sh
# Packages weir: a tarball and a Debian package, with systemd unit, logrotate snippet, manual pages and shell
# completions.
#
#   scripts/dist.sh [FOLDER]      default: target/dist/packages
#
# Environment: WEIR_BIN packages that binary instead of building one with the profile dist. WEIR_VERSION replaces the
# binary's version. WEIR_PACKAGES is `tar`, `deb` or both (the default). WEIR_COMPRESS is the value of dpkg-deb -Z
# (default xz; none is quick).
set -eu
cd "$(dirname "$0")/.."
out=${1:-target/dist/packages}
if [ -z "${WEIR_BIN:-}" ]; then
    cargo build --locked --profile dist --bin weir
    WEIR_BIN=${CARGO_TARGET_DIR:-target}/dist/weir
fi
version=${WEIR_VERSION:-$("$WEIR_BIN" --version | cut -d' ' -f2)}
machine=$(uname -m)
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# === what both packages hold ===

tree=$work/tree
mkdir -p "$tree/usr/bin" "$tree/usr/share/man/man1" "$tree/usr/share/doc/weir/examples" \
    "$tree/usr/share/bash-completion/completions" "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/fish/vendor_completions.d"
install -m 755 "$WEIR_BIN" "$tree/usr/bin/weir"
weir=$tree/usr/bin/weir
"$weir" man --dir "$tree/usr/share/man/man1"
gzip -9n "$tree"/usr/share/man/man1/*.1
"$weir" completions bash >"$tree/usr/share/bash-completion/completions/weir"
"$weir" completions zsh >"$tree/usr/share/zsh/vendor-completions/_weir"
"$weir" completions fish >"$tree/usr/share/fish/vendor_completions.d/weir.fish"
install -m 644 README.md NOTICE "$tree/usr/share/doc/weir/"
(cd docs && find . -type f -exec install -D -m 644 {} "$tree/usr/share/doc/weir/docs/{}" \;)
install -m 644 examples/*.yaml examples/endpoints.json "$tree/usr/share/doc/weir/examples/"
gzip -9nc CHANGELOG.md >"$tree/usr/share/doc/weir/changelog.gz"
install -m 644 LICENSE "$tree/usr/share/doc/weir/copyright"
install -D -m 644 dist/weir.service "$tree/usr/lib/systemd/system/weir.service"
install -D -m 644 dist/weir.socket "$tree/usr/lib/systemd/system/weir.socket"
install -D -m 644 dist/grafana-gateway.json "$tree/usr/share/weir/grafana-gateway.json"
install -D -m 644 dist/grafana-load.json "$tree/usr/share/weir/grafana-load.json"
install -D -m 644 dist/prometheus-alerts.yaml "$tree/usr/share/weir/prometheus-alerts.yaml"
install -D -m 644 dist/logrotate "$tree/etc/logrotate.d/weir"
install -D -m 644 dist/weir.yaml "$tree/etc/weir/weir.yaml"

# === the tarball ===

wanted=${WEIR_PACKAGES:-tar deb}
name=weir-$version-linux-$machine
# Reproducible: sorted, owned by root, dated by the last commit.
date=@$(git log -1 --format=%ct 2>/dev/null || echo 0)
case $wanted in *tar*)
    level=-9
    [ "${WEIR_COMPRESS:-xz}" != none ] || level=-1
    tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$date" --transform "s,^tree,$name," -cf - tree |
        gzip "$level" -nc >"$out/$name.tar.gz"
    echo "$out/$name.tar.gz"
    ;;
esac

# === the Debian package ===

case $wanted in *deb*) ;; *) exit 0 ;; esac
if ! command -v dpkg-deb >/dev/null; then
    echo "dpkg-deb is not here: no Debian package" >&2
    exit 0
fi
mkdir "$tree/DEBIAN"
for script in postinst prerm postrm; do
    install -m 755 "dist/debian/$script" "$tree/DEBIAN/$script"
done
(cd "$tree" && find etc -type f -printf '/%p\n' | sort) >"$tree/DEBIAN/conffiles"
architecture=$(dpkg --print-architecture)
libc=$(objdump -T "$weir" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2) || true
cat >"$tree/DEBIAN/control" <<CONTROL
Package: weir
Version: $version
Architecture: $architecture
Maintainer: The Weir authors <weir@localhost>
Section: httpd
Priority: optional
Depends: libc6 (>= ${libc:-2.36})
Recommends: ca-certificates
Suggests: logrotate
Installed-Size: $(du -sk "$tree" | cut -f1)
Description: API gateway and load tester
 Weir routes HTTP/1.1, HTTP/2, gRPC and WebSocket to services, with filters for authentication, limits, headers and more, and says of
 each error that it makes why. The same program is a load tester.
CONTROL
deb=$out/weir_${version}_$architecture.deb
dpkg-deb --root-owner-group -Z"${WEIR_COMPRESS:-xz}" --build "$tree" "$deb" >/dev/null
echo "$deb"

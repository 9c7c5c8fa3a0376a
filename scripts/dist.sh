#!/bin/sh
# Makes all files of a release. The same commit, Rust toolchain and build machine give the same bytes in any folder.
#
#   scripts/dist.sh [FOLDER]      default: target/dist/packages
#
# It first removes what an earlier run left in FOLDER, so that SHA256SUMS lists every file there.
#
# Environment:
#   WEIR_PACKAGES      which of these to make, default all:
#                        tar     weir-VERSION-linux-MACHINE.tar.gz
#                        deb     weir_VERSION_ARCHITECTURE.deb
#                        rpm     weir-VERSION-1.MACHINE.rpm
#                        image   weir-VERSION-image-MACHINE.tar, an OCI image that holds weir and weir-kube
#                        sbom    weir-VERSION-linux-MACHINE.cdx.json, a bill of materials (CycloneDX); with `image`
#                                also weir-VERSION-image-MACHINE.cdx.json
#                        source  weir-VERSION-source.tar.xz, with all dependencies: it builds without a network
#                        crates  crates/*.crate, each built once from its archive
#                        brew    weir.rb, a Homebrew formula; needs `source`
#                        apt     apt/, a Debian repository; needs `deb`
#   WEIR_SIGN_KEY      OpenPGP key, in gpg's keyring, that signs the RPM, the repository and SHA256SUMS; its public part
#                      becomes weir-key.asc; default: none
#   WEIR_MAINTAINER    `NAME <ADDRESS>` of whoever answers for the packages
#   WEIR_URL           where the files of this release will be downloaded from, for the formula
#   WEIR_APT_URL       where the repository will be; default: WEIR_URL/apt
#                      These have placeholders, which are refused together with WEIR_SIGN_KEY.
#   WEIR_BIN           packages this binary instead of building one with the profile dist
#   WEIR_KUBE_BIN      weir-kube of the image; default: the one beside WEIR_BIN
#   WEIR_PROFILE       profile to build with instead of dist; only tar, deb, rpm and image need a build
#   WEIR_VERSION       replaces the version of the binary
#   WEIR_LIBC          C library in the tarball's name, if the binary brings its own: musl, which nobody has tried yet
#   WEIR_COMPRESS      compression of packages: xz (default) or none, which is quick
#   SOURCE_DATE_EPOCH  time stamp of every file; default: the last commit's
set -eu
cd "$(dirname "$0")/.."
out=${1:-target/dist/packages}
wanted=${WEIR_PACKAGES:-tar deb rpm image sbom source crates brew apt}
compress=${WEIR_COMPRESS:-xz}
maintainer=${WEIR_MAINTAINER:-The Weir authors <nobody@weir.invalid>}
url=${WEIR_URL:-https://weir.invalid/download}
apt_url=${WEIR_APT_URL:-$url/apt}
machine=$(uname -m)
umask 022
export LC_ALL=C TZ=UTC

fail() {
    echo "dist.sh: $*" >&2
    exit 1
}
wants() {
    case " $wanted " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}
needs() {
    command -v "$1" >/dev/null || fail "$1 is not installed ($2). Install it, or leave $3 out of WEIR_PACKAGES"
}

for kind in $wanted; do
    case $kind in
        tar | sbom | crates) ;;
        source) [ -e .git ] || fail "source needs git's history, which is not here. Leave it out of WEIR_PACKAGES" ;;
        deb) needs dpkg-deb "package dpkg" deb && needs objdump "package binutils" deb ;;
        rpm) needs rpmbuild "package rpm" rpm ;;
        image) needs dpkg-query "image needs Debian; elsewhere use dist/Dockerfile" image ;;
        brew) wants source || fail "brew needs source: the formula names its checksum" ;;
        apt) needs dpkg-scanpackages "package dpkg-dev" apt && { wants deb || fail "apt needs deb"; } ;;
        *) fail "WEIR_PACKAGES names '$kind'. Known: tar deb rpm image sbom source crates brew apt" ;;
    esac
done
case $compress in xz | none) ;; *) fail "WEIR_COMPRESS is '$compress'. Expected xz or none" ;; esac
[ -z "${WEIR_SIGN_KEY:-}" ] || gpg --batch --list-secret-keys "$WEIR_SIGN_KEY" >/dev/null 2>&1 ||
    fail "WEIR_SIGN_KEY is '$WEIR_SIGN_KEY', but gpg has no such secret key"
case $maintainer in
    *'
'*) fail "WEIR_MAINTAINER has more than one line" ;;
    ?*' <'?*@?*'>') ;;
    *) fail "WEIR_MAINTAINER is '$maintainer'. Expected NAME <ADDRESS>" ;;
esac
# A signature tells users that somebody answers for the files.
names() { # names KIND VALUE MESSAGE
    case $2 in *weir.invalid*) ! wants "$1" || fail "$3" ;; esac
}
if [ -n "${WEIR_SIGN_KEY:-}" ]; then
    names deb "$maintainer" "a signed package names its maintainer: set WEIR_MAINTAINER"
    names brew "$url" "a signed release names its address: set WEIR_URL"
    names apt "$apt_url" "a signed repository names its address: set WEIR_APT_URL or WEIR_URL"
fi

# A source archive has no .git; `.source` there says which commit it is.
if [ -e .git ]; then
    commit=$(git rev-parse --short=12 HEAD)
    date=$(git log -1 --format=%ct)
    if [ -n "$(git status --porcelain)" ]; then
        commit=$commit-dirty
        if wants source || wants crates; then
            fail "uncommitted changes are missing from source and crates. Commit them, or set WEIR_PACKAGES"
        fi
    fi
elif [ -e .source ]; then
    read -r commit date <.source
else
    commit=unknown date=0
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$date}
export SOURCE_DATE_EPOCH

# === the binaries ===

needs_binaries=
for kind in tar deb rpm image; do
    ! wants "$kind" || needs_binaries=yes
done
if [ -n "$needs_binaries" ] && [ -z "${WEIR_BIN:-}" ]; then
    # A folder of its own: paths of this machine are kept out of these binaries, so they share no object with others.
    target=${CARGO_TARGET_DIR:-target}/reproducible
    cargo=${CARGO_HOME:-$HOME/.cargo}
    mkdir -p "$target"
    here=$(pwd -P) inside=$(cd "$target" && pwd -P)
    case $here$inside$cargo in *' '*) fail "a path with a space cannot be kept out of the binaries: build elsewhere" ;; esac
    # The last one that matches counts.
    for map in "$here=/weir" "$cargo=/cargo" "$inside=/target"; do
        RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$map"
        CFLAGS="${CFLAGS:-} -ffile-prefix-map=$map"
    done
    export RUSTFLAGS CFLAGS
    WEIR_COMMIT=$commit cargo build --locked --profile "${WEIR_PROFILE:-dist}" -p weirgate -p weir-kube --bins \
        --target-dir "$target"
    WEIR_BIN=$target/${WEIR_PROFILE:-dist}/weir
fi
if [ -n "${WEIR_BIN:-}" ]; then
    WEIR_KUBE_BIN=${WEIR_KUBE_BIN:-$(dirname "$WEIR_BIN")/weir-kube}
    version=${WEIR_VERSION:-$("$WEIR_BIN" --version | cut -d' ' -f2)}
else
    version=${WEIR_VERSION:-$(scripts/version.sh)}
fi
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -e "$out/SHA256SUMS" ]; then
    sed -n 's,^[0-9a-f]*  \(\(apt/\|crates/\|weir\)[^ ]*\)$,\1,p' "$out/SHA256SUMS" |
        (cd "$out" && xargs -r rm -f --)
    rm -f "$out/SHA256SUMS" "$out/SHA256SUMS.asc"
fi

made() {
    echo "${1#"$out"/}" >>"$work/made"
    echo "$1"
}
: >"$work/made"
# A tar archive on stdout in which nothing depends on who made it, and when: archive FOLDER NAME-INSIDE
archive() {
    tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
        --mode=go-w --transform "flags=r;s,^\.,$2," -cf - .
}

# === what tarball, Debian package and RPM hold ===

tree=$work/tree
if wants tar || wants deb || wants rpm; then
    mkdir -p "$tree/usr/bin" "$tree/usr/share/man/man1" "$tree/usr/share/doc/weir/examples" \
        "$tree/usr/share/bash-completion/completions" "$tree/usr/share/zsh/vendor-completions" \
        "$tree/usr/share/fish/vendor_completions.d"
    install -m 755 "$WEIR_BIN" "$tree/usr/bin/weir"
    weir=$tree/usr/bin/weir
    "$weir" man --dir "$tree/usr/share/man/man1"
    gzip -9n "$tree"/usr/share/man/man1/*.1
    "$weir" completions bash >"$tree/usr/share/bash-completion/completions/weir"
    "$weir" completions zsh >"$tree/usr/share/zsh/vendor-completions/_weir"
    "$weir" completions fish >"$tree/usr/share/fish/vendor_completions.d/weir.fish"
    install -m 644 README.md NOTICE SECURITY.md "$tree/usr/share/doc/weir/"
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
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
fi

if wants tar; then
    name=weir-$version-linux-$machine${WEIR_LIBC:+-$WEIR_LIBC}
    level=-9
    [ "$compress" != none ] || level=-1
    archive "$tree" "$name" | gzip "$level" -nc >"$out/$name.tar.gz"
    made "$out/$name.tar.gz"
fi

# === the Debian package, and a repository that holds it ===

if wants deb; then
    package=$work/deb
    cp -a "$tree" "$package"
    mkdir "$package/DEBIAN"
    for script in postinst prerm postrm; do
        install -m 755 "dist/debian/$script" "$package/DEBIAN/$script"
    done
    (cd "$package" && find etc -type f -printf '/%p\n' | sort) >"$package/DEBIAN/conffiles"
    (cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$package/DEBIAN/md5sums"
    architecture=$(dpkg --print-architecture)
    libc=$(objdump -T "$WEIR_BIN" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2) || true
    # Of the files, as Debian Policy counts them: each rounded up to 1 KiB, and 1 KiB for anything else.
    size=$(find "$tree" -printf '%y %s\n' | awk '{ k += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print k }')
    cat >"$package/DEBIAN/control" <<CONTROL
Package: weir
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: httpd
Priority: optional
Depends: libc6 (>= ${libc:-2.36}), libgcc-s1
Recommends: ca-certificates
Suggests: logrotate
Installed-Size: $size
Description: API gateway and load tester
 Weir routes HTTP/1.1, HTTP/2, HTTP/3, gRPC and WebSocket to services, with
 filters for authentication, limits, caching and more, and says why it made an
 error. The same program is a load tester.
CONTROL
    deb=$out/weir_${version}_$architecture.deb
    dpkg-deb --root-owner-group --threads-max=1 -Z"$compress" --build "$package" "$deb" >/dev/null
    made "$deb"
fi

if wants apt; then
    apt=$out/apt
    WEIR_APT_URL=$apt_url scripts/dist/apt.sh "$apt" "$deb"
    (cd "$out" && find apt -type f | sort) >>"$work/made"
    echo "$apt"
fi

# === the RPM ===

if wants rpm; then
    case $version in *-*) fail "an RPM's version has no '-': $version" ;; esac
    payload=w6.xzdio
    [ "$compress" != none ] || payload=w0.ufdio
    rpmbuild -bb --quiet --target "$machine-linux" \
        --define "_topdir $work/rpm" --define "_rpmdir $work/rpms" --define "_binary_payload $payload" \
        --define "weir_version $version" --define "weir_tree $tree" \
        dist/rpm/weir.spec >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log" >&2; fail "rpmbuild failed"; }
    rpm=$out/weir-$version-1.$machine.rpm
    mv "$work/rpms/$machine/weir-$version-1.$machine.rpm" "$rpm"
    if [ -n "${WEIR_SIGN_KEY:-}" ]; then
        # The file changes, but not the digest of its header, SHA256HEADER, which covers the content.
        # Debian's rpm looks for gpg2, which Debian calls gpg.
        rpmsign --define "_gpg_name $WEIR_SIGN_KEY" --define "__gpg $(command -v gpg)" --addsign "$rpm" \
            >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log" >&2; fail "rpmsign failed"; }
    fi
    made "$rpm"
fi

# === the container image, and bills of materials ===

if wants image; then
    [ -x "$WEIR_KUBE_BIN" ] || fail "weir-kube is not at $WEIR_KUBE_BIN. Build it, or set WEIR_KUBE_BIN"
    layer=$work/image
    mkdir -p "$layer/usr/bin"
    install -m 755 "$WEIR_BIN" "$layer/usr/bin/weir"
    install -m 755 "$WEIR_KUBE_BIN" "$layer/usr/bin/weir-kube"
    install -D -m 644 dist/container.yaml "$layer/etc/weir/weir.yaml"
    install -D -m 644 LICENSE "$layer/usr/share/doc/weir/copyright"
    install -m 644 NOTICE "$layer/usr/share/doc/weir/NOTICE"
    image=$out/weir-$version-image-$machine.tar
    scripts/dist/image.py --layer "$layer" --dockerfile dist/Dockerfile --name weir --version "$version" \
        --epoch "$SOURCE_DATE_EPOCH" --commit "$commit" --compress "$compress" --packages "$work/base" "$image"
    made "$image"
fi

if wants sbom; then
    bill=$out/weir-$version-linux-$machine.cdx.json
    scripts/dist/sbom.py --name weir --version "$version" --epoch "$SOURCE_DATE_EPOCH" --commit "$commit" \
        "$bill"
    made "$bill"
    if wants image; then
        bill=$out/weir-$version-image-$machine.cdx.json
        scripts/dist/sbom.py --name weir-image --version "$version" --epoch "$SOURCE_DATE_EPOCH" --commit "$commit" \
            --packages "$work/base" "$bill"
        made "$bill"
    fi
fi

# === sources ===

if wants source; then
    source=$work/source
    mkdir "$source"
    git archive HEAD | tar -x -C "$source"
    echo "$commit $SOURCE_DATE_EPOCH" >"$source/.source"
    mkdir "$source/.cargo"
    cargo vendor --locked --versioned-dirs --manifest-path "$source/Cargo.toml" "$source/vendor" >"$work/vendor.toml" \
        2>"$work/vendor.log" || { tail -20 "$work/vendor.log" >&2; fail "cargo vendor failed"; }
    cat >"$source/.cargo/config.toml" <<CONFIG
[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
directory = "vendor"
CONFIG
    scripts/dist/slim-vendor.py "$source"
    # One thread: the number of threads changes the bytes.
    archive "$source" "weir-$version" | xz -4 -T1 >"$out/weir-$version-source.tar.xz"
    made "$out/weir-$version-source.tar.xz"
fi

if wants brew; then
    sum=$(sha256sum "$out/weir-$version-source.tar.xz" | cut -d' ' -f1)
    sed "s|@URL@|$url|; s|@VERSION@|$version|g; s|@SHA256@|$sum|" dist/homebrew/weir.rb >"$out/weir.rb"
    made "$out/weir.rb"
fi

if wants crates; then
    # Builds each crate from its archive, on the archives of the others. Nobody debugs these builds: without debug
    # information they take less time and space.
    packing=${CARGO_TARGET_DIR:-target}/crates
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo package --locked --workspace --exclude weir-sim \
        --exclude weir-testkit --target-dir "$packing" \
        2>"$work/crates.log" || { tail -40 "$work/crates.log" >&2; fail "cargo package failed"; }
    rm -rf "$out/crates"
    mkdir "$out/crates"
    for crate in "$packing"/package/*-"$(scripts/version.sh)".crate; do
        cp "$crate" "$out/crates/"
        made "$out/crates/${crate##*/}"
    done
fi

# === checksums ===

if [ -n "${WEIR_SIGN_KEY:-}" ]; then
    gpg --batch --armor --export "$WEIR_SIGN_KEY" >"$out/weir-key.asc"
    made "$out/weir-key.asc"
fi
(cd "$out" && sort "$work/made" | xargs sha256sum) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$out/SHA256SUMS"
echo "$out/SHA256SUMS"
if [ -n "${WEIR_SIGN_KEY:-}" ]; then
    scripts/dist/sign.sh "$out/SHA256SUMS" "$out/SHA256SUMS.asc" --armor --detach-sign
    echo "$out/SHA256SUMS.asc"
else
    echo "dist.sh: nothing is signed, and apt refuses a repository without a signature: WEIR_SIGN_KEY is not set" >&2
fi

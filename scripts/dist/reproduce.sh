#!/bin/sh
# Makes every file of a release twice and compares them: from clones in folders of different names and lengths, and with
# different time zones and file mode masks.
#
#   scripts/dist/reproduce.sh
#
# Environment, beside that of scripts/dist.sh:
#   WEIR_PROFILE   release is quicker to build than dist
#   WEIR_PACKAGES  makes fewer files; `crates` is not made without this, as Cargo builds each of them
#   WEIR_BIN       packages this binary and the weir-kube beside it both times: compares packaging only
#
# Nothing may be signed: a signature holds its time.
set -eu
cd "$(dirname "$0")/../.."
if [ -n "$(git status --porcelain)" ]; then
    echo "reproduce.sh: there are uncommitted changes, which a clone lacks" >&2
    exit 1
fi
unset WEIR_SIGN_KEY WEIR_KUBE_BIN
what='binaries and packaging'
if [ -n "${WEIR_BIN:-}" ]; then
    WEIR_BIN=$(realpath "$WEIR_BIN")
    export WEIR_BIN
    what="packaging of $WEIR_BIN"
fi
# Not below target/: the second build has nothing of the first.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WEIR_PACKAGES="${WEIR_PACKAGES:-tar deb rpm image sbom source brew apt}"
build() { # build FOLDER TIME-ZONE MODE-MASK
    (
        umask "$3"
        export TZ="$2"
        git clone -q . "$work/$1/weir"
        env -u CARGO_TARGET_DIR "$work/$1/weir/scripts/dist.sh"
    )
}
build one UTC 022
build a/second/folder Asia/Tokyo 077
one=$work/one/weir/target/dist/packages
other=$work/a/second/folder/weir/target/dist/packages
diff -r "$one" "$other"
cat "$one/SHA256SUMS"
echo "reproduce.sh: $(wc -l <"$one/SHA256SUMS") files, the same in both ($what)"

#!/bin/sh
# Builds every file of a release twice, from clones in folders of different names and lengths, and compares them.
#
#   scripts/dist/reproduce.sh       WEIR_PROFILE=release is quicker than dist; WEIR_PACKAGES makes fewer files
#
# Nothing may be signed: a signature holds its time.
set -eu
cd "$(dirname "$0")/../.."
if [ -n "$(git status --porcelain)" ]; then
    echo "reproduce.sh: there are uncommitted changes, which a clone lacks" >&2
    exit 1
fi
unset WEIR_SIGN_KEY WEIR_BIN WEIR_KUBE_BIN
# Not below target/: the second build has nothing of the first.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WEIR_PACKAGES="${WEIR_PACKAGES:-tar deb rpm image sbom source brew apt}"
for folder in one a/second/folder; do
    git clone -q . "$work/$folder/weir"
    env -u CARGO_TARGET_DIR "$work/$folder/weir/scripts/dist.sh"
done
one=$work/one/weir/target/dist/packages
other=$work/a/second/folder/weir/target/dist/packages
diff -r "$one" "$other"
cat "$one/SHA256SUMS"
echo "reproduce.sh: $(wc -l <"$one/SHA256SUMS") files, the same in both"

#!/bin/sh
# Prints the version of this tree, or sets it.
#
#   scripts/version.sh            prints it
#   scripts/version.sh 1.2.3      writes it everywhere
#
# The version is that of `[workspace.package]` in the root manifest. Everything else that names it is written from
# there by this script; `the_version_is_the_same_everywhere` in crates/weirgate/tests/tidy/ fails if one differs.
set -eu
cd "$(dirname "$0")/.."
old=$(sed -n '/^\[workspace.package\]/,/^\[/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)
if [ $# = 0 ]; then
    echo "$old"
    exit 0
fi
new=$1
if ! echo "$new" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?'; then
    echo "version.sh: '$new' is no version. Expected MAJOR.MINOR.PATCH, such as 1.0.0" >&2
    exit 2
fi
dots=$(echo "$old" | sed 's/\./\\./g')
sed -i "s/^version = \"$dots\"\$/version = \"$new\"/; s/version = \"=$dots\", path/version = \"=$new\", path/" Cargo.toml
sed -i "s/^\(version\|appVersion\): $dots\$/\1: $new/" deploy/kubernetes/chart/Chart.yaml
sed -i "s/image: weir:$dots\$/image: weir:$new/" deploy/kubernetes/weir.yaml
sed -i "s/weir:$dots\b/weir:$new/g" docs/guide/kubernetes.md
sed -i "s/^weir $dots\$/weir $new/" docs/reference/versions.md docs/start.md
# The workspace's packages in the lock file.
cargo metadata --offline --format-version 1 >/dev/null
echo "$new"

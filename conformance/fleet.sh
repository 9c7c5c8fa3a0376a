#!/bin/sh
# A thousand seeds of the simulated fleet, and one change on ten thousand calm nodes.
set -u
cd "$(dirname "$0")/.." || exit 1
cargo build --locked --release -p weir-sim </dev/null || exit 1
sim="${CARGO_TARGET_DIR:-target}/release/weir-sim"
"$sim" 0 1000 && "$sim" calm 10000

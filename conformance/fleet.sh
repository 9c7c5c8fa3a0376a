#!/bin/sh
# Long fleet tests: 1,000 seeds of the simulator and of its limits, one change on 10,000 nodes, and the e2e tests behind
# LONG_TESTS.
. "$(dirname "$0")/lib.sh"
ensure etcd

SIM=${WEIR_SIM:-}
if [ -z "$SIM" ]; then
  (cd "$ROOT" && cargo build --locked --release -p weir-sim >&2 </dev/null) || exit 1
  SIM=$(cd "$ROOT" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weir-sim
fi
for run in "0 1000" "limits 0 1000" "calm 10000"; do
  # shellcheck disable=SC2086 # the words are options
  "$SIM" $run >"$WORK/sim.log" && pass "$(tail -n 1 "$WORK/sim.log")" || { fail "weir-sim $run"; tail -n 5 "$WORK/sim.log"; }
done

WEIR_BIN=$(weir_bin)
export WEIR_BIN
# One at a time: they measure.
(cd "$ROOT" && LONG_TESTS=1 cargo test --locked --profile ci -p weirgate --test e2e -- fleet_ --test-threads 1 --nocapture) >"$WORK/tests.log" 2>&1 </dev/null && good=yes || good=
grep -h '^FIGURE ' "$WORK/tests.log" || true
if [ "$good" ]; then
  pass "with a real etcd: $(grep '^test result' "$WORK/tests.log" | tail -n 1)"
else
  fail "with a real etcd"
  tail -n 60 "$WORK/tests.log"
fi
exit "$FAILED"

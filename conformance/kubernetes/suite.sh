#!/bin/sh
# Runs the suite on the cluster that run.sh started. run.sh explains MODE, FEATURES, PROFILES, TESTS, SKIP, TIMEOUTS and
# REPORT.
#
# usage: suite.sh FOLDER, with KUBECONFIG set
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
WORK=$1

set -- --conformance-options-file "$HERE/suite.yaml" \
  --conformance-profiles "${PROFILES:-GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP}" \
  --version "$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)" --mode "${MODE:-service}"
[ -z "${FEATURES:-}" ] || set -- "$@" --supported-features "$FEATURES"
[ -z "${TESTS:-}" ] || set -- "$@" --run-test "$TESTS"
[ -z "${SKIP:-}" ] || set -- "$@" --skip-tests "$SKIP"
[ -z "${TIMEOUTS:-}" ] || set -- "$@" --timeout-config-overrides "$TIMEOUTS"
[ -z "${REPORT:-}" ] || set -- "$@" --report-output "$REPORT"
cd "$WORK"
status=0
timeout -k 10 90m suite -test.run '^TestConformance$' -test.timeout 85m -test.v "$@" >suite.log 2>&1 || status=$?
if [ -z "${TESTS:-}" ]; then
  grep -E '^    --- (PASS|FAIL|SKIP)' suite.log || true
elif ! grep -E '^    --- (PASS|FAIL)' suite.log; then
  echo "suite.sh: no test $TESTS has run" >&2
  exit 1
fi
tail -n 3 suite.log
exit $status

#!/bin/sh
# Measures changes of HTTPRoutes under load, and a start with many routes, against a real control plane.
#
# usage: measure.sh RESULT.json [ROUTES [CHANGES [RATE]]]      (200 routes, 2,000 changes, 1,000 requests per second)
#
# WEIR_BIN is the program `weir` for the load; without it there is none. Otherwise as run.sh.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != --inside ]; then
  result=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
  shift
  MODE=${MODE:-static} exec "$HERE/run.sh" "$HERE/measure.sh" --inside "$result" "$@"
fi
node apply --kubeconfig "$KUBECONFIG" "$HERE/churn/churn.yaml"
exec churn --kubeconfig "$KUBECONFIG" --weir "${WEIR_BIN:-}" --result "$2" --routes "${3:-200}" --changes "${4:-2000}" \
  --rate "${5:-1000}"

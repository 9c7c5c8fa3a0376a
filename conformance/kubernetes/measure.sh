#!/bin/sh
# Measures weir-kube against a real control plane: changes of HTTPRoutes under load, then a start with many routes.
#
# usage: measure.sh FOLDER [ROUTES [CHANGES [RATE [MANY]]]]
#
# Changes CHANGES (2,000) times one of ROUTES (200) routes under RATE (1,000) requests per second over all of them, then
# starts weir-kube with MANY (5,000) routes. FOLDER gets changes.json and start.json. WEIR_BIN is the program `weir` for
# the load; without it there is none. Otherwise as run.sh.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != --inside ]; then
  mkdir -p "$1"
  folder=$(cd "$1" && pwd)
  shift
  MODE=${MODE:-static} exec "$HERE/run.sh" "$HERE/measure.sh" --inside "$folder" "$@"
fi
OUT=$2 ROUTES=${3:-200} CHANGES=${4:-2000} RATE=${5:-1000} MANY=${6:-5000}

node apply --kubeconfig "$KUBECONFIG" "$HERE/churn/churn.yaml"
if [ "$CHANGES" -gt 0 ]; then
  churn --kubeconfig "$KUBECONFIG" --weir "${WEIR_BIN:-}" --result "$OUT/changes.json" --routes "$ROUTES" \
    --changes "$CHANGES" --rate "$RATE"
fi
[ "$MANY" -gt 0 ] || exit 0

# The rest of the routes, then weir-kube alone, outside of a pod: from its start until it is ready.
churn --kubeconfig "$KUBECONFIG" --result "$(dirname "$KUBECONFIG")/many.json" --first "$ROUTES" --routes "$MANY" --changes 0 >/dev/null
api() { curl -sf --cacert ca.crt -H "Authorization: Bearer $(cut -d, -f1 tokens)" "$@"; }
cd "$(dirname "$KUBECONFIG")"
api -X PATCH -H 'content-type: application/merge-patch+json' -d '{"spec":{"replicas":0}}' \
  https://127.0.0.1:6443/apis/apps/v1/namespaces/weir/deployments/weir >/dev/null
while api https://127.0.0.1:6443/api/v1/namespaces/weir/pods | grep -q '"podIP"'; do sleep 0.2; done
cut -d, -f1 tokens >token
mkdir -p state
printf 'admin: { address: "127.0.0.1:9181" }\n' >alone.yaml
began=$(date +%s%N)
"$WEIR_KUBE" --server https://127.0.0.1:6443 --token-file token --ca ca.crt --namespace weir --config alone.yaml \
  --state state >alone.log 2>&1 &
pid=$!
until curl -sf -o /dev/null http://127.0.0.1:9181/readyz; do
  kill -0 $pid || { cat alone.log; exit 1; }
  sleep 0.02
done
ready=$(($(date +%s%N) - began))
memory=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$pid/status)
kill $pid
wait $pid || true
printf '{ "routes": %s, "ready_ms": %s, "peak_kib": %s }\n' "$MANY" $((ready / 1000000)) "$memory" | tee "$OUT/start.json"

#!/bin/sh
# Checks the Helm chart: renders it with several values, compares it with weir.yaml, has a real API server check the
# renderings, installs and upgrades it there, runs some tests of the suite on it, and removes it.
#
# usage: chart.sh
#
# Helm is built from its Go module. Otherwise as run.sh.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
if [ "${1:-}" != --inside ]; then
  INSTALL=chart exec "$HERE/run.sh" "$HERE/chart.sh" --inside
fi
CHART=$ROOT/deploy/kubernetes/chart

# render NAME OPTION...: the chart with these values, for a namespace in which nothing is installed
render() {
  name=$1
  shift
  helm template weir "$CHART" --namespace weir-dry "$@" >"chart-$name.yaml"
}
# has NAME TEXT, and has_not: fail unless the rendering has a line with this text, or has none
has() { grep -qF -- "$2" "chart-$1.yaml" || { echo "chart.sh: $1 lacks: $2" >&2; exit 1; }; }
has_not() { ! grep -qF -- "$2" "chart-$1.yaml" || { echo "chart.sh: $1 has: $2" >&2; exit 1; }; }

helm lint --strict "$CHART"
helm template weir "$CHART" --namespace weir >chart-plain.yaml
trial compare "$ROOT/deploy/kubernetes/weir.yaml" chart-plain.yaml
render default
has_not default 'kind: ServiceMonitor'
render replicas --set autoscaling.enabled=false --set replicas=3
has replicas 'replicas: 3'
has_not replicas 'kind: HorizontalPodAutoscaler'
render monitored --set serviceMonitor.enabled=true --set serviceMonitor.interval=5s
has monitored 'kind: ServiceMonitor'
has monitored 'interval: 5s'
render image --set image.repository=registry.example/team/weir --set image.tag=1.2.3 --set image.pullPolicy=Always
has image 'image: "registry.example/team/weir:1.2.3"'
render static --set gatewayServices.enabled=false --set hostNetwork=true
has static 'hostNetwork: true'
has_not static '--gateway-services'
has_not static 'verbs: [create, delete, patch]'
has_not static 'sysctls'
render others --set service.type=LoadBalancer --set gatewayServices.type=ClusterIP --set adminSecret=mine \
  --set nodeSelector.disk=fast --set 'tolerations[0].key=a' --set 'tolerations[0].operator=Exists' \
  --set gatewayClass.create=false --set ingressClass.create=false --set controllerName=example.com/second
has others 'externalTrafficPolicy: Local'
has others 'name: "mine"'
has others '--controller=example.com/second'
has_not others 'kind: Secret'
has_not others 'kind: GatewayClass'
has_not others 'kind: IngressClass'
printf 'apiVersion: v1\nkind: Namespace\nmetadata: { name: weir-dry }\n' >dry.yaml
node apply --kubeconfig "$KUBECONFIG" dry.yaml
for name in default replicas image static others; do
  node apply --kubeconfig "$KUBECONFIG" --dry "chart-$name.yaml"
done

# An upgrade of the installed chart keeps the token, and every replica becomes ready again.
api() { curl -sf --cacert ca.crt -H "Authorization: Bearer $(cut -d, -f1 tokens)" "https://127.0.0.1:6443$1"; }
token() { api /api/v1/namespaces/weir/secrets/weir-admin | sed -n 's/.*"token": "\(.*\)".*/\1/p'; }
before=$(token)
[ -n "$before" ] || { echo 'chart.sh: the chart made no token' >&2; exit 1; }
helm upgrade weir "$CHART" --namespace weir --set config.log.level=debug --wait --timeout 3m >/dev/null
[ "$before" = "$(token)" ] || { echo 'chart.sh: an upgrade changed the token' >&2; exit 1; }
trial rights --kubeconfig "$KUBECONFIG" --account weir/weir --manifest chart-plain.yaml
for test in GatewayInfrastructureMetadata HTTPRouteSimpleSameNamespace HTTPRouteWeight GRPCExactMethodMatching \
  TLSRouteSimpleSameNamespace; do
  TESTS=$test "$HERE/suite.sh" "$PWD"
done
helm uninstall weir --namespace weir --wait --timeout 3m >/dev/null
left=$(api /apis/rbac.authorization.k8s.io/v1/clusterroles/weir-weir || true)
[ -z "$left" ] || { echo 'chart.sh: something is left when the chart is removed' >&2; exit 1; }
echo 'chart.sh: passed'

#!/bin/sh
# Checks the Helm chart: renders it with several values, compares it with weir.yaml, has a real API server check the
# renderings, installs and upgrades it there, runs some tests of the suite on it, and removes it. Also runs a DaemonSet
# in the network of the node.
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
# A helm that is built from its module takes the cluster for an old one when it only renders.
KUBE=$(sed -n 's,^\s*k8s.io/kubernetes \(v[0-9.]*\)$,\1,p' "$HERE/go.mod")

# render NAME OPTION...: the chart with these values, for a namespace in which nothing is installed
render() {
  name=$1
  shift
  helm template weir "$CHART" --kube-version "$KUBE" --namespace weir-dry "$@" >"chart-$name.yaml"
}
# has NAME TEXT, and has_not: fail unless the rendering has a line with this text, or has none
has() { grep -qF -- "$2" "chart-$1.yaml" || { echo "chart.sh: $1 lacks: $2" >&2; exit 1; }; }
has_not() { ! grep -qF -- "$2" "chart-$1.yaml" || { echo "chart.sh: $1 has: $2" >&2; exit 1; }; }

helm lint --strict "$CHART"
helm template weir "$CHART" --kube-version "$KUBE" --namespace weir >chart-plain.yaml
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
has static 'address: 127.0.0.1:9180'
has static 'path: /readyz, port: admin, host: 127.0.0.1'
has_not static 'component: admin'
render daemons --set kind=DaemonSet --set gatewayServices.enabled=false --set hostNetwork=true
has daemons 'kind: DaemonSet'
has daemons 'updateStrategy: { rollingUpdate: { maxUnavailable: 1, maxSurge: 0 } }'
for left_out in 'kind: Deployment' 'replicas:' HorizontalPodAutoscaler PodDisruptionBudget topologySpread; do
  has_not daemons "$left_out"
done
render scraped --set kind=DaemonSet --set hostNetwork=true --set serviceMonitor.enabled=true
has scraped '${POD_IP}:9180'
has scraped 'component: admin'
has_not scraped 'host: 127.0.0.1'
render own --set hostNetwork=true --set config.admin.address=192.0.2.1:9180
has own 'address: 192.0.2.1:9180'
if (render wrong --set kind=StatefulSet) 2>wrong.log || ! grep -q 'kind must be' wrong.log; then
  echo 'chart.sh: any kind is taken' >&2
  exit 1
fi
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
for name in default replicas image static daemons own others; do
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
# In the network of the node, the admin API is there for the node alone, whose kubelet asks whether the pod is ready.
helm install nodes "$CHART" --namespace weir-nodes --create-namespace --set kind=DaemonSet --set hostNetwork=true \
  --set gatewayServices.enabled=false --set controllerName=example.com/nodes --set gatewayClass.name=nodes \
  --set ingressClass.name=nodes >/dev/null
left=300
until api /apis/apps/v1/namespaces/weir-nodes/daemonsets/nodes | grep -q '"numberReady": 1'; do
  left=$((left - 1))
  [ $left -gt 0 ] || { echo 'chart.sh: the pod of the DaemonSet does not become ready' >&2; exit 1; }
  sleep 0.2
done
curl -sf http://127.0.0.1:9180/healthz >/dev/null
! curl -sf http://10.244.0.1:9180/healthz || { echo 'chart.sh: the admin API is open to the network' >&2; exit 1; }
helm uninstall nodes --namespace weir-nodes --wait --timeout 3m >/dev/null
helm uninstall weir --namespace weir --wait --timeout 3m >/dev/null
left=$(api /apis/rbac.authorization.k8s.io/v1/clusterroles/weir-weir || true)
[ -z "$left" ] || { echo 'chart.sh: something is left when the chart is removed' >&2; exit 1; }
echo 'chart.sh: passed'

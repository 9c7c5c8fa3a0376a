#!/bin/sh
# Runs weir-kube against a real Kubernetes control plane, and the official conformance suite of the Gateway API on it.
#
# usage: run.sh [COMMAND...]
#
# Without a command it runs the suite. With one it runs that instead, with KUBECONFIG set and `node` on the path: for
# instance `run.sh sh`. Everything runs in own namespaces of this machine, as root, and ends with the command.
#
#   MODE       service (default): each Gateway has a Service, played by a load balancer; static: each has an address
#   FEATURES   of the suite, separated by commas; default: those that the GatewayClass claims
#   PROFILES   of the suite; default: GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP
#   TESTS      run only the tests whose short name is this one
#   SKIP       tests to leave out, separated by commas
#   TIMEOUTS   shorter waits for a failure, such as 'DefaultTestTimeout:20;MaxTimeToConsistency:10'
#   REPORT     file for the report
#   LOGS       folder that keeps the logs; default: a temporary one, removed at the end
#   WEIR_KUBE  the program to test; default: built here
#   WEIR_BIN   the program `weir` for the pods, as in the image; none without it
#   INSTALL    manifest (default): installs deploy/kubernetes/weir.yaml; chart: installs the Helm chart
#   BUILT      set: build nothing, because the programs are there
#   CONF_TOOLS folder for the programs built from Go modules; default ~/.cache/weir-conformance
set -eu

HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
TOOLS=${CONF_TOOLS:-${HOME:-/tmp}/.cache/weir-conformance}/kubernetes-$(cat "$HERE/go.sum" "$HERE/cluster/main.go" | cksum | cut -d' ' -f1)
BRIDGE=10.244.0.1
HELM=v3.22.0
API=https://127.0.0.1:6443

# build: the control plane, the suite and the helper. The first time takes ten minutes of two cores.
build() {
  if ! command -v go >/dev/null 2>&1; then
    echo 'run.sh: Go 1.26 is missing: the control plane and the suite are built from Go modules' >&2
    exit 2
  fi
  mkdir -p "$TOOLS"
  export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false -trimpath"
  cd "$HERE"
  [ -x "$TOOLS/cluster" ] || go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)" \
    -o "$TOOLS/cluster" ./cluster
  [ -x "$TOOLS/echo" ] || go build -ldflags '-s -w' -o "$TOOLS/echo" sigs.k8s.io/gateway-api/conformance/echo-basic
  [ -x "$TOOLS/suite" ] || go test -c -o "$TOOLS/suite" sigs.k8s.io/gateway-api/conformance
  go build -ldflags '-s -w' -o "$TOOLS/node" ./node
  go build -ldflags '-s -w' -o "$TOOLS/churn" ./churn
  go build -ldflags '-s -w' -o "$TOOLS/trial" ./trial
  [ -x "$TOOLS/helm" ] || GOBIN="$TOOLS" go install "helm.sh/helm/v3/cmd/helm@$HELM"
  if [ ! -d "$TOOLS/definitions" ]; then
    cp -r "$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard" "$TOOLS/definitions"
    chmod -R u+w "$TOOLS/definitions"
  fi
  if [ -z "${WEIR_KUBE:-}" ]; then
    (cd "$ROOT" && cargo build --locked --release -p weir-kube </dev/null)
    WEIR_KUBE=$(cd "$ROOT" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weir-kube
  fi
  export WEIR_KUBE
}

if [ "${1:-}" != --inside ]; then
  if [ -n "${WEIR_BIN:-}" ]; then
    WEIR_BIN=$(realpath "$(command -v "$WEIR_BIN")") # pods mount it, from another folder
    export WEIR_BIN
  fi
  [ -n "${BUILT:-}" ] || build
  [ "${1:-}" != build ] || exit 0
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
shift

# --- inside the namespaces: whatever is started here ends with this script

WORK=${LOGS:-$(mktemp -d)}
mkdir -p "$WORK"
WORK=$(cd "$WORK" && pwd)
[ -n "${LOGS:-}" ] || trap 'rm -rf "$WORK"' EXIT
rm -rf "$WORK/etcd" "$WORK/pods" "$WORK/away" "$WORK"/*.log
export KUBECONFIG="$WORK/kubeconfig" PATH="$TOOLS:$PATH"

ip link set lo up
ip link add br0 type bridge
ip addr add $BRIDGE/16 dev br0
ip link set br0 up
ip route add local 10.245.0.0/24 dev lo # addresses for clients
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
ulimit -n 65536 2>/dev/null || true

# certificates: an authority, and one certificate for all servers
cd "$WORK"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
  -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server -keyout server.key -out server.csr 2>/dev/null
printf 'subjectAltName=DNS:kubernetes.default.svc,IP:127.0.0.1,IP:%s,IP:10.96.0.1\n' $BRIDGE >server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt 2>/dev/null
openssl genrsa -out accounts.key 2048 2>/dev/null
openssl rsa -in accounts.key -pubout -out accounts.pub 2>/dev/null
TOKEN=$(openssl rand -hex 16)
echo "$TOKEN,administrator,administrator,system:masters" >tokens
cat >kubeconfig <<K
apiVersion: v1
kind: Config
clusters: [ { name: test, cluster: { server: "$API", certificate-authority: "$WORK/ca.crt" } } ]
users: [ { name: administrator, user: { token: "$TOKEN" } } ]
contexts: [ { name: test, context: { cluster: test, user: administrator } } ]
current-context: test
K

# wait_for SECONDS COMMAND...: until it succeeds
wait_for() {
  left=$(($1 * 5))
  shift
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    if [ $left -le 0 ]; then
      echo "run.sh: in vain: $*" >&2
      tail -n 5 "$WORK"/*.log >&2
      exit 1
    fi
    sleep 0.2
  done
}
api() { curl -sf --cacert ca.crt -H "Authorization: Bearer $TOKEN" "$API$1"; }

cluster etcd "$WORK/etcd" http://127.0.0.1:2379 >etcd.log 2>&1 &
# The API server is started again whenever it ends, unless there is a file `away`.
(while :; do
  [ -e away ] || cluster kube-apiserver --etcd-servers http://127.0.0.1:2379 --secure-port 6443 \
    --advertise-address $BRIDGE --endpoint-reconciler-type none --service-cluster-ip-range 10.96.0.0/16 \
    --tls-cert-file server.crt --tls-private-key-file server.key --cert-dir "$WORK" --client-ca-file ca.crt \
    --token-auth-file tokens --authorization-mode RBAC --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file accounts.pub --service-account-signing-key-file accounts.key \
    --disable-admission-plugins ServiceAccount --kubelet-preferred-address-types InternalIP --profiling=false \
    --max-requests-inflight 3000 --max-mutating-requests-inflight 1000 >>apiserver.log 2>&1 || true
  sleep 0.2
done) &
wait_for 60 api /readyz
cluster kube-controller-manager --kubeconfig kubeconfig --use-service-account-credentials=false --leader-elect=false \
  --secure-port 0 --horizontal-pod-autoscaler-sync-period 1s --root-ca-file ca.crt \
  --kube-api-qps 500 --kube-api-burst 1000 \
  --controllers daemonset-controller,deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller,endpointslice-controller,namespace-controller,garbage-collector-controller,root-ca-certificate-publisher-controller \
  >manager.log 2>&1 &

STATIC=
[ "${MODE:-service}" != static ] || STATIC=--static
node apply --kubeconfig kubeconfig "$TOOLS"/definitions/*.yaml
[ "${INSTALL:-manifest}" = chart ] || node apply --kubeconfig kubeconfig "$ROOT/deploy/kubernetes/crd.yaml"
cat >secret.yaml <<S
apiVersion: v1
kind: Namespace
metadata: { name: weir }
---
apiVersion: v1
kind: Secret
metadata: { name: weir-admin, namespace: weir }
stringData: { token: "$TOKEN" }
S
cp "$ROOT/deploy/kubernetes/weir.yaml" .
if [ -n "$STATIC" ]; then
  # No Services for Gateways; and the profile `baseline` has no pods in the network of the node.
  sed -i 's/, --service, weir//; s/, --gateway-services, LoadBalancer//; s/enforce: baseline/enforce: privileged/' weir.yaml
fi
if [ "${INSTALL:-manifest}" = chart ]; then
  helm install weir "$ROOT/deploy/kubernetes/chart" --namespace weir --create-namespace >/dev/null
else
  node apply --kubeconfig kubeconfig $STATIC secret.yaml weir.yaml
fi
node run --kubeconfig kubeconfig --echo "$TOOLS/echo" --weir "$WEIR_KUBE" --tool "${WEIR_BIN:-}" --state "$WORK" \
  --certificate server.crt --key server.key $STATIC >node.log 2>&1 &
are_ready() {
  api /apis/apps/v1/namespaces/weir/deployments/weir | grep -q '"readyReplicas"'
}
wait_for 60 are_ready

if [ $# -gt 0 ]; then
  "$@"
  exit
fi
"$HERE/suite.sh" "$WORK"

#!/bin/sh
# The console in headless Chromium, used like an operator does, on a desktop and on a phone; axe-core checks every
# screen.
#
# SHOTS=DIR  saves screenshots of every screen: desktop and phone, light and dark
. "$(dirname "$0")/lib.sh"
ensure chromium etcd openssl python3
command -v node >/dev/null && command -v npm >/dev/null || { echo "SKIPPED console: there is no node"; exit 0; }

MODULES=$TOOLS/console
if [ ! -e "$MODULES/node_modules/axe-core/axe.min.js" ] || [ ! -e "$MODULES/node_modules/puppeteer-core/package.json" ]; then
  npm install --silent --no-audit --no-fund --prefix "$MODULES" puppeteer-core@24 axe-core@4
fi

hash_of() { printf %s "$1" | sha256sum | cut -d' ' -f1; }
WRITER=$(hash_of token-of-anna) READER=$(hash_of token-of-wallboard)
ORIGIN_PORT=$(free_port) PORT=$(free_port) ADMIN_PORT=$(free_port)
export WRITER READER ORIGIN_PORT PORT ADMIN_PORT WORK MODULES
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=api.example.com \
  -addext subjectAltName=DNS:api.example.com,DNS:www.example.com -keyout "$WORK/soon.key" -out "$WORK/soon.pem" 2>/dev/null
cp "$HERE/console.yaml" "$WORK/console.yaml"
python3 - >"$WORK/routes.yaml" <<'P'
print("routes:")
for n in range(1000):
    team = ("payments", "search", "media", "identity", "mail")[n % 5]
    print(f"  {team}-{n:04}: {{ match: {{ hosts: [ {team}.example.com ], path: \"/v1/{team}/{n:04}/*\" }}, upstream: accounts }}")
P
cat >"$WORK/managed.yaml" <<'Y'
# Of the team payments. Ask before you change it.
routes:
  coupons:            # until the end of the year
    match: { path: "/coupons/*" }
    upstream: orders
consumers:
  partner: { key_auth: [ "a-key-that-nobody-may-see" ], plan: gold }
Y
WEIR_BIN=$(weir_bin)
start "$WEIR_BIN" origin --http "127.0.0.1:$ORIGIN_PORT"
start "$WEIR_BIN" origin --http "127.0.0.2:$ORIGIN_PORT"
"$WEIR_BIN" run -c "$WORK/console.yaml" >"$WORK/weir.log" 2>&1 </dev/null &
STARTED="$STARTED $!"
wait_for_port "$PORT" || { cat "$WORK/weir.log" >&2; exit 1; }
# A fleet of two, whose canary refuses a config that the other would accept.
ETCD_PORT=$(free_port) PEER_PORT=$(free_port) FLEET_PORT=$(free_port)
export FLEET_PORT
start etcd --data-dir "$WORK/etcd" --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
  --listen-peer-urls "http://127.0.0.1:$PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" --initial-cluster "default=http://127.0.0.1:$PEER_PORT"
wait_for_port "$ETCD_PORT" || { echo "FAIL console: etcd does not start"; exit 1; }
FLEET="--etcd http://127.0.0.1:$ETCD_PORT --prefix /weir/console"
bundle() {
  mkdir -p "$WORK/bundle"
  printf 'listeners: { web: { address: "127.0.0.1:0" } }\nroutes: { all: { match: { path: "%s" }, respond: { body: ok } } }\n' "$1" >"$WORK/bundle/weir.yaml"
}
node() { # NAME ADMIN_PORT LABELS
  mkdir -p "$WORK/$1"
  cat >"$WORK/$1/weir.yaml" <<Y
source: { etcd: { servers: [ "http://127.0.0.1:$ETCD_PORT" ], prefix: /weir/console, node: $1, cache: "$WORK/$1/last-good" } }
admin: { address: "127.0.0.1:$2" }
zone: a
labels: { $3 }
Y
  start "$WEIR_BIN" run -c "$WORK/$1/weir.yaml"
}
bundle '/*'
# shellcheck disable=SC2086
"$WEIR_BIN" fleet publish "$WORK/bundle" $FLEET >/dev/null
node edge-1 "$FLEET_PORT" 'canary: "true"'
node edge-2 "$(free_port)" ''
wait_for_port "$FLEET_PORT" || { echo "FAIL console: the node does not start"; exit 1; }
bundle '/${ONLY_HERE}'
# shellcheck disable=SC2086
ONLY_HERE=x "$WEIR_BIN" fleet publish "$WORK/bundle" $FLEET --canary canary=true --hold 1m --message "prices of the week" >/dev/null

CHROMIUM=$(command -v chromium) timeout 280 node "$HERE/console.mjs" || FAILED=1
[ "$FAILED" = 0 ] || tail -n 20 "$WORK/weir.log"
exit $FAILED

#!/bin/sh
# h2spec: HTTP/2 and HPACK, 145 cases each, on a cleartext listener that speaks only HTTP/2, and over TLS.
. "$(dirname "$0")/lib.sh"
ensure openssl python3
[ -x "$TOOLS/h2spec" ] || GOBIN=$TOOLS go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible || { fail "h2spec: cannot be installed"; exit 1; }

certificate
ORIGIN_PORT=$(free_port) TLS_PORT=$(free_port)
export TLS_PORT
start python3 "$HERE/origin.py" "$ORIGIN_PORT"
wait_for_port "$ORIGIN_PORT"
start_weir h2spec

# judge NAME PORT OPTION...
judge() {
  name=$1 port=$2
  shift 2
  "$TOOLS/h2spec" -h 127.0.0.1 -p "$port" -o 3 "$@" >"$WORK/$name" 2>&1 </dev/null || true
  expect "h2spec: $name: $(tail -n 1 "$WORK/$name")" grep -q '145 passed' "$WORK/$name"
}
judge cleartext "$PORT"
judge tls "$TLS_PORT" -t -k
exit $FAILED

#!/bin/sh
# Runs public test suites on weir. usage: run.sh [NAME]...   (all of them without a name)
#
# Each runner starts weir on a config of its name, prints PASS and FAIL lines, and ends within the minutes given here.
set -u
cd "$(dirname "$0")" || exit 1

# name:runner:minutes
ALL="
 acme:./acme.py:5
 browser:./browser.sh:5
 cache:./cache.sh:5
 changes:./changes.py:5
 connect:./connect.py:10
 console:./console.sh:5
 content:./content.sh:5
 fleet:./fleet.sh:15
 grpc:./grpc.sh:10
 grpc_browser:./grpc_browser.sh:5
 grpc_slow:./grpc_slow.py:5
 h2spec:./h2spec.sh:10
 h3:./h3.py:5
 h3load:./h3load.py:5
 har:./har.py:5
 http3_browser:./http3_browser.sh:5
 http3_floods:./http3/floods.py:10
 http3_interop:./http3/interop.py:10
 http3_rules:./http3/rules.py:5
 oidc:./oidc.py:5
 otlp:./otlp.sh:5
 page:./page.sh:5
 qpack:./qpack.py:5
 redis_cluster:./redis_cluster.py:5
 reload:./reload.py:5
 services:./services.py:15
 silence:./silence.py:2
 slow:./slow.sh:5
 tls:./tls.sh:10
 upstream_faults:./upstream_faults.py:5
 valkey:./valkey.sh:15
 vtc:./vtc.sh:5
 websocket:./websocket.sh:20
"

for name in "$@"; do
  case " $ALL" in *" $name:"*) ;; *) echo "run.sh: no runner called '$name'" >&2; exit 2 ;; esac
done

if [ -z "${WEIR_BIN:-}" ]; then
  (cd .. && cargo build --locked --release --bin weir </dev/null) || exit 1
  WEIR_BIN=$(cd .. && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weir
  export WEIR_BIN
fi

bad=
for row in $ALL; do
  name=${row%%:*} rest=${row#*:}
  case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
  echo "== $name"
  timeout -k 10 "${rest#*:}m" "${rest%%:*}" || bad="$bad $name"
done
[ -z "$bad" ] && echo "conformance: PASS" || { echo "conformance: FAIL:$bad"; exit 1; }

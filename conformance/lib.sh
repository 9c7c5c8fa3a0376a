# Shared by the runners: a free port, starting and stopping weir, PASS and FAIL. Sourced, never run.
#
# CONF_TOOLS    where public suites are installed; default ~/.cache/weir-conformance WEIR_BIN      the weir to test;
# default: built here with the release profile GATEWAY_PORT  test the program that already listens there instead (such
# as nginx), with ORIGIN_PORT as its upstream

set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(dirname "$HERE")
TOOLS=${CONF_TOOLS:-${HOME:-/tmp}/.cache/weir-conformance}
WORK=$(mktemp -d)
FAILED=0
STARTED=
mkdir -p "$TOOLS"

# stop_all: ends the processes that we started, by pid, and nothing else. weir's log is complete only after it.
stop_all() {
  for pid in $STARTED; do kill "$pid" 2>/dev/null || true; done
  for pid in $STARTED; do wait "$pid" 2>/dev/null || true; done
  STARTED=
}

finish() {
  stop_all
  rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM

ensure() { "$ROOT/scripts/ensure-tools.sh" "$@"; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# wait_for_port PORT: until it accepts connections; 20 s
wait_for_port() {
  python3 - "$1" <<'P'
import socket, sys, time
until = time.monotonic() + 20
while time.monotonic() < until:
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()
        sys.exit(0)
    except OSError:
        time.sleep(0.05)
sys.exit(f"nothing listens on port {sys.argv[1]}")
P
}

# certificate [DAYS]: makes a self-signed one for localhost; sets and exports CERT and KEY
certificate() {
  CERT=$WORK/cert.pem KEY=$WORK/key.pem
  export CERT KEY
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "${1:-90}" -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$KEY" -out "$CERT" 2>/dev/null
}

# dump_dom URL OPTION...: headless Chromium loads a page, and prints its DOM to $WORK/dom when the page's time is up or
# its network is idle
dump_dom() {
  page=$1
  shift
  timeout 60 chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$WORK/profile" "$@" \
    --dump-dom "$page" >"$WORK/dom" 2>"$WORK/chromium.log" </dev/null || true
}

# weir_bin: prints the binary to test
weir_bin() {
  if [ -z "${WEIR_BIN:-}" ]; then
    (cd "$ROOT" && cargo build --locked --release --bin weir >&2 </dev/null)
    WEIR_BIN=$(cd "$ROOT" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/weir
  fi
  echo "$WEIR_BIN"
}

# start_weir NAME: runs weir on conformance/NAME.yaml; sets PORT. ORIGIN_PORT must be set and exported.
start_weir() {
  if [ -n "${GATEWAY_PORT:-}" ]; then PORT=$GATEWAY_PORT; return; fi
  PORT=$(free_port)
  ADMIN_PORT=$(free_port)
  export PORT ADMIN_PORT ORIGIN_PORT
  WEIR_BIN=$(weir_bin)
  "$WEIR_BIN" run -c "$HERE/$1.yaml" >"$WORK/weir.log" 2>&1 </dev/null &
  STARTED="$STARTED $!"
  wait_for_port "$PORT" || { cat "$WORK/weir.log" >&2; exit 1; }
}

# start COMMAND...: in the background, until we exit
start() {
  "$@" >"$WORK/$(basename "$1").log" 2>&1 </dev/null &
  STARTED="$STARTED $!"
}

pass() { echo "PASS $*"; }
fail() { echo "FAIL $*"; FAILED=1; }
# expect TEXT COMMAND...: PASS when the command succeeds
expect() {
  text=$1
  shift
  if "$@"; then pass "$text"; else fail "$text"; fi
}

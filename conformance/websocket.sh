#!/bin/sh
# Autobahn|Testsuite through weir. A proxy passes if its results equal those of the echo server without a proxy.
#
# wstest needs Python 2.7: PY2=/path/to/python2.7, or pyenv with 2.7.18. ALL=1 adds the slow cases (9.*, 12.*, 13.*);
# CASES='6.4.*, 7.1.5' runs only those.
. "$(dirname "$0")/lib.sh"
ensure python3 venv
# A pyenv shim called python2.7 may point to nothing, so each is tried.
for python in "${PY2:-}" python2.7 "$(PYENV_VERSION=2.7.18 pyenv which python2.7 2>/dev/null || true)"; do
  [ -z "$python" ] || ! "$python" -c '' 2>/dev/null || { PY2=$python; break; }
done
[ -n "${PY2:-}" ] || { fail "websocket: no Python 2.7 for Autobahn. Run: pyenv install 2.7.18"; exit 1; }
V27=$TOOLS/autobahn V3=$TOOLS/websockets
[ -x "$V27/bin/wstest" ] || { "$PY2" -m pip install -q virtualenv && "$PY2" -m virtualenv -q "$V27" && "$V27/bin/pip" install -q autobahntestsuite; } >"$WORK/install" 2>&1 \
  || { tail -5 "$WORK/install"; fail "websocket: Autobahn cannot be installed"; exit 1; }
[ -x "$V3/bin/python" ] || python3 -m venv "$V3"
"$V3/bin/python" -c 'import websockets' 2>/dev/null || "$V3/bin/pip" install -q websockets

ORIGIN_PORT=${ORIGIN_PORT:-$(free_port)}
cat >"$WORK/echo.py" <<'P'
import asyncio, sys
from websockets.asyncio.server import serve

async def echo(ws):
    try:
        async for message in ws:
            await ws.send(message)
    except Exception:
        pass

async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=None, compression=None, ping_interval=None):
        await asyncio.Future()

asyncio.run(main())
P
start "$V3/bin/python" "$WORK/echo.py" "$ORIGIN_PORT"
wait_for_port "$ORIGIN_PORT"
start_weir websocket

exclude='"9.*", "12.*", "13.*"'
[ -z "${ALL:-}${CASES:-}" ] || exclude=
cases=$(echo "${CASES:-*}" | sed 's/[^, ][^, ]*/"&"/g')

# ask NAME PORT: runs the cases and writes how each behaved and was closed to $WORK/NAME.cases
ask() {
  cat >"$WORK/$1.json" <<J
{"outdir": "$WORK/$1", "servers": [{"agent": "$1", "url": "ws://127.0.0.1:$2", "options": {"version": 18}}],
 "cases": [$cases], "exclude-cases": [$exclude], "exclude-agent-cases": {}}
J
  timeout 540 "$V27/bin/wstest" -m fuzzingclient -s "$WORK/$1.json" >"$WORK/$1.log" 2>&1 </dev/null || true
  python3 - "$WORK/$1/index.json" "$1" >"$WORK/$1.cases" <<'P'
import json, sys
cases = json.load(open(sys.argv[1]))[sys.argv[2]]
for k in sorted(cases, key=lambda k: [int(n) for n in k.split(".")]):
    print(k, cases[k]["behavior"], "closed:", cases[k]["behaviorClose"], cases[k]["remoteCloseCode"])
P
}

# line NAME: how many cases had which result, and which failed
line() {
  awk '{ n[$2]++; if ($2 !~ /^(OK|NON-STRICT|INFORMATIONAL)$/) bad = bad " " $1 }
    END { printf "%d cases:", NR; for (k in n) printf " %s %d", k, n[k]; print "; bad:" (bad ? bad : " none") }' "$WORK/$1.cases"
}

ask direct "$ORIGIN_PORT"
ask weir "$PORT"
echo "direct  $(line direct)"
echo "through $(line weir)"
expect "websocket: the echo server was asked" [ -s "$WORK/direct.cases" ]
differ=$(diff "$WORK/direct.cases" "$WORK/weir.cases" || true)
# Some cases depend on which of two packets arrives first. A difference is repeated twice, and counts if it differs
# three times.
for again in 1 2; do
  [ -n "$differ" ] || break
  echo "$differ" | sed -n 's/^</  direct /p; s/^>/  through/p'
  cases=$(echo "$differ" | sed -n 's/^[<>] \([0-9.]*\) .*/"\1"/p' | sort -u | paste -sd, -)
  echo "again: $cases"
  ask direct "$ORIGIN_PORT"
  ask weir "$PORT"
  differ=$(diff "$WORK/direct.cases" "$WORK/weir.cases" || true)
done
expect "websocket: the same through weir as without it${differ:+:
$differ}" [ -z "$differ" ]
exit $FAILED

#!/bin/sh
# Autobahn|Testsuite through weir. A proxy passes when its line equals that of the echo server asked directly.
#
# wstest needs Python 2.7: PY2=/path/to/python2.7, or pyenv with 2.7.18. ALL=1 adds the slow cases (9.*, 12.*, 13.*).
. "$(dirname "$0")/lib.sh"
ensure python3 venv
# A pyenv shim called python2.7 may stand for nothing, so each is tried.
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
[ -z "${ALL:-}" ] || exclude=

# ask NAME PORT: runs the cases and prints how many behaved how, with those that did not
ask() {
  cat >"$WORK/$1.json" <<J
{"outdir": "$WORK/$1", "servers": [{"agent": "$1", "url": "ws://127.0.0.1:$2", "options": {"version": 18}}],
 "cases": ["*"], "exclude-cases": [$exclude], "exclude-agent-cases": {}}
J
  timeout 540 "$V27/bin/wstest" -m fuzzingclient -s "$WORK/$1.json" >"$WORK/$1.log" 2>&1 </dev/null
  python3 - "$WORK/$1/index.json" "$1" <<'P'
import collections, json, sys
cases = json.load(open(sys.argv[1]))[sys.argv[2]]
counts = collections.Counter(c["behavior"] for c in cases.values())
bad = sorted(k for k, c in cases.items() if c["behavior"] not in ("OK", "NON-STRICT", "INFORMATIONAL"))
print(len(cases), dict(sorted(counts.items())), "bad:", bad)
P
}
direct=$(ask direct "$ORIGIN_PORT")
through=$(ask weir "$PORT")
echo "direct  $direct"
echo "through $through"
expect "websocket: the echo server was asked" [ -n "$direct" ]
expect "websocket: the same through weir as without it" [ "$direct" = "$through" ]
exit $FAILED

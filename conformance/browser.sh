#!/bin/sh
# Headless Chromium loads a page over HTTP/2 and opens a WebSocket on the same connection (Extended CONNECT, RFC
# 8441).
. "$(dirname "$0")/lib.sh"
ensure chromium openssl python3

CERT=$WORK/cert.pem KEY=$WORK/key.pem LOG=$WORK/access.log
export CERT KEY LOG
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
  -keyout "$KEY" -out "$CERT" 2>/dev/null
ORIGIN_PORT=$(free_port)
VENV=$TOOLS/websockets
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
"$VENV/bin/python" -c 'import websockets' 2>/dev/null || "$VENV/bin/pip" install -q websockets
cat >"$WORK/echo.py" <<'P'
import asyncio, sys
from websockets.asyncio.server import serve

async def echo(ws):
    async for message in ws:
        await ws.send(message)

async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1])):
        await asyncio.Future()

asyncio.run(main())
P
start "$VENV/bin/python" "$WORK/echo.py" "$ORIGIN_PORT"
wait_for_port "$ORIGIN_PORT"
start_weir browser

# Chromium prints the DOM when the page's time is up or its network is idle; by then the page shows what it received.
timeout 60 chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$WORK/profile" --ignore-certificate-errors \
  --virtual-time-budget=10000 --dump-dom "https://localhost:$PORT/page" >"$WORK/dom" 2>"$WORK/chromium.log" </dev/null || true
expect "browser: the page heard its echo" grep -q 'heard: hello from the page' "$WORK/dom"
# The log is written in pieces; its end is complete after weir exits.
for pid in $STARTED; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
STARTED=
expect "browser: the page came by HTTP/2" grep -q '"uri":"/page","protocol":"HTTP/2"' "$LOG"
expect "browser: the WebSocket too" grep -q '"uri":"/ws","protocol":"HTTP/2".*"status":101' "$LOG"
[ "$FAILED" = 0 ] || { head -c 2000 "$WORK/dom"; cat "$LOG"; tail -n 5 "$WORK/chromium.log"; }
exit $FAILED

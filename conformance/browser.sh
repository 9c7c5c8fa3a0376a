#!/bin/sh
# Headless Chromium loads a page over HTTP/2 and opens a WebSocket on the same connection (Extended CONNECT, RFC
# 8441).
. "$(dirname "$0")/lib.sh"
ensure chromium openssl python3

LOG=$WORK/access.log
export LOG
certificate
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

# When the DOM is printed, the page shows what it received.
dump_dom "https://localhost:$PORT/page" --ignore-certificate-errors --virtual-time-budget=10000
expect "browser: the page heard its echo" grep -q 'heard: hello from the page' "$WORK/dom"
stop_all
expect "browser: the page came by HTTP/2" grep -q '"uri":"/page","protocol":"HTTP/2"' "$LOG"
expect "browser: the WebSocket too" grep -q '"uri":"/ws","protocol":"HTTP/2".*"status":101' "$LOG"
[ "$FAILED" = 0 ] || { head -c 2000 "$WORK/dom"; cat "$LOG"; tail -n 5 "$WORK/chromium.log"; }
exit $FAILED

#!/bin/sh
# Slow clients by slowhttptest (Debian): slow heads (-H), slow bodies (-B), slow readers (-X).
#
# Passes when every slow head and body is ended by the default deadlines (head 10 s; a body under 128 B/s after 10 s), and
# ordinary requests are answered all along. usage: slow.sh [CONNECTIONS]
. "$(dirname "$0")/lib.sh"
ensure slowhttptest curl python3
COUNT=${1:-300}
SECONDS_MAX=30

[ -n "${GATEWAY_PORT:-}" ] || {
  ORIGIN_PORT=$(free_port)
  start python3 "$HERE/origin.py" "$ORIGIN_PORT"
  wait_for_port "$ORIGIN_PORT"
}
start_weir slow

for mode in H B X; do
  # -i 5: a piece every 5 s; -r: all connections at once; -p: how long its own probe may take
  slowhttptest -c "$COUNT" "-$mode" -i 5 -r "$COUNT" -t GET -u "http://127.0.0.1:$PORT/" -x 24 -p 2 -l $SECONDS_MAX >"$WORK/slow.$mode" 2>&1 </dev/null &
  slow=$!
  STARTED="$STARTED $slow"
  answered=0
  for _ in 1 2 3; do
    sleep 5
    code=$(curl -sS -m 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$PORT/" || true)
    [ "$code" = 200 ] && answered=$((answered + 1))
  done
  wait $slow || true
  # It prints its state again and again, in colour.
  plain=$(sed 's/\x1b\[[0-9;]*m//g' "$WORK/slow.$mode")
  available=$(echo "$plain" | sed -n 's/^service available: *\([A-Z]*\).*/\1/p' | grep -c NO || true)
  expect "slow -$mode: others are answered ($answered of 3, its own probe refused $available times)" [ "$answered$available" = 30 ]
  [ $mode = X ] || expect "slow -$mode: all $COUNT are ended within $SECONDS_MAX s" sh -c 'echo "$1" | grep -q "No open connections left"' sh "$plain"
done
exit $FAILED

#!/bin/sh
# Slow clients by slowhttptest (Debian): slow heads (-H), slow bodies (-B), slow readers (-X).
#
# Passes if every slow head and body is ended at the default deadlines (head 10 s; a body under 128 B/s after 10 s),
# slow readers of 8 MiB cost a bounded amount of memory, and ordinary requests are answered throughout. A slow reader
# is not ended while it keeps reading. usage: slow.sh [CONNECTIONS]
. "$(dirname "$0")/lib.sh"
ensure slowhttptest curl python3
COUNT=${1:-300}
DEADLINE=10
# Memory that one slow reader may cost weir, in KiB: a buffer and its bookkeeping.
READER_KIB=128

[ -n "${GATEWAY_PORT:-}" ] || {
  ORIGIN_PORT=$(free_port)
  start python3 "$HERE/origin.py" "$ORIGIN_PORT"
  wait_for_port "$ORIGIN_PORT"
}
start_weir slow
WEIR_PID=${STARTED##* }

# peak: weir's peak memory so far, in KiB
peak() { sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$WEIR_PID/status"; }

for mode in H B X; do
  path=/
  [ $mode = X ] && path=/big && before=$(peak)
  # -i 5: a piece every 5 s; -r: all connections together; -p: timeout of its own probe; the rest is for -X: a small
  # window and 32 bytes in 5 s.
  slowhttptest -c "$COUNT" "-$mode" -i 5 -r "$COUNT" -t GET -u "http://127.0.0.1:$PORT$path" -x 24 -p 2 -l 30 -n 5 -z 32 -w 512 -y 1024 \
    >"$WORK/slow.$mode" 2>&1 </dev/null &
  slow=$!
  STARTED="$STARTED $slow"
  answered=0
  for _ in 1 2 3; do
    sleep 3
    code=$(curl -sS -m 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$PORT/" || true)
    [ "$code" = 200 ] && answered=$((answered + 1))
  done
  wait $slow || true
  # It prints its state repeatedly, in color.
  plain=$(sed 's/\x1b\[[0-9;]*m//g' "$WORK/slow.$mode")
  refused=$(echo "$plain" | sed -n 's/^service available: *\([A-Z]*\).*/\1/p' | grep -c NO || true)
  expect "slow -$mode: others are answered ($answered of 3, its own probe refused $refused times)" [ "$answered$refused" = 30 ]
  if [ $mode = X ]; then
    [ -n "${GATEWAY_PORT:-}" ] && continue
    grown=$(($(peak) - before))
    expect "slow -X: $COUNT readers cost $grown KiB, at most $READER_KIB each" [ "$grown" -le $((COUNT * READER_KIB)) ]
  else
    # It counts seconds from 1 and checks once a second, so the deadline shows as 10 to 12.
    ended=$(echo "$plain" | sed -n 's/^Test ended on \([0-9]*\)th second.*/\1/p')
    all=$(echo "$plain" | grep -c 'No open connections left' || true)
    expect "slow -$mode: all $COUNT are ended in second ${ended:-none} (deadline ${DEADLINE} s)" \
      [ "$all" = 1 -a "${ended:-0}" -ge $DEADLINE -a "${ended:-99}" -le $((DEADLINE + 2)) ]
  fi
done
exit $FAILED

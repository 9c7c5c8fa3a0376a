#!/bin/sh
# Scenarios for Debian's varnishtest: `server` is weir's upstream, `client` talks to weir.
#
# In a file ${gw} is weir's address, ${up} the address the upstream must listen on. usage: vtc.sh [FILE.vtc]...
. "$(dirname "$0")/lib.sh"
ensure varnishtest python3
ORIGIN_PORT=${ORIGIN_PORT:-$(free_port)}
start_weir vtc
[ $# -gt 0 ] || set -- "$HERE"/vtc/*.vtc
for file in "$@"; do
  if timeout 60 varnishtest -q -t 20 -D gw="127.0.0.1:$PORT" -D up="127.0.0.1:$ORIGIN_PORT" "$file" >"$WORK/vtc" 2>&1 </dev/null; then
    pass "vtc: $(basename "$file")"
  else
    fail "vtc: $(basename "$file")"
    grep -E '^(----|\*\*\*\*) ' "$WORK/vtc" | tail -15 || true
  fi
done
exit $FAILED

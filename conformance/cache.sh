#!/bin/sh
# http-cache-tests: what RFC 9111 requires of a cache, tested on weir with the filter `cache` and, in the same run,
# without it.
#
# 157 of its tests are required; with no cache at all 90 of them pass. cache.expected lists the failures with their
# reasons.
. "$(dirname "$0")/lib.sh"
VERSION=0.4.5 LEAST=138
command -v npm >/dev/null 2>&1 || { echo "SKIPPED cache: there is no npm here"; exit 0; }
SUITE=$TOOLS/http-cache-tests
[ -d "$SUITE/node_modules/http-cache-tests" ] || npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$SUITE" "http-cache-tests@$VERSION" >"$WORK/install" 2>&1 \
  || { tail -5 "$WORK/install"; fail "cache: the suite cannot be installed"; exit 1; }

ORIGIN_PORT=$(free_port) PLAIN_PORT=$(free_port)
export PLAIN_PORT
cd "$SUITE/node_modules/http-cache-tests"
npm_config_protocol=http npm_config_port=$ORIGIN_PORT npm_config_pidfile=$WORK/origin.pid start node server/server.mjs
wait_for_port "$ORIGIN_PORT"
start_weir cache

# ask NAME PORT: runs the suite
ask() {
  npm_config_base=http://127.0.0.1:$2 npm_config_id='' npm_package_config_id='' node --no-warnings cli.mjs >"$WORK/$1.json" 2>"$WORK/$1.err" </dev/null || true
}
ask cache "$PORT"
ask plain "$PLAIN_PORT"
cat >"$WORK/judge.mjs" <<'J'
import fs from 'fs'
import { pathToFileURL } from 'url'
const [suite, expected, least, cache, plain] = process.argv.slice(2)
const suites = (await import(pathToFileURL(suite))).default
const tests = suites.flatMap(s => s.tests).filter(t => t.browser_only !== true)
const read = file => JSON.parse(fs.readFileSync(file))
const [got, control] = [read(cache), read(plain)]
const lines = fs.readFileSync(expected, 'utf8').split('\n').filter(l => l && !l.startsWith('#'))
const reasons = new Map(lines.map(l => [l.split(' ')[0], l.slice(l.indexOf(' ') + 1)]))
const count = (results, kind) => tests.filter(t => (t.kind || 'required') === kind && results[t.id] === true).length
const of = kind => tests.filter(t => (t.kind || 'required') === kind).length
for (const kind of ['required', 'optimal', 'check']) {
  console.log(`${kind.padEnd(8)} of ${String(of(kind)).padStart(3)}: with cache ${count(got, kind)}, without ${count(control, kind)}`)
}
let bad = count(got, 'required') < Number(least)
for (const t of tests.filter(t => (t.kind || 'required') === 'required' && got[t.id] !== true)) {
  const reason = reasons.get(t.id)
  bad ||= reason === undefined
  console.log(`${reason === undefined ? 'UNEXPECTED' : 'fails'} ${t.id}: ${reason ?? got[t.id]?.[1]}`)
}
for (const t of tests.filter(t => t.kind === 'optimal' && got[t.id] !== true)) console.log(`optimal ${t.id}: ${got[t.id]?.[1]}`)
process.exit(bad ? 1 : 0)
J
expect "cache: at least $LEAST of 157 required tests, and no failure that is not explained" \
  node --no-warnings "$WORK/judge.mjs" "$PWD/tests/index.mjs" "$HERE/cache.expected" "$LEAST" "$WORK/cache.json" "$WORK/plain.json"
exit $FAILED

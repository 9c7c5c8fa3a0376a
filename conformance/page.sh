#!/bin/sh
# Headless Chromium opens the page of `weir load --html` as a file. The page must make no request, log nothing to the
# console, and contain what readers need.
. "$(dirname "$0")/lib.sh"
ensure chromium python3

WEIR_BIN=$(weir_bin)
PORT=$(free_port)
start "$WEIR_BIN" origin --http "127.0.0.1:$PORT"
wait_for_port "$PORT"
"$WEIR_BIN" load -d 3s -c 8 --pid auto --check status=200 --threshold 'p99<10s' --threshold 'rate>1' --html "$WORK/page.html" \
  "http://127.0.0.1:$PORT/body/1KiB" "http://127.0.0.1:$PORT/status/404" >/dev/null 2>"$WORK/load.log"
# The same checks on a page that breaks the rules.
cat >"$WORK/control.html" <<'P'
<!DOCTYPE html><title>control</title><img src="http://127.0.0.1:1/asked"><script>console.error("said"); nothing.here</script>
P

# open_page NAME: its DOM in NAME.dom, its console output in NAME.console, its requests in NAME.asked
open_page() {
  timeout 60 chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$WORK/profile-$1" --disable-background-networking \
    --disable-component-update --disable-sync --no-first-run --enable-logging=stderr --log-net-log="$WORK/$1.net" --virtual-time-budget=3000 \
    --dump-dom "file://$WORK/$1.html" >"$WORK/$1.dom" 2>"$WORK/$1.log" </dev/null || true
  grep CONSOLE "$WORK/$1.log" >"$WORK/$1.console" || true
  # The browser makes requests of its own; a page's requests have an origin.
  python3 - "$WORK/$1.net" >"$WORK/$1.asked" <<'P'
import json, sys
text = open(sys.argv[1]).read()
try:
    log = json.loads(text)
except ValueError:  # ended before its last bracket
    log = json.loads(text.rstrip().rstrip(",") + "]}")
names = {number: name for name, number in log["constants"]["logEventTypes"].items()}
for event in log["events"]:
    asked = event.get("params") or {}
    if names[event["type"]] == "URL_REQUEST_START_JOB" and "url" in asked and asked.get("initiator") != "not an origin":
        print(asked.get("url"), asked.get("initiator"))
P
}

open_page control
expect "page: the looks see a request" grep -q 'http://127.0.0.1:1/asked' "$WORK/control.asked"
expect "page: the looks hear the console" grep -q said "$WORK/control.console"

open_page page
expect "page: it asks nothing of a network" test ! -s "$WORK/page.asked"
expect "page: it says nothing on the console" test ! -s "$WORK/page.console"
expect "page: the browser changes nothing in it" python3 - "$WORK/page.html" "$WORK/page.dom" <<'P'
import html.parser, sys
class Elements(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.all = []
        self.feed(text)
    def handle_starttag(self, tag, attrs):
        if tag not in ("head", "html", "body", "tbody"):
            self.all.append(tag)
written, shown = (Elements(open(path).read()).all for path in sys.argv[1:])
sys.exit(written != shown)
P
expect "page: the verdict is there" grep -Eq 'class="verdict (VALID|SUSPECT|INVALID)"' "$WORK/page.dom"
svgs=$(grep -o '<svg' "$WORK/page.dom" | wc -l)
expect "page: there are plots ($svgs)" test "$svgs" -ge 4
expect "page: the plots have lines" grep -q '<path class="line' "$WORK/page.dom"
for text in '99.9' 'service time' 'response time' 'status=200' 'p99&lt;10s' '404' 'By percentile' 'Over time'; do
  expect "page: it tells $text" grep -qiF "$text" "$WORK/page.dom"
done
[ "$FAILED" = 0 ] || { cat "$WORK/page.asked" "$WORK/page.console" "$WORK/load.log"; tail -n 5 "$WORK/page.log"; }
exit $FAILED

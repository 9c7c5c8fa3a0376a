#!/bin/sh
# Headless Chromium learns of HTTP/3 by Alt-Svc: its first request goes over HTTP/2, later ones over HTTP/3.
#
# Chromium speaks QUIC only to servers whose certificate has a public root, or to hosts named by
# --origin-to-force-quic-on. The port there is another one, so that only Alt-Svc can bring it to ours.
. "$(dirname "$0")/lib.sh"
ensure chromium openssl python3

LOG=$WORK/access.log FILES=$WORK/files
export LOG FILES
RETRY_PORT=$(free_port) EARLY_PORT=$(free_port) PLAIN_PORT=$(free_port) ORIGIN_PORT=$(free_port) SINK_PORT=$(free_port)
export RETRY_PORT EARLY_PORT PLAIN_PORT SINK_PORT
mkdir "$FILES"
certificate 13
SPKI=$(openssl x509 -in "$CERT" -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl enc -base64)
cat >"$FILES/page.html" <<'P'
<!doctype html><title>page</title><p id=p>waiting</p>
<script>
(async () => {
  const seen = [];
  for (let n = 0; n < 40 && seen.at(-1) !== "h3"; n++) {
    await (await fetch("/hello?" + n, { cache: "no-store" })).text();
    await new Promise((done) => setTimeout(done, 50));
    seen.push(performance.getEntriesByName(location.origin + "/hello?" + n)[0].nextHopProtocol);
  }
  const sum = await fetch("/files/page.html", { cache: "no-store" });
  document.getElementById("p").textContent = "protocols: " + [...new Set(seen)].join(" ") + "; again: " + sum.status;
})();
</script>
P
start_weir http3/gateway

# Over QUIC Chromium tries only the first address of a name, and that of localhost may be ::1.
dump_dom "https://localhost:$PORT/files/page.html" --enable-quic --host-resolver-rules="MAP localhost 127.0.0.1" \
  --ignore-certificate-errors-spki-list="$SPKI" --origin-to-force-quic-on=localhost:1 --virtual-time-budget=20000
expect "http3 browser: the page went from HTTP/2 to HTTP/3" grep -q 'protocols: h2 h3; again: 200' "$WORK/dom"
stop_all
expect "http3 browser: the page itself came over HTTP/2" grep -q '"uri":"/files/page.html","protocol":"HTTP/2"' "$LOG"
expect "http3 browser: later requests came over HTTP/3" grep -q '"uri":"/hello[^"]*","protocol":"HTTP/3"' "$LOG"
[ "$FAILED" = 0 ] || { tail -c 600 "$WORK/dom"; tail -n 3 "$LOG"; tail -n 5 "$WORK/chromium.log"; }
exit $FAILED

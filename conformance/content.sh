#!/bin/sh
# Headless Chromium and curl read compressed and partial content: files as they are, compressed on the fly, and from a
# cache.
. "$(dirname "$0")/lib.sh"
ensure chromium curl openssl python3

SITE=$WORK/site
export SITE
certificate
mkdir -p "$SITE/plain" "$SITE/packed" "$SITE/cached"
# 300 KB of compressible text with distinct lines.
python3 -c 'print("".join(f"line {n} of a text that says {n * n}\n" for n in range(9000)), end="")' >"$SITE/plain/text.txt"
cp "$SITE/plain/text.txt" "$SITE/packed/"
cp "$SITE/plain/text.txt" "$SITE/cached/"
cat >"$SITE/page.html" <<'H'
<!doctype html><p id="said">silent</p>
<script>
  const read = async (path, range) => {
    const answer = await fetch(path, { cache: "no-store", headers: range ? { Range: range } : {} });
    return { status: answer.status, coding: answer.headers.get("content-encoding"), part: answer.headers.get("content-range"), text: await answer.text() };
  };
  const tell = async () => {
    const said = [], whole = await read("/plain/text.txt");
    said.push(`plain ${whole.status} ${whole.coding} ${whole.text.length}`);
    for (const path of ["/packed/text.txt", "/cached/text.txt", "/cached/text.txt"]) {
      const { status, coding, text } = await read(path);
      said.push(`${path} ${status} ${coding} ${text === whole.text}`);
    }
    for (const path of ["/plain/text.txt", "/packed/text.txt", "/cached/text.txt"]) {
      for (const [range, from, to] of [["bytes=5-1004", 5, 1005], ["bytes=-100", whole.text.length - 100], ["bytes=300000-", 300000]]) {
        const { status, coding, part, text } = await read(path, range);
        said.push(`${path} ${range} ${status} ${coding} ${part !== null} ${text === whole.text.slice(from, to)}`);
      }
    }
    document.getElementById("said").textContent = "heard: " + said.join("; ");
  };
  tell().catch((e) => { document.getElementById("said").textContent = "failed: " + e; });
</script>
H
LENGTH=$(wc -c <"$SITE/plain/text.txt")
ORIGIN_PORT=0
start_weir content

dump_dom "https://localhost:$PORT/page.html" --ignore-certificate-errors --virtual-time-budget=20000
heard() { grep -q "$1" "$WORK/dom"; }
expect "content: Chromium reads a file as it is" heard "plain 200 null $LENGTH"
expect "content: Chromium reads what is compressed on the way" heard "/packed/text.txt 200 \(zstd\|br\|gzip\) true"
expect "content: Chromium reads what is compressed in a cache" heard "/cached/text.txt 200 \(zstd\|br\|gzip\) true; /cached/text.txt 200 \(zstd\|br\|gzip\) true"
for path in plain packed cached; do
  for range in 'bytes=5-1004' 'bytes=-100' 'bytes=300000-'; do
    expect "content: Chromium reads $range of $path" heard "/$path/text.txt $range 206 null true true"
  done
done

# The same for curl, over both protocols, if this curl supports them.
for protocol in http1.1 http2; do
  ask() { curl -sS -k "--$protocol" "$@"; }
  for path in plain packed cached; do
    url=https://localhost:$PORT/$path/text.txt
    for coding in gzip br zstd; do
      case $coding in gzip) built=libz ;; br) built=brotli ;; zstd) built=zstd ;; esac
      curl -V | grep -q "$built" || { echo "SKIPPED content: curl was built without $built"; continue; }
      for _ in once again; do
        ask --compressed -H "Accept-Encoding: $coding" -o "$WORK/got" -D "$WORK/head" "$url"
        expect "content: curl reads $path by $protocol, asking for $coding" cmp -s "$WORK/got" "$SITE/plain/text.txt"
        [ "$path" = plain ] || expect "content: and it was $coding" grep -qi "^content-encoding: $coding" "$WORK/head"
      done
    done
    for range in 0-0 5-1004 -100 300000-; do
      ask -r "$range" -o "$WORK/got" "$url"
      python3 - "$SITE/plain/text.txt" "$range" >"$WORK/expected" <<'P'
import sys
whole, (first, last) = open(sys.argv[1], "rb").read(), sys.argv[2].split("-")
part = whole[-int(last):] if not first else whole[int(first) : int(last) + 1 if last else None]
sys.stdout.buffer.write(part)
P
      expect "content: curl reads bytes $range of $path by $protocol" cmp -s "$WORK/got" "$WORK/expected"
    done
    # An interrupted download resumes.
    head -c 123456 "$SITE/plain/text.txt" >"$WORK/got"
    ask -C - -o "$WORK/got" "$url"
    expect "content: curl takes up a download of $path by $protocol" cmp -s "$WORK/got" "$SITE/plain/text.txt"
  done
done
[ "$FAILED" = 0 ] || { grep -o 'heard:.*\|failed:.*' "$WORK/dom" | head -c 3000; tail -n 5 "$WORK/chromium.log"; tail -n 5 "$WORK/weir.log"; }
exit $FAILED

#!/bin/sh
# Pages in headless Chromium call a gRPC service on another origin with only Weir in between, over HTTP/1.1 and
# HTTP/2. They use the public clients of Connect (@connectrpc/connect-web, for Connect and gRPC-Web) and of the gRPC
# project (grpc-web, binary and text).
. "$(dirname "$0")/lib.sh"
ensure chromium openssl python3
command -v node >/dev/null && command -v npm >/dev/null || { echo "SKIPPED grpc_browser: there is no node"; exit 0; }

MODULES=$TOOLS/grpc_browser
if [ ! -e "$MODULES/done" ]; then
  npm install --silent --no-audit --no-fund --prefix "$MODULES" puppeteer-core@24 esbuild@0.25 @connectrpc/connect@2 @connectrpc/connect-web@2 @bufbuild/protobuf@2 grpc-web@1
  touch "$MODULES/done"
fi
mkdir "$WORK/pages"
NODE_PATH=$MODULES/node_modules "$MODULES/node_modules/.bin/esbuild" "$HERE/grpc_browser.page.js" --bundle --log-level=error --outfile="$WORK/pages/page.js"
echo '<!doctype html><title>gRPC</title><script src="page.js"></script>' >"$WORK/pages/index.html"
certificate

ORIGIN_PORT=$(free_port) TLS_PORT=$(free_port) PAGE_PORT=$(free_port)
export ORIGIN_PORT TLS_PORT PAGE_PORT WORK MODULES
cat >"$WORK/greeter.proto" <<'P'
syntax = "proto3";
package helloworld.v1;
service Greeter {
  rpc SayHello(HelloRequest) returns (HelloReply) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc LotsOfReplies(HelloRequest) returns (stream HelloReply);
}
message HelloRequest { string name = 1; uint32 code = 2; uint32 delay_ms = 3; uint32 replies = 4; bool echo_metadata = 5; }
message HelloReply { string message = 1; repeated string metadata = 2; }
P
WEIR_BIN=$(weir_bin)
start "$WEIR_BIN" origin --http "127.0.0.1:$ORIGIN_PORT"
wait_for_port "$ORIGIN_PORT"
start_weir grpc_browser
CHROMIUM=$(command -v chromium) timeout 200 node "$HERE/grpc_browser.mjs" || FAILED=1
[ "$FAILED" = 0 ] || tail -n 20 "$WORK/weir.log"
exit $FAILED

#!/bin/sh
# The interop cases of the gRPC project, with its Go client and server, through weir in cleartext.
. "$(dirname "$0")/lib.sh"
ensure python3
VERSION=v1.85.0 BIN=$TOOLS/grpc
[ -x "$BIN/client" ] || GOBIN=$BIN go install google.golang.org/grpc/interop/client@$VERSION google.golang.org/grpc/interop/server@$VERSION || { fail "grpc: cannot be installed"; exit 1; }

ORIGIN_PORT=$(free_port)
start "$BIN/server" -port "$ORIGIN_PORT"
wait_for_port "$ORIGIN_PORT"
start_weir grpc

for case in empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server cancel_after_begin \
  cancel_after_first_response status_code_and_message special_status_message custom_metadata unimplemented_method unimplemented_service; do
  expect "grpc: $case" timeout 15 "$BIN/client" -server_host 127.0.0.1 -server_port "$PORT" -test_case $case >"$WORK/case" 2>&1 </dev/null
  cat "$WORK/case"
done
exit $FAILED

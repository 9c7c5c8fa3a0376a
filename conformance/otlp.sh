#!/bin/sh
# Checks OTLP exports with OpenTelemetry's own definitions (PyPI: opentelemetry-proto) and gRPC's own server (PyPI:
# grpcio).
. "$(dirname "$0")/lib.sh"
ensure python3 venv
VENV=$TOOLS/otlp
[ -e "$VENV/done" ] || { python3 -m venv "$VENV" && "$VENV/bin/pip" install -q opentelemetry-proto==1.45.2 grpcio && touch "$VENV/done"; } || { fail "otlp: the definitions cannot be installed"; exit 1; }

ORIGIN_PORT=$(free_port) GRPC_PORT=$(free_port) HTTP_PORT=$(free_port)
export GRPC_PORT HTTP_PORT
start python3 "$HERE/origin.py" "$ORIGIN_PORT"
wait_for_port "$ORIGIN_PORT"
start_weir otlp
"$VENV/bin/python" "$HERE/otlp.py" "$PORT" "$GRPC_PORT" "$HTTP_PORT" || FAILED=1
exit $FAILED

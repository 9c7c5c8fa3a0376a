#!/usr/bin/env python3
"""A collector that receives spans over gRPC and log records over HTTP, and checks them.

usage: otlp.py GATEWAY_PORT GRPC_PORT HTTP_PORT      (run by otlp.sh, in its environment)
"""

import http.client
import http.server
import sys
import threading
import time
from concurrent import futures

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PATIENCE_S = 20.0

spans, records, resources = [], [], []
bad = False


def expect(text, holds):
    global bad
    bad |= not holds
    print(("PASS otlp: " if holds else "FAIL otlp: ") + text)


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for of_resource in request.resource_spans:
            resources.append(attributes(of_resource.resource))
            for scope in of_resource.scope_spans:
                spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


class Logs(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request = logs_service_pb2.ExportLogsServiceRequest.FromString(body)
        for of_resource in request.resource_logs:
            for scope in of_resource.scope_logs:
                records.extend(scope.log_records)
        answer = logs_service_pb2.ExportLogsServiceResponse().SerializeToString()
        self.send_response(200 if self.path == "/v1/logs" else 404)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def attributes(message):
    value = lambda any_value: getattr(any_value, any_value.WhichOneof("value"))
    return {pair.key: value(pair.value) for pair in message.attributes}


def get(port, path, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def main():
    port, grpc_port, http_port = (int(argument) for argument in sys.argv[1:4])
    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    server.start()
    web = http.server.ThreadingHTTPServer(("127.0.0.1", http_port), Logs)
    threading.Thread(target=web.serve_forever, daemon=True).start()

    sampled = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "a=1", "user-agent": "j\u00f6dge".encode()}
    get(port, "/orders/7?a=%20b", sampled)
    get(port, "/gone", {})
    until = time.monotonic() + PATIENCE_S
    while (len(spans) < 3 or len(records) < 2) and time.monotonic() < until:
        time.sleep(0.05)

    expect("three spans and two records", len(spans) == 3 and len(records) == 2)
    by_kind = lambda kind: [span for span in spans if span.kind == kind]
    own = [s for s in by_kind(trace_pb2.Span.SPAN_KIND_SERVER) if s.trace_id.hex() == TRACE]
    sent = by_kind(trace_pb2.Span.SPAN_KIND_CLIENT)
    expect("one span of the exchange, one of its attempt", len(own) == 1 and len(sent) == 1)
    if bad:
        sys.exit(1)
    (own,), (sent,) = own, sent
    expect("the caller's span is the parent", own.parent_span_id.hex() == CALLER and own.trace_state == "a=1")
    expect("the attempt is the exchange's child", sent.parent_span_id == own.span_id and sent.trace_id == own.trace_id)
    expect("its parent is remote", own.flags & 0x300 == 0x300 and sent.flags & 0x300 == 0x100)
    told = attributes(own)
    expected = {
        "http.request.method": "GET",
        "http.route": "/orders/{id}",
        "url.path": "/orders/7",
        "url.query": "a=%20b",
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "server.port": port,
        "network.protocol.version": "1.1",
        "weir.route": "orders",
    }
    wrong = {key: told.get(key) for key, value in expected.items() if told.get(key) != value}
    expect(f"attributes of the exchange{wrong or ''}", not wrong)
    expect("its name", own.name == "GET /orders/{id}")
    expect("times", own.start_time_unix_nano <= sent.start_time_unix_nano <= sent.end_time_unix_nano <= own.end_time_unix_nano)
    resource = resources[0]
    expect("the resource", resource["service.name"] == "conformance" and resource["deployment.environment.name"] == "test")
    record = next(record for record in records if record.trace_id.hex() == TRACE)
    expect("a record of the same span", record.span_id == own.span_id and record.body.string_value.startswith("GET /orders/7 "))
    gone = next(attributes(record) for record in records if attributes(record)["uri"] == "/gone")
    expect("fields of a record", gone["status"] == 410 and gone["route"] == "gone")
    sys.exit(bad)


main()

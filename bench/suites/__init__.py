"""The suites, one object each: `name`, `about`, `run(env) -> Result`. To add one, add a line to SUITES."""

from . import body, cached, each, filters, hit_rate, http2, idle, limits, pick, requests, routes, slow, stylesheet, traced, transcode, watched, workers

SUITES = [
    requests.Requests("h1-64", "HTTP/1.1 keep-alive, 64 connections, 1 KiB answer", connections=64, others=True, peer_target=0.88, floor_target=1.12),
    requests.Requests("h1-1000", "HTTP/1.1 keep-alive, 1,000 connections, 1 KiB answer", connections=1000, peer_target=0.75),
    requests.Requests("post-144", "POST with a 144-byte body, 500 connections", connections=500, post=144, others=True, peer_target=0.88, floor_target=1.12),
    requests.Requests("nokeepalive", "the client closes after each request, 64 connections", connections=64, headers=("Connection: close",), floor="close", peer_target=1.0),
    requests.Requests("tls13", "TLS 1.3 keep-alive, 64 connections", connections=64, variant="tls", floor=False, others=True, peer_target=1.0),
    requests.Requests("tcp-64", "bytes of HTTP/1.1 keep-alive passed on (mode tcp), 64 connections, 1 KiB answer", connections=64, variant="tcp", peer_target=0.9, floor_target=1.05),
    requests.Requests("tcp-1000", "bytes of HTTP/1.1 keep-alive passed on (mode tcp), 1,000 connections, 1 KiB answer", connections=1000, variant="tcp", peer_target=0.9, floor_target=1.05),
    http2.Http2("h2-h1", "HTTP/2 over TLS to HTTP/1.1, 50 connections of 10 streams, 1 KiB answer", variant="h2-h1", peer="haproxy", target=1.15),
    http2.Http2("h2-h2c", "HTTP/2 over TLS to HTTP/2, 50 connections of 10 streams, 1 KiB answer", variant="h2-h2c", origin="h2c", target=1.0),
    http2.Http2("grpc", "unary gRPC over TLS to cleartext, 50 connections of 10 streams", variant="grpc", origin="greeter", target=1.0),
    filters.Filters(),
    each.Each(),
    transcode.Transcode(),
    body.Body(),
    stylesheet.StyleSheet(),
    cached.CacheHit(),
    cached.CachedVariant(),
    hit_rate.HitRate(),
    traced.Tracing(),
    watched.Watched(),
    idle.Idle(),
    limits.Limits(),
    slow.Slow(),
    workers.Workers(),
    routes.Routes(),
    pick.Pick(),
]

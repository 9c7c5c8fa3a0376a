"""A server and a client of gRPC's own library for Python, for a conversation through a gateway that stands between them.

Prints the server's port, reads the gateway's address, and says of each case what came of it.
"""

import sys
import threading
from concurrent import futures

import grpc


def each(requests, context):
    """Answers every message when it comes."""
    for message in requests:
        yield message[::-1]


def unary(message, context):
    if message == b"fail":
        context.set_trailing_metadata((("why", "it was asked to"), ("raw-bin", b"\x00\xff")))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "äh, not now: 100 %")
    if message == b"wait":
        threading.Event().wait(min(context.time_remaining() or 5, 5))
    sent = dict(context.invocation_metadata())
    context.send_initial_metadata((("seen", sent.get("mine", "")),))
    context.set_trailing_metadata((("behind", "the message"),))
    return message[::-1]


def down(message, context):
    for n in range(int(message)):
        yield b"%d" % n


def up(requests, context):
    return b",".join(requests)


KINDS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Down": grpc.unary_stream_rpc_method_handler(down),
    "Up": grpc.stream_unary_rpc_method_handler(up),
    "Both": grpc.stream_stream_rpc_method_handler(each),
}


def say(case, *what):
    print(case, *what, flush=True)


def client(address):
    channel = grpc.insecure_channel(address)
    call = channel.unary_unary("/weir.Test/Unary")
    answer, rest = call.with_call(b"hello", metadata=(("mine", "yes"),), timeout=10)
    seen = dict(rest.initial_metadata()).get("seen")
    say("unary", answer.decode(), seen, dict(rest.trailing_metadata())["behind"], rest.code().name)
    large = bytes(range(256)) * 8192
    say("large", call(large, timeout=10) == large[::-1])
    say("down", len(list(channel.unary_stream("/weir.Test/Down")(b"1000", timeout=10))))
    sums = channel.stream_unary("/weir.Test/Up")
    say("up", sums(iter([b"a", b"b", b"c"]), timeout=10).decode())
    both = channel.stream_stream("/weir.Test/Both")
    asked, answered = threading.Semaphore(1), []

    def questions():
        for word in (b"one", b"two", b"three"):
            asked.acquire(timeout=10)  # each only when the one before was answered
            yield word

    for word in both(questions(), timeout=10):
        answered.append(word.decode())
        asked.release()
    say("both", *answered)
    with futures.ThreadPoolExecutor(20) as pool:
        answers = pool.map(lambda n: call(b"%d" % n, timeout=10) == (b"%d" % n)[::-1], range(500))
        say("many", sum(answers))
    for case, message, timeout in (("fail", b"fail", 10), ("deadline", b"wait", 0.2)):
        try:
            call(message, timeout=timeout)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            say(case, error.code().name, trailers.get("why"), trailers.get("raw-bin"), error.details())
    try:
        channel.unary_unary("/other.Service/Method")(b"", timeout=10)
    except grpc.RpcError as error:
        say("unknown", error.code().name)
    stream = channel.unary_stream("/weir.Test/Down")(b"1000000", timeout=10)
    next(stream)
    stream.cancel()
    say("canceled", stream.code().name)
    say("after", call(b"ab", timeout=10).decode())
    channel.close()


server = grpc.server(futures.ThreadPoolExecutor(32))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weir.Test", KINDS),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
client(sys.stdin.readline().strip())
server.stop(0)

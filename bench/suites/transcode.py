"""The cost of translating a unary call: REST, gRPC-Web and Connect in front of a gRPC server, compared with calls
that pass unchanged and with grpc-gateway."""

import base64
import json
import subprocess

from harness import load, rounds
from harness.env import BENCH
from harness.gateway import Instance
from harness.process import Process, free_port
from harness.result import REQUEST_COLUMNS, Result, Target
from . import added
from .requests import sample

PROTO = BENCH / "tools/greeter.proto"
CALL, REST = "/helloworld.v1.Greeter/SayHello", "/v1/hello"
MESSAGE = b"\x0a\x04weir"
FRAMED = b"\0" + len(MESSAGE).to_bytes(4, "big") + MESSAGE
JSON = json.dumps({"service": "weir"}, separators=(",", ":")).encode()

# A filter as written, and a client's call: path, type, body. The first passes unchanged: plain HTTP/1.1 to HTTP/2,
# with the same sizes.
WAYS = {
    "none": ("", CALL, "application/grpc", FRAMED),
    "grpc_json": (f"{{ grpc_json: {{ proto: [ {PROTO} ] }} }}", REST, "application/json", JSON),
    "grpc_web": ("{ grpc_web: {} }", CALL, "application/grpc-web+proto", FRAMED),
    "grpc_web, text": ("{ grpc_web: {} }", CALL, "application/grpc-web-text", base64.b64encode(FRAMED)),
    "connect": (f"{{ connect: {{ proto: [ {PROTO} ] }} }}", CALL, "application/proto", MESSAGE),
    "connect, JSON": (f"{{ connect: {{ proto: [ {PROTO} ] }} }}", CALL, "application/json", JSON),
}


def config(filters):
    """The values for Weir's config: one route to HTTP/2 with these filters."""
    chain = f", filters: [ {filters} ]" if filters else ""
    return {"upstream": "h2c", "routes": f'{{ all: {{ match: {{ path: "/*" }}, upstream: origin{chain} }} }}'}


class Transcode:
    name, about = "transcode", "a unary call of gRPC translated, minus one that passes from HTTP/1.1 to HTTP/2 as it is, 64 connections"

    def run(self, env):
        origin = env.greeter()
        gateway = next((g for g in env.gateways if g.has("routes") and g.role == "subject"), None)
        if not gateway:
            return Result(self.name, self.about, REQUEST_COLUMNS, [], notes=["only Weir has these filters"])
        instances, calls = {}, {}
        for name, (written, *call) in WAYS.items():
            instances[name] = gateway.start("routes", env, origin, label=f"weir-{name}", **config(written))
            calls[name] = call
        instances["grpc-gateway"], calls["grpc-gateway"] = self.grpc_gateway(env, origin), calls["grpc_json"]
        scripts = {name: self.script(env.scratch, name, *call[1:]) for name, call in calls.items()}

        def once(label, warm_up):
            how = {"connections": 64, "path": calls[label][0], "script": scripts[label]}
            return sample(instances[label], 1 if warm_up else env.seconds, **how)

        rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
        for instance in instances.values():
            instance.stop()
        table, targets = added.table(rows, instances), []
        for row in table:
            name = row["name"]
            if name == "grpc_json":
                targets.append(Target("grpc_json: µs added", row.get("added"), 6))
                ratio = rounds.ratio(rows, name, ["grpc-gateway"], "us")
                targets.append(Target("grpc_json × grpc-gateway", ratio and ratio["median"], 0.5))
            targets.append(Target(f"{name}: errors", row["errors"], 0))
        return Result(self.name, self.about, added.COLUMNS, table, targets, rows, settings={"connections": 64})

    @staticmethod
    def grpc_gateway(env, origin):
        """grpc-gateway's runtime, on one core like Weir."""
        binary, port = env.tools / "rest", free_port()
        subprocess.run(["go", "build", "-o", str(binary), "."], cwd=BENCH / "tools/rest", check=True)
        process = Process("grpc-gateway", ["env", "GOMAXPROCS=1", str(binary), str(port), str(origin)], env.scratch / "grpc-gateway.log")
        process.wait_for_port(port)
        return Instance("grpc-gateway", "peer", process, port, None)

    @staticmethod
    def script(folder, name, media, body):
        """A wrk script that posts these bytes."""
        path = folder / f"call-{'-'.join(name.replace(',', '').split())}.lua"
        escaped = "".join(f"\\{byte:03}" for byte in body)
        path.write_text(f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "{media}"\nwrk.body = "{escaped}"\n')
        return path


def counted(folder, name):
    """How `weir load` makes the same calls: path, type, and a file with the body."""
    _, path, media, body = WAYS[name]
    kept = folder / f"call-{'-'.join(name.replace(',', '').split())}.body"
    kept.write_bytes(body)
    return path, media, kept

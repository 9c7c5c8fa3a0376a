"""A style sheet of 230 KB from a folder, plain and compressed on the fly, compared with nginx: processor time and
size."""

import random
import socket

from harness import rounds
from harness.result import REQUEST_COLUMNS, Result, Target
from .requests import sample, table_rows

# The requested coding, and the filter for it. Debian's nginx supports gzip.
ARMS = {
    "plain": ("identity", ""),
    "gzip 6": ("gzip", "{ compress: { algorithms: [gzip], memory: 1GiB } }"),
    "brotli 6": ("br", "{ compress: { algorithms: [br], memory: 1GiB } }"),
    "zstd 6": ("zstd", "{ compress: { algorithms: [zstd], memory: 1GiB } }"),
}
COLUMNS = REQUEST_COLUMNS[:-2] + [("bytes", "bytes sent", "{:d}"), ("vs_peer", "µs × nginx", "{:.3f}"), ("vs_size", "bytes × nginx", "{:.3f}")]
PATH = "/style.css"


def style_sheet():
    """About 230 KB of rules; the same on every run, and as compressible as a real one."""
    pick = random.Random(7)
    lines, size = [], 0
    while size < 230_000:
        line = (
            f".c-{pick.randrange(400)}-{pick.randrange(40)}:hover > .item {{ margin: {pick.randrange(32)}px {pick.randrange(32)}px; "
            f"color: #{pick.randrange(1_638_400):06x}; transition: all .{pick.randrange(9)}s ease-in-out }}\n"
        )
        lines.append(line)
        size += len(line)
    return "".join(lines)


def body_size(port, accept):
    """An answer's body size, without chunk framing."""
    request = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept-Encoding: {accept}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 10) as s:
        s.sendall(request.encode())
        got = b""
        while piece := s.recv(1 << 16):
            got += piece
    head, body = got.split(b"\r\n\r\n", 1)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the style sheet was answered with {head[:80]!r}")
    if b"chunked" not in head.lower():
        return len(body)
    size = 0
    while True:
        line, body = body.split(b"\r\n", 1)
        n = int(line, 16)
        if n == 0:
            return size
        size, body = size + n, body[n + 2 :]


class StyleSheet:
    name, about = "style-sheet", "a file of 230 KB, plain and compressed at level 6, 64 connections"

    def run(self, env):
        folder = env.scratch / "site"
        folder.mkdir(exist_ok=True)
        (folder / PATH[1:]).write_text(style_sheet())
        for each, mode in ((env.scratch, 0o711), (folder, 0o755), (folder / PATH[1:], 0o644)):
            each.chmod(mode)  # nginx drops its rights
        instances, sizes, accepts = {}, {}, {}
        for g in (g for g in env.gateways if g.role != "floor"):
            for arm, (accept, compress) in ARMS.items():
                label = f"{g.name} {arm}"
                if g.role == "subject" and g.has("routes"):
                    route = f'{{ all: {{ match: {{ path: "/*" }}, filters: [ {compress} ], files: {{ root: "{folder}" }} }} }}'
                    instances[label] = g.start("routes", env, env.answer(), label=label, routes=route)
                elif g.has("files") and accept in ("identity", "gzip"):
                    instances[label] = g.start("files", env, env.answer(), label=label, folder=folder)
                else:
                    continue
                accepts[label] = accept
                sizes[label] = body_size(instances[label].port, accept)

        def once(label, warm_up):
            how = {"connections": 64, "path": PATH, "headers": [f"Accept-Encoding: {accepts[label]}"]}
            return sample(instances[label], 1 if warm_up else env.seconds, **how)

        rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
        table = table_rows(rows, list(instances.values()))
        targets = []
        for row in table:
            label = row["name"]
            arm = label.split(" ", 1)[1]
            row["bytes"], row["vs_peer"], row["vs_size"] = sizes[label], None, None
            peer = f"nginx {arm}"
            if instances[label].role == "subject" and peer in instances:
                r = rounds.ratio(rows, label, [peer], "us")
                row["vs_peer"], row["vs_size"] = r and r["median"], sizes[label] / sizes[peer]
                targets.append(Target(f"{label}: µs × nginx", row["vs_peer"], 1.0 if arm == "plain" else 1.05))
                targets.append(Target(f"{label}: bytes × nginx", row["vs_size"], 1.02))
        for i in instances.values():
            i.stop()
        return Result(self.name, self.about, COLUMNS, table, targets, rows, settings={"connections": 64, "bytes": sizes})

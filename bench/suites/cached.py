"""The cost of an answer from the cache, compared with nginx's proxy_cache and with a server that only sends those
bytes."""

from harness import rounds
from harness.gateway import Instance
from harness.process import Process, free_port
from harness.result import REQUEST_COLUMNS, Result, Target
from .requests import sample
from .stylesheet import PATH, body_size, style_sheet

# Bytes of a body, and the maximum cost of a hit relative to nginx and to the floor.
SIZES = {"1 KB": (1000, 0.7, None), "28 KB": (28_000, 0.75, 1.3)}
STORE = "stores: { pages: { memory: 64MiB } }"
COLUMNS = REQUEST_COLUMNS[:-2] + [("vs_floor", "× floor", "{:.3f}"), ("vs_nginx", "× nginx", "{:.3f}")]


def cached(gateway, env, origin, label):
    """A gateway that stores every answer of the origin for an hour."""
    if gateway.role == "subject":
        route = '{ all: { match: { path: "/*" }, filters: [ { cache: { store: pages, ttl: 1h } } ], upstream: origin } }'
        return gateway.start("routes", env, origin, label=label, consumers=STORE, routes=route)
    return gateway.start("cache", env, origin, label=label)


def interleaved(env, instances, how):
    def once(label, warm_up):
        return sample(instances[label], 1 if warm_up else env.seconds, connections=64, **how.get(label, {}))

    rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
    for i in instances.values():
        i.stop()
    return rows


class CacheHit:
    name, about = "cache-hit", "an answer from the cache: 1 KB and 28 KB, 64 connections"

    def run(self, env):
        instances, targets, table = {}, [], []
        for size, (length, *_) in SIZES.items():
            for g in env.gateways:
                if g.has("cache") or (g.role == "subject" and g.has("routes")):
                    instances[f"{g.name} {size}"] = cached(g, env, env.answer(length), f"{g.name} {size}")
            # The second floor sends pages of the kernel, as nginx does with files.
            for label, more in ((f"floor {size}", []), (f"sendfile {size}", ["pages"])):
                port = free_port()
                log = env.scratch / f"{label.replace(' ', '-')}.log"
                floor = Process(label, [str(env.tools / "answer"), str(port), str(length), *more], log)
                floor.wait_for_port(port)
                instances[label] = Instance(label, "floor", floor, port, None)
        rows = interleaved(env, instances, {})
        for label, instance in instances.items():
            name, size = label.split(" ", 1)
            row = dict(rounds.medians(rows, label), name=label)
            for key, other in (("vs_floor", f"floor {size}"), ("vs_nginx", f"nginx {size}")):
                r = rounds.ratio(rows, label, [other], "us") if other in instances and other != label else None
                row[key] = r and r["median"]
            table.append(row)
            if instance.role == "subject":
                _, nginx, floor = SIZES[size]
                targets.append(Target(f"{label}: µs × nginx", row["vs_nginx"], nginx))
                if floor:
                    targets.append(Target(f"{label}: µs × floor", row["vs_floor"], floor))
        return Result(self.name, self.about, COLUMNS, table, targets, rows, settings={"connections": 64, "bytes": {k: v[0] for k, v in SIZES.items()}})


class CachedVariant:
    """A compressed style sheet, and a file of the same size: both come from the cache."""

    name, about = "cache-variant", "the gzip variant of a style sheet from the cache, against a plain hit of as many bytes"

    def run(self, env):
        subject = next((g for g in env.gateways if g.role == "subject" and g.has("routes")), None)
        if not subject:
            return Result(self.name, self.about, REQUEST_COLUMNS, [], notes=["only Weir is measured here"])
        folder = env.scratch / "kept"
        folder.mkdir(exist_ok=True)
        (folder / PATH[1:]).write_text(style_sheet())
        route = (
            f'{{ all: {{ match: {{ path: "/*" }}, filters: [ {{ cache: {{ store: pages, ttl: 1h }} }}, {{ compress: {{ algorithms: [gzip] }} }} ], '
            f'files: {{ root: "{folder}" }} }} }}'
        )
        start = {"consumers": STORE, "routes": route}
        instances = {label: subject.start("routes", env, env.answer(), label=label, **start) for label in ("weir variant", "weir plain")}
        size = body_size(instances["weir variant"].port, "gzip")
        (folder / "plain.css").write_bytes(b"x" * size)
        how = {
            "weir variant": {"path": PATH, "headers": ["Accept-Encoding: gzip"]},
            "weir plain": {"path": "/plain.css", "headers": ["Accept-Encoding: identity"]},
        }
        rows = interleaved(env, instances, how)
        table = [dict(rounds.medians(rows, label), name=label) for label in instances]
        r = rounds.ratio(rows, "weir variant", ["weir plain"], "us")
        table[0]["vs_plain"] = r and r["median"]
        targets = [Target("variant × plain hit", table[0]["vs_plain"], 1.1)]
        columns = REQUEST_COLUMNS[:-2] + [("vs_plain", "× plain hit", "{:.3f}")]
        return Result(self.name, self.about, columns, table, targets, rows, settings={"connections": 64, "bytes": size})

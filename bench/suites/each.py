"""Each filter's cost: one route with it minus the same route without, interleaved round by round."""

import base64
import hashlib
import hmac
import json
import subprocess
import time
from pathlib import Path

from harness import rounds
from harness.result import REQUEST_COLUMNS, Result, Target
from . import added
from .requests import sample

API_KEY = "bench-key-of-plain-length-0123456789"
REDIRECTS = Path(__file__).with_name("redirects.csv").resolve()
SECRET = "a-secret-of-the-bench-with-32-bytes-and-more"


def token():
    """A JWT (HS256) that outlives the run."""

    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"iss": "bench", "sub": "shop", "exp": int(time.time()) + 86_400}
    text = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + "." + part(json.dumps(claims).encode())
    return text + "." + part(hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).digest())


def signature():
    """The fields of a request for /, signed (RFC 9421) when this module was loaded."""
    params = f'("@method" "@path");created={int(time.time())};keyid="bench";alg="hmac-sha256"'
    base = f'"@method": GET\n"@path": /\n"@signature-params": {params}'
    made = base64.b64encode(hmac.new(SECRET.encode(), base.encode(), hashlib.sha256).digest()).decode()
    return [f"signature-input: sig={params}", f"signature: sig=:{made}:"]


# Every arm sends all of it, so that all parse the same bytes.
HEADERS = [
    f"x-api-key: {API_KEY}",
    "origin: https://app.example",
    "x-tenant: acme",
    f"x-token: {token()}",
    "authorization: Basic " + base64.b64encode(f"bench:{SECRET}".encode()).decode(),
    *signature(),
]

# A filter as written, and its maximum cost: 0.25 µs or 1,000 instructions for filters that most routes have. None: no
# target.
FILTERS = {
    "acl, with key_auth": ("{ key_auth: {} }, { acl: { allow: [ bench ] } }", None),
    "any, the second of two": ("{ any: [ { key_auth: { header: x-other } }, { key_auth: {} } ] }", None),
    "basic_auth, cached": ("{ basic_auth: {} }", None),
    "body_limit": ("{ body_limit: { max: 1MiB } }", None),
    "buffer, of a response": ("{ buffer: { request: 64KiB, response: 64KiB } }", None),
    "cache, nothing kept": ("{ cache: { store: pages } }", None),
    "circuit_breaker": ("{ circuit_breaker: {} }", 0.25),
    "compress, not asked for": ("{ compress: {} }", 0.25),
    "concurrency": ("{ concurrency: { requests: 1000 } }", 0.25),
    "concurrency, adaptive": ("{ concurrency: { adaptive: true, requests: 1000, minimum: 200 } }", None),
    "concurrency, by address": ("{ concurrency: { requests: 1000, by: address } }", None),
    "cors": ('{ cors: { origins: ["https://app.example"] } }', 0.25),
    "errors": ('{ errors: { 5xx: { body: "Sorry." } } }', None),
    "fault, of none": ("{ fault: { share: 0%, status: 503 } }", None),
    "forward_auth, cached": (
        "{ forward_auth: { upstream: origin, copy_request: [ authorization ], cache: { headers: [ authorization ], time: 1h } } }",
        None,
    ),
    "grpc_web, of no call": ("{ grpc_web: {} }", None),
    "headers": ("{ headers: { request: { set: { x-a: one } }, response: { remove: [ server ] } } }", 0.25),
    "ip": ("{ ip: { allow: [ 127.0.0.0/8, 10.0.0.0/8 ] } }", 0.25),
    "jwt, cached": (f'{{ jwt: {{ secret: "{SECRET}", header: x-token }} }}', 0.5),
    "key_auth": ("{ key_auth: {} }", 0.25),
    "maintenance, of another host": ("{ maintenance: { hosts: [ shop.example.com ] } }", None),
    "maintenance, by a switch that is off": ("{ maintenance: { switch: shop } }", None),
    "mirror, of none": ("{ mirror: { upstream: origin, share: 0% } }", None),
    "rate_limit": ("{ rate_limit: { requests: 10000000, per: 1s, by: address } }", 0.25),
    "rate_limit, by header": ('{ rate_limit: { requests: 10000000, per: 1s, by: "header:x-tenant" } }', 0.25),
    "rate_limit, two limits": (
        "{ rate_limit: { limits: [ { requests: 10000000, per: 1s }, { requests: 1000000000, per: day } ], by: address } }",
        None,
    ),
    "redirects, of other paths": (f"{{ redirects: {{ file: {REDIRECTS} }} }}", None),
    "request_id": ("{ request_id: {} }", None),
    "rewrite": ('{ rewrite: { path: "/new" } }', None),
    "rewrite, strip_prefix": ('{ rewrite: { strip_prefix: "/1024" } }', None),
    "security_headers": ("{ security_headers: {} }", None),
    "sign": (f'{{ sign: {{ key_id: bench, algorithm: hmac-sha256, key: "{SECRET}" }} }}', None),
    "signature_auth": ('{ signature_auth: { components: [ "@method", "@path" ], max_age: 1d, remember: 0 } }', None),
    "timeout": ("{ timeout: { exchange: 1m } }", None),
}

# No rows: `mtls_auth` needs TLS on every arm, `redirect` and an active `maintenance` answer without the origin,
# `oidc` needs a provider.

# SECRET by bcrypt at the least cost. Verifying is done once per pair and in no request that is counted, but under
# valgrind the usual cost outlasts every wait. A measurement of time uses `password_hash`.
QUICK_HASH = "$2b$04$jbsZwLtkTarFIcA0BsP91OGEAl9Eg9wY0A87Cm.kJXh3uyPVDgIJ2"

# A consumer's credentials, for the filters that need them.
CREDENTIALS = {
    "basic_auth": f'"bench:{QUICK_HASH}"',
    "key_auth": f'"{API_KEY}"',
    "signature_auth": f'{{ key_id: bench, algorithm: hmac-sha256, key: "{SECRET}" }}',
}


def password_hash(weir):
    """The output of `weir hash` for the password: deliberately slow to verify, but only once per pair."""
    made = subprocess.run([str(weir), "hash", "--user", "bench"], input=SECRET + "\n", capture_output=True, text=True, check=True)
    return f'"{made.stdout.strip()}"'


def config(filters, credentials=CREDENTIALS):
    """The values for a gateway's config: one route with these filters."""
    chain = f", filters: [ {filters} ]" if filters else ""
    known = ", ".join(f"{name}: [ {value} ]" for name, value in credentials.items() if f"{name}:" in filters)
    consumers = f"consumers: {{ bench: {{ {known} }} }}" if known else ""
    if "store: pages" in filters:
        consumers += "\nstores: { pages: { memory: 64MiB } }"
    return {"consumers": consumers, "routes": f'{{ all: {{ match: {{ path: "/*" }}, upstream: origin{chain} }} }}'}


class Each:
    name, about = "each-filter", "each filter minus none, 64 connections"

    def run(self, env):
        origin = env.answer()
        gateway = next((g for g in env.gateways if g.has("routes") and g.role == "subject"), None)
        if not gateway:
            return Result(self.name, self.about, REQUEST_COLUMNS, [], notes=["only Weir has these filters"])
        credentials = dict(CREDENTIALS, basic_auth=password_hash(env.weir))
        arms = {"none": "", **{name: written for name, (written, _) in FILTERS.items()}}
        instances = {
            name: gateway.start("routes", env, origin, label=f"weir-{name}", **config(written, credentials)) for name, written in arms.items()
        }

        def once(label, warm_up):
            return sample(instances[label], 1 if warm_up else env.seconds, connections=64, headers=HEADERS)

        rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
        for instance in instances.values():
            instance.stop()
        table, targets = added.table(rows, instances), []
        for row in table:
            target = FILTERS[row["name"]][1] if "added" in row else None
            if target is not None:
                targets.append(Target(f"{row['name']}: µs added", row["added"], target))
        return Result(self.name, self.about, added.COLUMNS, table, targets, rows, settings={"connections": 64})

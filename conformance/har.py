#!/usr/bin/env python3
"""A real Chromium shops behind Weir; `weir import har` makes a plan of its recording; `weir load` runs the plan. The shop
checks sessions, tokens and orders, so a plan that only repeats the recorded values fails.

usage: har.py [--keep FILE]       --keep writes the recording to FILE
"""

import argparse
import html
import json
import os
import pathlib
import re
import secrets
import string
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from http.server import ThreadingHTTPServer

import judge
from har_browser import Chromium, Recording
from environment import ROOT, certificate

HERE = judge.HERE
PASSWORD = "hush-hush-42"
USER = "ann@shop.example"

HOME = """<!doctype html><title>Shop</title><link rel=stylesheet href=/static/app.css><script src=/static/app.js defer></script>
<h1>Shop</h1><a id=login href=/login?next=%2Fshop>Log in</a>"""
LOGIN = """<!doctype html><title>Log in</title><link rel=stylesheet href=/static/app.css>
<form method=post action=/login><input type=hidden name=csrf value="{csrf}"><input type=hidden name=next value="/shop">
<input id=user name=user><input id=password type=password name=password><button id=go>Log in</button></form>"""
SHOP = """<!doctype html><title>Items</title><meta name="api-key" content="{key}"><link rel=stylesheet href=/static/app.css>
<ul id=items></ul><p id=state>loading</p>
<form id=review method=post action=/reviews enctype=multipart/form-data><input type=hidden name=csrf value="{csrf}">
<input name=text value="Gr&uuml;&szlig;e &amp; thanks"><button id=send>Send</button></form>
<script>
(async () => {{
  const key = document.querySelector("meta[name=api-key]").content;
  const asJson = {{ "content-type": "application/json" }};
  const post = (url, headers, body) => fetch(url, {{ method: "POST", headers: {{ ...asJson, ...headers }}, body: JSON.stringify(body) }});
  const token = (await (await post("/api/token", {{ "x-api-key": key }}, {{ grant: "session" }})).json()).access_token;
  const auth = {{ authorization: "Bearer " + token }};
  const list = await (await fetch("/api/items?page=1&sort=-price", {{ headers: auth }})).json();
  const item = list.items[2].id;
  const one = await (await fetch("/api/items/" + item, {{ headers: auth }})).json();
  const variables = {{ id: item, price: one.price, note: null }};
  const order = {{ query: "mutation Buy($id: ID!) {{ buy(id: $id) {{ order }} }}", variables }};
  const bought = await (await post("/graphql", auth, order)).json();
  const receipt = await fetch("/orders/" + bought.data.buy.order + "/receipt", {{ headers: {{ ...auth, accept: "text/plain" }} }});
  navigator.sendBeacon("/beacon", "bought " + bought.data.buy.order);
  document.getElementById("state").textContent = "done " + (await receipt.text());
}})();
</script>"""
THANKS = "<!doctype html><title>Thanks</title><h1 id=thanks>Thanks</h1><form method=post action=/logout><button id=out>Log out</button></form>"


def word():
    """A token that looks like a word: only its place tells what it is."""
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(24))


class Shop:
    """Who is logged in, and what each of them did."""

    def __init__(self):
        self.lock = threading.Lock()
        self.forms, self.sessions, self.keys, self.tokens, self.items, self.orders = {}, {}, {}, {}, {}, {}
        self.done, self.refused = [], []

    def reset(self):
        with self.lock:
            self.done, self.refused = [], []


class Handler(judge.Answers):
    shop = None

    def answer(self, status, body="", kind="text/html; charset=utf-8", fields=()):
        body = body.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "max-age=3600" if self.path.startswith("/static/") else "no-store")
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value, status=200):
        self.answer(status, json.dumps(value), "application/json")

    def refuse(self, why, status=403):
        with self.shop.lock:
            self.shop.refused.append(f"{self.command} {self.path}: {why}")
        self.answer(status, why, "text/plain")

    def does(self, what):
        with self.shop.lock:
            self.shop.done.append(what)

    def cookie(self, name):
        pairs = (part.strip().partition("=") for part in self.headers.get("cookie", "").split(";"))
        return next((value for known, _, value in pairs if known == name), None)

    def session(self):
        return self.shop.sessions.get(self.cookie("session"))

    def bearer(self):
        return self.shop.tokens.get(self.headers.get("authorization", "").removeprefix("Bearer "))

    def do_GET(self):
        shop, path = self.shop, self.path.split("?")[0]
        if path == "/":
            self.answer(200, HOME, fields=[("set-cookie", f"visit={secrets.token_hex(8)}; Path=/; Max-Age=3600")])
        elif path.startswith("/static/"):
            is_style = path.endswith("css")
            self.answer(200, "body { margin: 1em }" if is_style else "document.title += '!'", "text/css" if is_style else "text/javascript")
        elif path == "/login":
            csrf, form = word(), secrets.token_hex(12)
            shop.forms[form] = csrf
            self.answer(200, LOGIN.format(csrf=csrf), fields=[("set-cookie", f"form={form}; Path=/login; HttpOnly; SameSite=Lax; Secure")])
        elif path in ("/shop", "/shop/"):
            if not (session := self.session()):
                self.answer(302, fields=[("location", "/login")])
            elif path == "/shop":
                self.answer(301, fields=[("location", "/shop/")])
            else:
                session["key"], session["csrf"] = "k_" + secrets.token_hex(16), secrets.token_urlsafe(24)
                shop.keys[session["key"]] = session
                self.answer(200, SHOP.format(key=session["key"], csrf=html.escape(session["csrf"])))
        elif path == "/api/items" and self.bearer():
            ids = [secrets.token_hex(10) for _ in range(4)]
            shop.items.update(dict.fromkeys(ids, 4.75))
            self.json({"items": [{"id": one, "name": f"item {n}"} for n, one in enumerate(ids)]})
        elif path.startswith("/api/items/") and self.bearer():
            price = shop.items.get(path.rsplit("/", 1)[1])
            self.json({"price": price}) if price else self.refuse("no such item", 404)
        elif path.startswith("/orders/") and self.bearer():
            order = path.split("/")[2]
            if order not in shop.orders:
                return self.refuse("no such order", 404)
            self.does("receipt")
            self.answer(200, f"receipt {order}", "text/plain")
        elif path == "/thanks" and self.session():
            self.answer(200, THANKS)
        elif path == "/favicon.ico":
            self.answer(404)
        else:
            self.refuse("not logged in, or no such page", 404)

    def do_POST(self):
        shop, path = self.shop, self.path.split("?")[0]
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        kind = self.headers.get("content-type", "")
        form = {name: values[0] for name, values in urllib.parse.parse_qs(body).items()}
        if self.headers.get("origin") != f"https://{self.headers.get('host')}":
            return self.refuse("the request comes from another site")
        if path == "/login":
            if form.get("csrf") != shop.forms.pop(self.cookie("form"), "none"):
                return self.refuse("the form's token is not the one of the form's cookie")
            if (form.get("user"), form.get("password")) != (USER, PASSWORD):
                return self.refuse("wrong password", 401)
            session = secrets.token_urlsafe(24)
            shop.sessions[session] = {"user": USER}
            self.does("login")
            cookies = [f"session={session}; Path=/; HttpOnly; SameSite=Lax; Secure", "form=; Path=/login; Max-Age=0"]
            self.answer(303, fields=[("location", form["next"]), *(("set-cookie", cookie) for cookie in cookies)])
        elif path == "/api/token":
            session = self.session()
            if not session or shop.keys.get(self.headers.get("x-api-key")) is not session:
                return self.refuse("the key is not that of the session")
            token = "t." + word()
            shop.tokens[token] = session
            self.json({"access_token": token, "expires_in": 600})
        elif path == "/graphql" and self.bearer():
            variables = json.loads(body)["variables"]
            if shop.items.pop(variables["id"], None) != variables["price"]:
                return self.refuse("no such item at this price")
            order = secrets.token_hex(10)
            shop.orders[order] = True
            self.does("order")
            self.json({"data": {"buy": {"order": order}}})
        elif path == "/beacon":
            if body.removeprefix("bought ") not in shop.orders:
                return self.refuse("no such order")
            self.does("beacon")
            self.answer(204)
        elif path == "/reviews" and (session := self.session()):
            has_token = f'name="csrf"\r\n\r\n{session.get("csrf")}\r\n' in body
            if not has_token or "Gr\u00fc\u00dfe & thanks" not in body or not kind.startswith("multipart/form-data; boundary="):
                return self.refuse("the review is not the one of the form")
            self.does("review")
            self.answer(303, fields=[("location", "/thanks")])
        elif path == "/logout" and self.session() is not None:
            del shop.sessions[self.cookie("session")]
            self.does("logout")
            self.answer(303, fields=[("location", "/"), ("set-cookie", "session=; Path=/; Max-Age=0")])
        else:
            self.refuse("not logged in, or no such page", 404)


def browse(url, folder):
    """The recording of a visit."""
    browser = Chromium(folder / "profile")
    try:
        recording = Recording(browser)

        def go(script, until):
            browser.evaluate(script)
            browser.until(until)

        browser.call("Page.navigate", url=url)
        browser.until("document.readyState == 'complete' && !!document.querySelector('#login')")
        go("document.querySelector('#login').click()", "!!document.querySelector('#password')")
        fill = "".join(f"document.querySelector('#{name}').value = {json.dumps(value)};" for name, value in (("user", USER), ("password", PASSWORD)))
        go(f"{fill} document.querySelector('#go').click()", "(document.querySelector('#state') || {}).textContent?.startsWith('done')")
        go("document.querySelector('#send').click()", "!!document.querySelector('#thanks')")
        go("document.querySelector('#out').click()", "!!document.querySelector('#login')")
        time.sleep(0.5)  # the last events of the network
        return recording.har()
    finally:
        browser.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, help="where to write the recording")
    args = parser.parse_args()
    subprocess.run([ROOT / "scripts/ensure-tools.sh", "chromium", "openssl"], check=True, stdin=subprocess.DEVNULL)
    weir = judge.weir_bin()

    def expect(text, holds, more=""):
        judge.verdict(holds, f"har: {text}{'' if holds else f': {more}'}")

    Handler.shop = shop = Shop()
    with tempfile.TemporaryDirectory(prefix="weir-har-") as folder:
        folder = pathlib.Path(folder)
        cert, key = certificate(folder)
        origin = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        port = judge.free_port()
        ports = {"PORT": port, "ADMIN_PORT": judge.free_port(), "ORIGIN_PORT": origin.server_port}
        env = {"CERT": str(cert), "KEY": str(key)} | {name: str(value) for name, value in ports.items()}
        gateway = judge.start(weir, "run", "-c", HERE / "har.yaml", name="weir", env=env)
        try:
            judge.wait_for_port(port)
            har = browse(f"https://localhost:{port}/", folder)
            visit = sorted(shop.done)
            whole = sorted(["login", "order", "receipt", "beacon", "review", "logout"])
            expect("the browser shopped", visit == whole and not shop.refused, (visit, shop.refused))
            text = json.dumps(har, indent=1, ensure_ascii=False)
            (folder / "shop.har").write_text(text)
            if args.keep:
                args.keep.write_text(text + "\n")
            plan, variables = folder / "plan.yaml", folder / "plan.env"
            importing = [weir, "import", "har", folder / "shop.har", "-o", plan, "--secrets", variables]
            done = subprocess.run(importing, capture_output=True, text=True)
            expect("it is imported", done.returncode in (0, 1), done.stderr)
            reasons = set(re.findall(r"(?m)^    (\S.*)$", done.stdout + done.stderr))
            known = {"a static file: --static takes it", "asked without compression, because the plan reads its answer"}
            expect("only static files are left out", reasons <= known, reasons - known)
            written = plan.read_text()
            expect("no secret is in the plan", PASSWORD not in written, written)
            expect("only the password is left to set", re.findall(r"# Set these in the environment: (.*)\.", written) == ["PASSWORD"], written[:500])
            shop.reset()
            lines = (line.partition("=") for line in variables.read_text().splitlines() if not line.startswith("#"))
            values = {name.removeprefix("export "): value.strip("'\"") for name, sign, value in lines if sign}
            load = [weir, "load", "-f", plan, "--insecure", "--http2", "--set", "users=3", "-d", "10s", "--no-live", "--format", "json"]
            load += [option for name in re.findall(r"(?m)^  (\S+):\n    steps:", written) for option in ("--set", f"scenarios.{name}.iterations=6")]
            # Another name of the server than the recorded one.
            values["TARGET"] = f"https://127.0.0.1:{port}"
            done = subprocess.run(load, env=os.environ | values, capture_output=True, text=True)
            try:
                report = json.loads(done.stdout)
            except ValueError:
                expect("the plan runs", False, f"{done.stdout[-2000:]} {done.stderr[-3000:]}\n{written}")
                return 1
            scenarios = report["scenarios"]
            expect("each iteration comes to its end", all(s["done"] == s["started"] == 6 for s in scenarios), f"{scenarios} {done.stderr}")
            expect("no check fails", all(c["failed"] == 0 for c in report["checks"]), report["checks"])
            expect("the shop refused nothing", not shop.refused, shop.refused[:5])
            rounds = 7  # with the dry run
            expect("each user did what the browser did", sorted(shop.done) == sorted(visit * rounds), {what: shop.done.count(what) for what in visit})
            if judge.failed:
                print(written)
        finally:
            gateway.terminate()
            gateway.wait(10)
            origin.shutdown()
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())

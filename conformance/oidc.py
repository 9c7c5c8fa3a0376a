#!/usr/bin/env python3
"""The filter `oidc` with a certified provider (oidc-provider, npm): login, refresh, logout, new keys, an unregistered
redirect.

The browser is ours: it keeps cookies by host, follows redirects and fills in the provider's forms. It takes the
gateway for https://app.test, and sends it plain HTTP as a proxy that terminates TLS would.
"""

import concurrent.futures
import html.parser
import http.client
import http.server
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse

from judge import HERE, TOOLS, WORK, Answers, failed, free_port, start, start_weir, verdict, wait_for_port

VERSION = "8.8.1"  # of the 8.x line, which runs on Node 18 and up
PAGE = {"Accept": "text/html"}


def install():
    folder = TOOLS / "oidc-provider"
    module = folder / "node_modules/oidc-provider/lib/index.js"
    if not module.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), f"oidc-provider@{VERSION}"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return module


class Origin(Answers):
    """Returns the request that it received."""

    def do_GET(self):
        self.answer(json.dumps({name.lower(): value for name, value in self.headers.items()}).encode())


class Form(html.parser.HTMLParser):
    """A page's first form: its target and its fields."""

    def __init__(self, page):
        super().__init__()
        self.action, self.fields = None, {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form" and self.action is None:
            self.action = attributes.get("action", "")
        if tag in ("input", "button") and "name" in attributes:
            self.fields.setdefault(attributes["name"], attributes.get("value", ""))


class Browser:
    def __init__(self, gateway):
        self.gateway = gateway
        self.cookies = {}  # host: {name: value}

    def ask(self, url, form=None, headers=PAGE):
        """One request. Returns (status, headers, text)."""
        parts = urllib.parse.urlsplit(url)
        host, port = (("127.0.0.1", self.gateway) if parts.hostname == "app.test" else (parts.hostname, parts.port))
        connection = http.client.HTTPConnection(host, port, timeout=20)
        fields = dict(headers, Host=parts.netloc)
        jar = self.cookies.setdefault(parts.netloc, {})
        if jar:
            fields["Cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            fields["Content-Type"] = "application/x-www-form-urlencoded"
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET" if form is None else "POST", target or "/", body, fields)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        for cookie in answer.headers.get_all("set-cookie") or []:
            pair, _, attributes = cookie.partition(";")
            name, _, value = pair.partition("=")
            ended = "max-age=0" in attributes.lower() or "expires=thu, 01 jan 1970" in attributes.lower()
            jar.pop(name, None) if ended or not value else jar.__setitem__(name, value)
        connection.close()
        return answer.status, answer.headers, text

    def follow(self, url, until=lambda url: False):
        """Follows redirects and submits forms. Returns (status, headers, text, url) of the last answer; stops before
        a URL that matches `until`."""
        for _ in range(20):
            if until(url):
                return None, None, "", url
            status, headers, text = self.ask(url)
            while status == 200 and not url.startswith("https://app.test/") and Form(text).action:
                form = Form(text)
                fields = dict(form.fields, login="ann", password="any", logout="yes")
                fields.pop("abort", None)
                url = urllib.parse.urljoin(url, form.action)
                status, headers, text = self.ask(url, fields)
                while 'onload="document.forms[0].submit()' in text and Form(text).action:
                    url = urllib.parse.urljoin(url, Form(text).action)
                    status, headers, text = self.ask(url, Form(text).fields)
            if status not in (301, 302, 303, 307, 308):
                return status, headers, text, url
            url = urllib.parse.urljoin(url, headers["location"])
        return 0, {}, "redirects without end", url


def start_provider(module, port, log, kid):
    child = start("node", HERE / "oidc_provider.mjs", module, port, log, kid, name=f"provider-{kid}")
    wait_for_port(port)
    return child


def end(child):
    child.terminate()
    child.wait(10)


def main():
    module = install()
    origin, issuer, log = free_port(), free_port(), WORK / "granted"
    log.touch()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", origin), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    provider = start_provider(module, issuer, log, "a")
    os.environ["ISSUER"] = f"http://127.0.0.1:{issuer}"
    port, _, _ = start_weir(HERE / "oidc.yaml", origin)
    noted = lambda what: log.read_text().count(what)

    # === login
    browser = Browser(port)
    status, headers, text, url = browser.follow("https://app.test/start?a=b")
    seen = json.loads(text) if status == 200 and text.startswith("{") else {}
    verdict(status == 200 and url == "https://app.test/start?a=b", f"oidc: a browser logs in and comes back to its page: {status} {url}")
    verdict((seen.get("x-user"), seen.get("x-email")) == ("ann", "ann@example.com"), f"oidc: the claims are told: {seen.get('x-user')} {seen.get('x-email')}")
    verdict("__Host-" not in seen.get("cookie", ""), "oidc: the service sees no cookie of the session")
    verdict(noted("granted authorization_code") == 1, "oidc: one code was exchanged")
    status, headers, _ = Browser(port).ask("https://app.test/start", headers={"Accept": "application/json"})
    verdict(status == 401 and "location" not in headers, f"oidc: an API client gets no redirect: {status}")
    status, _, text, _ = Browser(port).follow("https://app.test/es/page")
    verdict(status == 200 and '"x-user": "ann"' in text, f"oidc: an ID token signed by ES256: {status}")

    # === what was not begun here
    other = Browser(port)
    _, _, _, callback = other.follow("https://app.test/start", until=lambda url: url.startswith("https://app.test/cb"))
    stranger, _, _ = Browser(port).ask(callback)
    verdict(stranger == 400, f"oidc: the answer to another browser is refused: {stranger}")
    changed, _, _ = other.ask(callback.replace("code=", "code=x"))
    verdict(changed == 403, f"oidc: a code that the provider did not give is refused: {changed}")
    elsewhere = callback.replace(urllib.parse.quote(os.environ["ISSUER"], safe=""), urllib.parse.quote("http://127.0.0.1:1", safe=""))
    mixed, _, _ = other.ask(elsewhere)
    verdict(elsewhere != callback and mixed == 403, f"oidc: the answer of another provider is refused: {mixed}")
    before = dict(other.cookies["app.test"])
    first, _, _ = other.ask(callback)
    other.cookies["app.test"] = before
    again, _, _ = other.ask(callback)
    verdict(first == 302 and again == 403, f"oidc: a code counts once: {first}, then {again}")
    status, headers, text, url = Browser(port).follow("https://app.test/unregistered/page")
    verdict(status == 400 and url.startswith(os.environ["ISSUER"]) and "redirect_uri" in text, f"oidc: the provider refuses a redirect that nobody registered: {status}")

    # === refresh
    time.sleep(2.5)  # the access token has its time
    jar = dict(browser.cookies["app.test"])

    def one(_):
        tab = Browser(port)
        tab.cookies["app.test"] = dict(jar)
        return tab, tab.ask("https://app.test/start")[0]

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        tabs = list(pool.map(one, range(20)))
    refreshed = noted("granted refresh_token")
    verdict(all(status == 200 for _, status in tabs) and refreshed == 1, f"oidc: 20 requests at once refresh once: {refreshed}")
    browser = tabs[0][0]
    verdict(browser.cookies["app.test"] != jar, "oidc: the browser gets the new session")
    time.sleep(2.5)
    status, _, _ = browser.ask("https://app.test/start")
    verdict(status == 200 and noted("granted refresh_token") == 2, f"oidc: the refresh token that came last counts: {status}")

    # === logout
    status, headers, text, url = browser.follow("https://app.test/logout")
    verdict((status, text.strip(), url) == (200, "bye", "https://app.test/bye"), f"oidc: logout ends at the page after it: {status} {url}")
    verdict(noted("ended session") == 1, "oidc: the provider has ended its session too")
    status, headers, _ = browser.ask("https://app.test/start")
    verdict(status == 302 and headers["location"].startswith(os.environ["ISSUER"]), f"oidc: after it the login begins anew: {status}")

    # === new keys, and a provider that has forgotten everything
    browser = Browser(port)
    browser.follow("https://app.test/start")
    end(provider)
    time.sleep(2.5)
    status, _, _ = browser.ask("https://app.test/start")
    verdict(status == 200, f"oidc: while the provider is away a session goes on: {status}")
    provider = start_provider(module, issuer, log, "b")
    status, headers, _ = browser.ask("https://app.test/start")
    verdict(status == 302 and noted("refused refresh_token invalid_grant") == 1, f"oidc: a refresh that is refused ends the session: {status}")
    # Unknown keys are fetched at most every 30 s.
    began, status = time.monotonic(), 0
    while status != 200 and time.monotonic() < began + 45:
        status, _, _, _ = Browser(port).follow("https://app.test/start")
        time.sleep(0 if status == 200 else 1)
    verdict(status == 200, f"oidc: a login with the provider's new keys: {status} after {time.monotonic() - began:.0f} s")
    verdict(noted("failed ") == 0, "oidc: nothing was too much for the provider")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

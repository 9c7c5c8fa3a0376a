"""Records what a headless Chromium does, by the DevTools protocol, as the HAR file that its developer tools write."""

import base64
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from datetime import datetime, timezone

# How long a page may take to do what is waited for.
PATIENCE = 20


class Chromium:
    """A headless Chromium that speaks the DevTools protocol on two pipes."""

    def __init__(self, profile, *options):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def descriptors():
            # The protocol fixes 3 for commands and 4 for answers. Both may be taken, so they are moved out of the way.
            high = os.dup(to_read), os.dup(from_write)
            spare = [os.dup(fd) for fd in high]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        command = [shutil.which("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += ["--no-first-run", "--disable-background-networking", "--ignore-certificate-errors", "--lang=en-US"]
        command += [f"--user-data-dir={profile}", "--remote-debugging-pipe", *options, "about:blank"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=descriptors
        )
        os.close(to_read)
        os.close(from_write)
        self.number, self.answers, self.events, self.session = 0, {}, queue.Queue(), None
        threading.Thread(target=self.listen, daemon=True).start()
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]

    def listen(self):
        with os.fdopen(self.from_read, "rb") as stream:
            text = b""
            while chunk := stream.read1(1 << 20):
                *whole, text = (text + chunk).split(b"\0")
                for message in map(json.loads, whole):
                    if "id" in message:
                        self.answers[message["id"]].put(message)
                    else:
                        self.events.put(message)

    def call(self, method, **params):
        self.number += 1
        number, answer = self.number, queue.Queue()
        self.answers[number] = answer
        message = {"id": number, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        got = answer.get(timeout=PATIENCE)
        del self.answers[number]
        if "error" in got:
            raise RuntimeError(f"{method}: {got['error']['message']}")
        return got["result"]

    def evaluate(self, script):
        return self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"].get("value")

    def until(self, script):
        """Waits until the page gives a true value; a page that is being left gives none."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if self.evaluate(script):
                    return
            except RuntimeError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE} s: {script}; the page: {self.evaluate('document.documentElement.outerHTML')[:2000]}")

    def end(self):
        self.process.terminate()
        self.process.wait(10)


class Recording:
    """The network events of a page, by request."""

    def __init__(self, browser):
        self.browser, self.entries, self.last, self.pages = browser, [], {}, []
        self.extra = {}
        self.bodies = {}
        browser.call("Page.enable")
        browser.call("Network.enable", maxPostDataSize=1 << 20)
        self.main_frame = browser.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.running = True
        self.thread = threading.Thread(target=self.follow)
        self.thread.start()

    def follow(self):
        while self.running or not self.browser.events.empty():
            try:
                event = self.browser.events.get(timeout=0.2)
            except queue.Empty:
                continue
            name = event["method"].removeprefix("Network.")
            if handle := getattr(self, f"on_{name}", None):
                handle(event["params"])

    def on_requestWillBeSent(self, e):
        number = e["requestId"]
        if "redirectResponse" in e and number in self.last:
            before = self.last.pop(number)
            before["response"], before["redirect"], before["end"] = e["redirectResponse"], e["request"]["url"], e["timestamp"]
        if e.get("type") == "Document" and e.get("frameId") == self.main_frame and "redirectResponse" not in e:
            page = {"startedDateTime": moment(e["wallTime"]), "id": f"page_{len(self.pages) + 1}", "title": e["request"]["url"], "pageTimings": {}}
            self.pages.append(page)
        entry = {"id": number, "begin": e["timestamp"], "wall": e["wallTime"], "request": e["request"], "initiator": e["initiator"]}
        entry["type"] = e.get("type", "Other")
        entry["page"] = self.pages[-1]["id"] if self.pages else None
        # Extra information comes once for each hop, in order, and may come before the request.
        entry["hop"] = sum(1 for known in self.entries if known["id"] == number)
        self.entries.append(entry)
        self.last[number] = entry

    def on_requestWillBeSentExtraInfo(self, e):
        self.extra.setdefault(("request", e["requestId"]), []).append(e)

    def on_responseReceivedExtraInfo(self, e):
        self.extra.setdefault(("response", e["requestId"]), []).append(e)

    def on_requestServedFromCache(self, e):
        if entry := self.last.get(e["requestId"]):
            entry["cache"] = "memory"

    def on_responseReceived(self, e):
        if entry := self.last.get(e["requestId"]):
            entry["response"] = e["response"]
            if e["response"].get("fromDiskCache"):
                entry["cache"] = "disk"

    def on_loadingFinished(self, e):
        if entry := self.last.get(e["requestId"]):
            entry["end"], entry["length"] = e["timestamp"], e["encodedDataLength"]
            request = entry["request"]
            if request.get("hasPostData") and "postData" not in request:
                try:
                    request["postData"] = self.browser.call("Network.getRequestPostData", requestId=e["requestId"])["postData"]
                except RuntimeError:
                    pass  # it has a file
            try:
                body = self.browser.call("Network.getResponseBody", requestId=e["requestId"])
                entry["body"] = body
            except RuntimeError:
                pass  # none is kept after a navigation, as in the developer tools

    def on_loadingFailed(self, e):
        if entry := self.last.get(e["requestId"]):
            entry["end"], entry["failed"] = e["timestamp"], e["errorText"]

    def har(self):
        """Ends the recording."""
        self.running = False
        self.thread.join()
        version = self.browser.call("Browser.getVersion")["product"].split("/")[0]
        creator = {"name": "WebInspector", "version": "537.36"}
        entries = [self.entry(entry) for entry in sorted(self.entries, key=lambda e: e["begin"])]
        return {"log": {"version": "1.2", "creator": creator, "pages": self.pages, "entries": entries, "comment": version}}

    def entry(self, e):
        extra = {side: self.extra.get((side, e["id"]), [])[e["hop"] : e["hop"] + 1] for side in ("request", "response")}
        request, response = e["request"], e.get("response", {})
        sent = extra["request"][0]["headers"] if extra["request"] else request["headers"]
        got = extra["response"][0]["headers"] if extra["response"] else response.get("headers", {})
        status = extra["response"][0]["statusCode"] if extra["response"] else response.get("status", 0)
        version = {"h2": "http/2.0", "h3": "h3"}.get(response.get("protocol"), response.get("protocol", ""))
        url, _, fragment = request["url"].partition("#")
        took = max(0, e.get("end", e["begin"]) - e["begin"]) * 1000
        out = {
            "_initiator": {"type": e["initiator"]["type"]},
            "_priority": request.get("initialPriority", "Low"),
            "_resourceType": e["type"].lower(),
            "cache": {},
            "pageref": e["page"],
            "request": {
                "method": request["method"],
                "url": url + (f"#{fragment}" if fragment else ""),
                "httpVersion": version,
                "headers": fields(sent),
                "queryString": query(url),
                "cookies": [c["cookie"] for c in (extra["request"] or [{}])[0].get("associatedCookies", []) if not c["blockedReasons"]],
                "headersSize": -1,
                "bodySize": len(request.get("postData", "").encode()),
            },
            "response": {
                "status": status,
                "statusText": response.get("statusText", ""),
                "httpVersion": version,
                "headers": fields(got),
                "cookies": [],
                "content": {"size": 0, "mimeType": response.get("mimeType", "x-unknown")},
                "redirectURL": next((v for n, v in got.items() if n.lower() == "location"), ""),
                "headersSize": -1,
                "bodySize": -1,
                "_transferSize": e.get("length", 0),
                "_error": e.get("failed"),
            },
            "serverIPAddress": response.get("remoteIPAddress", ""),
            "startedDateTime": moment(e["wall"]),
            "time": took,
            "timings": {"blocked": 0, "dns": -1, "ssl": -1, "connect": -1, "send": 0, "wait": took, "receive": 0},
        }
        if "cache" in e:
            out["_fromCache"] = e["cache"]
        if "postData" in request or request.get("hasPostData"):
            kind = next((v for n, v in sent.items() if n.lower() == "content-type"), "")
            out["request"]["postData"] = {"mimeType": kind, "text": request.get("postData", "")}
            if kind.startswith("application/x-www-form-urlencoded"):
                out["request"]["postData"]["params"] = query("?" + request.get("postData", ""))
        if "body" in e:
            text = e["body"]["body"]
            content = out["response"]["content"]
            content["size"] = len(base64.b64decode(text)) if e["body"]["base64Encoded"] else len(text.encode())
            content["text"] = text
            if e["body"]["base64Encoded"]:
                content["encoding"] = "base64"
        return out


def fields(headers):
    """A field that came several times is one with line breaks for the protocol, and several in a HAR file."""
    return [{"name": name, "value": line} for name, value in headers.items() for line in value.split("\n")]


def query(url):
    """Names and values of a query as they are written, without decoding, as Chromium's developer tools write them."""
    pairs = url.split("?", 1)[1].split("&") if "?" in url else []
    return [dict(zip(("name", "value"), (*pair.split("=", 1), "")[:2])) for pair in pairs if pair]


def moment(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")

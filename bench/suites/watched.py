"""The cost of an open console for the data plane: its pages requested ten times a second, compared with none."""

import http.client
import threading

from harness import rounds
from harness.result import REQUEST_COLUMNS, Result, Target
from .requests import sample
from .routes import table_of

# The requests of an open page, and the longest page.
PAGES = ("/", "/upstreams", "/failures", "/routes")
HERTZ, ROUTES = 10, 1000
PATH = "/api/v0/thing0/7/detail"
# The second arm repeats the first: their difference is chance.
ARMS = {"weir": False, "weir again": False, f"weir, console at {HERTZ} Hz": True}


class Eyes:
    """Requests pages until it is closed, and counts them."""

    def __init__(self, port):
        self.port, self.seen, self.shut = port, 0, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        while not self.shut.wait(1 / HERTZ):
            connection.request("GET", PAGES[self.seen % len(PAGES)])
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the console answers {answer.status}")
            self.seen += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shut.set()
        self.thread.join()


class Watched:
    name, about = "console", f"{ROUTES:,} routes whose console is asked for {HERTZ} times a second, 16 connections, 1 KiB answer"

    def run(self, env):
        subject = next((g for g in env.gateways if g.role == "subject" and g.has("routes")), None)
        if not subject:
            return Result(self.name, self.about, REQUEST_COLUMNS, [], notes=["only Weir is measured here"])
        instances = {label: subject.start("routes", env, env.answer(), label=label, routes=table_of(ROUTES)) for label in ARMS}
        seen = []

        def once(label, warm_up):
            instance, seconds = instances[label], 1 if warm_up else env.seconds
            if not ARMS[label]:
                return sample(instance, seconds, connections=16, path=PATH)
            with Eyes(instance.admin_port) as eyes:
                got = sample(instance, seconds, connections=16, path=PATH)
            seen.append(eyes.seen / seconds)
            return got

        rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
        for i in instances.values():
            i.stop()
        table = [dict(rounds.medians(rows, label), name=label) for label in instances]
        quiet, *others = list(instances)
        for row, label in zip(table[1:], others):
            for key, column in (("p99_ms", "p99_vs_quiet"), ("us", "us_vs_quiet")):
                r = rounds.ratio(rows, label, [quiet], key)
                row[column] = r and r["median"]
        targets = [Target("p99 with a console × without", table[-1]["p99_vs_quiet"], 1.1)]
        columns = REQUEST_COLUMNS[:-2] + [("p99_vs_quiet", "p99 × quiet", "{:.3f}"), ("us_vs_quiet", "µs × quiet", "{:.3f}")]
        notes = [f"pages a second: {sum(seen) / max(len(seen), 1):.1f}"]
        return Result(self.name, self.about, columns, table, targets, rows, notes=notes, settings={"connections": 16, "hertz": HERTZ, "pages": list(PAGES)})

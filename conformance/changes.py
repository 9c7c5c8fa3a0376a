#!/usr/bin/env python3
"""Tries to lose a config: everything acknowledged by the admin API must survive, whatever happens meanwhile.

  killed    500 writes, with SIGKILL at random moments: before, during and after some of them. After the restart, the
            last acknowledged write runs, or the one in flight, and the history agrees.
  writers   two writers with ETags increment one number: as many increments, and revisions, as acknowledgements.
  full      writes while the disk is sometimes full (no file may grow): each is either acknowledged and present, or
            refused with 507 and without effect; a rollback works on a full disk, and persists.

`changes.py --writes 60` is shorter. --seed N repeats a run.
"""

import argparse
import http.client
import json
import random
import resource
import signal
import sys
import threading
import time

from judge import HERE, WORK, failed, free_port, start, verdict, wait_for_port, weir_bin

STATE = WORK / "changes"
PORT, ADMIN = free_port(), free_port()
child = None


def run():
    """Starts weir with a disk that can be filled: writes beyond a limit fail instead of ending it."""
    global child
    env = {"PORT": str(PORT), "ADMIN_PORT": str(ADMIN), "STATE": str(STATE)}
    child = start("sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\"", weir_bin(), "run", "-c", HERE / "changes.yaml", name="weir", env=env)
    wait_for_port(PORT)
    wait_for_port(ADMIN)


def kill():
    child.send_signal(signal.SIGKILL)
    child.wait()


def fill(full):
    limit = 0 if full else resource.RLIM_INFINITY
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def ask(method, path, body=None, fields=None, port=None):
    """Status, ETag and document; None if the connection broke."""
    connection = http.client.HTTPConnection("127.0.0.1", port or ADMIN, timeout=20)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json", **(fields or {})})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, answer.getheader("ETag"), text
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def say(value):
    return {"routes": {"a": {"match": {"path": "/a"}, "respond": {"status": 200, "body": f"v{value}"}}}}


def served():
    answer = ask("GET", "/a", port=PORT)
    return int(answer[2].decode()[1:]) if answer and answer[0] == 200 else None


def history():
    return json.loads(ask("GET", "/api/v1/revisions")[2])


def killed(writes):
    wrong, kills, acknowledged, value = [], 0, None, 0
    while value < writes:
        value += 1
        if random.random() < 0.75:
            answer = ask("POST", "/api/v1/config:apply", say(value))
            if not answer or answer[0] != 200:
                wrong.append(f"write {value} was not acknowledged: {answer}")
            acknowledged = value
            continue
        # Killed between the first byte of the request and some time after its answer.
        seen = []
        writer = threading.Thread(target=lambda: seen.append(ask("POST", "/api/v1/config:apply", say(value))))
        writer.start()
        time.sleep(random.choice([0, random.uniform(0, 0.004), random.uniform(0, 0.03)]))
        kill()
        writer.join()
        kills += 1
        if seen[0] and seen[0][0] == 200:
            acknowledged = value
        run()
        now = served()
        if now not in (acknowledged, value):
            wrong.append(f"{now} runs after {acknowledged} was acknowledged and {value} under way")
        acknowledged = now
        told, drift = history(), json.loads(ask("GET", "/api/v1/drift")[2])
        if told["revisions"][0]["hash"] != drift["running"] or drift["drift"]:
            wrong.append(f"after {value} the history and the files disagree: {drift}")
        numbers = [revision["number"] for revision in told["revisions"]]
        if numbers != sorted(set(numbers), reverse=True):
            wrong.append(f"after {value} the numbers of the history are {numbers}")
    left = sorted(p.name for p in STATE.iterdir())
    if left != ["managed.yaml", "state"]:
        # A killed write leaves a temporary file: the next process with the same number removes it.
        stray = [name for name in left if not name.startswith(".managed.yaml.")]
        if stray != ["managed.yaml", "state"]:
            wrong.append(f"left over: {left}")
    verdict(not wrong, f"{writes} writes with {kills} kills: {len(wrong)} wrong {wrong[:3]}")


def writers(rounds):
    ask("POST", "/api/v1/config:apply", say(0))
    before, acknowledged = history()["running"], []

    def count():
        done = 0
        while done < rounds:
            _, tag, text = ask("GET", "/api/v1/config/routes/a")
            value = int(json.loads(text)["respond"]["body"][1:])
            answer = ask("PUT", "/api/v1/config/routes/a", say(value + 1)["routes"]["a"], {"If-Match": tag})
            if answer[0] == 200:
                done += 1
                acknowledged.append(json.loads(answer[2])["number"])
            elif answer[0] != 412:
                acknowledged.append(None)
                return

    threads = [threading.Thread(target=count) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    after = history()["running"]
    good = served() == 2 * rounds == after - before and len(set(acknowledged)) == 2 * rounds
    verdict(good, f"two writers: {len(acknowledged)} acknowledged, the number is {served()}, {after - before} revisions")


def full(writes):
    wrong, refused, value, now = [], 0, 1000, served()
    for _ in range(writes):
        value += 1
        fill(random.random() < 0.5)
        answer = ask("POST", "/api/v1/config:apply", say(value))
        if answer[0] == 200:
            now = value
        elif answer[0] == 507:
            refused += 1
        else:
            wrong.append(f"{answer[0]} for {value}")
        if served() != now:
            wrong.append(f"{served()} runs, and {now} was acknowledged")
        if random.random() < 0.1:
            kill()
            run()
            if served() != now:
                wrong.append(f"{served()} runs after a restart, and {now} was acknowledged")
    verdict(not wrong and refused > 0, f"{writes} writes on a disk that is full now and then: {refused} refused, {len(wrong)} wrong {wrong[:3]}")

    fill(False)
    ask("POST", "/api/v1/config:apply", say(1))
    good = history()["running"]
    ask("POST", "/api/v1/config:apply", say(2))
    fill(True)
    answer = ask("POST", f"/api/v1/revisions/{good}:rollback")
    runs = served()
    kill()
    run()
    verdict(answer[0] == 200 and (runs, served()) == (1, 1), f"back on a full disk, and after a restart: {answer[0]}, {runs}, {served()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}")
    STATE.mkdir(parents=True)
    run()
    killed(options.writes)
    writers(max(options.writes // 10, 10))
    full(max(options.writes // 5, 20))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""Processes that we start: their ports, their end, and their cost.

Invariant: only processes started through `Process` are ever signalled, by pid.
"""

import atexit
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time

_running = []


def raise_descriptor_limit(wanted=65536):
    """Raises our own limit, which our children inherit: 10,000 connections need 10,000 descriptors at each end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for target in (max(hard, wanted), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, max(hard, target)))
            return target
        except (ValueError, OSError):
            continue
    return soft


def free_port():
    """A port that was free a moment ago: bound to 0 on loopback, read back, released."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tree(pid):
    """The process and all its descendants."""
    children = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(p))
    found, todo = [], [pid]
    while todo:
        p = todo.pop()
        found.append(p)
        todo += children.get(p, [])
    return found


def cpu_us(pids):
    """Microseconds on a processor, user and system, of every thread of the given processes.

    From schedstat, in nanoseconds; the clock ticks of /proc/PID/stat are 10 ms, too coarse for a short round.
    A thread that ended takes its time with it, so gateways that start threads per request would be undercounted.
    """
    total = 0
    for p in pids:
        try:
            for t in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{t}/schedstat") as f:
                    total += int(f.read().split()[0])
        except OSError:
            pass
    return total / 1000


def children_cpu():
    """Seconds on a processor, user and system, of all our children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rss_mib(pids):
    """Resident memory of the given processes together. Shared pages count once per process."""
    kib = 0
    for p in pids:
        try:
            with open(f"/proc/{p}/status") as f:
                kib += int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])
        except (OSError, TypeError):
            pass
    return kib / 1024


class Bystanders:
    """The share of the machine that other processes used meanwhile: above a few percent, absolute figures mean
    little."""

    def __init__(self):
        self.started, self.busy, self.own = time.monotonic(), self._busy(), self._own()

    def share(self):
        """Processor time of other processes since the start, as a share of all, 0 to 1."""
        seconds = (time.monotonic() - self.started) * len(os.sched_getaffinity(0))
        others = (self._busy() - self.busy) - (self._own() - self.own)
        return max(0.0, min(1.0, others / seconds))

    @staticmethod
    def _busy():
        with open("/proc/stat") as f:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, f.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _own():
        # Our own clock, ended children, and running descendants.
        t = os.times()
        living = [p for p in tree(os.getpid()) if p != os.getpid()]
        return sum(t[:4]) + cpu_us(living) / 1e6


class Process:
    """A child that ends with us. Its output goes to a log file, which is shown if it fails to start.

    `traced` says that the command is a tracer (strace) whose only child matters. `patience` is how many seconds it
    gets to end.
    """

    def __init__(self, name, command, log, *, traced=False, patience=5):
        self.name, self.log, self.traced, self.patience = name, log, traced, patience
        argv = command if isinstance(command, list) else shlex.split(command)
        with open(log, "wb") as out:
            self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        _running.append(self)

    @property
    def pid(self):
        return self.child.pid

    def pids(self):
        return tree(self.pid)

    def wait_for_port(self, port, seconds=20):
        """Returns when something accepts on the port; raises with the end of the log if the child exits or time is
        up."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        with open(self.log, errors="replace") as f:
            tail = "".join(f.readlines()[-20:])
        self.stop()
        raise RuntimeError(f"{self.name} did not start listening on port {port}:\n{tail}")

    def stop(self):
        """SIGTERM, then after `patience` SIGKILL, to it and to its children."""
        if self in _running:
            _running.remove(self)
        if self.child.poll() is not None:
            return
        family = self.pids()
        try:
            # A tracer that is told to end detaches from its child; it ends by itself once the child has.
            os.kill(family[1] if self.traced and len(family) > 1 else self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        try:
            self.child.wait(self.patience)
        except subprocess.TimeoutExpired:
            for p in family:
                try:
                    os.kill(p, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.child.wait()


def stop_all():
    """Ends everything that is still running. Registered for every way this program can end, except SIGKILL."""
    for p in list(_running):
        p.stop()


atexit.register(stop_all)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))

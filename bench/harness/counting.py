"""The cost of a request in figures that hardly vary: instructions, misses of a cache of fixed size, system calls.

A program runs twice, for a short and for a long load. The additional cost of the second run, divided by its
additional requests, is the cost of one request: start, end and opening connections occur in both and cancel out.
"""

import os
import platform
import re
import subprocess

from . import load
from .process import Process

# Size, ways, bytes per line. The last level is one core's share on a shared machine.
CACHE = {"I1": "32768,8,64", "D1": "32768,8,64", "LL": "1048576,16,64"}

# The processor features that valgrind reports, by which libraries choose their code. It hides all others, including
# SHA and AVX-512.
FEATURES = ("abm", "aes", "avx", "avx2", "bmi1", "bmi2", "cx16", "f16c", "fma", "pclmulqdq", "rdrand", "rdseed", "sse4_2")

# The number of ready sockets per wait depends on the machine's speed, so counting waits per request would be random.
WAITS = ("epoll_pwait", "epoll_pwait2", "epoll_wait", "futex", "poll", "restart_syscall", "sched_yield")

# A load generator under valgrind adds up histograms of 264 KiB each second, and how many seconds a run takes depends on
# the machine. By default malloc reuses such blocks and clears them, which costs 3 million instructions a second, or 5 %
# of a request of a journey. From fresh pages, which are clear, it costs a fifth of that.
FRESH_PAGES = {"GLIBC_TUNABLES": f"glibc.malloc.mmap_threshold={128 * 1024}"}

# Strace makes the longer run this many times longer, because the number of upstream connections varies by chance: 500
# clients opened 75 in one run and 215 in another, at seven system calls each. Divided by 8,000 requests, the figure of
# one binary varied from 4.5 to 5.0.
STRETCH = 5

# How often a whole run is counted; the least counts.
WHOLE_RUNS = 5

# How often each of the two runs of a load generator is counted; the least counts, which is that of the shortest run.
LOADER_RUNS = 3


# Functions of aws-lc that gather entropy from the jitter of the processor's clock when the process starts. They take 418
# million instructions, and how many exactly is chance: up to 600,000 more or less, or 80 for each request of a row.
CHANCE = re.compile(r"(aws_lc_\w*_|_)?jent_\w+|rol64|xoshiro128starstar|uint32rotl|ptr_to_le(32|64)")


class Cachegrind:
    """Instructions in user space, and cache lines fetched from memory because the last level did not hold them."""

    patience = 120
    stretch = 1

    def __init__(self, folder):
        self.folder = folder

    def command(self, command):
        cache = [f"--{name}={size}" for name, size in CACHE.items()]
        return ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *cache, f"--cachegrind-out-file={self.folder}/cachegrind.%p", *map(str, command)]

    def start(self, name, command, log):
        return Process(name, self.command(command), log, patience=self.patience)

    def read(self):
        """The totals of all processes."""
        files = list(self.folder.glob("cachegrind.*"))
        if not files:
            raise RuntimeError(f"valgrind wrote nothing into {self.folder}: did the program end in time?")
        each = [cachegrind_totals(f.read_text()) for f in files]
        return {figure: sum(one[figure] for one in each) for figure in each[0]}


class Strace:
    """System calls that do something. Needs ptrace, which some containers forbid."""

    patience = 60
    stretch = STRETCH

    def __init__(self, folder):
        self.file = folder / "strace"

    def command(self, command):
        return ["strace", "-f", "-c", "-o", str(self.file), *map(str, command)]

    def start(self, name, command, log):
        return Process(name, self.command(command), log, traced=True, patience=self.patience)

    def read(self):
        return {"syscalls": strace_total(self.file.read_text())}

    @staticmethod
    def works():
        return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def cachegrind_totals(text):
    """Instructions and last-level misses from cachegrind's output, without those of CHANCE."""
    events = re.search(r"(?m)^events: (.*)$", text)
    summary = re.search(r"(?m)^summary: (.*)$", text)
    if not events or not summary:
        raise RuntimeError("this is not an output of cachegrind with a summary")
    names = events[1].split()
    totals = dict(zip(names, map(int, summary[1].split())))
    of_chance = False
    for line in text.splitlines():
        if line.startswith("fn="):
            of_chance = CHANCE.fullmatch(line[3:]) is not None
        elif of_chance and line[:1].isdigit():
            for name, count in zip(names, line.split()[1:]):
                totals[name] -= int(count)
    return {"instructions": totals["Ir"], "misses": totals["ILmr"] + totals["DLmr"] + totals["DLmw"]}


def strace_total(text):
    """The sum of the column `calls` in strace's summary, without calls that wait."""
    lines = [line.split() for line in text.splitlines()]
    calls = {words[-1]: int(words[3]) for words in lines if len(words) >= 5 and re.fullmatch(r"[\d.]+", words[0])}
    if "total" not in calls:
        raise RuntimeError("this is not a summary of strace")
    return sum(n for name, n in calls.items() if name not in WAITS and name != "total")


def per_request(short, long):
    """The growth of each figure between two runs, per additional request. A run is a pair: requests, figures."""
    (few, before), (many, after) = short, long
    return {figure: (after[figure] - before[figure]) / (many - few) for figure in after}


def of_gateway(gateway, env, origin, row, counter):
    """The cost of a request through the gateway, by this counter."""

    def once(requests):
        folder = _folder(env)
        under = counter(folder)
        instance = gateway.start(row.variant, env, origin, label=f"{gateway.name}-{row.name}", under=under, **row.config)
        done = load.weir(env, instance.port, requests, **row.load)
        instance.stop()
        return done, under.read()

    return per_request(once(row.short), once(row.long * counter.stretch))


def of_loader(command, row, env, counter):
    """The load generator's cost per request. `command` makes its command line for a length, and reads the number of
    requests from its output."""

    def once(length):
        folder = _folder(env)
        under = counter(folder)
        arguments, requests = command(length)
        variables = os.environ | (FRESH_PAGES if counter is Cachegrind else {})
        out = subprocess.run(under.command(arguments), capture_output=True, text=True, timeout=600, check=True, env=variables).stdout
        return requests(out), under.read()

    if row.whole:
        # A run that waits for a processor also looks for who has it, which differs between machines and moments.
        each = [once(row.short)[1] for _ in range(WHOLE_RUNS)]
        return {figure: min(one[figure] for one in each) for figure in each[0]}
    return per_request(least_of(once, row.short), least_of(once, row.long))


def least_of(once, length):
    """The requests of a run, and the least of its figures. Of wrk, whose runs have a length in seconds, one run counts."""
    each = [once(length) for _ in range(LOADER_RUNS)]
    requests = each[0][0]
    like = [found for n, found in each if n == requests]
    return requests, {figure: min(found[figure] for found in like) for figure in like[0]}


def _folder(env):
    """A new folder that processes without privileges may also write to."""
    folder = env.scratch / f"count-{sum(1 for _ in env.scratch.glob('count-*'))}"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def made_with():
    """Everything that must be equal for two counts to be comparable."""

    def first_line(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]

    flags = re.search(r"(?m)^flags\s*: (.*)$", open("/proc/cpuinfo").read())
    known = set(flags[1].split()) if flags else set()
    return {
        "compiler": first_line("rustc", "--version"),
        "valgrind": first_line("valgrind", "--version"),
        "libc": "-".join(platform.libc_ver()),
        "architecture": platform.machine(),
        "processor": " ".join(f for f in FEATURES if f in known),
        "cache": " ".join(f"{name}={size}" for name, size in CACHE.items()),
    }

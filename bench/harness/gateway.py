"""A compared gateway: a folder in bench/gateways/ with a `gateway.ini` and the config it names.

    [gateway]                       what holds for every variant
    role = subject | peer | other | floor   subject is judged, peers are what it is judged against, others are shown
                                    beside them, floor parses nothing
    tool = nginx                    how scripts/ensure-tools.sh calls it, when it is not built here
    program = envoy                 what bench/peers.py calls it; left out if it is not in its cache
    version = nginx -v              prints its version
    config = nginx.conf             template in this folder
    command = nginx -c @config@     stays in the foreground
    [plain]                         a variant; suites ask for them by name, and leave out a gateway that has none of that name
    config = other.conf             another template, for this variant
    anything = text                 becomes the placeholder @anything@

Placeholders every template can use: @port@, @admin_port@, @origin_port@, @workers@, @dir@ (a folder of its own,
writable), @cert@, @key@, @pem@ (both in one file), @config@ (the rendered template), @bin@ (the weir binary), @tools@
(bench/tools built), @program@ (what `program` names), @descriptors@ (the limit we run under), @connections@ (how many
connections a gateway is told to accept).
"""

import configparser
import pathlib
import re
import shlex
import subprocess

import peers

from .process import Process, free_port

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "gateways"


class Gateway:
    """One folder, read."""

    def __init__(self, folder):
        self.name = folder.name
        self.folder = folder
        self.ini = configparser.ConfigParser(interpolation=None)
        self.ini.read(folder / "gateway.ini")
        self.role = self.ini["gateway"]["role"]
        self.tool = self.ini["gateway"].get("tool")
        self.program = self.ini["gateway"].get("program")
        self.path = self.program and peers.find(self.program)

    def has(self, variant):
        return self.ini.has_section(variant)

    @property
    def is_missing(self):
        """Whether it needs a program that bench/peers.py has not installed."""
        return bool(self.program and not self.path)

    def version(self, values):
        command = self.ini["gateway"].get("version")
        if not command:
            return "-"
        out = subprocess.run(shlex.split(fill(command, dict(values, program=self.path))), capture_output=True, text=True)
        text = out.stdout + out.stderr
        # Some print a path, a digest or several lines around it.
        number = re.search(r"\d+\.\d+\.\d+", text)
        return f"{self.name} {number[0]}" if self.program and number else text.strip().splitlines()[0]

    def start(self, variant, env, origin_port, label=None, workers=1, under=None, **extra):
        """Starts an instance and waits until it accepts. `env` is the run's environment; `under` is a counter to run
        it under, if any."""
        label = label or self.name
        directory = env.scratch / re.sub(r"\W+", "-", f"{label}-{variant}")  # commands are split at spaces
        directory.mkdir(exist_ok=True)
        values = dict(env.values, program=self.path, dir=directory, port=free_port(), admin_port=free_port(), origin_port=origin_port, workers=workers)
        values.update(self.ini[variant], **extra)
        shared = self.ini["gateway"]
        template = self.ini[variant].get("config", shared.get("config"))
        if template:
            rendered = directory / template
            rendered.write_text(fill((self.folder / template).read_text(), values))
            values["config"] = rendered
        command = shlex.split(fill(shared["command"], values))
        process = under.start(label, command, directory / "log") if under else Process(label, command, directory / "log")
        process.wait_for_port(values["port"], under.patience if under else 20)
        return Instance(label, self.role, process, values["port"], values["admin_port"])


class Instance:
    """A running gateway."""

    def __init__(self, label, role, process, port, admin_port):
        self.label, self.role, self.process, self.port, self.admin_port = label, role, process, port, admin_port

    def pids(self):
        return self.process.pids()

    def stop(self):
        self.process.stop()


def all_gateways():
    """Every folder: subjects first, then peers, others, and the floor."""
    found = [Gateway(f.parent) for f in sorted(FOLDER.glob("*/gateway.ini"))]
    return sorted(found, key=lambda g: (("subject", "peer", "other", "floor").index(g.role), g.name))


def fill(text, values):
    """Replaces @name@, also inside replaced text. An undefined name is an error here, not in the gateway."""
    for _ in range(3):
        text = re.sub(r"@([a-z][a-z0-9_]*)@", lambda m: str(values[m[1]]), text)
    return text

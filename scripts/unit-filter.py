#!/usr/bin/python3
"""Builds a launcher that runs a program under a systemd unit's system call restrictions, so that tests see what the
service sees.

usage: unit-filter.py UNIT PROGRAM LAUNCHER

The groups (@system-service, …) are those of this machine's `systemd-analyze`. Supports SystemCallFilter,
SystemCallErrorNumber, RestrictAddressFamilies, MemoryDenyWriteExecute and RestrictNamespaces; a unit's other
restrictions need more than a filter. Debian packages: python3-seccomp, systemd, gcc.
"""

import errno
import pathlib
import socket
import subprocess
import sys

import seccomp
from seccomp import ALLOW, EQ, GE, KILL_PROCESS, MASKED_EQ, NE, Arg, ERRNO, SyscallFilter

PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000
# CLONE_NEWNS and the seven others (linux/sched.h).
NAMESPACES = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00000080]
# The first number not used by any address family so far.
FAMILIES = 64
# Calls that an older libseccomp cannot name, with the number that all architectures share.
NUMBERS = {"cachestat": 451}

LAUNCHER = """
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static int load(const char *path) {
    static struct sock_filter code[BPF_MAXINSNS];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    long bytes = read(file, code, sizeof code);
    close(file);
    struct sock_fprog program = {bytes / sizeof code[0], code};
    return bytes <= 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

int main(int count, char **arguments) {
    (void)count;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || load(RESTRICTIONS) || load(CALLS)) {
        perror("the filter cannot be loaded");
        return 127;
    }
    execv(PROGRAM, arguments);
    perror(PROGRAM);
    return 127;
}
"""


def settings(unit):
    """The settings of a unit, each with its lines in order."""
    found = {}
    for line in pathlib.Path(unit).read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            found.setdefault(name.strip(), []).append(value.strip())
    return found


def groups():
    """The groups of system calls that systemd defines."""
    printed = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter"], check=True, capture_output=True, text=True).stdout
    members = {}
    for line in printed.splitlines():
        name = line.split("#")[0].strip()
        if not name:
            continue
        if not line.startswith(" "):
            here = members.setdefault(name, [])
        else:
            here.append(name)
    return members


def expand(name, known):
    """The system calls for a name in a filter."""
    if not name.startswith("@"):
        return {name}
    return set().union(*(expand(member, known) for member in known[name]))


def allowed(lines, known):
    """The calls that these lines allow. The first line makes it an allow list; a tilde removes calls."""
    if not lines or lines[0].startswith("~"):
        sys.exit("unit-filter.py: SystemCallFilter must begin with what is allowed")
    calls = expand("@default", known)
    for line in lines:
        named = set().union(*(expand(name, known) for name in line.lstrip("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def calls_filter(unit):
    said = unit.get("SystemCallErrorNumber", [""])[-1]
    program = SyscallFilter(ERRNO(getattr(errno, said)) if said else KILL_PROCESS)
    for call in sorted(allowed(unit.get("SystemCallFilter", []), groups())):
        try:
            program.add_rule(ALLOW, call)
        except (RuntimeError, ValueError):  # a call of another architecture, or newer than this libseccomp
            if call in NUMBERS and seccomp.resolve_syscall(seccomp.Arch(), call) < 0:
                program.add_rule(ALLOW, NUMBERS[call])
    return program


def restrictions_filter(unit):
    program = SyscallFilter(ALLOW)
    families = unit.get("RestrictAddressFamilies", [""])[-1].split()
    if families:
        may = {int(getattr(socket, name)) for name in families}
        for family in set(range(FAMILIES)) - may:
            program.add_rule(ERRNO(errno.EAFNOSUPPORT), "socket", Arg(0, EQ, family))
        program.add_rule(ERRNO(errno.EAFNOSUPPORT), "socket", Arg(0, GE, FAMILIES))
    if unit.get("MemoryDenyWriteExecute") == ["yes"]:
        both = PROT_WRITE | PROT_EXEC
        program.add_rule(ERRNO(errno.EPERM), "mmap", Arg(2, MASKED_EQ, both, both))
        for call in ["mprotect", "pkey_mprotect"]:
            program.add_rule(ERRNO(errno.EPERM), call, Arg(2, MASKED_EQ, PROT_EXEC, PROT_EXEC))
        program.add_rule(ERRNO(errno.EPERM), "shmat", Arg(2, MASKED_EQ, SHM_EXEC, SHM_EXEC))
    if unit.get("RestrictNamespaces") == ["yes"]:
        program.add_rule(ERRNO(errno.EPERM), "setns", Arg(1, NE, 0xFFFFFFFF))
        program.add_rule(ERRNO(errno.ENOSYS), "clone3")  # its flags lie where no filter reads them
        for flag in NAMESPACES:
            program.add_rule(ERRNO(errno.EPERM), "unshare", Arg(0, MASKED_EQ, flag, flag))
            if flag != 0x00000080:  # in clone's flags that bit is part of a signal's number
                program.add_rule(ERRNO(errno.EPERM), "clone", Arg(0, MASKED_EQ, flag, flag))
    return program


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    unit, program, launcher = settings(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).absolute()
    launcher.parent.mkdir(parents=True, exist_ok=True)
    define = [f'-DPROGRAM="{program}"']
    for name, made in [("CALLS", calls_filter(unit)), ("RESTRICTIONS", restrictions_filter(unit))]:
        path = launcher.with_name(f"{launcher.name}.{name.lower()}")
        with path.open("wb") as file:
            made.export_bpf(file)
        define.append(f'-D{name}="{path}"')
    subprocess.run(["cc", "-O1", *define, "-x", "c", "-", "-o", str(launcher)], input=LAUNCHER, text=True, check=True)


main()

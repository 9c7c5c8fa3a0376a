"""What judges in Python need: packages, in environments under CONF_TOOLS, a certificate, and examples of ours."""

import importlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = pathlib.Path(os.environ.get("CONF_TOOLS") or pathlib.Path.home() / ".cache/weir-conformance")


def imported(judge, package, version, module):
    """Imports a module of a package. If this Python does not have it, runs the program again in an environment with the
    package, installed if it is missing. A second package of a program goes into the environment of the first."""
    try:
        return importlib.import_module(module)
    except ImportError:
        pass
    inside = os.environ.get("WEIR_JUDGE_VENV")
    home = TOOLS / f"{package}-{version}"
    if inside and inside != str(home):
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", f"{package}=={version}"], check=True)
        importlib.invalidate_caches()
        return importlib.import_module(module)
    python = home / "bin/python3"
    if inside:
        sys.exit(f"FAIL {judge}: {package} is not in {home}: remove that folder, and run again")
    if not python.exists():
        subprocess.run([ROOT / "scripts/ensure-tools.sh", "venv"], check=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"{package}=={version}"], check=True)
    os.environ["WEIR_JUDGE_VENV"] = str(home)
    os.execv(python, [str(python), *sys.argv])


def certificate(folder):
    """Makes a self-signed certificate for localhost, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def example(variable, package, name):
    """The path of a built example; `variable` names one that is built already."""
    if path := os.environ.get(variable):
        return path
    command = ["cargo", "build", "--locked", "-q", "-p", package, "--example", name]
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug/examples" / name

#!/usr/bin/env python3
"""Runs an image of scripts/dist/image.py as a container runtime does, and prints what it answers. As root.

usage: run-image.py ARCHIVE

The container has mounts, processes and a network of its own, a read-only root, the image's user and no capability. It
must pass its health check, answer a request on port 8080, end on its stop signal, and hold a weir-kube that runs.
"""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile

# $1 root, $2 user, $3 stop signal, $4 what to start, $5 health check.
RUN = r"""
ip link set lo up
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -o remount,ro,bind "$1"
root=$1 user=$2
inside() { setpriv --no-new-privs chroot --userspec="$user" "$root" "$@"; }
inside /usr/bin/weir-kube --version
# shellcheck disable=SC2086
(exec setpriv --no-new-privs chroot --userspec="$user" "$root" $4) &
container=$!
# shellcheck disable=SC2086
for _ in $(seq 600); do
    inside $5 >/dev/null 2>&1 && break
    kill -0 "$container"
    sleep 0.1
done
inside $5
exec 3<>/dev/tcp/127.0.0.1/8080
printf 'GET / HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n' >&3
cat <&3
kill -s "$3" "$container"
wait "$container"
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(folder)

        def blob(descriptor):
            algorithm, digest = descriptor["digest"].split(":")
            path = f"{folder}/blobs/{algorithm}/{digest}"
            found = hashlib.sha256(open(path, "rb").read()).hexdigest()
            if found != digest or os.path.getsize(path) != descriptor["size"]:
                sys.exit(f"run-image.py: {path} is not what its descriptor says")
            return path

        def read(path):
            with open(path, encoding="utf-8") as file:
                return json.load(file)

        manifest = read(blob(read(f"{folder}/index.json")["manifests"][0]))
        config = read(blob(manifest["config"]))["config"]
        root = f"{folder}/root"
        os.mkdir(root)
        for layer in manifest["layers"]:
            subprocess.run(["tar", "-xzf", blob(layer), "-C", root], check=True)
        os.makedirs(f"{root}/proc", exist_ok=True)
        check = config["Healthcheck"]["Test"]
        if check[0] != "CMD":
            sys.exit(f"run-image.py: the health check {check} is no CMD")
        script = ["/bin/bash", "-euc", RUN, "bash", root, config["User"], config["StopSignal"],
                  " ".join(config["Entrypoint"] + config["Cmd"]), " ".join(check[1:])]
        ran = subprocess.run(["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork",
                              "--kill-child", *script])
        sys.exit(ran.returncode)


main()

#!/bin/bash
# Tries packages as a new user would, on a bare Debian that boots with systemd in namespaces of its own. As root.
#
#   scripts/dist/try.sh [FOLDER [OLDER]]      default: target/dist/packages
#
# FOLDER has the files of scripts/dist.sh, OLDER those of an earlier version, from which Debian package and RPM are
# upgraded while `weir load` runs: a request that fails ends this script. Without OLDER, FOLDER's own are reinstalled.
# WEIR_TRY says what to try: sums tar deb apt rpm image source (default: what FOLDER holds).
#
# The machine is made once, by mmdebstrap, and kept in target/dist/machine. It has a network of its own with nothing but
# loopback.
set -eu
cd "$(dirname "$0")/../.."
folder=$(realpath "${1:-target/dist/packages}")
older=$(realpath "${2:-$folder}")
[ "$(id -u)" = 0 ] || { echo "try.sh: run it as root: it makes namespaces and mounts" >&2; exit 1; }
machine=$(realpath -m target/dist/machine)
work=$(mktemp -d)
guest=
fail() { echo "try.sh: $*" >&2; exit 1; }
step() { printf '== %s\n' "$*"; }
# Sets `found` to the one file of this form in a folder. A second version beside it would go untested.
one() { # one FOLDER PATTERN
    local files
    mapfile -t files < <(compgen -G "$1/$2")
    [ ${#files[@]} -le 1 ] || fail "several files in $1 are $2: ${files[*]##*/}"
    found=${files[0]-}
    [ -n "$found" ]
}
# Is this kind of file to be tried? Sets `new` to its name.
tries() { # tries KIND PATTERN
    case " ${WEIR_TRY:-sums tar deb apt rpm image source} " in *" $1 "*) ;; *) return 1 ;; esac
    if ! one "$folder" "$2"; then
        [ -z "${WEIR_TRY:-}" ] || fail "WEIR_TRY names $1, but $folder has no $2"
        step "$1: not tried, as $folder has no $2"
        return 1
    fi
    new=${found##*/}
}
# Sets `old` to the package in OLDER from which this kind is upgraded.
older() { # older PATTERN
    one "$older" "$1" || fail "$older has no $1 to upgrade from"
    old=${found##*/}
}

finish() {
    status=$?
    # Why the service inside failed is lost with the machine.
    [ "$status" = 0 ] || [ -z "${init:-}" ] || inside journalctl --no-pager -n 40 -u weir >&2 || true
    [ -z "$guest" ] || kill -KILL "$guest" 2>/dev/null || true
    [ -z "${load:-}" ] || kill -KILL "$load" 2>/dev/null || true
    umount -l "$work/root" "$work/disk" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# === the machine ===

if [ ! -e "$machine/etc/debian_version" ]; then
    step "making a bare Debian in $machine"
    mkdir -p "${machine%/*}"
    mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus,curl,rpm,logrotate \
        bookworm "$machine.new"
    mv "$machine.new" "$machine"
fi

# Boots the machine. What it writes stays in memory and is thrown away.
boot() {
    mkdir -p "$work/root" "$work/disk"
    mount -t tmpfs none "$work/disk"
    mkdir "$work/disk/upper" "$work/disk/work"
    mount -t overlay -o "lowerdir=$machine,upperdir=$work/disk/upper,workdir=$work/disk/work" none "$work/root"
    mkdir -p "$work/root/packages" "$work/root/older"
    mount --bind "$folder" "$work/root/packages"
    mount --bind "$older" "$work/root/older"
    unshare --mount --propagation private --pid --net --uts --ipc --cgroup --fork --kill-child /bin/sh -ec '
        hostname weir-try
        mount --rbind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount -t sysfs -o ro sysfs sys
        mount -t cgroup2 cgroup2 sys/fs/cgroup
        mount -t tmpfs -o mode=755 tmpfs run
        mount -t tmpfs -o mode=755 tmpfs dev
        for device in full null random tty urandom zero; do
            touch "dev/$device"
            mount --bind "/dev/$device" "dev/$device"
        done
        mkdir dev/pts dev/shm
        mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
        mount -t tmpfs tmpfs dev/shm
        ln -s pts/ptmx dev/ptmx
        ln -s /proc/self/fd dev/fd
        pivot_root . mnt
        umount -l /mnt
        exec env -i container=weir-try PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
    ' sh "$work/root" </dev/null >"$work/console" 2>&1 &
    guest=$!
    disown "$guest"
    for _ in $(seq 600); do
        init=$(pgrep -P "$guest" || true)
        [ -z "$init" ] || ! inside systemctl is-system-running 2>/dev/null | grep -Eq 'running|degraded' || return 0
        sleep 0.1
    done
    cat "$work/console" >&2
    fail "the machine does not boot"
}
halt() {
    kill -KILL "$guest"
    while kill -0 "$guest" 2>/dev/null; do sleep 0.1; done
    guest=
    umount -l "$work/root" "$work/disk"
}
inside() { nsenter --target "$init" --all --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }

# A command line inside, whose output is shown only if it fails.
quietly() { inside sh -ec "$1 >/run/log-of-package 2>&1 || { cat /run/log-of-package >&2; exit 1; }"; }

# === steps ===

# One command after the installation: it serves, greets, and its health check passes.
expect_greeting() {
    for _ in $(seq 100); do
        answer=$(inside curl -s http://127.0.0.1:8080/ || true)
        [ -z "$answer" ] || break
        sleep 0.1
    done
    case $answer in "Weir runs."*) ;; *) fail "it does not greet: '$answer'" ;; esac
    inside weir status >/dev/null
}

# The load tester of FOLDER, from outside the machine's file system: upgrades do not replace it.
begin_load() {
    nsenter --target "$init" --net "$loader" load -c 16 --rate 2000 -d 10m --format json "http://127.0.0.1:8080/" \
        >"$work/load.json" 2>"$work/load.log" &
    load=$!
    sleep 1
}
# Every request of the load has been answered with 200.
end_load() {
    sleep 1
    kill -INT "$load"
    wait "$load" || true
    python3 - "$work/load.json" <<'PYTHON' || { cat "$work/load.log" >&2; fail "requests failed"; }
import json, sys
counts = json.load(open(sys.argv[1]))["counts"]
failed = sum(counts["errors"].values())
others = {status: n for status, n in counts["statuses"].items() if status != "200"}
print(f"   {counts['responses']} answers, {failed} failed, other statuses: {others or 'none'}")
if failed:
    print(f"   {counts['errors']}, {counts['error_texts']}")
sys.exit(bool(failed or others or counts["responses"] < 1000))
PYTHON
}

main_pid() { inside systemctl show -P MainPID weir; }
# Waits until systemd has another main process than this one.
expect_successor() {
    for _ in $(seq 300); do
        pid=$(main_pid)
        [ "$pid" = "$1" ] || [ "$pid" = 0 ] || return 0
        sleep 0.1
    done
    inside journalctl --no-pager -u weir >&2
    fail "the upgrade did not replace the process"
}

# try_packages COMMAND-TO-INSTALL OLDER NEWER COMMAND-TO-REMOVE
try_packages() {
    [ -x "$loader" ] || fail "$folder has no tarball, whose load tester makes the load"
    boot
    quietly "$1 /older/$2"
    [ "$(inside systemctl is-active weir || true)" = inactive ] || fail "an installation starts something"
    inside systemctl enable --quiet --now weir
    expect_greeting
    echo "   $(inside weir --version) installed and started"
    # A config of one's own, with state and a log file.
    sed -i 's,^access_log:.*,access_log: { output: /var/log/weir/access.log },' "$work/root/etc/weir/weir.yaml"
    inside systemctl reload weir

    begin_load
    before=$(main_pid)
    quietly "$1 /packages/$3"
    expect_successor "$before"
    inside systemctl reload weir
    inside logrotate --force /etc/logrotate.d/weir
    end_load
    grep -q /var/log/weir/access.log "$work/root/etc/weir/weir.yaml" || fail "the upgrade replaced the config"
    echo "   $(inside weir --version) upgraded in place, reloaded, logs rotated"

    inside systemctl stop weir
    inside systemctl enable --quiet --now weir.socket
    begin_load
    before=$(main_pid)
    quietly "$1 /packages/$3"
    expect_successor "$before"
    end_load
    echo "   upgraded in place, started by weir.socket"
    # A client that comes while Weir is away waits in the socket, and starts it.
    inside systemctl stop weir 2>/dev/null
    state=$(inside systemctl is-active weir || true)
    [ "$state" = inactive ] || { inside journalctl --no-pager -n 30 >&2; fail "it did not stop: $state"; }
    expect_greeting
    echo "   stopped, and started again by a connection"

    quietly "$4"
    [ "$(inside systemctl is-active weir || true)" = inactive ] || fail "the removal left the service running"
    for file in /usr/bin/weir /usr/lib/systemd/system/weir.service; do
        [ ! -e "$work/root$file" ] || fail "the removal left $file"
    done
}

loader=$work/weir
if one "$folder" 'weir-*-linux-*.tar.gz'; then
    tar -xzf "$found" -C "$work" --strip-components=3 --wildcards '*/usr/bin/weir'
fi

# === what is tried ===

if tries sums SHA256SUMS; then
    step "checksums"
    (cd "$folder" && sha256sum --check --quiet --strict SHA256SUMS)
    if [ -e "$folder/SHA256SUMS.asc" ]; then
        gpg --verify "$folder/SHA256SUMS.asc" "$folder/SHA256SUMS"
    else
        echo "   not signed"
    fi
fi

if tries tar 'weir-*-linux-*.tar.gz'; then
    step "the tarball"
    boot
    inside tar --strip-components=1 -C / -xzf "/packages/$new"
    inside sh -c 'weir >/dev/null 2>&1 & echo $! >/run/weir.pid'
    expect_greeting
    inside sh -c 'kill -TERM "$(cat /run/weir.pid)"'
    echo "   $(inside weir --version) started by one command"
    halt
fi

if tries deb 'weir_*.deb' && older 'weir_*.deb'; then
    step "the Debian package, upgraded from $old"
    try_packages "dpkg -i" "$old" "$new" "dpkg -r weir"
    [ -e "$work/root/etc/weir/weir.yaml" ] || fail "the removal took the config"
    inside sh -c 'dpkg -P weir >/dev/null'
    for left in /etc/weir /var/lib/weir /var/lib/private/weir /var/log/weir /var/log/private/weir; do
        [ ! -e "$work/root$left" ] || fail "the purge left $left"
    done
    echo "   removed and purged"
    halt
fi

if tries apt apt/weir.sources; then
    step "the Debian repository"
    boot
    inside sh -c 'rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; mkdir -p /etc/apt/keyrings'
    sed 's,^URIs: .*,URIs: file:/packages/apt,' "$folder/apt/weir.sources" \
        >"$work/root/etc/apt/sources.list.d/weir.sources"
    if [ -e "$folder/apt/weir.gpg" ]; then
        inside cp /packages/apt/weir.gpg /etc/apt/keyrings/weir.gpg
        quietly '{ apt-get update && apt-get install -y weir; }'
        inside systemctl enable --quiet --now weir
        expect_greeting
        echo "   $(inside weir --version) installed by apt"
    else
        ! inside apt-get update >"$work/apt.log" 2>&1 || fail "apt accepts a repository without a signature"
        grep -q 'is not signed' "$work/apt.log" || { cat "$work/apt.log" >&2; fail "apt gives another reason"; }
        echo "   not signed, so apt refuses it"
    fi
    halt
fi

if tries rpm 'weir-*.rpm' && older 'weir-*.rpm'; then
    step "the RPM, upgraded from $old"
    # --nodeps: rpm's database does not know what dpkg installed.
    try_packages "rpm --nodeps --replacepkgs --oldpackage -U" "$old" "$new" "rpm -e weir"
    [ -e "$work/root/etc/weir/weir.yaml.rpmsave" ] || fail "the removal took the changed config"
    echo "   removed"
    halt
fi

if tries image 'weir-*-image-*.tar'; then
    step "the image"
    scripts/dist/run-image.py "$folder/$new" >"$work/image.log" 2>&1 ||
        { cat "$work/image.log" >&2; fail "the image does not run"; }
    grep -q '^Weir runs\.' "$work/image.log" || fail "the image does not greet"
    kube=$(grep '^weir-kube' "$work/image.log") || fail "the image has no weir-kube"
    echo "   runs read-only, without capabilities: weir and $kube"
fi

if tries source 'weir-*-source.tar.xz'; then
    step "the source archive, without a network (profile ${WEIR_TRY_PROFILE:-release})"
    mkdir "$work/source"
    tar -xJf "$folder/$new" -C "$work/source" --strip-components=1
    (cd "$work/source" && unshare --net env CARGO_HOME="$work/cargo" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" \
        cargo install --offline --locked --quiet --profile "${WEIR_TRY_PROFILE:-release}" --path crates/weirgate \
        --root "$work/prefix")
    echo "   $("$work/prefix/bin/weir" --version) built"
fi
step "all is well"

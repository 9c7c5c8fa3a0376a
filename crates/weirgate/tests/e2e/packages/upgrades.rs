//! Package upgrades under load, with the scripts that the package managers run. systemd is played: a program called
//! `systemctl` does what the real one would do to a running gateway, and records how it was called.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use weir_testkit::{Weir, command_for, eventually_within, weir_command};

use super::{HELLO, dpkg, has, must, packaged};
use crate::support::WEB;

/// Does to the process in the file `main` what systemd would do. systemd learns of a successor by MAINPID, the test
/// writes it there.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >>"$PLAYED/calls"
case "$*" in
    *is-active*) kill -0 "$(cat "$PLAYED/main")" ;;
    *--signal=USR2*) kill -USR2 "$(cat "$PLAYED/main")" ;;
    *disable*--now*) kill -TERM "$(cat "$PLAYED/main")" ;;
esac
"#;

/// How long a step may take on a machine that runs other tests at the same time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a package's script with an own `/run`, in which systemd seems to run.
const IN_OWN_RUN: &str = r#"
mount -t tmpfs none /run
mkdir -p /run/systemd/system
PATH="$PLAYED:$PATH"
export PATH
exec /bin/sh "$@"
"#;

/// A played systemd.
struct Service {
    dir: TempDir,
}

impl Service {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        // A separate process writes the program, so that no descriptor of it is open when it runs.
        let write = "printf %s \"$1\" >systemctl && chmod +x systemctl";
        must(Command::new("/bin/sh").args(["-c", write, "sh", SYSTEMCTL]).current_dir(dir.path()));
        Self { dir }
    }

    fn is_possible() -> bool {
        let mut probe = unshare();
        let possible =
            probe.arg("mount -t tmpfs none /run").output().is_ok_and(|output| output.status.success());
        if !possible {
            eprintln!("SKIPPED: no mount namespace can be made here");
        }
        possible
    }

    /// Runs this script as a package manager does.
    #[track_caller]
    fn run(&self, main: u32, script: &Path, args: &[&str]) {
        fs::write(self.dir.path().join("main"), main.to_string()).unwrap();
        let mut command = unshare();
        command.arg(IN_OWN_RUN).arg("sh").arg(script).args(args).env("PLAYED", self.dir.path());
        must(command.env_remove("DPKG_ROOT"));
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.dir.path().join("calls"));
        calls.lines().map(str::to_owned).collect()
    }
}

/// A shell in a mount namespace of its own; its script is the next argument.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private", "/bin/sh", "-ec"]);
    command
}

/// A package manager with a root of its own.
trait Manager {
    /// Installs or upgrades to this version, without the scripts.
    fn unpack(&self, root: &Path, version: &str);
    /// Writes the script to a file: `after` an upgrade, or `before` a removal. Returns it with its arguments.
    fn script(&self, root: &Path, when: &str) -> (PathBuf, Vec<&'static str>);
}

struct Dpkg;

impl Manager for Dpkg {
    fn unpack(&self, root: &Path, version: &str) {
        let packages = packaged(&root.with_extension(version), version, "deb");
        must(dpkg(root).arg("-i").arg(&packages[0]));
    }

    fn script(&self, root: &Path, when: &str) -> (PathBuf, Vec<&'static str>) {
        let info = root.join("var/lib/dpkg/info");
        match when {
            "after" => (info.join("weir.postinst"), vec!["configure", "1.0.0"]),
            _ => (info.join("weir.prerm"), vec!["remove"]),
        }
    }
}

struct Rpm;

impl Rpm {
    fn rpm(root: &Path) -> Command {
        let mut command = Command::new("rpm");
        command.arg(format!("--root={}", root.display())).arg("--dbpath=/var/lib/rpm");
        command
    }
}

impl Manager for Rpm {
    fn unpack(&self, root: &Path, version: &str) {
        fs::create_dir_all(root).unwrap();
        let packages = packaged(&root.with_extension(version), version, "rpm");
        must(Self::rpm(root).args(["-U", "--nodeps", "--noscripts"]).arg(&packages[0]));
    }

    fn script(&self, root: &Path, when: &str) -> (PathBuf, Vec<&'static str>) {
        let (tag, installed) = if when == "after" { ("POSTIN", "2") } else { ("PREUN", "0") };
        let text = must(Self::rpm(root).arg("-q").arg(format!("--qf=%{{{tag}}}")).arg("weir"));
        let file = root.with_extension(when);
        fs::write(&file, text).unwrap();
        (file, vec![installed])
    }
}

#[track_caller]
fn upgrades_under_load_and_removes(manager: &dyn Manager) {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    let service = Service::new();
    manager.unpack(&root, "1.0.0");
    let installed = root.join("usr/bin/weir");
    let mut weir = Weir::start_by(&format!("{WEB}\n{HELLO}\naccess_log: {{ output: stdout }}\n"), |dir| {
        let mut command = command_for(&installed, dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    let config = root.join("etc/weir/weir.yaml");
    fs::write(&config, "# mine\n").unwrap();

    let mut load = weir_command(dir.path());
    let url = format!("http://{}/", weir.address("web"));
    // It ends by the signal below.
    let load = load.args(["load", "-c4", "-d10m", "--rate=400", "--format=json", &url]).spawn().unwrap();
    eventually_within(PATIENCE, "the load has begun", || weir.stdout().lines().count() > 100);
    let before = weir.stderr().len();
    manager.unpack(&root, "1.0.1");
    let (script, args) = manager.script(&root, "after");
    service.run(weir.serving(), &script, &args);
    weir.wait_upgrade_after(before).unwrap();
    assert_eq!(service.calls().len(), 3, "daemon-reload, is-active, kill");
    let served = weir.stdout().lines().count();
    eventually_within(PATIENCE, "the load goes on", || weir.stdout().lines().count() > served + 100);
    let id = i32::try_from(load.id()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
    let report = load.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let counts = &report["counts"];
    assert!(counts["responses"].as_u64().unwrap() > 200, "{counts}");
    let failed: u64 = counts["errors"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(failed, 0, "{counts}");
    assert_eq!(counts["statuses"], serde_json::json!({"200": counts["responses"]}), "{counts}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n", "an upgrade keeps the config");

    let (script, args) = manager.script(&root, "before");
    service.run(weir.serving(), &script, &args);
    let calls = service.calls();
    assert!(calls.len() == 1 && calls[0].contains("disable --now weir.socket weir.service"), "{calls:?}");
    eventually_within(PATIENCE, "the service ends", || {
        !Path::new(&format!("/proc/{}/exe", weir.serving())).exists()
    });
    weir.wait_exit(PATIENCE);
}

#[test]
fn dpkg_upgrades_under_load_and_removes() {
    if !has("dpkg") || !has("dpkg-deb") {
        return eprintln!("SKIPPED: dpkg is not installed");
    }
    if Service::is_possible() {
        upgrades_under_load_and_removes(&Dpkg);
    }
}

#[test]
fn rpm_upgrades_under_load_and_removes() {
    if !has("rpmbuild") {
        return eprintln!("SKIPPED: rpmbuild is not installed");
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: rpm changes its root, which takes root");
    }
    if Service::is_possible() {
        upgrades_under_load_and_removes(&Rpm);
    }
}

/// A first install starts nothing, and neither script fails where systemd is not there.
#[test]
fn a_first_install_starts_nothing() {
    if !Service::is_possible() {
        return;
    }
    let service = Service::new();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/debian");
    service.run(std::process::id(), &scripts.join("postinst"), &["configure", ""]);
    assert_eq!(service.calls(), ["daemon-reload"]);
    service.run(std::process::id(), &scripts.join("prerm"), &["upgrade", "1.0.1"]);
    assert_eq!(service.calls(), Vec::<String>::new(), "an upgrade leaves the service running");
    service.run(std::process::id(), &scripts.join("postrm"), &["remove"]);
    assert_eq!(service.calls(), ["daemon-reload"]);
}

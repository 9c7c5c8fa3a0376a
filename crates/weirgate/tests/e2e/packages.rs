//! The packages of `make dist`: unpacked, installed, run, upgraded and removed, in a separate root and never on this
//! machine.

mod gather;
mod image;
mod release;
mod upgrades;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use weir_testkit::{Weir, command_for, run_weir, weir_command};

use crate::support::WEB;

/// A route with its own answer.
const HELLO: &str = "routes: { all: { match: { path: \"/*\" }, respond: { body: hello } } }";

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[track_caller]
fn must(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Packages this binary with that version; returns the packages' paths.
#[track_caller]
fn packaged(into: &Path, version: &str, kinds: &str) -> Vec<PathBuf> {
    let binary = weir_command(into).get_program().to_owned();
    let printed = must(dist(into, kinds).env("WEIR_BIN", binary).env("WEIR_VERSION", version));
    let sums = into.canonicalize().unwrap().join("SHA256SUMS");
    printed.lines().map(PathBuf::from).filter(|path| *path != sums).collect()
}

/// `scripts/dist.sh`, making these kinds of files, quickly.
fn dist(into: &Path, kinds: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dist.sh"));
    command.arg(into).env("WEIR_COMPRESS", "none").env("WEIR_PACKAGES", kinds);
    for setting in ["MAINTAINER", "SIGN_KEY", "URL", "APT_URL", "LIBC"] {
        command.env_remove(format!("WEIR_{setting}"));
    }
    command.env_remove("SOURCE_DATE_EPOCH");
    command
}

/// The content of every package.
const FILES: [&str; 14] = [
    "etc/logrotate.d/weir",
    "etc/weir/weir.yaml",
    "usr/bin/weir",
    "usr/lib/systemd/system/weir.service",
    "usr/lib/systemd/system/weir.socket",
    "usr/share/bash-completion/completions/weir",
    "usr/share/doc/weir/SECURITY.md",
    "usr/share/doc/weir/copyright",
    "usr/share/fish/vendor_completions.d/weir.fish",
    "usr/share/man/man1/weir-load.1.gz",
    "usr/share/man/man1/weir.1.gz",
    "usr/share/weir/grafana-gateway.json",
    "usr/share/weir/prometheus-alerts.yaml",
    "usr/share/zsh/vendor-completions/_weir",
];

#[track_caller]
fn expect_files(root: &Path) {
    for file in FILES {
        assert!(root.join(file).metadata().is_ok_and(|meta| meta.len() > 0), "{file} is missing or empty");
    }
}

#[test]
fn a_tarball() {
    let dir = TempDir::new().unwrap();
    let packages = packaged(dir.path(), "1.2.3", "tar");
    assert_eq!(packages.len(), 1, "{packages:?}");
    let name = packages[0].file_name().unwrap().to_str().unwrap();
    let folder = name.strip_suffix(".tar.gz").unwrap();
    assert!(folder.starts_with("weir-1.2.3-linux-"), "{name}");
    must(Command::new("tar").arg("-xzf").arg(&packages[0]).arg("-C").arg(dir.path()));
    expect_files(&dir.path().join(folder));

    // Another version in the same folder replaces it, so that no file there is without a checksum.
    let other = packaged(dir.path(), "1.2.4", "tar");
    assert!(other[0].exists() && !packages[0].exists(), "{packages:?}, {other:?}");
    expect_files(&dir.path().join(folder));
}

/// `dpkg` with a separate database below this root, which its scripts see in `DPKG_ROOT`.
fn dpkg(root: &Path) -> Command {
    for folder in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/dpkg/triggers"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let status = root.join("var/lib/dpkg/status");
    if !status.exists() {
        fs::write(status, "").unwrap();
    }
    let mut command = Command::new("dpkg");
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["--force-not-root", "--force-script-chrootless", "--force-depends", "--force-confold"]);
    command.arg(format!("--log={}", root.join("log").display())).arg(format!("--root={}", root.display()));
    command
}

#[test]
fn a_debian_package_from_install_to_purge() {
    if !has("dpkg") || !has("dpkg-deb") {
        return eprintln!("SKIPPED: dpkg is not installed");
    }
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    let deb = |version: &str| {
        let packages = packaged(&dir.path().join(version), version, "deb");
        assert_eq!(packages.len(), 1, "{packages:?}");
        packages.into_iter().next().unwrap()
    };
    must(dpkg(&root).arg("-i").arg(deb("1.0.0")));
    expect_files(&root);
    let installed = root.join("usr/bin/weir");
    let config = root.join("etc/weir/weir.yaml");
    must(command_for(&installed, dir.path()).arg("check").arg("-c").arg(&config));

    // It runs, and is replaced by the binary that an upgrade unpacks.
    let weir = Weir::start_by(&format!("{WEB}\n{HELLO}\n"), |dir| {
        let mut command = command_for(&installed, dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    weir.client().get("/").expect_status(200).expect_body("hello");
    fs::write(&config, "# mine\n").unwrap();
    must(dpkg(&root).arg("-i").arg(deb("1.0.1")));
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n", "an upgrade keeps the config");
    weir.upgrade().unwrap();
    weir.client().get("/").expect_status(200).expect_body("hello");
    assert!(must(dpkg(&root).args(["-s", "weir"])).contains("Version: 1.0.1"));

    must(dpkg(&root).args(["-r", "weir"]));
    assert!(!installed.exists() && config.exists(), "a removal keeps the config");
    fs::create_dir_all(root.join("var/lib/weir")).unwrap();
    must(dpkg(&root).args(["-P", "weir"]));
    for gone in ["etc/weir", "etc/logrotate.d/weir", "var/lib/weir", "usr/share/doc/weir"] {
        assert!(!root.join(gone).exists(), "{gone} is left");
    }
}

/// The completion script completes commands and options.
#[test]
fn bash_completes() {
    let dir = TempDir::new().unwrap();
    let script = run_weir(dir.path(), &["completions", "bash"]);
    script.expect_code(0);
    fs::write(dir.path().join("weir.bash"), &script.stdout).unwrap();
    let complete = |words: &str| {
        let ask = format!(
            "source ./weir.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _weir weir \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        must(Command::new("bash").args(["--norc", "-c", &ask]).current_dir(dir.path()))
    };
    assert_eq!(complete("weir wh").trim(), "why");
    assert_eq!(complete("weir why --fol").trim(), "--follow");
    assert_eq!(complete("weir completions z").trim(), "zsh");
}

#[test]
fn other_shells_and_manual_pages() {
    let dir = TempDir::new().unwrap();
    for (shell, first) in [("zsh", "#compdef weir"), ("fish", "# Print an optspec")] {
        let script = run_weir(dir.path(), &["completions", shell]);
        script.expect_code(0);
        assert!(script.stdout.starts_with(first), "{shell}: {}", &script.stdout[..80]);
        assert!(script.stdout.contains("why"), "{shell}");
    }
    run_weir(dir.path(), &["completions", "tcsh"]).expect_code(2);
    let page = run_weir(dir.path(), &["man"]);
    page.expect_code(0);
    assert!(page.stdout.contains(".TH weir 1") && page.stdout.contains("weir\\-why(1)"), "{}", page.stdout);
    run_weir(dir.path(), &["man", "--dir", "pages"]).expect_code(0);
    let why = fs::read_to_string(dir.path().join("pages/weir-why.1")).unwrap();
    assert!(why.contains("\\-\\-follow"), "{why}");
}

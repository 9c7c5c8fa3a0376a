//! What users download: the files of several machines in one folder, under the names that the page Install tells, and
//! nothing that should not be published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::release::{Keys, apt, stand_ins};
use super::{dist, has, must};

/// The tools of a release: folders that `scripts/dist.sh` wrote, and a key.
struct Release {
    dir: TempDir,
    binaries: TempDir,
    keys: Keys,
}

impl Release {
    /// `None` if this machine cannot make one.
    fn new() -> Option<Self> {
        if std::env::consts::ARCH != "x86_64" {
            eprintln!("SKIPPED: this is not x86_64, whose names the tests expect");
            return None;
        }
        let needed = ["dpkg", "dpkg-deb", "dpkg-scanpackages", "gpg", "apt-get"];
        if needed.iter().any(|program| !has(program)) {
            eprintln!("SKIPPED: one of {needed:?} is not installed");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let keys = Keys::new(dir.path());
        Some(Self { dir, binaries: stand_ins(), keys })
    }

    /// These files of version 1.2.3, in a folder of this name.
    fn make(&self, folder: &str, kinds: &str) -> Command {
        let mut command = dist(&self.dir.path().join(folder), kinds);
        command.env("WEIR_BIN", self.binaries.path().join("weir")).env("WEIR_VERSION", "1.2.3");
        command.env("WEIR_MAINTAINER", "A. Name <release@weir.test>");
        command
    }

    /// Makes a file of another kind, which `make` would have to build for minutes, and lists its checksum.
    fn write(&self, folder: &str, name: &str, content: &str) {
        let folder = self.dir.path().join(folder);
        fs::write(folder.join(name), content).unwrap();
        must(
            Command::new("sh").args(["-c", "sha256sum \"$1\" >>SHA256SUMS", "sh", name]).current_dir(folder),
        );
    }

    fn gather(&self, folders: &[&str]) -> Command {
        let mut command =
            Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dist/gather.sh"));
        command.arg("release").args(folders).current_dir(self.dir.path()).env("GNUPGHOME", &self.keys.home);
        command.env("WEIR_SIGN_KEY", Keys::NAME).env("WEIR_URL", "https://weir.test/v1.2.3");
        command.env("WEIR_APT_URL", format!("file:{}", self.dir.path().join("apt").display()));
        command.env("SOURCE_DATE_EPOCH", "1000000000");
        command
    }

    #[track_caller]
    fn expect_refusal(&self, command: &mut Command, told: &str) {
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(told), "{stderr}");
        assert!(!self.dir.path().join("release").exists());
    }
}

/// A folder with programs that make this machine look like one for aarch64.
fn aarch64(dir: &Path) -> PathBuf {
    let folder = dir.join("aarch64-programs");
    fs::create_dir(&folder).unwrap();
    // A separate process writes them, so that no descriptor of theirs is open when they run.
    let write =
        "printf '#!/bin/sh\\necho aarch64\\n' >uname; printf '#!/bin/sh\\necho arm64\\n' >dpkg; chmod +x *";
    must(Command::new("sh").args(["-c", write]).current_dir(&folder));
    folder
}

/// The names of a release's files that the page tells, for version 1.2.3 on x86_64.
fn told_by_the_page() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/install.md");
    let page = fs::read_to_string(page).unwrap();
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let words = page.split(|c| !is_of_name(c)).map(|word| word.trim_end_matches('.'));
    let names = words.filter(|word| {
        let has_version = word.starts_with("weir-VERSION-") || word.starts_with("weir_VERSION_");
        has_version || word.starts_with("SHA256SUMS") || ["weir-key.asc", "weir.rb"].contains(word)
    });
    names.map(|name| name.replace("VERSION", "1.2.3").replace("MACHINE", "x86_64")).collect()
}

#[test]
fn a_release_of_two_machines_has_the_names_that_the_page_tells() {
    let Some(release) = Release::new() else { return };
    if !has("rpmbuild") || !has("python3") || !has("cargo") {
        return eprintln!("SKIPPED: rpm, python3 or cargo is not installed");
    }
    let dir = release.dir.path();
    must(&mut release.make("x86_64", "tar deb rpm image sbom apt"));
    release.write("x86_64", "weir-1.2.3-source.tar.xz", "sources");
    release.write("x86_64", "weir.rb", "url \"https://weir.test/v1.2.3/weir-1.2.3-source.tar.xz\"");
    let path = format!("{}:{}", aarch64(dir).display(), std::env::var("PATH").unwrap());
    must(release.make("aarch64", "tar deb").env("PATH", path));
    must(release.make("static", "tar").env("WEIR_LIBC", "musl"));
    must(&mut release.gather(&["x86_64", "aarch64", "static"]));

    let out = dir.join("release");
    let made = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap());
    let made: BTreeSet<String> = made
        .inspect(|entry| assert!(entry.file_type().unwrap().is_file(), "a release has no folders: {entry:?}"))
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let told = told_by_the_page();
    assert!(told.len() >= 12, "the page tells {told:?}");
    let missing: Vec<_> = told.difference(&made).collect();
    assert!(missing.is_empty(), "the page tells {missing:?}, the release has {made:?}");
    for other in ["weir-1.2.3-linux-aarch64.tar.gz", "weir_1.2.3_arm64.deb"] {
        assert!(made.contains(other), "{made:?}");
    }

    // As the page tells: import the key, then verify the signature and what was downloaded.
    let user = Keys::empty(dir.join("user"));
    must(user.gpg().arg("--import").arg(out.join("weir-key.asc")));
    must(user.gpg().args(["--verify", "SHA256SUMS.asc", "SHA256SUMS"]).current_dir(&out));
    must(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));
    let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), made.len() - 2, "each file once, but for SHA256SUMS and its signature");

    // One repository serves both kinds of machines.
    must(Command::new("tar").arg("-xzf").arg(out.join("weir-1.2.3-apt.tar.gz")).current_dir(dir));
    for architecture in ["amd64", "arm64"] {
        let machine = dir.join(architecture);
        fs::create_dir(&machine).unwrap();
        let sources = fs::read_to_string(dir.join("apt/weir.sources")).unwrap();
        let signed_by = format!("Signed-By: {}", dir.join("apt/weir.gpg").display());
        let sources = sources.replace("Signed-By: /etc/apt/keyrings/weir.gpg", &signed_by);
        fs::write(machine.join("weir.sources"), sources).unwrap();
        let apt = || {
            let mut command = apt(&machine);
            let only = format!("APT::Architectures={architecture}");
            command.args(["-o", &format!("APT::Architecture={architecture}"), "-o", &only]);
            command
        };
        must(apt().arg("update"));
        must(apt().args(["download", "weir=1.2.3"]));
        assert!(machine.join(format!("weir_1.2.3_{architecture}.deb")).exists());
    }
}

#[test]
fn what_should_not_be_published_is_refused() {
    let Some(release) = Release::new() else { return };
    must(&mut release.make("good", "deb"));
    release.expect_refusal(release.gather(&["good"]).env_remove("WEIR_SIGN_KEY"), "a release is signed");

    must(release.make("nobody", "deb").env_remove("WEIR_MAINTAINER"));
    release
        .expect_refusal(&mut release.gather(&["nobody"]), "has no maintainer: make it with WEIR_MAINTAINER");

    must(release.make("other-time", "deb").env("SOURCE_DATE_EPOCH", "1"));
    release
        .expect_refusal(&mut release.gather(&["good", "other-time"]), "has different content in other-time");

    must(release.make("other-version", "tar").env("WEIR_VERSION", "1.2.4"));
    release.expect_refusal(&mut release.gather(&["good", "other-version"]), "is no file of version 1.2.3");

    must(&mut release.make("formula", "tar"));
    release.write("formula", "weir.rb", "url \"https://weir.invalid/download/weir-1.2.3-source.tar.xz\"");
    release.expect_refusal(&mut release.gather(&["good", "formula"]), "weir.rb has no address");

    must(&mut release.make("unlisted", "tar"));
    fs::write(release.dir.path().join("unlisted/weir-1.2.3-extra"), "extra").unwrap();
    release.expect_refusal(&mut release.gather(&["good", "unlisted"]), "does not list weir-1.2.3-extra");

    release.write("unlisted", "weir-1.2.3-extra", "extra");
    fs::write(release.dir.path().join("unlisted/weir-1.2.3-extra"), "changed").unwrap();
    release.expect_refusal(&mut release.gather(&["good", "unlisted"]), "is not what its SHA256SUMS says");

    must(&mut release.gather(&["good"]));
    assert!(release.dir.path().join("release/weir_1.2.3_amd64.deb").exists());
}

//! The container image: unpacked, and run as a runtime would run it, as its user and on a read-only root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_testkit::weir_command;

use super::release::stand_ins;
use super::{dist, has, must};

struct Image {
    dir: TempDir,
    archive: PathBuf,
    config: Value,
}

impl Image {
    /// Makes the image of these binaries; `None` if this machine cannot.
    fn make(binaries: &Path) -> Option<Self> {
        if !has("dpkg-query") || !has("python3") {
            eprintln!("SKIPPED: dpkg or python3 is not installed");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let mut command = dist(&dir.path().join("packages"), "image");
        command.env("WEIR_BIN", binaries.join("weir")).env("WEIR_VERSION", "1.2.3");
        let packages: Vec<PathBuf> = must(&mut command).lines().map(PathBuf::from).collect();
        let archive = packages[0].clone();
        assert!(
            archive.file_name().unwrap().to_str().unwrap().starts_with("weir-1.2.3-image-"),
            "{packages:?}"
        );
        must(Command::new("tar").arg("-xf").arg(&archive).current_dir(dir.path()));
        let mut image = Self { dir, archive, config: Value::Null };
        let index = image.json(&image.dir.path().join("index.json"));
        let manifest = image.json(&image.blob(&index["manifests"][0]));
        image.config = image.json(&image.blob(&manifest["config"]));
        let root = image.root();
        fs::create_dir(&root).unwrap();
        for layer in manifest["layers"].as_array().unwrap() {
            must(Command::new("tar").arg("-xzf").arg(image.blob(layer)).arg("-C").arg(&root));
        }
        // `docker load` before version 25 reads this file instead.
        let docker = image.json(&image.dir.path().join("manifest.json"));
        assert_eq!(docker[0]["RepoTags"], json!(["weir:1.2.3"]));
        let named = docker[0]["Layers"].as_array().unwrap().len();
        assert_eq!(named, image.config["rootfs"]["diff_ids"].as_array().unwrap().len());
        Some(image)
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn json(&self, file: &Path) -> Value {
        serde_json::from_slice(&fs::read(self.dir.path().join(file)).unwrap()).unwrap()
    }

    /// The file of a descriptor, whose digest and size are checked.
    #[track_caller]
    fn blob(&self, descriptor: &Value) -> PathBuf {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let file = self.dir.path().join("blobs/sha256").join(digest);
        assert!(must(Command::new("sha256sum").arg(&file)).starts_with(digest), "{descriptor}");
        assert_eq!(Some(file.metadata().unwrap().len()), descriptor["size"].as_u64());
        file
    }
}

#[test]
fn it_runs_without_rights_on_a_read_only_root() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: a container's namespaces take root");
    }
    let dir = TempDir::new().unwrap();
    for name in ["weir", "weir-kube"] {
        let built = Path::new(weir_command(dir.path()).get_program()).with_file_name(name);
        if !built.exists() || !has("strip") {
            return eprintln!("SKIPPED: {name} is not built, or strip is not installed");
        }
        must(Command::new("strip").arg("-o").arg(dir.path().join(name)).arg(built)); // a third smaller
    }
    let Some(image) = Image::make(dir.path()) else { return };
    assert_eq!(image.config["config"]["User"], "65532:65532");
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dist/run-image.py");
    let printed = must(Command::new(runtime).arg(&image.archive));
    assert!(printed.contains("weir-kube "), "{printed}");
    assert!(printed.contains(": running, up for"), "the health check says nothing: {printed}");
    assert!(printed.contains("HTTP/1.1 200 "), "{printed}");
    // The packages greet with the same words.
    let words = |file: &str| {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(file);
        let config = fs::read_to_string(config).unwrap();
        config.split("body: \"").nth(1).unwrap().split("\\n").next().unwrap().to_owned()
    };
    assert!(words("weir.yaml").starts_with("Weir runs."));
    assert_eq!(words("weir.yaml"), words("container.yaml"));
    assert!(printed.contains(&words("container.yaml")), "{printed}");
}

/// What an attacker could use is not there, and roots come from Debian alone.
#[test]
fn it_holds_nothing_else() {
    let binaries = stand_ins();
    let Some(image) = Image::make(binaries.path()) else { return };
    let root = image.root();
    let programs =
        must(Command::new("find").arg(root.join("usr/bin")).args(["-type", "f", "-printf", "%f "]));
    let mut programs: Vec<&str> = programs.split_whitespace().collect();
    programs.sort_unstable();
    assert_eq!(programs, ["weir", "weir-kube"]);
    let special = must(
        Command::new("find")
            .arg(&root)
            .args(["(", "-perm", "/6000", "-o", "-perm", "-o+w", ")"])
            .args(["!", "-type", "l", "!", "-name", "tmp"]),
    );
    assert_eq!(special, "", "a file has rights of its owner, or everybody may write it");
    let roots = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    assert!(roots.matches("BEGIN CERTIFICATE").count() > 50);
    for package in ["base-files", "ca-certificates", "libc6", "libgcc-s1"] {
        let status = fs::read_to_string(root.join("var/lib/dpkg/status.d").join(package)).unwrap();
        assert!(status.contains(&format!("Package: {package}\n")), "{status}");
        assert!(
            root.join("usr/share/doc").join(package).join("copyright").exists(),
            "{package} has no license"
        );
    }
}

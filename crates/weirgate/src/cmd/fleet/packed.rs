//! Selects the files of a folder that `weir fleet publish` packs: those that the config names, and private keys
//! only on request.

use anyhow::{Result, anyhow, bail};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf, absolute};
use weir_fleet::bundle::{Bundle, MAIN};
use weir_gateway::config::node::Value;
use weir_gateway::config::{Loaded, Node};

/// Keys whose value is a folder that is served or read whole.
const FOLDERS: &[&str] = &["include", "root"];

/// The marker that every kind of private key has in PEM.
const PRIVATE_KEY: &[u8] = b"PRIVATE KEY-----";

/// Most files that a message lists.
const SHOWN: usize = 10;

/// Packs the files of a folder that this config names. Also returns the files that it left out.
pub(super) fn pack(folder: &Path, loaded: &Loaded, with_keys: bool) -> Result<(Bundle, Vec<String>)> {
    let folder = plain(folder)?;
    let all = files_below(&folder)?;
    let mut named = BTreeSet::from([MAIN.to_owned()]);
    named.extend(loaded.files.iter().filter_map(|path| below(&folder, path)));
    let written = loaded.texts.tree();
    for tree in [Some(&loaded.tree), written.as_ref()].into_iter().flatten() {
        add_named(tree, "", &folder, &all, &mut named);
    }
    let mut files = Vec::new();
    for name in named.iter().filter(|name| folder.join(name).is_file()) {
        let content = std::fs::read(folder.join(name));
        files.push((name.clone(), content.map_err(|e| anyhow!("cannot read {name}: {e}"))?));
    }
    let is_key = |content: &[u8]| content.windows(PRIVATE_KEY.len()).any(|part| part == PRIVATE_KEY);
    let keys: Vec<&str> =
        files.iter().filter(|(_, content)| is_key(content)).map(|(name, _)| name.as_str()).collect();
    if !keys.is_empty() && !with_keys {
        bail!(
            "the bundle would hold private keys, and everybody who may read it in etcd would have them: {}; \
             publish them with --with-keys, or name them by a path that each node has, such as /etc/weir/tls/{}",
            shown(&keys),
            keys.first().and_then(|key| key.rsplit('/').next()).unwrap_or_default()
        );
    }
    let left = all.into_iter().filter(|name| !named.contains(name)).collect();
    let bundle = Bundle::new(files).map_err(|e| anyhow!("{}: {e}", folder.display()))?;
    Ok((bundle, left))
}

/// The first names of a list, as text.
pub(super) fn shown<T: AsRef<str>>(names: &[T]) -> String {
    let mut text = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

/// Adds the files that the values of a tree name, each relative to its config file. The parser bounds the depth.
fn add_named(node: &Node, key: &str, folder: &Path, all: &BTreeSet<String>, named: &mut BTreeSet<String>) {
    match &node.value {
        Value::Map(entries) => {
            entries.iter().for_each(|(key, value)| add_named(value, &key.text, folder, all, named));
        }
        Value::Seq(elements) => {
            elements.iter().for_each(|element| add_named(element, key, folder, all, named));
        }
        Value::Str(text) if !text.is_empty() => {
            let beside = node.at.file.parent().unwrap_or(Path::new(""));
            let Some(name) = below(folder, &beside.join(&**text)) else { return };
            // A setting that names a file may name a hidden one: `basic_auth: { file: .htpasswd }`.
            let is_hidden_file = || key == "file" && folder.join(&name).is_file();
            if all.contains(&name) || is_hidden_file() {
                named.insert(name.clone());
            }
            // A .proto file may import others next to it, which no config names.
            let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
            let is_proto = |name: &String| name.ends_with(".proto") && is_in(name, parent);
            if name.ends_with(".proto") {
                named.extend(all.iter().filter(|name| is_proto(name)).cloned());
            }
            if FOLDERS.contains(&key) {
                named.extend(all.iter().filter(|file| is_in(file, &name)).cloned());
            }
            // Each node has its own variables, so every file that the pattern may match is packed.
            if let Some(pattern) = Pattern::of(&name) {
                named.extend(all.iter().filter(|file| pattern.fits(file)).cloned());
            }
        }
        _ => {}
    }
}

/// Whether a file lies in a folder or below it. The empty name is the root folder.
fn is_in(file: &str, folder: &str) -> bool {
    folder.is_empty() || file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// A path relative to `folder`, if it is that folder or lies below it.
fn below(folder: &Path, path: &Path) -> Option<String> {
    Some(plain(path).ok()?.strip_prefix(folder).ok()?.to_str()?.to_owned())
}

/// A path without `.` and `..`. Symlinks stay unresolved.
fn plain(path: &Path) -> Result<PathBuf> {
    let mut out = PathBuf::new();
    for part in absolute(path).map_err(|e| anyhow!("{}: {e}", path.display()))?.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    Ok(out)
}

/// All files below a folder, except hidden ones.
fn files_below(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![String::new()];
    while let Some(parent) = folders.pop() {
        let at = folder.join(&parent);
        let unreadable = |e: std::io::Error| anyhow!("cannot read {}: {e}", at.display());
        for entry in std::fs::read_dir(&at).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let path = if parent.is_empty() { name } else { format!("{parent}/{name}") };
            // Bounded depth, because a symlink may point back to a parent.
            if entry.path().is_dir() && path.matches('/').count() < DEPTH {
                folders.push(path);
            } else if entry.path().is_file() {
                found.insert(path);
            }
        }
    }
    Ok(found)
}

/// Deepest nesting of folders.
const DEPTH: usize = 16;

/// A path that contains variables.
struct Pattern<'t>(Vec<&'t str>);

impl<'t> Pattern<'t> {
    /// `None` if the text has no variable, or is nothing but a variable.
    fn of(text: &'t str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, variable)) = rest.split_once("${") {
            pieces.push(before);
            rest = variable.split_once('}')?.1;
        }
        pieces.push(rest);
        (pieces.len() > 1 && pieces.iter().any(|piece| !piece.is_empty())).then_some(Self(pieces))
    }

    /// Whether the path matches, where a variable stands for part of a single name.
    fn fits(&self, path: &str) -> bool {
        fits(&self.0, path)
    }
}

fn fits(pieces: &[&str], path: &str) -> bool {
    let Some((first, others)) = pieces.split_first() else { return path.is_empty() };
    let Some(rest) = path.strip_prefix(first) else { return false };
    if others.is_empty() {
        return rest.is_empty();
    }
    let end = rest.find('/').unwrap_or(rest.len());
    (0..=end).filter_map(|from| rest.get(from..)).any(|rest| fits(others, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_gateway::config::{Source, load};

    #[test]
    fn what_the_config_names_travels() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            MAIN,
            "include: [ \"routes/*.yaml\" ]\nlisteners: { web: { address: 127.0.0.1:0 } }\n\
             consumers: { shop: { key_auth: [ \"${file:secrets/shop}\" ] } }\n\
             upstreams: { up: { endpoints: [ 127.0.0.1:1 ], tls: { ca: \"./tls/${ZONE:-a}.pem\" } } }\n",
        );
        write(
            "routes/a.yaml",
            "routes: { a: { match: { path: /a }, files: { root: ../www } },\n\
             b: { match: { path: /b }, filters: [ { basic_auth: { file: ../.htpasswd } }, { grpc_json: { proto: ../api/a.proto } } ], upstream: up } }\n",
        );
        for name in [
            ".env",
            ".htpasswd",
            "secrets/shop",
            "www/index.html",
            "www/css/a.css",
            "tls/a.pem",
            "tls/b.pem",
            "api/a.proto",
            "api/b.proto",
        ] {
            write(name, "x");
        }
        for name in [
            "keys/id_rsa",
            "keys/tls.key",
            "notes.txt",
            "api/notes.txt",
            "www2/a",
            "tls/deep/a.pem",
            "secrets/other",
        ] {
            write(name, "-----BEGIN OPENSSH PRIVATE KEY-----\n");
        }
        let loaded = || load(&Source::file(dir.path().join(MAIN))).unwrap();
        let (bundle, left) = pack(dir.path(), &loaded(), false).unwrap();
        let packed: Vec<&str> = bundle.files().map(|(path, _)| path).collect();
        assert_eq!(
            packed,
            [
                ".htpasswd",
                "api/a.proto",
                "api/b.proto",
                "routes/a.yaml",
                "secrets/shop",
                "tls/a.pem",
                "tls/b.pem",
                MAIN,
                "www/css/a.css",
                "www/index.html"
            ]
        );
        assert_eq!(left.len(), 7, "{left:?}");
        write("tls/b.pem", "-----BEGIN PRIVATE KEY-----\nx\n");
        let refused = pack(dir.path(), &loaded(), false).unwrap_err().to_string();
        assert!(refused.contains("tls/b.pem") && refused.contains("--with-keys"), "{refused}");
        assert!(pack(dir.path(), &loaded(), true).is_ok());
    }

    #[test]
    fn variables_stand_for_pieces_of_names() {
        for (pattern, path, expected) in [
            ("tls/${Z}.pem", "tls/a.pem", true),
            ("tls/${Z}.pem", "tls/a/b.pem", false),
            ("${A}-${B}.key", "x-y-z.key", true),
            ("${A}/b", "a/b", true),
            ("${A}/b", "a/c", false),
        ] {
            assert_eq!(Pattern::of(pattern).unwrap().fits(path), expected, "{pattern} {path}");
        }
        assert!(Pattern::of("${A}").is_none() && Pattern::of("a").is_none() && Pattern::of("${A").is_none());
    }
}

//! Loads descriptors: from `.proto` files, from descriptor sets, and from server reflection.
//!
//! The protos that rules need (`google/api`, `google/rpc`) are built in; a file of the same name on disk takes
//! precedence.

use prost_reflect::DescriptorPool;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorProto;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Largest descriptor set, from a file or from a server.
pub const SET_BYTES: usize = 16 * 1024 * 1024;

/// Most files of one API.
pub const FILES: usize = 2000;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../protos/", $name)))),*]
    };
}

/// By name. Files come after their imports.
const BUILT_IN: &[(&str, &str)] = built_in![
    "google/api/http.proto",
    "google/api/annotations.proto",
    "google/api/client.proto",
    "google/api/field_behavior.proto",
    "google/api/httpbody.proto",
    "google/api/resource.proto",
    "google/rpc/code.proto",
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
];

struct BuiltIn;

impl FileResolver for BuiltIn {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((name, source)) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// Compiles `.proto` files. A file that is in no import folder is looked up in its own folder.
///
/// # Errors
/// What is wrong, with file, line and column.
pub fn from_files(files: &[PathBuf], folders: &[PathBuf]) -> Result<DescriptorPool, String> {
    let mut all = folders.to_vec();
    for folder in folders {
        if !folder.is_dir() {
            return Err(format!("there is no folder {}", folder.display()));
        }
    }
    for file in files {
        let is_inside = |folder: &PathBuf| file.starts_with(folder) || folder.join(file).is_file();
        if !folders.iter().any(is_inside) && !file.is_file() {
            return Err(format!("there is no file {}", file.display()));
        }
        let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !all.iter().any(is_inside) && !all.iter().any(|f| f == parent) {
            all.push(parent.to_owned());
        }
    }
    let mut resolver = ChainFileResolver::new();
    for folder in all {
        resolver.add(IncludeFileResolver::new(folder));
    }
    resolver.add(BuiltIn);
    resolver.add(GoogleFileResolver::new());
    compile(resolver, |compiler| {
        for file in files {
            // The error's `Debug` contains file, line and column; its `Display` does not.
            compiler.open_file(file).map_err(|e| format!("{e:?}"))?;
        }
        Ok(())
    })
}

/// Compiles one source text: for tests, and for callers without a file.
///
/// # Errors
/// As [`from_files`].
pub fn from_source(name: &str, source: &str) -> Result<DescriptorPool, String> {
    struct One(String, String);
    impl FileResolver for One {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            if name == self.0 {
                File::from_source(name, &self.1)
            } else {
                Err(protox::Error::file_not_found(name))
            }
        }
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(One(name.to_owned(), source.to_owned()));
    resolver.add(BuiltIn);
    resolver.add(GoogleFileResolver::new());
    compile(resolver, |compiler| compiler.open_file(name).map(|_| ()).map_err(|e| format!("{e:?}")))
}

fn compile(
    resolver: ChainFileResolver,
    open: impl FnOnce(&mut Compiler) -> Result<(), String>,
) -> Result<DescriptorPool, String> {
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(true);
    open(&mut compiler)?;
    // Error details use these types, whether or not a service imports them.
    for (name, _) in BUILT_IN {
        compiler.open_file(name).map_err(|e| format!("{name}: {e:?}"))?;
    }
    Ok(compiler.descriptor_pool())
}

/// Reads a descriptor set, with all its imports (`protoc --include_imports --descriptor_set_out=FILE`).
///
/// # Errors
/// What is wrong with the set.
pub fn from_set(bytes: &[u8]) -> Result<DescriptorPool, String> {
    if bytes.len() > SET_BYTES {
        return Err(format!("a descriptor set is at most {SET_BYTES} bytes"));
    }
    const EXPECTED: &str = "this is not a set of descriptors with all its imports; expected what \
        protoc --include_imports --descriptor_set_out=FILE writes";
    let pool = DescriptorPool::decode(bytes).map_err(|e| match format!("{e:?}") {
        why if why.contains("failed to decode") => EXPECTED.to_owned(),
        why => format!("{EXPECTED}: {why}"),
    })?;
    with_built_in(pool)
}

/// Combines the files that a server described.
///
/// # Errors
/// What is wrong: a file is missing or is not a descriptor.
pub fn from_descriptors(files: &[Vec<u8>]) -> Result<DescriptorPool, String> {
    let (mut read, mut bytes) = (BTreeMap::new(), 0);
    for file in files {
        bytes += file.len();
        if bytes > SET_BYTES || read.len() >= FILES {
            return Err(format!("the service describes more than {SET_BYTES} bytes or {FILES} files"));
        }
        let descriptor = FileDescriptorProto::decode(&file[..])
            .map_err(|e| format!("this is not a descriptor of a file: {e}"))?;
        read.insert(descriptor.name().to_owned(), file.as_slice());
    }
    // Fill in the well-known files that a server omits.
    let built_in = built_in_pool()?;
    let global = DescriptorPool::global();
    let mut pool = DescriptorPool::new();
    let mut known: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for file in global.files().chain(built_in.files()) {
        if !read.contains_key(file.name()) && !known.contains_key(file.name()) {
            known.insert(file.name().to_owned(), file.encode_to_vec());
        }
    }
    for (name, bytes) in &read {
        known.insert(name.clone(), bytes.to_vec());
    }
    add_in_order(&mut pool, &known)?;
    Ok(pool)
}

/// Adds files, each after its imports. Preserves their options, which a decoded descriptor loses. Cost: visits each
/// file and each import once.
fn add_in_order(pool: &mut DescriptorPool, files: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let mut imported_by: HashMap<String, Vec<&str>> = HashMap::new();
    let mut missing: HashMap<&str, usize> = HashMap::new();
    let mut ready = Vec::new();
    for (name, bytes) in files {
        let descriptor = FileDescriptorProto::decode(&bytes[..]).map_err(|e| format!("{name}: {e}"))?;
        let mut count = 0;
        for import in descriptor.dependency.iter().filter(|import| pool.get_file_by_name(import).is_none()) {
            if !files.contains_key(import) {
                return Err(format!("{name} imports {import}, which is not described"));
            }
            imported_by.entry(import.clone()).or_default().push(name);
            count += 1;
        }
        if count == 0 {
            ready.push(name.as_str());
        }
        missing.insert(name, count);
    }
    let mut added = 0;
    while let Some(name) = ready.pop() {
        let bytes = files.get(name).map(Vec::as_slice).unwrap_or_default();
        pool.decode_file_descriptor_proto(bytes).map_err(|e| format!("{name}: {e:?}"))?;
        added += 1;
        for by in imported_by.get(name).into_iter().flatten() {
            if let Some(count) = missing.get_mut(by) {
                *count -= 1; // each import was counted once
                if *count == 0 {
                    ready.push(by);
                }
            }
        }
    }
    if added < files.len() {
        return Err("files import one another in a circle".to_owned());
    }
    Ok(())
}

fn built_in_pool() -> Result<DescriptorPool, String> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(BuiltIn);
    resolver.add(GoogleFileResolver::new());
    compile(resolver, |_| Ok(()))
}

fn with_built_in(mut pool: DescriptorPool) -> Result<DescriptorPool, String> {
    let built_in = built_in_pool()?;
    let mut missing = BTreeMap::new();
    for file in built_in.files().filter(|file| pool.get_file_by_name(file.name()).is_none()) {
        missing.insert(file.name().to_owned(), file.encode_to_vec());
    }
    // A set may define the same types in files with other names; then nothing is missing.
    let mut with = pool.clone();
    if add_in_order(&mut with, &missing).is_ok() {
        pool = with;
    }
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, imports: &[&str]) -> Vec<u8> {
        let dependency = imports.iter().map(|import| (*import).to_owned()).collect();
        FileDescriptorProto { name: Some(name.to_owned()), dependency, ..FileDescriptorProto::default() }
            .encode_to_vec()
    }

    #[test]
    fn files_in_any_order() {
        let files = [
            file("a", &["c", "google/protobuf/any.proto"]),
            file("b", &["a"]),
            file("c", &["google/api/http.proto"]),
        ];
        let pool = from_descriptors(&files).unwrap();
        assert!(["a", "b", "c"].iter().all(|name| pool.get_file_by_name(name).is_some()));
        let wrong = |files: &[Vec<u8>]| from_descriptors(files).unwrap_err();
        assert_eq!(wrong(&[file("a", &["x"])]), "a imports x, which is not described");
        assert!(wrong(&[file("a", &["b"]), file("b", &["a"])]).contains("circle"));
        assert!(wrong(&[file("a", &["a"])]).contains("circle"));
        assert!(wrong(&[b"\xff".to_vec()]).contains("not a descriptor"));
        // A long chain in reverse order.
        let chain: Vec<Vec<u8>> =
            (0..1000).map(|n| file(&format!("f{n:04}"), &[&format!("f{:04}", n + 1)])).collect();
        let chain = [chain, vec![file("f1000", &[])]].concat();
        assert!(from_descriptors(&chain).is_ok());
    }

    #[test]
    fn sets_that_are_none() {
        assert!(from_set(b"no set").unwrap_err().starts_with("this is not a set of descriptors"));
        assert!(from_set(&vec![0; SET_BYTES + 1]).unwrap_err().contains("at most"));
        assert!(
            from_source("a.proto", "syntax = \"proto3\";\nmessage M { strin s = 1; }")
                .unwrap_err()
                .contains("a.proto:2:")
        );
    }
}

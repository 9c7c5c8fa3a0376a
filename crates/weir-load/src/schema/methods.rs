//! Finds the method that a target names: in .proto files, in a descriptor set, or by asking the target.

use super::call::Call;
use super::{Server, Source, reflection};
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use protox::Compiler;
use std::path::{Path, PathBuf};

/// Largest descriptor set that is read.
const SET_MOST: u64 = 64 * 1024 * 1024;

/// Where methods are looked up.
#[derive(Debug)]
pub(crate) struct Schema {
    /// `None` if each target is asked.
    pool: Option<DescriptorPool>,
    /// Its name in a report.
    name: String,
}

impl Schema {
    /// Reads the files. The error is the option with its value, and the mistake.
    pub(crate) fn new(source: Source) -> Result<Self, (String, String)> {
        match source {
            Source::Files(files, folders) => {
                let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
                Ok(Self { pool: Some(compiled(&files, &folders)?), name: names.join(", ") })
            }
            Source::Reflection => Ok(Self { pool: None, name: String::new() }),
            Source::Set(file) => {
                let wrong = |hint: String| (format!("--protoset {}", file.display()), hint);
                if std::fs::metadata(&file).is_ok_and(|m| m.len() > SET_MOST) {
                    return Err(wrong("a descriptor set is at most 64 MiB".to_owned()));
                }
                let bytes = std::fs::read(&file).map_err(|e| wrong(e.to_string()))?;
                let pool = DescriptorPool::decode(&bytes[..]).map_err(|e| {
                    wrong(format!(
                        "this is not a set of descriptors with all its imports (protoc --include_imports --descriptor_set_out=FILE): {e:?}"
                    ))
                })?;
                Ok(Self { pool: Some(pool), name: file.display().to_string() })
            }
        }
    }

    /// The method at this path. The error lists the methods that exist.
    pub(crate) fn call(&mut self, path: &str, server: &Server<'_>) -> Result<Call, String> {
        let named = service_and_method(path);
        if let Some(pool) = &self.pool {
            let (service, method) = named.ok_or_else(|| form(&names(pool)))?;
            let found = pool.get_service_by_name(service).ok_or_else(|| no_service(service, &names(pool)))?;
            return Ok(Call::new(method_of(&found, method)?, self.name.clone()));
        }
        let (service, method) = match named {
            Some(named) => named,
            None => return Err(form(&reflection::services(server)?)),
        };
        let (pool, version) = reflection::files(server, service)?;
        let found = pool.get_service_by_name(service);
        let found = found.ok_or_else(|| no_service(service, &names(&pool)))?;
        Ok(Call::new(method_of(&found, method)?, format!("reflection {version}")))
    }
}

/// Compiles files. Without import folders, each file is searched for in its own folder.
fn compiled(files: &[PathBuf], folders: &[PathBuf]) -> Result<DescriptorPool, (String, String)> {
    let place = |file: &Path| format!("--proto {}", file.display());
    for folder in folders {
        if !folder.is_dir() {
            return Err((
                format!("--import-path {}", folder.display()),
                "there is no such folder".to_owned(),
            ));
        }
    }
    let mut all = folders.to_vec();
    for file in files {
        if let Err(e) = std::fs::metadata(file)
            && !folders.iter().any(|f| f.join(file).is_file())
        {
            return Err((place(file), e.to_string()));
        }
        let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_inside = all.iter().any(|f| file.starts_with(f) || f.join(file).is_file());
        if !is_inside && !all.iter().any(|f| f == parent) {
            all.push(parent.to_owned());
        }
    }
    // Its `Debug` includes file, line and column; its `Display` does not.
    let mut compiler = Compiler::new(&all).map_err(|e| ("--import-path".to_owned(), format!("{e:?}")))?;
    compiler.include_imports(true);
    for file in files {
        compiler.open_file(file).map_err(|e| (place(file), format!("{e:?}")))?;
    }
    Ok(compiler.descriptor_pool())
}

/// Splits a path into service and method: `/package.Service/Method`, or `package.Service.Method` as in ghz.
fn service_and_method(path: &str) -> Option<(&str, &str)> {
    let path = path.trim_start_matches('/');
    let parts = path.split_once('/').or_else(|| path.rsplit_once('.'));
    parts.filter(|(service, method)| !service.is_empty() && !method.is_empty() && !method.contains('/'))
}

fn names(pool: &DescriptorPool) -> Vec<String> {
    pool.services().map(|s| s.full_name().to_owned()).collect()
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no service at all".to_owned() } else { names.join(", ") }
}

fn form(names: &[String]) -> String {
    format!("expected grpc://host:port/package.Service/Method; there is {}", listed(names))
}

pub(super) fn no_service(service: &str, names: &[String]) -> String {
    format!("there is no service `{service}`; there is {}", listed(names))
}

fn method_of(service: &ServiceDescriptor, name: &str) -> Result<MethodDescriptor, String> {
    service.methods().find(|m| m.name() == name).ok_or_else(|| {
        let names: Vec<String> = service.methods().map(|m| m.name().to_owned()).collect();
        format!("{} has no method `{name}`; it has {}", service.full_name(), names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let dir = TempDir::new().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn read(dir: &TempDir, files: &[&str], folders: &[&str]) -> Result<Schema, String> {
        let paths = |names: &[&str]| names.iter().map(|n| dir.path().join(n)).collect::<Vec<_>>();
        Schema::new(Source::Files(paths(files), paths(folders))).map_err(|(place, hint)| {
            format!("{place}: {hint}").replace(&dir.path().display().to_string(), "DIR")
        })
    }

    const COMMON: &str = "syntax = \"proto3\"; package c; message M { string s = 1; }";
    const SERVICE: &str = "syntax = \"proto3\";\npackage a.v1;\nimport \"common/c.proto\";\n\
         service S { rpc Do(c.M) returns (c.M); rpc Other(c.M) returns (stream c.M); }\n";

    #[test]
    fn files_are_compiled_with_what_they_import() {
        let dir = folder(&[("common/c.proto", COMMON), ("a/v1/s.proto", SERVICE)]);
        let schema = read(&dir, &["a/v1/s.proto"], &["."]).unwrap();
        let pool = schema.pool.unwrap();
        assert_eq!(names(&pool), ["a.v1.S"]);
        assert!(read(&dir, &["common/c.proto"], &[]).is_ok(), "without a folder, where it stands");
    }

    #[test]
    fn what_is_no_proto_is_told_with_file_and_line() {
        let dir = folder(&[
            ("bad.proto", "syntax = \"proto3\";\nmessage M {\n  strin s = 1;\n}\n"),
            ("broken.proto", "syntax = \"proto3\";\nmessage M {\n  string s 1;\n}\n"),
            ("s.proto", SERVICE),
        ]);
        let wrong = |files: &[&str], folders: &[&str]| read(&dir, files, folders).unwrap_err();
        let told = wrong(&["broken.proto"], &[]);
        assert!(told.starts_with("--proto DIR/broken.proto: broken.proto:3:12: expected"), "{told}");
        let told = wrong(&["bad.proto"], &[]);
        assert!(told.starts_with("--proto DIR/bad.proto: bad.proto:3:"), "{told}");
        assert!(told.contains("strin"), "{told}");
        let told = wrong(&["s.proto"], &[]);
        assert!(told.contains("s.proto:") && told.contains("import 'common/c.proto' not found"), "{told}");
        assert!(wrong(&["no.proto"], &[]).starts_with("--proto DIR/no.proto: No such file"));
        assert_eq!(wrong(&["s.proto"], &["no"]), "--import-path DIR/no: there is no such folder");
    }

    #[test]
    fn a_set_that_is_none_is_refused() {
        let dir = folder(&[("set", "no set")]);
        let set = |name: &str| Schema::new(Source::Set(dir.path().join(name))).unwrap_err().1;
        assert!(set("set").starts_with("this is not a set of descriptors"), "{}", set("set"));
        assert!(set("none").starts_with("No such file"), "{}", set("none"));
    }

    #[test]
    fn paths_name_a_method() {
        for (path, want) in [
            ("/a.B/C", Some(("a.B", "C"))),
            ("a.B.C", Some(("a.B", "C"))),
            ("/B/C", Some(("B", "C"))),
            ("/", None),
            ("/a.B/", None),
            ("/a/b/c", None),
        ] {
            assert_eq!(service_and_method(path), want, "{path}");
        }
    }
}

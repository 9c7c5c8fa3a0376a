//! Checks of `consumer_sources`. What a source holds is checked when it is read.

use super::Checker;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Most sources.
const MOST: usize = 16;

impl Checker<'_> {
    pub(super) fn consumer_sources(&mut self) {
        let config = self.config;
        if config.consumer_sources.len() > MOST {
            let message = format!("there are more than {MOST} sources of consumers");
            self.error("consumer_sources", "out-of-range", message);
        }
        for (name, source) in config.consumer_sources.iter() {
            let path = format!("consumer_sources.{name}");
            match ["file", "http"].map(|key| self.is_written(&format!("{path}.{key}"))) {
                [true, true] => {
                    self.error(&path, "bad-value", "there are two sources; expected one of file and http");
                }
                [false, false] => {
                    let hint = "write { file: consumers.yaml } or { http: { url: \"https://..\" } }";
                    let message = "no source is named; expected one of file and http";
                    self.error_hint(&path, "missing-key", message, hint);
                }
                _ => {}
            }
            if let Some(file) = &source.file {
                self.must_be_file(&format!("{path}.file"), &file.0);
            }
            let Some(http) = &source.http else { continue };
            let path = format!("{path}.http");
            if http.url.is_none() && !self.is_written(&format!("{path}.url")) {
                let hint = "write url: \"https://accounts.internal/consumers.json\"";
                self.error_hint(&path, "missing-key", "`url` is missing", hint);
            }
            if let Some(ca) = &http.ca {
                self.must_be_file(&format!("{path}.ca"), &ca.0);
            }
            self.must_last(&format!("{path}.every"), http.every);
            self.must_last(&format!("{path}.timeout"), http.timeout);
            if let Some(url) = http.url.as_ref().filter(|url| !url.is_safe()) {
                let message = format!("who is on the way to {} can add consumers", url.origin());
                self.warn(&format!("{path}.url"), "clear-text", message, "use https");
            }
        }
        self.caches_of_consumers();
    }

    /// A cache is replaced by one source, so nothing else may be in that file.
    fn caches_of_consumers(&mut self) {
        let mut known: Vec<(PathBuf, String)> = Vec::new();
        let sources = self.config.consumer_sources.iter();
        let mut caches = Vec::new();
        for (name, source) in sources {
            let path = format!("consumer_sources.{name}");
            if let Some(file) = &source.file {
                known.push((identity(&file.0), format!("{path}.file")));
            }
            let Some(http) = &source.http else { continue };
            if let Some(ca) = &http.ca {
                known.push((identity(&ca.0), format!("{path}.http.ca")));
            }
            if let Some(cache) = &http.cache {
                caches.push((&cache.0, format!("{path}.http.cache")));
            }
        }
        for (cache, path) in caches {
            let identity = identity(cache);
            if let Some((_, other)) = known.iter().find(|(known, _)| *known == identity) {
                let message = format!("{} is the file of {other} too", cache.display());
                self.error_hint(&path, "path-twice", message, "give the cache a file of its own");
            } else {
                known.push((identity, path));
            }
        }
    }
}

/// A path that is the same for all spellings of one file's name in one folder. A link in the last place counts as a
/// file of its own, because a cache replaces it.
fn identity(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.join(path.file_name().unwrap_or(OsStr::new("")))
}

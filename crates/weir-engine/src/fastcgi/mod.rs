//! `fastcgi:` of a route: which script answers a request, and what it learns.
//!
//! `params` writes the parameters of CGI (RFC 3875 §4) and the records before the body. The records of the body and of
//! the response are the business of weir-wire.

mod params;

pub(crate) use params::Facts;

use crate::files::open::{OpenError, Waiting, open};
use crate::files::path::{Name, Unnamed, with_slash};
use crate::files::{NotFound, Root, cause_of};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;
use weir_config::schema;
use weir_filter::filter::{Answer, Body, CoreHandle, Refusal};
use weir_h1::{FieldName, Method, RequestHead};
use weir_upstream::error::{self, Cause};

/// The scripts of a route, compiled.
pub struct Scripts {
    root: Root,
    index: String,
    split: Vec<u8>,
    path_info: bool,
    is_remote: bool,
    params: Vec<(Vec<u8>, Vec<u8>)>,
    /// The largest body of unknown length, in bytes.
    pub(crate) buffer: usize,
    location: FieldName,
}

/// The script that answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// Its path below the root, without a slash before it.
    name: Vec<u8>,
    /// The path behind it, if that is passed on.
    info: Option<Vec<u8>>,
}

/// What a request leads to.
#[derive(Debug)]
pub(crate) enum Resolved {
    /// To a redirect: it names a folder without its slash.
    Folder(Answer),
    Script(Box<Script>),
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// A script.
    Script(Script),
    /// A folder or nothing; `None` if it can only be nothing.
    Other(Option<Name>),
}

/// What there is.
enum Found {
    /// A folder with an index, requested without its slash.
    Folder,
    Script(Script),
}

impl Scripts {
    /// The scripts that a config names. An error comes with the key it concerns.
    pub(crate) fn new(written: &schema::FastCgi) -> Result<Self, (&'static str, String)> {
        let root = Root::new(written.root.0.clone());
        if let Some(refusal) = root.refusal().filter(|_| !written.root_remote) {
            return Err(("root", refusal));
        }
        let params = written.params.0.iter();
        Ok(Self {
            root,
            index: written.index.clone(),
            split: written.split.clone().into_bytes(),
            path_info: written.path_info,
            is_remote: written.root_remote,
            params: params
                .map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()))
                .collect(),
            buffer: written.buffer.as_usize(),
            location: FieldName::new("location").expect("a name in the source is a token"),
        })
    }

    /// The folder of the scripts.
    pub fn root(&self) -> &std::path::Path {
        self.root.path()
    }

    /// Finds the script for a request.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        head: &RequestHead,
        core: &CoreHandle,
    ) -> Result<Resolved, Box<Refusal>> {
        let asked = self.asked(head.path(), head.routed_path()).map_err(refuse)?;
        if self.is_remote {
            return Ok(Resolved::Script(Box::new(match asked {
                Asked::Script(script) => script,
                Asked::Other(_) => self.front(),
            })));
        }
        let scripts = Arc::clone(self);
        let find = move |root: BorrowedFd<'_>, waiting| scripts.find(root, &asked, waiting);
        let found = self.root.look(core, Instant::now(), find).await.map(|(found, _)| found);
        match found {
            Ok(Found::Script(script)) => Ok(Resolved::Script(Box::new(script))),
            // Only a GET is surely the same request at the other path.
            Ok(Found::Folder) if matches!(head.method(), Method::Get | Method::Head) => {
                let location = with_slash(head.routed_path(), head.query());
                let headers = vec![(self.location.clone(), location)];
                Ok(Resolved::Folder(Answer { status: 308, headers, body: Body::default() }))
            }
            Ok(Found::Folder) => Ok(Resolved::Script(Box::new(self.front()))),
            Err(NotFound::NotOpened(OpenError::Missing) | NotFound::NoIndex) => {
                Err(refuse(&error::FASTCGI_NO_SCRIPT))
            }
            Err(lost) => Err(refuse(cause_of(lost))),
        }
    }

    /// The script that answers for what is neither a script nor a folder with one.
    fn front(&self) -> Script {
        Script { name: self.index.clone().into_bytes(), info: None }
    }

    /// What a path names, before anything is looked up. `routed` is the path before filters changed it.
    fn asked(&self, path: &[u8], routed: &[u8]) -> Result<Asked, &'static Cause> {
        let name = match Name::of(path, false) {
            Ok(name) => name,
            // Such a path can be an application's page, but no script.
            Err(unnamed) => {
                let is_script = self.may_name_script(path);
                return match unnamed {
                    Unnamed::Hidden if is_script => Err(&error::FILES_HIDDEN),
                    Unnamed::Impossible if is_script => Err(&error::FASTCGI_NO_SCRIPT),
                    _ => Ok(Asked::Other(None)),
                };
            }
        };
        let Some(end) = self.end_of_script(&name.bytes) else { return Ok(Asked::Other(Some(name))) };
        // With `slashes: keep`, routing distinguishes `//admin/a.php` from `/admin/a.php`. The disk does not.
        if routed.windows(2).any(|pair| pair == b"//") {
            return Err(&error::FASTCGI_NO_SCRIPT);
        }
        let (script, rest) = name.bytes.split_at_checked(end).unwrap_or((&name.bytes, b""));
        let mut info = rest.to_vec();
        if name.folder {
            info.push(b'/');
        }
        let info = Some(info).filter(|info| self.path_info && !info.is_empty());
        Ok(Asked::Script(Script { name: script.to_vec(), info }))
    }

    /// Where the first segment ends that is a script's name.
    fn end_of_script(&self, name: &[u8]) -> Option<usize> {
        let mut end = 0;
        for segment in name.split(|&b| b == b'/') {
            end += segment.len();
            if segment.ends_with(&self.split) && segment.len() > self.split.len() {
                return Some(end);
            }
            end += 1; // its slash
        }
        None
    }

    /// Whether a path that is no name might be taken for one of a script, by somebody who decodes it otherwise.
    fn may_name_script(&self, path: &[u8]) -> bool {
        let decoded: Vec<u8> = percent_encoding::percent_decode(path).collect();
        let split = &self.split;
        !split.is_empty() && decoded.windows(split.len()).any(|part| part.eq_ignore_ascii_case(split))
    }

    fn find(&self, root: BorrowedFd<'_>, asked: &Asked, waiting: Waiting) -> Result<Found, NotFound> {
        let folder = match asked {
            Asked::Script(script) => {
                must_be_file(root, &script.name, waiting)?;
                return Ok(Found::Script(script.clone()));
            }
            Asked::Other(folder) => folder,
        };
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.bytes.is_empty()) {
            let name = folder.join(&self.index);
            match must_be_file(root, &name, waiting) {
                Ok(()) if folder.folder => return Ok(Found::Script(Script { name, info: None })),
                Ok(()) => return Ok(Found::Folder),
                Err(NotFound::NotOpened(OpenError::Missing)) => {}
                Err(lost) => return Err(lost),
            }
        }
        let front = self.front();
        must_be_file(root, &front.name, waiting)?;
        Ok(Found::Script(front))
    }

    /// A script's file, as the FastCGI server sees it.
    fn file(&self, name: &[u8]) -> Vec<u8> {
        let mut file = self.root().as_os_str().as_bytes().to_vec();
        if !file.ends_with(b"/") {
            file.push(b'/');
        }
        file.extend_from_slice(name);
        file
    }
}

fn must_be_file(root: BorrowedFd<'_>, name: &[u8], waiting: Waiting) -> Result<(), NotFound> {
    let file = open(root, name, waiting)?;
    let metadata = file.metadata().map_err(|_| OpenError::Failed)?;
    if metadata.is_file() { Ok(()) } else { Err(OpenError::Missing.into()) }
}

fn refuse(cause: &'static Cause) -> Box<Refusal> {
    Box::new(Refusal { cause, detail: None, headers: Vec::new() })
}

#[cfg(test)]
mod tests;

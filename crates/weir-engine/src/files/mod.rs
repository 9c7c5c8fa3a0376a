//! `files:` as a route's target: serves the content of a folder and nothing outside it.
//!
//! `path` turns a request's path into a name, `open` opens it below the root only, `conditions` handles validators
//! and ranges. `parts` sends several ranges, `listing` shows a folder, `media` knows types. Work that may wait for a
//! disk runs on the threads for blocking work; what the kernel has in memory is opened and read in place. `copies` has
//! the files that are requested often. `by_header` has the folders whose files an upstream may name.

mod by_header;
mod conditions;
pub(crate) mod copies;
mod listing;
mod media;
pub(crate) mod open;
mod parts;
pub(crate) mod path;
mod root;

pub(crate) use by_header::ByHeader;
pub(crate) use root::Root;

use bytes::Bytes;
use conditions::{Part, Validators, Verdict, Wanted, ranges};
use copies::{Identity, Next, SETTLED, Table, Times};
use open::{OpenError, Waiting, open, real_name};
use parts::Parts;
use path::{Name, Unnamed, with_slash};
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use weir_config::schema;
use weir_filter::coding::{self, Coding};
use weir_filter::file_source::read_resident;
use weir_filter::filter::{Answer, Body, CoreHandle, FileRange, Refusal};
use weir_h1::{FieldName, Method, RequestHead};
use weir_upstream::error::{self, Cause};

/// Files up to this size, in bytes, are read whole and sent with the head in as few writes as possible.
const WHOLE_BYTES: u64 = 64 * 1024;

/// A folder that a route serves.
pub struct Site {
    root: Root,
    index: Vec<String>,
    browse: bool,
    fallback: Option<Name>,
    hidden: bool,
    precompressed: Vec<Coding>,
    /// What is missing goes on to an upstream, and so do files whose names contain this.
    passes: Option<Box<[u8]>>,
    /// Distinguishes it from every other folder, earlier configs' too.
    number: u64,
    /// How long a file must be unchanged before it is copied.
    settled: Duration,
    names: Names,
}

/// How many folders there have been.
static SITES: AtomicU64 = AtomicU64::new(0);

/// Names of the fields in answers.
struct Names {
    accept_ranges: FieldName,
    allow: FieldName,
    content_encoding: FieldName,
    content_range: FieldName,
    content_type: FieldName,
    etag: FieldName,
    last_modified: FieldName,
    location: FieldName,
    vary: FieldName,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    name: Name,
    /// Codings that the client accepts, best first.
    codings: Vec<Coding>,
    /// Whether the fallback may answer.
    fallback: bool,
    /// The path as the client wrote it, for a listing.
    path: Vec<u8>,
}

impl Asked {
    /// Bytes of its texts.
    const fn weight(&self) -> usize {
        self.name.bytes.len() + self.path.len()
    }
}

/// What was found.
enum Found {
    File(Content, Representation),
    /// A folder requested without its slash.
    Folder,
    Listing(String),
}

/// The bytes of a file.
#[derive(Clone)]
enum Content {
    Copy(Bytes),
    Opened(Arc<File>),
}

/// The metadata of a file.
#[derive(Clone, Debug)]
struct Representation {
    identity: Identity,
    size: u64,
    modified: SystemTime,
    media: &'static str,
    coding: Option<Coding>,
}

/// Why nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFound {
    NoIndex,
    NotOpened(OpenError),
    NoRoot,
}

impl From<OpenError> for NotFound {
    fn from(e: OpenError) -> Self {
        Self::NotOpened(e)
    }
}

impl Site {
    /// The folder that a config names. Files whose names contain `scripts` are scripts of the upstream that gets what
    /// is missing: sending them would show their source. An error comes with the key it concerns.
    pub(crate) fn new(
        written: &schema::Files,
        scripts: Option<&str>,
    ) -> Result<Self, (&'static str, String)> {
        let root = Root::new(written.root.0.clone());
        if let Some(refusal) = root.refusal() {
            return Err(("root", refusal));
        }
        let fallback = match &written.fallback {
            None => None,
            Some(path) => match Name::of(path.as_bytes(), true) {
                Ok(name) if path.starts_with('/') && !name.folder => Some(name),
                _ => {
                    return Err((
                        "fallback",
                        format!("`{path}` names no file below the root; expected e.g. /index.html"),
                    ));
                }
            },
        };
        if let Some(bad) = written.index.iter().find(|name| !is_name(name)) {
            return Err(("index", format!("`{bad}` is not a file name; expected e.g. index.html")));
        }
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Ok(Self {
            root,
            index: written.index.clone(),
            browse: written.browse,
            fallback,
            hidden: written.hidden,
            precompressed: written.precompressed.clone(),
            passes: written.missing.as_ref().map(|_| scripts.unwrap_or_default().as_bytes().into()),
            number: SITES.fetch_add(1, Relaxed),
            settled: SETTLED,
            names: Names {
                accept_ranges: name("accept-ranges"),
                allow: name("allow"),
                content_encoding: name("content-encoding"),
                content_range: name("content-range"),
                content_type: name("content-type"),
                etag: name("etag"),
                last_modified: name("last-modified"),
                location: name("location"),
                vary: name("vary"),
            },
        })
    }

    /// A folder whose files an upstream names. An error says why it cannot be opened.
    fn of_upstream(root: PathBuf) -> Result<Self, String> {
        let written = schema::Files { index: Vec::new(), ..schema::Files::of(root) };
        Self::new(&written, None).map_err(|(_, refusal)| refusal)
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn index(&self) -> &[String] {
        &self.index
    }

    pub const fn browses(&self) -> bool {
        self.browse
    }

    pub fn fallback(&self) -> Option<String> {
        let name = self.fallback.as_ref()?;
        Some(format!("/{}", String::from_utf8_lossy(&name.bytes)))
    }

    /// Answers a request; `None` if it goes on to the upstream that gets what is missing.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        head: &RequestHead,
        core: &CoreHandle,
    ) -> Result<Option<Answer>, Box<Refusal>> {
        let Some(scripts) = &self.passes else { return self.answer_file(head, core).await.map(Some) };
        if !matches!(head.method(), Method::Get | Method::Head) {
            return Ok(None);
        }
        match self.asked(head) {
            Ok(asked) if !holds(&asked.name.bytes, scripts) => {}
            _ => return Ok(None),
        }
        match self.answer_file(head, core).await {
            Err(refusal) if [&error::FILES_MISSING, &error::FILES_NO_INDEX].contains(&refusal.cause) => {
                Ok(None)
            }
            answered => answered.map(Some),
        }
    }

    async fn answer_file(
        self: &Arc<Self>,
        head: &RequestHead,
        core: &CoreHandle,
    ) -> Result<Answer, Box<Refusal>> {
        self.answer_file_at(head, core, Instant::now()).await
    }

    /// The same, at this time.
    async fn answer_file_at(
        self: &Arc<Self>,
        head: &RequestHead,
        core: &CoreHandle,
        now: Instant,
    ) -> Result<Answer, Box<Refusal>> {
        if !matches!(head.method(), Method::Get | Method::Head) {
            let allow = vec![(self.names.allow.clone(), b"GET, HEAD".to_vec())];
            return Err(refuse(&error::FILES_METHOD, allow));
        }
        let asked = self.asked(head)?;
        match self.look(asked, core, now).await {
            Ok(Found::File(content, representation)) => self.deliver(content, &representation, head, core),
            Ok(Found::Folder) => Ok(self.redirect(head)),
            Ok(Found::Listing(page)) => Ok(Answer {
                status: 200,
                headers: vec![(self.names.content_type.clone(), b"text/html; charset=utf-8".to_vec())],
                body: page.into(),
            }),
            Err(lost) => Err(refuse(cause_of(lost), Vec::new())),
        }
    }

    fn asked(&self, head: &RequestHead) -> Result<Asked, Box<Refusal>> {
        // With `slashes: keep`, routing distinguishes `//admin/a` from `/admin/a`, which other filters may protect.
        // The disk does not.
        if head.routed_path().windows(2).any(|pair| pair == b"//") {
            return Err(refuse(&error::FILES_MISSING, Vec::new()));
        }
        let mut name = Name::of(head.path(), self.hidden).map_err(|unnamed| match unnamed {
            Unnamed::Hidden => refuse(&error::FILES_HIDDEN, Vec::new()),
            Unnamed::Impossible => refuse(&error::FILES_MISSING, Vec::new()),
        })?;
        // A filter may have rewritten the path. The client's own slash counts, or the redirect would loop.
        name.folder |= head.routed_path().ends_with(b"/");
        let codings = match &self.precompressed[..] {
            [] => Vec::new(),
            ours => coding::ranked(head.headers.get_all("accept-encoding"), ours),
        };
        // An application's page may have any path. A path that ends like a script or an image is not a page, so it is
        // missing.
        let page = media::of(&name.bytes).is_none_or(|media| media.starts_with("text/html"));
        let fallback = self.fallback.is_some() && page;
        let path = if self.browse { head.routed_path().to_vec() } else { Vec::new() };
        Ok(Asked { name, codings, fallback, path })
    }

    // === finding ===

    async fn look(
        self: &Arc<Self>,
        asked: Asked,
        core: &CoreHandle,
        now: Instant,
    ) -> Result<Found, NotFound> {
        let table = Table::of(core);
        if let Some((copy, representation)) = table.find(self.number, &asked, now) {
            return Ok(Found::File(Content::Copy(copy), representation));
        }
        let (site, asked) = (Arc::clone(self), Arc::new(asked));
        let name = Arc::clone(&asked);
        let look = self.root.look(core, now, move |root, waiting| site.find(root, &name, waiting));
        let (found, until) = look.await?;
        let Found::File(Content::Opened(file), representation) = found else { return Ok(found) };
        let times = Times { now, clock: SystemTime::now(), until, settled: self.settled };
        match table.look(self.number, &asked, &representation, times) {
            Next::Send(copy) => return Ok(Found::File(Content::Copy(copy), representation)),
            Next::SendFile => {}
            Next::Copy(room) => {
                // This request does not wait for the copy.
                let (site, of, file) = (self.number, representation.clone(), Arc::clone(&file));
                let handle = core.clone();
                let _ = core.spawn(async move {
                    let copy = handle
                        .blocking(move || copies::copy(&file, of.identity, room).map(|copied| (copied, of)));
                    let copied = copy.await.ok().flatten();
                    table.keep(site, &asked, copied, until);
                }); // with too many tasks, a later request copies it
            }
        }
        Ok(Found::File(Content::Opened(file), representation))
    }

    fn find(&self, root: BorrowedFd<'_>, asked: &Asked, waiting: Waiting) -> Result<Found, NotFound> {
        let found = self.find_named(root, asked, waiting);
        match (&found, &self.fallback) {
            (Err(NotFound::NoIndex | NotFound::NotOpened(OpenError::Missing)), Some(fallback))
                if asked.fallback =>
            {
                self.regular(root, &fallback.bytes, asked, waiting)
            }
            _ => found,
        }
    }

    fn find_named(&self, root: BorrowedFd<'_>, asked: &Asked, waiting: Waiting) -> Result<Found, NotFound> {
        let file = open(root, &asked.name.bytes, waiting)?;
        let metadata = file.metadata().map_err(|_| OpenError::Failed)?;
        if !metadata.is_dir() {
            if asked.name.folder {
                return Err(OpenError::Missing.into());
            }
            return self.file(root, &asked.name.bytes, file, &metadata, asked, waiting);
        }
        // An application may use the name of a folder that has nothing to send.
        let may_be_page = self.passes.is_some() && !self.browse;
        if !asked.name.folder && !may_be_page {
            return Ok(Found::Folder);
        }
        for index in &self.index {
            match self.regular(root, &asked.name.join(index), asked, waiting) {
                Err(NotFound::NotOpened(OpenError::Missing)) => {}
                Ok(_) if !asked.name.folder => return Ok(Found::Folder),
                found => return found,
            }
        }
        match (self.browse, waiting) {
            (false, _) => Err(NotFound::NoIndex),
            (true, Waiting::Never) => Err(OpenError::Waits.into()),
            (true, Waiting::Fine) => {
                let page = listing::page(&file, &asked.path, self.hidden).map_err(|_| OpenError::Failed)?;
                Ok(Found::Listing(page))
            }
        }
    }

    /// Opens a file by name.
    fn regular(
        &self,
        root: BorrowedFd<'_>,
        name: &[u8],
        asked: &Asked,
        waiting: Waiting,
    ) -> Result<Found, NotFound> {
        if self.passes.as_ref().is_some_and(|scripts| holds(name, scripts)) {
            return Err(OpenError::Missing.into()); // an index or fallback is a script too, and is passed on
        }
        let file = open(root, name, waiting)?;
        let metadata = file.metadata().map_err(|_| OpenError::Failed)?;
        self.file(root, name, file, &metadata, asked, waiting)
    }

    /// The file, or a precompressed sibling that the client accepts.
    fn file(
        &self,
        root: BorrowedFd<'_>,
        name: &[u8],
        file: File,
        metadata: &Metadata,
        asked: &Asked,
        waiting: Waiting,
    ) -> Result<Found, NotFound> {
        if !metadata.is_file() {
            return Err(OpenError::Missing.into()); // a pipe, socket or device
        }
        if self.is_script(root, name, &file, waiting)? {
            return Err(OpenError::Missing.into());
        }
        let media = media::of(name).unwrap_or(media::UNKNOWN);
        for &coding in &asked.codings {
            let sibling = [name, b".", coding.ending().as_bytes()].concat();
            let opened = match open(root, &sibling, waiting) {
                Ok(opened) => opened,
                Err(OpenError::Waits) => return Err(OpenError::Waits.into()),
                Err(_) => continue,
            };
            if let Ok(metadata) = opened.metadata()
                && metadata.is_file()
                && !self.is_script(root, &sibling, &opened, waiting)?
            {
                let opened = Content::Opened(Arc::new(opened));
                return Ok(Found::File(opened, Representation::of(&metadata, media, Some(coding))));
            }
        }
        Ok(Found::File(Content::Opened(Arc::new(file)), Representation::of(metadata, media, None)))
    }

    /// Whether a file is a script under another name: a link leads to it.
    fn is_script(
        &self,
        root: BorrowedFd<'_>,
        name: &[u8],
        file: &File,
        waiting: Waiting,
    ) -> Result<bool, NotFound> {
        match &self.passes {
            Some(scripts) if !scripts.is_empty() => {
                Ok(holds(&real_name(root, name, file, waiting)?, scripts))
            }
            _ => Ok(false),
        }
    }

    // === answering ===

    fn redirect(&self, head: &RequestHead) -> Answer {
        let location = with_slash(head.routed_path(), head.query());
        Answer { status: 308, headers: vec![(self.names.location.clone(), location)], body: Body::default() }
    }

    fn deliver(
        &self,
        content: Content,
        representation: &Representation,
        head: &RequestHead,
        core: &CoreHandle,
    ) -> Result<Answer, Box<Refusal>> {
        let Names {
            accept_ranges,
            content_encoding,
            content_range,
            content_type,
            etag,
            last_modified,
            vary,
            ..
        } = &self.names;
        let validators = Validators::of(
            representation.modified,
            representation.size,
            representation.coding.map(Coding::name),
        );
        let mut headers = vec![
            (etag.clone(), validators.tag.clone().into_bytes()),
            (last_modified.clone(), httpdate::fmt_http_date(validators.modified).into_bytes()),
        ];
        if !self.precompressed.is_empty() {
            headers.push((vary.clone(), b"accept-encoding".to_vec()));
        }
        // Conditions and ranges of other methods were for the upstream that has taken the request.
        let reads = matches!(head.method(), Method::Get | Method::Head);
        match if reads { validators.check(&head.headers) } else { Verdict::Holds } {
            Verdict::Holds => {}
            Verdict::Failed => return Err(refuse(&error::FILES_CHANGED, Vec::new())),
            Verdict::NotModified => return Ok(Answer { status: 304, headers, body: Body::default() }),
        }
        headers.push((accept_ranges.clone(), b"bytes".to_vec()));
        if let Some(coding) = representation.coding {
            headers.push((content_encoding.clone(), coding.name().as_bytes().to_vec()));
        }
        let get = head.method() == Method::Get; // RFC 9110 §14.2: Range applies to GET only
        let wanted =
            match head.headers.get_str("range").filter(|_| get && validators.is_in_range(&head.headers)) {
                Some(range) => ranges(Some(range), representation.size),
                None => Wanted::Whole,
            };
        let (status, media, body) = match wanted {
            Wanted::Whole => {
                (200, representation.media.to_owned(), body(content, 0..representation.size, get))
            }
            Wanted::Unsatisfiable => {
                let size = format!("bytes */{}", representation.size).into_bytes();
                return Err(refuse(&error::FILES_RANGE, vec![(content_range.clone(), size)]));
            }
            Wanted::Parts(parts) => match <[Part; 1]>::try_from(parts) {
                Ok([part]) => {
                    let range = format!("bytes {}-{}/{}", part.start, part.end - 1, representation.size);
                    headers.push((content_range.clone(), range.into_bytes()));
                    (206, representation.media.to_owned(), body(content, part, get))
                }
                Err(parts) => {
                    let boundary = boundary();
                    let media = format!("multipart/byteranges; boundary={boundary}");
                    let parts = Parts::new(
                        content,
                        parts,
                        representation.media,
                        representation.size,
                        &boundary,
                        core.clone(),
                    );
                    (206, media, Body::Stream(Box::new(parts)))
                }
            },
        };
        headers.push((content_type.clone(), media.into_bytes()));
        Ok(Answer { status, headers, body })
    }
}

impl Representation {
    fn of(metadata: &Metadata, media: &'static str, coding: Option<Coding>) -> Self {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self { identity: Identity::of(metadata), size: metadata.len(), modified, media, coding }
    }
}

/// A part of a file as a body: read into memory if it is small and cached.
fn body(content: Content, part: Part, read: bool) -> Body {
    let length = part.end - part.start;
    let file = match content {
        Content::Copy(bytes) => return Body::Bytes(slice(&bytes, part)),
        Content::Opened(file) => file,
    };
    if read
        && length <= WHOLE_BYTES
        && let Some(bytes) = read_resident(&file, part.start, length)
        && bytes.len() as u64 == length
    {
        return Body::Bytes(Bytes::from(bytes));
    }
    Body::File(FileRange { file, offset: part.start, length })
}

/// A part of a copy, which has all parts of its file.
fn slice(copy: &Bytes, part: Part) -> Bytes {
    let at = |offset: u64| usize::try_from(offset).map_or(copy.len(), |offset| offset.min(copy.len()));
    copy.slice(at(part.start)..at(part.end))
}

/// The separator between parts: unpredictable, so no file can contain it.
fn boundary() -> String {
    let random = RandomState::new();
    format!("{:016x}{:016x}", random.build_hasher().finish(), random.hash_one(1))
}

/// Whether a name contains this, whatever its case: some file systems ignore it. Nothing contains the empty text.
fn holds(name: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && name.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// Whether a text is a file name and not a path.
fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '\0'])
}

fn refuse(cause: &'static Cause, headers: Vec<(FieldName, Vec<u8>)>) -> Box<Refusal> {
    Box::new(Refusal { cause, detail: None, headers })
}

pub(crate) const fn cause_of(lost: NotFound) -> &'static Cause {
    match lost {
        NotFound::NoIndex => &error::FILES_NO_INDEX,
        NotFound::NoRoot => &error::FILES_ROOT,
        NotFound::NotOpened(why) => match why {
            OpenError::Busy => &error::BLOCKING_LIMIT,
            OpenError::Denied => &error::FILES_DENIED,
            OpenError::Descriptors => &error::OUT_OF_DESCRIPTORS,
            OpenError::Missing => &error::FILES_MISSING,
            OpenError::Outside => &error::FILES_OUTSIDE,
            OpenError::Failed | OpenError::Waits => &error::FILES_FAILED,
        },
    }
}

#[cfg(test)]
mod tests;

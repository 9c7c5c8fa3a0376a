//! Follows the file or the URL of a source, on the control thread. Reading and comparing happens on threads that may
//! block.

use super::cache::{self, Confirmation};
use super::source::{Asking, Origin, Source, read_text, text_of};
use crate::filter::Fetcher;
use crate::filter::followed_file::{FollowedFile, LOOK, Stamp, follow_file};
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_config::parse::MAX_CONSUMER_BYTES;
use weir_fleet::digest::Digest;
use weir_h1::FieldName;
use weir_upstream::fetch::{FetchRequest, Url};
use weir_wire::Chain;

/// The first wait after a failure; it doubles up to the usual time between two requests.
const RETRY: Duration = Duration::from_secs(1);

pub(super) async fn follow(source: Arc<Source>, fetcher: Fetcher) {
    match &source.origin {
        Origin::File(path) => {
            let path = path.clone();
            follow_file(&Arc::new(OfFile { source, path })).await;
        }
        Origin::Http(url) => follow_url(&source, url, &fetcher).await,
    }
}

/// The file of a source.
struct OfFile {
    source: Arc<Source>,
    path: PathBuf,
}

impl FollowedFile for OfFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn begun_with(&self) -> Option<Stamp> {
        self.source.begun_with()
    }

    fn take(&self) -> Result<(), String> {
        let generation = Source::next_generation();
        self.source.take(&read_text(&self.path)?, &self.path, generation, None)
    }

    fn failed(&self, why: &str) {
        self.source.failed(why);
    }

    /// What was refused may fit once the rules change.
    async fn rest(&self, is_new: bool, failed: bool) -> bool {
        let watched = self.source.adopted().is_some_and(|adopted| adopted.rules.watch);
        let woken = wait(&self.source, (watched || is_new).then_some(LOOK)).await;
        woken && (failed || self.source.current().is_none())
    }
}

/// Runs this on a thread that may block.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(job).await.ok()
}

/// Waits for this time, or until the rules change; then returns true.
async fn wait(source: &Source, time: Option<Duration>) -> bool {
    let Some(time) = time else {
        source.wanted.notified().await;
        return true;
    };
    tokio::time::timeout(time, source.wanted.notified()).await.is_ok()
}

/// The answer that is in use.
struct Last {
    etag: Option<Vec<u8>>,
    digest: Digest,
    generation: u64,
}

/// When the cache is written again although the answer has not changed.
struct Cached {
    path: PathBuf,
    /// `None`: not before the answer changes.
    due: Option<Instant>,
}

/// How long to wait after the cache could not be written.
const REWRITE: Duration = Duration::from_secs(60);

/// Follows one URL.
struct Follower<'a> {
    source: &'a Arc<Source>,
    url: &'a Url,
    fetcher: &'a Fetcher,
    last: Option<Last>,
    cached: Option<Cached>,
    /// Whether the source is still followed. A job that outlives it must not touch a cache that another may have now.
    lives: Lives,
}

/// True until it is dropped.
struct Lives(Arc<AtomicBool>);

impl Drop for Lives {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What the server said.
enum Said {
    /// This document is current.
    Document(Bytes, Option<Vec<u8>>),
    /// What it said last still is.
    Same,
}

async fn follow_url(source: &Arc<Source>, url: &Url, fetcher: &Fetcher) {
    let lives = Lives(Arc::new(AtomicBool::new(true)));
    let mut follower = Follower { source, url, fetcher, last: None, cached: None, lives };
    let mut failures = 0u32;
    loop {
        let Some(asking) = source.asking() else { return };
        let wait_for = match follower.ask_while_usable(&asking).await {
            Ok(()) => {
                failures = 0;
                asking.every
            }
            Err(why) => {
                source.failed(&why);
                failures = failures.saturating_add(1);
                RETRY.saturating_mul(1 << (failures - 1).min(6)).min(asking.every)
            }
        };
        let wait_for = source.usable_for().map_or(wait_for, |usable| wait_for.min(usable));
        if wait(source, Some(wait_for)).await && failures > 0 {
            follower.last = None; // what was refused may fit now
        }
        follower.expire_if_due().await;
    }
}

impl Follower<'_> {
    /// Asks once. If the consumers become too old meanwhile, they are dropped at once.
    async fn ask_while_usable(&mut self, asking: &Arc<Asking>) -> Result<(), String> {
        let source = Arc::clone(self.source);
        let mut ask = std::pin::pin!(self.ask(asking));
        loop {
            let Some(usable) = source.usable_for() else { return ask.await };
            if let Ok(answer) = tokio::time::timeout(usable, &mut ask).await {
                return answer;
            }
            expire(&source).await;
        }
    }

    async fn expire_if_due(&self) {
        if self.source.usable_for() == Some(Duration::ZERO) {
            expire(self.source).await;
        }
    }

    async fn ask(&mut self, asking: &Arc<Asking>) -> Result<(), String> {
        let (generation, confirmed) = (Source::next_generation(), Confirmation::now());
        if let Said::Document(body, etag) = self.said(asking).await? {
            return self.heard(asking, body, etag, generation, confirmed).await;
        }
        if let Some(last) = &self.last
            && self.source.confirmed(last.generation, confirmed)
            && self.refresh(asking, None, confirmed).await
        {
            return Ok(());
        }
        // It is not in use any more, or not in the cache, so it is needed whole.
        if let Some(last) = &mut self.last {
            last.etag = None;
        }
        let (generation, confirmed) = (Source::next_generation(), Confirmation::now());
        match self.said(asking).await? {
            Said::Document(body, etag) => self.heard(asking, body, etag, generation, confirmed).await,
            Said::Same => Err(NOT_ASKED.to_owned()),
        }
    }

    /// Asks the server.
    async fn said(&self, asking: &Asking) -> Result<Said, String> {
        let mut request = FetchRequest::get(self.url.clone(), MAX_CONSUMER_BYTES, asking.timeout);
        request.trust = asking.trust.clone();
        let field = |name| FieldName::new(name).expect("a name in the source is a token");
        if let Some(token) = &asking.token {
            request.headers.push((field("authorization"), format!("Bearer {token}").into_bytes()));
        }
        let etag = self.last.as_ref().and_then(|last| last.etag.clone());
        let is_conditional = etag.is_some();
        if let Some(etag) = etag {
            request.headers.push((field("if-none-match"), etag));
        }
        let answer = self.fetcher.fetch(request).await.map_err(|e| Chain(&e).to_string())?;
        match answer.status {
            200 => {
                let etag = answer.field("etag").map(<[u8]>::to_vec);
                Ok(Said::Document(answer.body, etag))
            }
            304 if is_conditional => Ok(Said::Same),
            304 => Err(NOT_ASKED.to_owned()),
            status @ (301 | 302 | 303 | 307 | 308) => {
                Err(format!("the answer has the status {status}, and redirects are not followed"))
            }
            status => Err(format!("the answer has the status {status}; expected 200")),
        }
    }

    /// Takes a whole answer, which may be the one in use.
    async fn heard(
        &mut self,
        asking: &Arc<Asking>,
        body: Bytes,
        etag: Option<Vec<u8>>,
        generation: u64,
        confirmed: Confirmation,
    ) -> Result<(), String> {
        let (url, source) = (self.url.shown(), Arc::clone(self.source));
        // A version with a mistake is asked for again, so that it stays visible.
        let last = self.last.take();
        let digest = {
            let body = body.clone();
            blocking(move || Digest::of(&[&body])).await.ok_or("reading it failed")?
        };
        if let Some(last) = last
            && last.digest == digest
            && self.source.confirmed(last.generation, confirmed)
        {
            self.last = Some(Last { etag, ..last });
            self.refresh(asking, Some(body), confirmed).await;
            return Ok(());
        }
        let text = text_of(body.to_vec()).map_err(|why| format!("the answer {why}"))?;
        let job = move || source.take(&text, Path::new(&url), generation, Some(confirmed));
        blocking(job).await.unwrap_or_else(|| Err("reading it failed".to_owned()))?;
        self.last = Some(Last { etag, digest, generation });
        self.cached = None;
        self.refresh(asking, Some(body), confirmed).await;
        Ok(())
    }

    /// Writes the cache, if that is due. Without the document, that of the cache is confirmed; returns false if it has
    /// another one.
    async fn refresh(&mut self, asking: &Arc<Asking>, body: Option<Bytes>, confirmed: Confirmation) -> bool {
        let (Some(path), Some(last)) = (&asking.cache, &self.last) else { return true };
        let is_due =
            |cached: &Cached| cached.path != *path || cached.due.is_some_and(|due| due <= Instant::now());
        if !self.cached.as_ref().is_none_or(is_due) {
            return true;
        }
        let (origin, digest, lives) = (cache::origin_of(self.url), last.digest, Arc::clone(&self.lives.0));
        let to = path.clone();
        let written = blocking(move || {
            let lives = || lives.load(Ordering::Acquire);
            match body {
                Some(body) => cache::write(&to, origin, confirmed.at, &body, lives),
                None => cache::confirm(&to, origin, confirmed.at, digest, lives),
            }
        });
        let wait_for = match written.await.unwrap_or_else(|| Err(io::Error::other("writing it failed"))) {
            // What was lost of `stale` in a restart is at most this part.
            Ok(()) => asking.stale.map(|stale| stale / 10),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return false,
            Err(e) => {
                let fields: weir_telemetry::log::Fields<'_> =
                    &[("source", &self.source.name()), ("file", &path.display()), ("error", &e)];
                weir_telemetry::log::warn("the cache of a source of consumers cannot be written", fields);
                Some(REWRITE)
            }
        };
        let due = wait_for.and_then(|wait_for| Instant::now().checked_add(wait_for));
        self.cached = Some(Cached { path: path.clone(), due });
        true
    }
}

/// The server says that nothing has changed, and was not asked.
const NOT_ASKED: &str = "the answer has the status 304 without If-None-Match in the request; expected 200";

async fn expire(source: &Arc<Source>) {
    let source = Arc::clone(source);
    blocking(move || source.expire()).await;
}

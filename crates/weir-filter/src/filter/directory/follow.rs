//! Follows the file or the URL of a source, on the control thread. Reading and comparing happens on threads that may
//! block.

use super::source::{Fetched, Origin, Source, read_text, text_of};
use crate::filter::Fetcher;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::parse::MAX_CONSUMER_BYTES;
use weir_h1::FieldName;
use weir_upstream::fetch::FetchRequest;
use weir_wire::Chain;

/// How often a file is checked. A check is one `stat`.
const LOOK: Duration = Duration::from_millis(500);

/// The first wait after a failure; it doubles up to the usual time between two requests.
const RETRY: Duration = Duration::from_secs(1);

/// Identifies a version of a file.
pub(super) type Stamp = (u64, u64, i64, i64, i64, i64);

pub(super) async fn follow(source: Arc<Source>, fetcher: Fetcher) {
    match &source.origin {
        Origin::File(path) => follow_file(&source, path).await,
        Origin::Http(fetched) => follow_url(&source, fetched, &fetcher).await,
    }
}

/// Takes a file when two checks in a row have seen the same new version, so that nobody is writing it.
async fn follow_file(source: &Arc<Source>, path: &Path) {
    // The version that was read last, well or not. `None` inside: there was no file.
    let mut taken = Some(source.begun_with());
    let (mut seen, mut failed) = (None, false);
    loop {
        let now = look(path).await;
        if taken != Some(now) && seen == Some(now) {
            let read = take(source, Text::File(path.to_owned())).await;
            failed = read.is_err();
            if let Err(why) = read {
                source.failed(&why, true);
            }
            // A version that was replaced while it was read is read again.
            taken = Some(now).filter(|_| !failed || now.is_some());
            if look(path).await != now {
                taken = None;
            }
        }
        seen = Some(now);
        let watched = source.rules().is_some_and(|rules| rules.watch);
        let is_new = taken != Some(now) && now.is_some();
        let woken = wait(source, (watched || is_new).then_some(LOOK)).await;
        if woken && failed {
            taken = None; // what was refused may fit now
        }
    }
}

/// The text of a document.
enum Text {
    File(PathBuf),
    Answer { body: Vec<u8>, url: String, cache: Option<PathBuf> },
}

/// Reads a document and takes it, on a thread that may block.
async fn take(source: &Arc<Source>, text: Text) -> Result<(), String> {
    let source = Arc::clone(source);
    let job = move || match text {
        Text::File(path) => source.take(&read_text(&path)?, &path),
        Text::Answer { body, url, cache } => {
            let text = text_of(body).map_err(|why| format!("the answer {why}"))?;
            source.take(&text, Path::new(&url))?;
            if let Some(cache) = cache
                && let Err(e) = write(&cache, text.as_bytes())
            {
                let fields: weir_telemetry::log::Fields<'_> =
                    &[("source", &source.name()), ("file", &cache.display()), ("error", &e)];
                weir_telemetry::log::warn("the cache of a source of consumers cannot be written", fields);
            }
            Ok(())
        }
    };
    tokio::task::spawn_blocking(job).await.unwrap_or_else(|_| Err("reading it failed".to_owned()))
}

/// Replaces a file that only this user may read.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let _ = fs::remove_file(&beside); // of a process that was killed
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// Waits for this time, or until the rules change; then returns true.
async fn wait(source: &Source, time: Option<Duration>) -> bool {
    let Some(time) = time else {
        source.wanted.notified().await;
        return true;
    };
    tokio::time::timeout(time, source.wanted.notified()).await.is_ok()
}

async fn look(path: &Path) -> Option<Stamp> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || stamp(&path)).await.ok().flatten()
}

/// The version of a file; `None` if there is none.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let m = fs::metadata(path).ok()?; // follows symlinks
    Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
}

/// What was fetched last.
#[derive(Default)]
struct Last {
    etag: Option<Vec<u8>>,
    hash: Option<[u8; 32]>,
}

async fn follow_url(source: &Arc<Source>, fetched: &Fetched, fetcher: &Fetcher) {
    let (mut last, mut good, mut failures) = (Last::default(), Instant::now(), 0u32);
    loop {
        let wait_for = match ask(source, fetched, fetcher, &mut last).await {
            Ok(()) => {
                (good, failures) = (Instant::now(), 0);
                fetched.every
            }
            Err(why) => {
                let keep =
                    fetched.stale.is_none_or(|stale| good.elapsed() <= fetched.every.saturating_add(stale));
                if !keep {
                    last = Last::default();
                }
                source.failed(&why, keep);
                failures = failures.saturating_add(1);
                RETRY.saturating_mul(1 << (failures - 1).min(6)).min(fetched.every)
            }
        };
        if wait(source, Some(wait_for)).await && failures > 0 {
            last = Last::default(); // what was refused may fit now
        }
    }
}

async fn ask(
    source: &Arc<Source>,
    fetched: &Fetched,
    fetcher: &Fetcher,
    last: &mut Last,
) -> Result<(), String> {
    let mut request = FetchRequest::get(fetched.url.clone(), MAX_CONSUMER_BYTES, fetched.timeout);
    request.trust = fetched.trust.clone();
    let field = |name| FieldName::new(name).expect("a name in the source is a token");
    if let Some(token) = &fetched.token {
        request.headers.push((field("authorization"), format!("Bearer {token}").into_bytes()));
    }
    if let Some(etag) = &last.etag {
        request.headers.push((field("if-none-match"), etag.clone()));
    }
    let answer = fetcher.fetch(request).await.map_err(|e| Chain(&e).to_string())?;
    match answer.status {
        200 => {}
        304 if last.etag.is_some() => {
            source.confirmed();
            return Ok(());
        }
        status @ (301 | 302 | 303 | 307 | 308) => {
            return Err(format!("the answer has the status {status}, and redirects are not followed"));
        }
        status => return Err(format!("the answer has the status {status}; expected 200")),
    }
    let hash: [u8; 32] = Sha256::digest(&answer.body).into();
    let etag = answer.field("etag").map(<[u8]>::to_vec);
    if last.hash == Some(hash) {
        last.etag = etag;
        source.confirmed();
        return Ok(());
    }
    let text = Text::Answer {
        body: answer.body.into(),
        url: fetched.url.shown().to_string(),
        cache: fetched.cache.clone(),
    };
    // A version with a mistake is asked for again, so that it stays visible.
    *last = Last::default();
    take(source, text).await?;
    *last = Last { etag, hash: Some(hash) };
    Ok(())
}

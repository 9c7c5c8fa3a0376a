//! The keys of a provider, fetched from a URL on the control thread. They are refreshed at regular intervals, and
//! sooner if a token names an unknown key.

use super::key_set::{KEY_SET_BYTES, KeySet, Secrets};
use crate::prelude::*;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant};
use tokio::sync::{Notify, watch};
use weir_telemetry::log;

/// Longest time for one response of the provider.
const TIMEOUT: StdDuration = StdDuration::from_secs(5);

/// How long a request waits for keys.
pub(crate) const WAIT: StdDuration = StdDuration::from_secs(5);

/// Shortest time between fetches caused by unknown key names: forged tokens must not become requests to the provider.
const FORCED: StdDuration = StdDuration::from_secs(30);

/// The first wait after a failure; it doubles up to [`RETRY_MOST`].
const RETRY: StdDuration = StdDuration::from_secs(1);

/// The longest wait after a failure.
const RETRY_MOST: StdDuration = StdDuration::from_secs(60);

/// How the keys of a URL are fetched.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    /// The URL of the key set.
    pub(crate) url: Url,
    /// The certificate authorities to trust.
    pub(crate) trust: Trust,
    /// How long a set is used before it is fetched again.
    pub(crate) refresh: StdDuration,
    /// How long a set stays in use after that while the provider gives no other.
    pub(crate) stale: StdDuration,
}

/// The keys of a URL.
pub(crate) struct Remote {
    keeping: Keeping,
    current: ArcSwapOption<KeySet>,
    /// How many fetches have ended. Requests wait for the next one.
    rounds: watch::Sender<u64>,
    wanted: Notify,
    /// The start of the time below.
    since: Instant,
    /// When the last fetch began, in milliseconds since `since`.
    fetched_at: AtomicU64,
    fetching: AtomicBool,
}

impl Remote {
    /// Keys that have not been fetched yet.
    pub(crate) fn new(keeping: Keeping) -> Self {
        Self {
            keeping,
            current: ArcSwapOption::empty(),
            rounds: watch::Sender::new(0),
            wanted: Notify::new(),
            since: Instant::now(),
            fetched_at: AtomicU64::new(0),
            fetching: AtomicBool::new(true), // the first fetch starts immediately
        }
    }

    /// The URL of the key set.
    pub(crate) const fn url(&self) -> &Url {
        &self.keeping.url
    }

    /// The keys; `None` before the first fetch, or if the last one is too old.
    pub(crate) fn current(&self) -> Option<Arc<KeySet>> {
        self.current.load_full()
    }

    /// Whether waiting for other keys makes sense: a fetch is under way, or one may be requested.
    pub(crate) fn may_change(&self) -> bool {
        self.fetching.load(Ordering::Acquire) || self.age() >= FORCED
    }

    /// Requests other keys than the set with number `seen`. Waits until the provider has answered or failed, or for
    /// [`WAIT`].
    pub(crate) async fn change(&self, seen: Option<u64>) {
        let mut rounds = self.rounds.subscribe();
        if self.current().map(|keys| keys.number()) != seen {
            return;
        }
        if !self.fetching.load(Ordering::Acquire) {
            self.wanted.notify_one();
        }
        let _ = tokio::time::timeout(WAIT, rounds.changed()).await; // the caller checks the keys itself
    }

    /// Time since the last fetch began.
    fn age(&self) -> StdDuration {
        let at = StdDuration::from_millis(self.fetched_at.load(Ordering::Acquire));
        self.since.elapsed().saturating_sub(at)
    }

    async fn fetch(&self, fetcher: &Fetcher, last: &mut Bytes) -> Result<(), String> {
        let mut request = FetchRequest::get(self.keeping.url.clone(), KEY_SET_BYTES, TIMEOUT);
        request.trust = self.keeping.trust.clone();
        let answer = fetcher.fetch(request).await.map_err(|e| weir_wire::Chain(&e).to_string())?;
        if answer.status != 200 {
            return Err(format!("the answer has the status {}", answer.status));
        }
        if answer.body == *last && self.current.load().is_some() {
            return Ok(()); // the set is unchanged, so verified tokens stay valid
        }
        let (keys, left_out) = KeySet::read(&answer.body, Secrets::Refused)?;
        for why in left_out {
            log::warn("a key was ignored", &[("url", &self.keeping.url.shown()), ("why", &why)]);
        }
        log::info("keys fetched", &[("url", &self.keeping.url.shown()), ("keys", &keys.len())]);
        *last = answer.body;
        self.current.store(Some(Arc::new(keys)));
        Ok(())
    }

    /// Fetches keys whenever necessary, forever.
    pub(crate) async fn work(&self, fetcher: Fetcher) {
        let (mut last, mut good, mut failures) = (Bytes::new(), Instant::now(), 0u32);
        loop {
            let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.fetched_at.store(now, Ordering::Release);
            self.fetching.store(true, Ordering::Release);
            let fetched = self.fetch(&fetcher, &mut last).await;
            let wait = match fetched {
                Ok(()) => {
                    (good, failures) = (Instant::now(), 0);
                    self.keeping.refresh
                }
                Err(why) => {
                    failures = failures.saturating_add(1);
                    self.failed(&why, good);
                    RETRY.saturating_mul(1 << (failures - 1).min(6)).min(RETRY_MOST).min(self.keeping.refresh)
                }
            };
            self.fetching.store(false, Ordering::Release);
            self.rounds.send_modify(|rounds| *rounds += 1);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.wanted.notified() => {
                    // Waits if a request came right after the last fetch, for example while it was still under way.
                    tokio::time::sleep(FORCED.min(wait).saturating_sub(self.age())).await;
                }
            }
        }
    }

    fn failed(&self, why: &str, good: Instant) {
        static SEEN: log::PerSubject = log::per_subject(1, StdDuration::from_secs(10));
        let age = good.elapsed();
        let known = self.current.load().is_some();
        if known && age > self.keeping.refresh.saturating_add(self.keeping.stale) {
            self.current.store(None);
            log::error(
                "keys are too old and no longer used",
                &[("url", &self.keeping.url.shown()), ("why", &why)],
            );
            return;
        }
        let still = if known { "the keys from before are used" } else { "there are no keys yet" };
        let fields: log::Fields<'_> =
            &[("url", &self.keeping.url.shown()), ("why", &why), ("meanwhile", &still)];
        SEEN.warn(&self.keeping.url, "keys not fetched", fields);
    }
}

impl Tended for Remote {
    fn tend(self: Arc<Self>, fetcher: Fetcher) -> Tending {
        Box::pin(async move { self.work(fetcher).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::Receiver;
    use weir_filter::fetch::Asked;

    const A: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    const B: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"b","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    /// Keys under test, and the receiver of their requests.
    fn kept(refresh: StdDuration, stale: StdDuration) -> (Arc<Remote>, Receiver<Asked>) {
        let url = "https://idp.example/keys".parse().unwrap();
        let remote = Arc::new(Remote::new(Keeping { url, trust: Trust::default(), refresh, stale }));
        let (fetcher, asked) = Fetcher::channel();
        drop(tokio::spawn(Arc::clone(&remote).tend(fetcher)));
        (remote, asked)
    }

    /// Answers the next request and waits until the answer is in use.
    async fn answer(asked: &mut Receiver<Asked>, remote: &Remote, body: Option<&str>) {
        let asked = asked.recv().await.unwrap();
        assert_eq!(asked.request.url.to_string(), "https://idp.example/keys");
        let mut rounds = remote.rounds.subscribe();
        let answer =
            body.map(|body| CallAnswer { status: 200, headers: Vec::new(), body: body.to_owned().into() });
        asked.answer.send(answer.ok_or(FetchError::Timeout)).unwrap();
        rounds.changed().await.unwrap();
    }

    fn number(remote: &Remote) -> Option<u64> {
        remote.current().map(|keys| keys.number())
    }

    const AT_ONCE: StdDuration = StdDuration::from_millis(1);
    const LONG: StdDuration = StdDuration::from_secs(3600);

    #[tokio::test]
    async fn a_set_that_did_not_change_stays_the_same() {
        let (remote, mut asked) = kept(AT_ONCE, LONG);
        assert!(remote.current().is_none() && remote.may_change());
        answer(&mut asked, &remote, Some(A)).await;
        let first = number(&remote);
        assert!(first.is_some());
        answer(&mut asked, &remote, Some(A)).await;
        assert_eq!(number(&remote), first);
        answer(&mut asked, &remote, Some(B)).await;
        assert!(number(&remote).is_some() && number(&remote) != first);
    }

    #[tokio::test]
    async fn keys_outlive_their_provider_as_long_as_configured() {
        for (stale, outlive) in [(LONG, true), (StdDuration::ZERO, false)] {
            let (remote, mut asked) = kept(AT_ONCE, stale);
            answer(&mut asked, &remote, Some(A)).await;
            let first = number(&remote);
            for bad in [None, Some("{}"), Some("no JSON"), Some(r#"{"keys":[]}"#)] {
                tokio::time::sleep(2 * AT_ONCE).await; // older than a `stale` of zero allows
                answer(&mut asked, &remote, bad).await;
                assert_eq!(number(&remote), first.filter(|_| outlive));
            }
            // The same bytes make a valid set again.
            answer(&mut asked, &remote, Some(A)).await;
            assert_eq!(number(&remote) == first, outlive);
            assert!(number(&remote).is_some());
        }
    }

    #[tokio::test]
    async fn who_waits_is_told_of_the_end() {
        let (remote, mut asked) = kept(LONG, LONG);
        let waiting = Arc::clone(&remote);
        let waiting = tokio::spawn(async move { waiting.change(None).await });
        answer(&mut asked, &remote, Some(A)).await;
        waiting.await.unwrap();
        assert!(!remote.may_change(), "the last fetch began just now");
        // A request that saw an older set need not wait.
        remote.change(None).await;
    }
}

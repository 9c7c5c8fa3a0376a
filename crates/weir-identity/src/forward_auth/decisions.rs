//! The service's decisions: each core remembers them for a while, and merges identical questions at the same time.

use bytes::Bytes;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use weir_filter::filter::{CoreHandle, Cx, HeaderName, PerCore, RequestHead};
use weir_h1::FieldName;

type Field = (FieldName, Vec<u8>);

/// The service's decision about a request.
pub(super) enum Decision {
    /// The request passes, with these fields added to the request and to the response.
    Pass { request: Vec<Field>, response: Vec<Field>, no_store: bool },
    /// The client gets this response.
    Refuse { status: u16, headers: Vec<Field>, body: Bytes },
    /// The service did not answer.
    Unavailable,
}

/// The decisions of all cores, separate per core. A question is identified by 128 bits that depend on secrets of this
/// snapshot.
pub(super) struct Decisions {
    time: Duration,
    sip: RandomState,
    fold: foldhash::quality::RandomState,
    cores: PerCore<RefCell<Known>>,
}

/// The decisions of one core.
#[derive(Default)]
struct Known {
    /// One slot per question, found by its bits. A later question overwrites an earlier one.
    slots: Vec<Option<Slot>>,
    /// Questions under way.
    asking: HashMap<u128, Rc<OnceCell<Rc<Decision>>>>,
}

#[derive(Clone)]
struct Slot {
    tag: u128,
    decision: Rc<Decision>,
    until: Instant,
}

/// Decisions that a core remembers, and the largest size of one in bytes.
const SLOTS: usize = 1024;
const DECISION_BYTES: usize = 4096;

// === impl Decision ===

impl Decision {
    /// Whether the decision is valid for one request only, because it begins a session or the service says so.
    fn is_private(&self) -> bool {
        let cookies = |fields: &[Field]| fields.iter().any(|(name, _)| is(name, "set-cookie"));
        match self {
            Self::Pass { response, no_store, .. } => *no_store || cookies(response),
            Self::Refuse { headers, .. } => cookies(headers) || says_no_store(headers),
            Self::Unavailable => false,
        }
    }

    /// Whether the decision may be reused for later identical questions.
    fn is_lasting(&self) -> bool {
        let size = |fields: &[Field]| fields.iter().map(|(_, value)| value.len()).sum::<usize>();
        let is_kept = match self {
            Self::Pass { request, response, .. } => size(request) + size(response) <= DECISION_BYTES,
            Self::Refuse { status, headers, body } => {
                *status < 500 && size(headers) + body.len() <= DECISION_BYTES
            }
            Self::Unavailable => false,
        };
        is_kept && !self.is_private()
    }
}

/// RFC 9111 §5.2.2.5.
pub(super) fn says_no_store(fields: &[Field]) -> bool {
    let values = fields.iter().filter(|(name, _)| is(name, "cache-control")).map(|(_, value)| value);
    let mut directives = values.flat_map(|value| value.split(|&b| b == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-store"))
}

fn is(name: &FieldName, text: &str) -> bool {
    name.as_str().eq_ignore_ascii_case(text)
}

// === impl Decisions ===

impl Decisions {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            sip: RandomState::new(),
            fold: foldhash::quality::RandomState::default(),
            cores: PerCore::new(),
        }
    }

    /// Identifies a question by everything that the service sees.
    pub(super) fn tag(
        &self,
        head: &RequestHead,
        cx: &Cx,
        by: &[HeaderName],
        written: &[(FieldName, Vec<u8>)],
    ) -> u128 {
        let (mut sip, mut fold) = (self.sip.build_hasher(), self.fold.build_hasher());
        let mut add = |bytes: &[u8]| {
            // Includes the length, so different lists of parts give different bytes.
            for hasher in [&mut sip as &mut dyn std::hash::Hasher, &mut fold] {
                hasher.write_usize(bytes.len());
                hasher.write(bytes);
            }
        };
        add(&[u8::from(cx.tls), u8::from(head.query().is_some())]);
        match cx.client.to_canonical() {
            IpAddr::V4(client) => add(&client.octets()),
            IpAddr::V6(client) => add(&client.octets()),
        }
        add(head.method_name());
        add(head.asked_authority());
        add(head.routed_path());
        add(head.query().unwrap_or_default());
        for name in by {
            let values = || head.headers.get_all(name.as_str());
            add(&(values().count() as u64).to_le_bytes());
            values().for_each(&mut add);
        }
        for (name, value) in written {
            add(name.as_str().as_bytes());
            add(value);
        }
        u128::from(sip.finish()) << 64 | u128::from(fold.finish())
    }

    /// The remembered decision for a question.
    pub(super) fn known(&self, tag: u128, core: &CoreHandle) -> Option<Rc<Decision>> {
        let known = self.cores.get(core);
        let known = known.borrow();
        let slot = known.slots.get(tag as usize & (SLOTS - 1))?.as_ref()?;
        (slot.tag == tag && Instant::now() < slot.until).then(|| Rc::clone(&slot.decision))
    }

    /// Asks the service, or waits for an identical question under way. If that request leaves, or its decision is
    /// valid for it only, the waiting requests ask.
    pub(super) async fn decide<F: Future<Output = Decision>>(
        &self,
        tag: u128,
        core: &CoreHandle,
        ask: impl Fn() -> F,
    ) -> Rc<Decision> {
        let known = self.cores.get(core);
        let asked = Rc::clone(known.borrow_mut().asking.entry(tag).or_default());
        let waiting = Waiting { known: &known, tag, asked: &asked };
        let mut is_own = false;
        let first = asked.get_or_init(|| {
            is_own = true;
            async { Rc::new(ask().await) }
        });
        let decision = Rc::clone(first.await);
        drop(waiting);
        if !is_own && decision.is_private() {
            return Rc::new(ask().await);
        }
        if decision.is_lasting()
            && !self.time.is_zero()
            && let Some(until) = Instant::now().checked_add(self.time)
        {
            known.borrow_mut().remember(Slot { tag, decision: Rc::clone(&decision), until });
        }
        decision
    }
}

/// A request that waits for a decision. The last one to leave removes the question.
struct Waiting<'a> {
    known: &'a RefCell<Known>,
    tag: u128,
    asked: &'a Rc<OnceCell<Rc<Decision>>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // After the answer, later requests ask again or find the decision remembered.
        if self.asked.initialized() || Rc::strong_count(self.asked) <= 2 {
            let mut known = self.known.borrow_mut();
            if known.asking.get(&self.tag).is_some_and(|asked| Rc::ptr_eq(asked, self.asked)) {
                known.asking.remove(&self.tag);
            }
        }
    }
}

impl Known {
    fn remember(&mut self, slot: Slot) {
        self.slots.resize(SLOTS, None);
        if let Some(place) = self.slots.get_mut(slot.tag as usize & (SLOTS - 1)) {
            *place = Some(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::Cell;
    use std::task::Poll;
    use tokio::sync::Notify;
    use weir_filter::testing::{PASS, Stand, request_head};

    fn core() -> CoreHandle {
        let kind = &PASS;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Stand::new(kind, json!({})).build().request("GET /")).cx.core().clone()
    }

    #[test]
    fn one_asks_for_all_and_another_where_it_leaves() {
        let core = core();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let decisions = Decisions::new(Duration::ZERO);
            let (asked, gate) = (Cell::new(0), Notify::new());
            let ask = || async {
                asked.set(asked.get() + 1);
                gate.notified().await;
                Decision::Refuse { status: 403, headers: Vec::new(), body: Bytes::new() }
            };
            let mut first = Box::pin(decisions.decide(7, &core, ask));
            let mut second = Box::pin(decisions.decide(7, &core, ask));
            let mut third = Box::pin(decisions.decide(7, &core, ask));
            std::future::poll_fn(|cx| {
                assert!(first.as_mut().poll(cx).is_pending());
                assert!(second.as_mut().poll(cx).is_pending());
                assert!(third.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert_eq!(asked.get(), 1);
            drop(first);
            gate.notify_one();
            let (second, third) = tokio::join!(second, third);
            assert_eq!(asked.get(), 2);
            assert!(Rc::ptr_eq(&second, &third));
            assert!(decisions.cores.get(&core).borrow().asking.is_empty());
        });
    }

    /// Two requests without a session must not get the same new one.
    #[test]
    fn a_cookie_is_for_who_asked() {
        let core = core();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let decisions = Decisions::new(Duration::from_secs(60));
            let (asked, gate) = (Cell::new(0), Notify::new());
            let ask = || async {
                let nth = asked.get();
                asked.set(nth + 1);
                gate.notified().await;
                let cookie = (FieldName::new("set-cookie").unwrap(), format!("s={nth}").into_bytes());
                Decision::Refuse { status: 302, headers: vec![cookie], body: Bytes::new() }
            };
            let mut first = Box::pin(decisions.decide(7, &core, ask));
            let mut second = Box::pin(decisions.decide(7, &core, ask));
            std::future::poll_fn(|cx| {
                assert!(first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            gate.notify_one();
            let first = first.await;
            gate.notify_one();
            let second = second.await;
            let cookie = |decision: &Decision| match decision {
                Decision::Refuse { headers, .. } => headers[0].1.clone(),
                _ => panic!("it was refused"),
            };
            assert_eq!((cookie(&first), cookie(&second)), (b"s=0".to_vec(), b"s=1".to_vec()));
            assert!(decisions.known(7, &core).is_none());
        });
    }

    #[test]
    fn questions_are_told_apart() {
        let decisions = Decisions::new(Duration::ZERO);
        let by = [HeaderName::fixed("a"), HeaderName::fixed("b")];
        let requests = [
            "GET /x",
            "PUT /x",
            "GET /y",
            "GET /x?",
            "GET /x?a",
            "GET /x\nHost: b",
            "GET /x\na: 1",
            "GET /x\nb: 1",
            "GET /x\na: 1\nb: 1",
            "GET /x\na: 1\na: 1",
            "GET /x\na: 11",
            "GET /x\na:",
        ];
        let cx = |stand: &mut Stand| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(stand.build().request("GET /")).cx
        };
        let stand = || Stand::new(&PASS, json!({}));
        let one = cx(&mut stand());
        let mut tags: Vec<u128> =
            requests.iter().map(|request| decisions.tag(&request_head(request), &one, &by, &[])).collect();
        for mut other in [stand().tls(), stand().client("192.0.2.2"), stand().client("2001:db8::1")] {
            tags.push(decisions.tag(&request_head("GET /x"), &cx(&mut other), &by, &[]));
        }
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), count);
        let same = |request: &str| decisions.tag(&request_head(request), &one, &by, &[]);
        assert_eq!(same("GET /x\nc: 1"), same("GET /x"));
    }
}

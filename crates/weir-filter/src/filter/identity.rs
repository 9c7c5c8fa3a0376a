//! The caller as a fact of the exchange: which filter verified whom, and which client values went into the request.
//!
//! Filters may hide a credential once they have verified it, so the remaining fields say nothing about the caller. A
//! filter that stores answers for others (`cache`) asks the exchange instead: [`Cx::caller`] before the fetch, and
//! again when the answer is there.

use super::{Consumer, Cx};
use std::cell::{Cell, Ref, RefCell};
use std::sync::Arc;

/// A caller that a filter verified. An exchange has one per verifying filter, in the order they ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the filter.
    pub by: &'static str,
    /// Distinguishes the filter's callers: a hash, or fields that the filter verified.
    pub who: Box<[u8]>,
}

/// What is known of a caller at one moment. Two equal values in one exchange stand for the same knowledge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub(super) consumer: Option<usize>,
    pub(super) credential: Option<[u8; 8]>,
    /// How many identities there are.
    pub(super) identities: usize,
    /// The client's values that were written into the request or the answer.
    pub(super) revealed: Revealed,
    pub(super) authorization: bool,
    /// How many restricting filters let it pass.
    pub(super) restrictions: u8,
}

/// The client's values that a template wrote somewhere, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revealed(u8);

impl Revealed {
    /// The client's address.
    pub const ADDRESS: Self = Self(1);
    /// The client's certificate.
    pub const CERTIFICATE: Self = Self(2);
    /// The name of the consumer.
    pub const CONSUMER: Self = Self(4);
    /// All of them.
    pub const ALL: Self = Self(7);

    /// Whether all of `other` are among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What [`Cx`] keeps of the caller besides the consumer.
#[derive(Debug, Default)]
pub(crate) struct CallerFacts {
    identities: RefCell<Vec<Identity>>,
    /// Templates only read the context, and note here which values they used.
    revealed: Cell<Revealed>,
    authorization: Cell<bool>,
    restrictions: Cell<u8>,
    /// How many caches were asked.
    caches: Cell<u8>,
}

impl Caller {
    /// Whether anything distinguishes this caller from others.
    pub fn is_known(&self) -> bool {
        self.consumer.is_some() || self.identities > 0 || self.revealed != Revealed::default()
    }

    /// The client's values that were written somewhere.
    pub const fn revealed(&self) -> Revealed {
        self.revealed
    }

    /// How many filters that reject others let it pass, by a credential or otherwise. An answer kept for callers who
    /// passed more must not go to one who passed fewer.
    pub fn gates(&self) -> usize {
        self.identities + usize::from(self.consumer.is_some()) + usize::from(self.restrictions)
    }

    /// The same without these values: for a cache whose key always holds them.
    #[must_use]
    pub const fn but(self, revealed: Revealed) -> Self {
        Self { revealed: Revealed(self.revealed.0 & !revealed.0), ..self }
    }

    /// Whether a filter verified the content of `Authorization` and removed it from the request.
    pub const fn has_authorization(&self) -> bool {
        self.authorization
    }
}

impl Cx {
    /// Notes that this filter verified the caller, whom `who` identifies among its callers. Each filter that checks
    /// credentials calls this when it admits a request, unless the consumer it named ([`Cx::set_consumer`]) is all
    /// the upstream learns.
    pub fn identify(&self, by: &'static str, who: &[u8]) {
        self.facts.identities.borrow_mut().push(Identity { by, who: who.into() });
    }

    /// All identities that filters verified, besides the consumer.
    pub fn identities(&self) -> Ref<'_, [Identity]> {
        Ref::map(self.facts.identities.borrow(), Vec::as_slice)
    }

    /// Notes that this filter verified the field `Authorization` and hides it from the upstream.
    pub fn hides_authorization(&self) {
        self.facts.authorization.set(true);
    }

    /// Notes that this filter rejects other callers by something that is not a credential: an address, a consumer's
    /// name. All callers it admits may get the same answer, but only behind this filter.
    pub fn restricts(&self) {
        let restrictions = &self.facts.restrictions;
        restrictions.set(restrictions.get().saturating_add(1));
    }

    /// Notes that a cache is asked, and returns how many were before it. Two that share a store must not use each
    /// other's answers or wait for each other's fetches.
    pub fn asks_cache(&self) -> u8 {
        let caches = &self.facts.caches;
        caches.replace(caches.get().saturating_add(1))
    }

    /// Notes that a client's value is written into the request or the answer.
    pub fn reveals(&self, revealed: Revealed) {
        self.facts.revealed.set(Revealed(self.facts.revealed.get().0 | revealed.0));
    }

    /// Drops the notes of [`Cx::reveals`] about this value since `before`: the upstream learns the value anyway.
    pub fn unreveal(&self, revealed: Revealed, before: Caller) {
        let now = self.facts.revealed.get();
        self.facts.revealed.set(Revealed(now.0 & !revealed.0 | before.revealed.0 & revealed.0));
    }

    /// Drops the identities noted since `before`: what they tell apart decides nothing that an upstream or a client sees.
    pub fn unidentify(&self, before: Caller) {
        self.facts.identities.borrow_mut().truncate(before.identities);
    }

    /// What is known of the caller now.
    #[inline]
    pub fn caller(&self) -> Caller {
        Caller {
            consumer: self.consumer,
            credential: self.credential,
            identities: self.facts.identities.borrow().len(),
            revealed: self.facts.revealed.get(),
            authorization: self.facts.authorization.get(),
            restrictions: self.facts.restrictions.get(),
        }
    }

    /// Reverts what was noted of the caller since `before`: a member of this filter rejected the request after all.
    pub fn restore_caller(&mut self, before: Caller) {
        if self.consumer != before.consumer {
            let replaced = self.rare.iter().flat_map(|rare| rare.replaced.iter());
            self.listed = replaced.rev().find(|one| before.consumer == Some(one.number)).cloned();
        }
        (self.consumer, self.credential) = (before.consumer, before.credential);
        self.facts.identities.get_mut().truncate(before.identities);
        self.facts.revealed.set(before.revealed);
        self.facts.authorization.set(before.authorization);
        self.facts.restrictions.set(before.restrictions);
    }

    /// Names the caller. The filters of the consumer's plan run next. If an earlier filter named another consumer,
    /// that one stays among the [`Cx::identities`], and its credential is no longer reported.
    #[inline]
    pub fn set_consumer(&mut self, index: usize) {
        if self.consumer.is_some_and(|before| before != index) {
            self.replace_consumer();
        }
        self.consumer = Some(index);
    }

    /// As [`Cx::set_consumer`], for a consumer of a source.
    pub fn set_listed(&mut self, consumer: Arc<Consumer>) {
        let number = consumer.number;
        if self.consumer.is_some_and(|before| before != number) {
            self.replace_consumer();
        }
        self.consumer = Some(number);
        self.listed = Some(consumer);
    }

    #[cold]
    fn replace_consumer(&mut self) {
        self.credential = None;
        if let Some(name) = self.consumer().map(|before| before.name.clone()) {
            self.identify("consumer", name.as_bytes());
        }
        if let Some(before) = self.listed.take() {
            self.rare_mut().replaced.push(before);
        }
    }

    /// Copies this knowledge to a request that continues after the answer.
    pub(super) fn copy_caller(&self, to: &mut Self) {
        (to.consumer, to.credential) = (self.consumer, self.credential);
        to.listed.clone_from(&self.listed);
        to.claims.clone_from(&self.claims);
        to.facts.identities.clone_from(&self.facts.identities);
        to.facts.revealed.set(self.facts.revealed.get());
        to.facts.authorization.set(self.facts.authorization.get());
        to.facts.restrictions.set(self.facts.restrictions.get());
        to.facts.caches.set(self.facts.caches.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Filter, FilterKind, Hooks};
    use crate::testing::Stand;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A filter that does nothing.
    #[derive(Deserialize, Serialize, JsonSchema)]
    struct Idle {}

    impl Filter for Idle {
        fn hooks(&self) -> Hooks {
            Hooks::REQUEST
        }
    }

    static IDLE: FilterKind = FilterKind::of::<Idle>("idle");

    /// The context of a request about which nothing is known, on a gateway with the consumers `shop` and `desk`.
    async fn cx() -> Cx {
        let named = |name: &str| Consumer { name: name.to_owned(), ..Consumer::default() };
        let mut stand =
            Stand::new(&IDLE, serde_json::json!({})).consumer(named("shop")).consumer(named("desk"));
        stand.build().request("GET /").await.cx
    }

    #[tokio::test]
    async fn what_makes_a_caller_known() {
        assert!(!cx().await.caller().is_known());
        let mut one = cx().await;
        one.set_consumer(0);
        assert!(one.caller().is_known());
        let one = cx().await;
        one.identify("jwt", b"alice");
        assert!(one.caller().is_known());
        assert_eq!(*one.identities(), [Identity { by: "jwt", who: (*b"alice").into() }]);
        for revealed in [Revealed::ADDRESS, Revealed::CERTIFICATE, Revealed::CONSUMER] {
            let one = cx().await;
            one.reveals(revealed);
            assert!(one.caller().is_known() && one.caller().revealed() == revealed, "{revealed:?}");
        }
        // These do not distinguish callers.
        let one = cx().await;
        one.hides_authorization();
        one.restricts();
        assert!(!one.caller().is_known() && one.caller().has_authorization());
        assert!(!cx().await.caller().has_authorization());
    }

    #[tokio::test]
    async fn gates_are_counted() {
        let mut one = cx().await;
        assert_eq!(one.caller().gates(), 0);
        one.restricts();
        one.restricts();
        assert_eq!(one.caller().gates(), 2);
        one.set_consumer(0);
        one.identify("jwt", b"alice");
        assert_eq!(one.caller().gates(), 4);
        assert_eq!((one.asks_cache(), one.asks_cache(), one.asks_cache()), (0, 1, 2));
    }

    #[tokio::test]
    async fn what_was_told_adds_up_and_is_forgotten() {
        let one = cx().await;
        one.reveals(Revealed::ADDRESS);
        let before = one.caller();
        one.reveals(Revealed::CONSUMER);
        one.reveals(Revealed::CONSUMER);
        assert!(
            one.caller().revealed().has(Revealed::ADDRESS) && one.caller().revealed().has(Revealed::CONSUMER)
        );
        assert!(!one.caller().revealed().has(Revealed::ALL) && Revealed::ALL.has(one.caller().revealed()));
        assert_eq!(one.caller().but(Revealed::CONSUMER), before);
        assert_eq!(before.but(Revealed::CONSUMER), before);
        // Values noted before stay.
        one.unreveal(Revealed::ALL, before);
        assert_eq!(one.caller(), before);
        one.reveals(Revealed::CERTIFICATE);
        one.unreveal(Revealed::ADDRESS, Caller::default());
        assert_eq!(one.caller().revealed(), Revealed::CERTIFICATE);
    }

    #[tokio::test]
    async fn a_second_consumer_leaves_the_first_among_the_identities() {
        let mut one = cx().await;
        one.credential = Some([1; 8]);
        one.set_consumer(0);
        one.set_consumer(0);
        assert!(one.identities().is_empty() && one.credential.is_some());
        one.set_consumer(1);
        assert_eq!(*one.identities(), [Identity { by: "consumer", who: (*b"shop").into() }]);
        assert_eq!((one.caller().consumer, one.credential), (Some(1), None));
    }

    #[tokio::test]
    async fn a_consumer_of_a_source_is_named_replaced_and_restored() {
        let listed =
            |name: &str, number| Arc::new(Consumer { name: name.to_owned(), number, ..Consumer::default() });
        let name = |cx: &Cx| cx.consumer().map(|consumer| consumer.name.clone());
        let mut one = cx().await;
        one.set_listed(listed("ann", 1 << 40));
        assert_eq!(name(&one).as_deref(), Some("ann"));
        one.set_listed(listed("ann", 1 << 40));
        assert!(one.identities().is_empty(), "the same, perhaps of a newer set");
        let before = one.caller();
        one.set_listed(listed("bob", (1 << 40) + 1));
        assert_eq!(name(&one).as_deref(), Some("bob"));
        assert_eq!(*one.identities(), [Identity { by: "consumer", who: (*b"ann").into() }]);
        one.set_consumer(1);
        assert_eq!((name(&one).as_deref(), one.listed().is_none()), (Some("desk"), true));
        one.restore_caller(before);
        assert_eq!(name(&one).as_deref(), Some("ann"));
        let mut behind = cx().await;
        one.copy_caller(&mut behind);
        assert_eq!(name(&behind).as_deref(), Some("ann"));
        one.restore_caller(Caller::default());
        assert_eq!((name(&one), one.listed().is_none()), (None, true));
    }

    #[tokio::test]
    async fn a_caller_is_restored_and_copied() {
        let mut one = cx().await;
        one.identify("jwt", b"alice");
        one.reveals(Revealed::ADDRESS);
        let before = one.caller();
        one.identify("oidc", b"bob");
        one.set_consumer(1);
        one.credential = Some([1; 8]);
        one.reveals(Revealed::CERTIFICATE);
        one.hides_authorization();
        one.restricts();
        one.asks_cache();
        let mut behind = cx().await;
        one.copy_caller(&mut behind);
        assert_eq!((behind.caller(), &*behind.identities()), (one.caller(), &*one.identities()));
        assert_eq!(behind.asks_cache(), 1, "a cache that was asked counts for what goes on behind");
        one.restore_caller(before);
        assert_eq!((one.caller(), one.identities().len()), (before, 1));
    }
}

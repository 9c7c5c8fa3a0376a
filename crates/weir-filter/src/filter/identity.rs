//! The caller as a fact of the exchange: which filter verified whom, and which of the client's own values went into the request.
//!
//! Filters may hide a credential once they have verified it, so the fields that are left tell nothing about the caller. Whoever keeps
//! an answer for others (`cache`) asks the exchange instead: [`Cx::caller`] before the fetch, and again when the answer is there.

use super::Cx;
use std::cell::Cell;

/// One caller that a filter verified. An exchange has one for each filter that did, in the order in which they ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the filter.
    pub by: &'static str,
    /// What tells this caller from others of that filter: a hash, or fields that the filter verified.
    pub who: Box<[u8]>,
}

/// How much is known of a caller at one moment. Two that are equal in one exchange stand for the same knowledge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub(super) consumer: Option<usize>,
    pub(super) credential: Option<[u8; 8]>,
    /// How many identities there are.
    pub(super) identities: usize,
    /// Values of the client that were written into the request or the answer.
    pub(super) told: Told,
    pub(super) authorization: bool,
    /// How many filters let it pass that turn others away.
    pub(super) restrictions: u8,
}

/// Values of the client that a template wrote somewhere, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told(u8);

impl Told {
    /// The client's address.
    pub const ADDRESS: Self = Self(1);
    /// The certificate that the client showed.
    pub const CERTIFICATE: Self = Self(2);
    /// The name of the consumer.
    pub const CONSUMER: Self = Self(4);
    /// Each of them.
    pub const ALL: Self = Self(7);

    /// Whether all of `other` are among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What [`Cx`] keeps of the caller beside the consumer.
#[derive(Debug, Default)]
pub(crate) struct CallerFacts {
    identities: Vec<Identity>,
    /// Templates only read the context, and note here what they took from it.
    told: Cell<Told>,
    authorization: Cell<bool>,
    restrictions: Cell<u8>,
    /// How many caches were asked.
    caches: Cell<u8>,
}

impl Caller {
    /// Whether anything tells this caller from others.
    pub fn is_known(&self) -> bool {
        self.consumer.is_some() || self.identities > 0 || self.told != Told::default()
    }

    /// The client's values that were written somewhere.
    pub const fn told(&self) -> Told {
        self.told
    }

    /// How many filters let it pass that turn others away, by a credential or otherwise. Who passed fewer must not get what is kept for
    /// those who passed more.
    pub fn gates(&self) -> usize {
        self.identities + usize::from(self.consumer.is_some()) + usize::from(self.restrictions)
    }

    /// The same but for these values: for a cache whose key holds them whether they were written or not.
    #[must_use]
    pub const fn but(self, told: Told) -> Self {
        Self { told: Told(self.told.0 & !told.0), ..self }
    }

    /// Whether a filter verified what `Authorization` brought, and took it out of the request.
    pub const fn has_authorization(&self) -> bool {
        self.authorization
    }
}

impl Cx {
    /// Says that this filter verified the caller, who is `who` among all that it knows. Each filter that asks for credentials says so
    /// when it lets a request pass, unless the consumer that it named ([`Cx::set_consumer`]) is all that the upstream learns.
    pub fn identify(&mut self, by: &'static str, who: &[u8]) {
        self.facts.identities.push(Identity { by, who: who.into() });
    }

    /// Everybody that filters verified, beside the consumer.
    pub fn identities(&self) -> &[Identity] {
        &self.facts.identities
    }

    /// Says that this filter verified what the field `Authorization` brought, and hides the field from the upstream.
    pub fn hides_authorization(&self) {
        self.facts.authorization.set(true);
    }

    /// Says that this filter turns other callers away, by something that is no credential: an address, a consumer's name. Every caller
    /// whom it lets pass may get the same answer, but only behind this filter.
    pub fn restricts(&self) {
        let restrictions = &self.facts.restrictions;
        restrictions.set(restrictions.get().saturating_add(1));
    }

    /// Says that a cache is asked, and tells how many were before it: two that share a store must not take each other's answers, or wait
    /// for each other's fetches.
    pub fn asks_cache(&self) -> u8 {
        let caches = &self.facts.caches;
        caches.replace(caches.get().saturating_add(1))
    }

    /// Says that a value of the client is written into the request or the answer.
    pub fn tells(&self, told: Told) {
        self.facts.told.set(Told(self.facts.told.get().0 | told.0));
    }

    /// Forgets that [`Cx::tells`] named this value since `before`: the upstream learns it anyway.
    pub fn untell(&self, told: Told, before: Caller) {
        let now = self.facts.told.get();
        self.facts.told.set(Told(now.0 & !told.0 | before.told.0 & told.0));
    }

    /// What is known of the caller now.
    #[inline]
    pub fn caller(&self) -> Caller {
        Caller {
            consumer: self.consumer,
            credential: self.credential,
            identities: self.facts.identities.len(),
            told: self.facts.told.get(),
            authorization: self.facts.authorization.get(),
            restrictions: self.facts.restrictions.get(),
        }
    }

    /// Takes back what was said of the caller since `before`: a member of this filter did not let the request pass after all.
    pub fn restore_caller(&mut self, before: Caller) {
        (self.consumer, self.credential) = (before.consumer, before.credential);
        self.facts.identities.truncate(before.identities);
        self.facts.told.set(before.told);
        self.facts.authorization.set(before.authorization);
        self.facts.restrictions.set(before.restrictions);
    }

    /// Says who calls. The filters of the consumer's plan run next. Where an earlier filter named another consumer, that one stays among
    /// the [`Cx::identities`], and its credential is no longer told.
    #[inline]
    pub fn set_consumer(&mut self, index: usize) {
        if self.consumer.is_some_and(|before| before != index) {
            self.replace_consumer();
        }
        self.consumer = Some(index);
    }

    #[cold]
    fn replace_consumer(&mut self) {
        self.credential = None;
        if let Some(name) = self.consumer().map(|before| before.name.clone()) {
            self.identify("consumer", name.as_bytes());
        }
    }

    /// The same knowledge for a request that goes on behind the answer.
    pub(super) fn copy_caller(&self, to: &mut Self) {
        (to.consumer, to.credential) = (self.consumer, self.credential);
        to.facts.identities.clone_from(&self.facts.identities);
        to.facts.told.set(self.facts.told.get());
        to.facts.authorization.set(self.facts.authorization.get());
        to.facts.restrictions.set(self.facts.restrictions.get());
        to.facts.caches.set(self.facts.caches.get());
    }
}

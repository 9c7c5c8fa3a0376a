//! A consumer that a filter has found: one of the config, or one of a source.

use std::sync::Arc;
use weir_filter::directory::Lookup;
use weir_filter::error::Cause;
use weir_filter::filter::{Consumer, Cx};

/// What a filter answers if a source that may know the credential has no consumers.
pub(crate) static CONSUMERS_UNAVAILABLE: Cause = Cause {
    code: "consumers_unavailable",
    status: 503,
    meaning: "The credential is unknown, and a source of consumers has none: unread, too old, or not fitting the config.",
    change: "consumer_sources.*.file or consumer_sources.*.http (the log and `weir status` say why)",
    ..Cause::USUAL
};

/// A consumer that a credential belongs to.
#[derive(Clone, Debug)]
pub(crate) enum Named {
    /// One of the config, by position.
    Config(usize),
    /// One of a source.
    Listed(Arc<Consumer>),
}

/// Why a credential names nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nobody {
    /// Nobody has it.
    Unknown,
    /// A source that may know it has no consumers.
    Unavailable,
}

impl Named {
    /// Names the caller of the exchange.
    pub(crate) fn name(self, cx: &mut Cx) {
        match self {
            Self::Config(index) => cx.set_consumer(index),
            Self::Listed(consumer) => cx.set_listed(consumer),
        }
    }

    /// Whether it is the same consumer.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Config(one), Self::Config(other)) => one == other,
            (Self::Listed(one), Self::Listed(other)) => one.number == other.number,
            _ => false,
        }
    }
}

impl Nobody {
    /// What to answer, where `unknown` is the filter's own answer.
    pub(crate) const fn cause(self, unknown: &'static Cause) -> &'static Cause {
        match self {
            Self::Unknown => unknown,
            Self::Unavailable => &CONSUMERS_UNAVAILABLE,
        }
    }
}

/// The consumer of a source, with what its filter keeps of the credential.
pub(crate) fn listed<T>(lookup: Lookup<T>) -> Result<(Arc<Consumer>, T), Nobody> {
    match lookup {
        Lookup::Found(consumer, found) => Ok((consumer, found)),
        Lookup::Unknown => Err(Nobody::Unknown),
        Lookup::Unavailable => Err(Nobody::Unavailable),
    }
}

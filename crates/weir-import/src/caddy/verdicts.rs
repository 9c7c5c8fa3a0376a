//! Verdicts as values, so that what a Caddyfile and JSON share can give them without knowing where a setting stands.

use crate::ledger::{Ledger, Piece};
use std::borrow::Cow;

/// A verdict with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Same,
    ByItself(Cow<'static, str>),
    Changed(Cow<'static, str>),
    LeftOut(Cow<'static, str>),
    Refused(Cow<'static, str>, Cow<'static, str>),
}

impl Judged {
    pub(super) fn by_itself(why: impl Into<Cow<'static, str>>) -> Self {
        Self::ByItself(why.into())
    }

    pub(super) fn changed(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Changed(why.into())
    }

    pub(super) fn left_out(why: impl Into<Cow<'static, str>>) -> Self {
        Self::LeftOut(why.into())
    }

    pub(super) fn refused(why: impl Into<Cow<'static, str>>, nearest: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(why.into(), nearest.into())
    }

    /// Enters it.
    pub(super) fn enter(self, piece: Piece, ledger: &mut Ledger) {
        match self {
            Self::Same => ledger.same(piece),
            Self::ByItself(why) => ledger.by_itself(piece, why),
            Self::Changed(why) => ledger.changed(piece, why),
            Self::LeftOut(why) => ledger.left_out(piece, why),
            Self::Refused(why, nearest) => ledger.refused(piece, why, nearest),
        }
    }
}

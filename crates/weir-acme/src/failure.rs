//! Why there is no certificate yet: an explanation for operators, and what to do about it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;

/// Most characters that we pass on from a certificate authority or a hook.
const TEXT_MAX: usize = 500;

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure.
    pub kind: Kind,
    /// What happened.
    pub text: String,
    /// How many seconds the authority wants us to wait.
    #[serde(default)]
    pub retry_after: Option<u64>,
}

/// The kinds of failures. Their names are stable: alerts may depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The authority rejects the account.
    Account,
    /// The authority is unreachable or does not work.
    Away,
    /// The authority's answer is not ACME.
    BadAnswer,
    /// The authority did not find the proof.
    Challenge,
    /// The DNS command failed.
    Hook,
    /// Another node took over the order.
    Lock,
    /// The authority reports too many orders.
    RateLimited,
    /// The authority rejects the order.
    Refused,
    /// The issued certificate is not the one we ordered.
    SelfCheck,
    /// The storage is unreadable or unwritable.
    Storage,
}

impl Kind {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Away => "away",
            Self::BadAnswer => "bad_answer",
            Self::Challenge => "challenge",
            Self::Hook => "hook",
            Self::Lock => "lock",
            Self::RateLimited => "rate_limited",
            Self::Refused => "refused",
            Self::SelfCheck => "self_check",
            Self::Storage => "storage",
        }
    }

    /// What an operator should check.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Account => {
                "look at email and external_account, and whether the certificate authority has closed the account"
            }
            Self::Away => "check that this machine can reach the directory; Weir retries automatically",
            Self::BadAnswer => "look whether `directory` is the URL of an ACME directory",
            Self::Challenge => {
                "the authority must reach this gateway by the name: port 80 for http-01, port 443 for tls-alpn-01, \
                 the TXT record in public DNS for dns-01"
            }
            Self::Hook => "run the command by hand with the same arguments",
            Self::Lock => "the node that holds the lock continues",
            Self::RateLimited => {
                "it is tried again when the authority allows it; for experiments, use its staging directory"
            }
            Self::Refused => "the text says what the authority does not like about the order",
            Self::SelfCheck => "look at the clock of this machine; the certificate in use was kept",
            Self::Storage => "let the gateway write the folder `storage`, and look whether the disk is full",
        }
    }
}

impl Failure {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), retry_after: None }
    }

    pub(crate) fn bad_answer(text: impl Into<String>) -> Self {
        Self::new(Kind::BadAnswer, text)
    }

    pub(crate) fn storage(path: &Path, e: &io::Error) -> Self {
        Self::new(Kind::Storage, format!("{}: {e}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// Untrusted text, made safe for one log line.
pub(crate) fn one_line(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = one_line.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect();
    if shown.len() < one_line.len() && shown.chars().count() == TEXT_MAX { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_say_fits_into_a_line() {
        assert_eq!(one_line(" a\r\n\tb\u{1b}[31m "), "a b[31m");
        let long = one_line(&"x".repeat(10_000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (TEXT_MAX + 1, true));
    }
}

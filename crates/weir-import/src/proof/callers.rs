//! Callers: requests with credentials.
//!
//! No source has the passwords of its users, only hashes. So both programs get the same users in the sandbox, all with
//! one password that everybody knows. Keys of `key_auth` stand in our config as they are.

use super::forms::escaped;
use super::patterns::Subject;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The password of every user in the sandbox.
pub const PASSWORD: &str = "weir-witness";
/// Its hash, as cheap as bcrypt allows: each request has a connection of its own.
pub const HASH: &str = "$2b$04$WeirWitnessWeirWitneseXKWZ5yshS31sGuDnJg4Bw6/yiQMSe62";
/// Most users and keys that are taken from a config.
pub const MAX_CALLERS: usize = 100;

/// A credential, and where a request carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Where.
    pub of: Subject,
    /// The value there.
    pub value: String,
    /// A value there that no caller has: the user with another password, or an unknown key.
    pub unknown: String,
    /// Whether it is a user with [`PASSWORD`], whom only programs in the sandbox know.
    pub is_user: bool,
}

impl Caller {
    /// A user.
    #[must_use]
    pub fn user(name: &str) -> Self {
        let basic = |password: &str| format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        let of = Subject::Field("authorization".to_owned());
        Self { of, value: basic(PASSWORD), unknown: basic("weir-other"), is_user: true }
    }

    /// A key.
    #[must_use]
    pub fn key(of: Subject, value: String) -> Self {
        Self { of, unknown: format!("{value}x"), value, is_user: false }
    }

    /// The value in the forms in which a report could show it: as it is, without its scheme, and in a target.
    pub fn shown(&self) -> impl Iterator<Item = String> {
        let bare = self.value.rsplit(' ').next().unwrap_or(&self.value);
        [self.value.clone(), bare.to_owned(), escaped(bare)].into_iter()
    }
}

/// A file of users as nginx reads it, with the names of `text` and one `password` for all; and those names.
#[must_use]
pub fn users_file(text: &str, password: &str) -> (String, Vec<String>) {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| Some(line.split_once(':')?.0.to_owned()));
    let names: Vec<String> = names.filter(|name| !name.is_empty()).take(MAX_CALLERS).collect();
    (names.iter().map(|name| format!("{name}:{password}\n")).collect(), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_keep_their_names() {
        let (text, names) = users_file("# a comment\nana:$apr1$x$y\nbob:{SHA}z:more\n\n:empty\n", "p");
        assert_eq!((&*text, &*names), ("ana:p\nbob:p\n", &["ana".to_owned(), "bob".to_owned()][..]));
    }
}

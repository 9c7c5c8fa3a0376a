//! Which values of a request are secret, and are hidden where people see them.

use super::super::maps::Maps;
use super::super::query::decoded;
use super::{ARGS, COOKIES, HEADERS, PARAMS, PATH, QUERY, URL};
use std::borrow::Cow;
use std::fmt::Write;
use weir_expr::{Read, Value, Values};

/// Stands for a value that may not be shown.
pub const HIDDEN: &str = "***";

/// A value as people read it: texts in quotes, `absent` for none, and at most 80 characters.
pub fn shown(value: &Value<'_>) -> String {
    const SHOWN: usize = 80;
    let mut text = String::new();
    let _ = match value {
        Value::Absent => write!(text, "absent"),
        Value::Text(bytes) => write!(text, "{:?}", String::from_utf8_lossy(bytes)),
        other => {
            let mut out = Vec::new();
            other.write(&mut out);
            write!(text, "{}", String::from_utf8_lossy(&out))
        }
    };
    if let Some((at, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// Which values of a request may be credentials: those that the config's filters take as such, and those whose names say
/// so.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Header fields that carry credentials, in lower case.
    pub fields: Vec<String>,
    /// Parameters of the query.
    pub args: Vec<String>,
    /// A segment of the path that begins with `~` may be a key.
    pub path_key: bool,
}

/// Parts of names of what is secret.
///
/// weir-load hides the same ones in what it shows of requests (`transport.rs`); no crate below both knows names of fields.
const SECRET_NAMES: &[&str] = &[
    "assertion",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "csrf",
    "dpop",
    "hmac",
    "jwt",
    "key",
    "passcode",
    "passphrase",
    "passw",
    "pwd",
    "saml",
    "secret",
    "session",
    "sign",
    "ticket",
    "token",
    "verifier",
    "xsrf",
];

/// Words that are secret as a whole name or a part of it between `-`, `_` and `.`; within other words they are not.
const SECRET_WORDS: &[&str] = &["mfa", "otp", "pass", "pin", "sid", "sig", "sso", "tok", "totp"];

/// Parts of names of parameters that are secret. Shorter than [`SECRET_NAMES`]: `keyword`, `author` and `design` are
/// names of ordinary parameters.
const SECRET_ARGS: &[&str] = &[
    "apikey",
    "assertion",
    "bearer",
    "credential",
    "csrf",
    "hmac",
    "jwt",
    "passcode",
    "passphrase",
    "passw",
    "saml",
    "secret",
    "session",
    "signature",
    "token",
    "xsrf",
];

/// Words that are secret as a whole name of a parameter or a part of it, beside [`SECRET_WORDS`].
const SECRET_ARG_WORDS: &[&str] = &["auth", "key", "pwd", "ticket"];

/// A cookie up to this length is no credential, but a choice of the client such as `beta=1`.
const PLAIN_COOKIE_BYTES: usize = 8;

impl Secrets {
    /// Whether what is read may be a credential, or a text from outside of the config.
    pub fn holds(&self, values: &dyn Values, maps: &Maps, read: &Read) -> bool {
        let key = read.key.as_deref().unwrap_or_default();
        let text = || values.text(read.var, key.as_bytes()).unwrap_or_default();
        match read.var {
            ARGS | COOKIES | HEADERS if read.is_computed => true,
            ARGS => named(key, &self.args),
            COOKIES => named(key, &[]) || text().len() > PLAIN_COOKIE_BYTES,
            HEADERS if key == "referer" => memchr::memchr(b'?', &text()).is_some(),
            HEADERS => named(key, &self.fields),
            PARAMS | PATH => self.path_key && memchr::memchr(b'~', &text()).is_some(),
            QUERY | URL => self.in_query(&text()),
            _ => maps.conceals(read.var),
        }
    }

    /// Whether a header field may carry a credential.
    pub fn in_field(&self, name: &str) -> bool {
        named(name, &self.fields)
    }

    /// A query with `***` for the values of parameters that are secret, for a recording of whole requests.
    pub fn masked_query<'q>(&self, query: &'q [u8]) -> Cow<'q, [u8]> {
        let is_secret = |pair: &[u8]| {
            let Some(end) = memchr::memchr(b'=', pair) else { return false };
            let name: Vec<u8> = decoded(pair.get(..end).unwrap_or_default()).collect();
            let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
            let is_word = |word| SECRET_ARG_WORDS.contains(&word) || SECRET_WORDS.contains(&word);
            self.args.iter().any(|known| known.eq_ignore_ascii_case(&name))
                || SECRET_ARGS.iter().any(|part| name.contains(part))
                || name.split(['-', '_', '.', '[', ']']).any(is_word)
        };
        if !query.split(|&byte| byte == b'&').any(is_secret) {
            return Cow::Borrowed(query);
        }
        let mut out = Vec::with_capacity(query.len());
        for (i, pair) in query.split(|&byte| byte == b'&').enumerate() {
            if i > 0 {
                out.push(b'&');
            }
            let end = memchr::memchr(b'=', pair).filter(|_| is_secret(pair));
            match end.and_then(|end| pair.get(..=end)) {
                Some(name) => out.extend_from_slice(&[name, b"***"].concat()),
                None => out.extend_from_slice(pair),
            }
        }
        Cow::Owned(out)
    }

    /// A URL with its query as [`Self::masked_query`] has it.
    pub fn masked_url<'u>(&self, url: &'u [u8]) -> Cow<'u, [u8]> {
        let Some((before, query)) = memchr::memchr(b'?', url).and_then(|at| url.split_at_checked(at + 1))
        else {
            return Cow::Borrowed(url);
        };
        match self.masked_query(query) {
            Cow::Borrowed(_) => Cow::Borrowed(url),
            Cow::Owned(masked) => Cow::Owned([before, &masked].concat()),
        }
    }

    /// Whether a query, or a URL with one, has a parameter that is secret.
    fn in_query(&self, text: &[u8]) -> bool {
        let query = memchr::memchr(b'?', text).and_then(|at| text.get(at + 1..)).unwrap_or(text);
        query.split(|&byte| byte == b'&').any(|pair| {
            let name = pair.get(..memchr::memchr(b'=', pair).unwrap_or(pair.len())).unwrap_or_default();
            let name: Vec<u8> = decoded(name).collect();
            named(&String::from_utf8_lossy(&name), &self.args)
        })
    }
}

/// Whether a name is among these, or says itself that it is secret.
fn named(name: &str, known: &[String]) -> bool {
    let name = name.to_ascii_lowercase();
    known.iter().any(|one| one.eq_ignore_ascii_case(&name))
        || SECRET_NAMES.iter().any(|part| name.contains(part))
        || name.split(['-', '_', '.']).any(|word| SECRET_WORDS.contains(&word))
}

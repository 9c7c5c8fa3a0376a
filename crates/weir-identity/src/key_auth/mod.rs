//! `key_auth`: requires the key of a consumer.

mod keys;

use super::prelude::*;
use super::shared::after_scheme;
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named, Nobody, listed};
use keys::{Keys, Owner};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::sync::Arc;
use weir_filter::directory::{Directory, Lookup};
use weir_filter::{cookies, query};
use weir_h1::FieldName;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<KeyAuthSettings>("key_auth")
    .with_causes(&[&CONSUMER_ADDRESS, &CONSUMERS_UNAVAILABLE, &KEY_MISSING, &KEY_TWICE, &KEY_UNKNOWN])
    .with_index::<Keys>()
    .judged_by_head();

pub(super) static CONSUMER_ADDRESS: Cause = Cause {
    code: "consumer_address",
    status: 403,
    meaning: "The consumer may not call from this address.",
    change: "consumers.*.allow_ips",
    ..Cause::USUAL
};

static KEY_MISSING: Cause = Cause {
    code: "key_missing",
    status: 401,
    meaning: "The request carries no key.",
    change: "the client must send one: see `header` and `query` of the filter key_auth",
    no_credentials: true,
    ..Cause::USUAL
};

static KEY_TWICE: Cause = Cause {
    code: "key_twice",
    status: 400,
    meaning: "The path carries a key in more than one segment.",
    change: "the client must send one segment that begins with `~`: see `path` of the filter key_auth",
    ..Cause::USUAL
};

static KEY_UNKNOWN: Cause = Cause {
    code: "key_unknown",
    status: 401,
    meaning: "The request's key belongs to no consumer.",
    change: "consumers.*.key_auth",
    ..Cause::USUAL
};

/// Requires a consumer's key, and identifies the consumer for rate limits, plans and the log.
///
/// Keys are listed under `consumers`, in clear text or as `sha256:` and the 64 hexadecimal digits of their SHA-256
/// (`printf %s KEY | sha256sum`). Weir keeps only hashes and compares them in constant time. A hash protects a
/// randomly generated key; a dictionary word can be guessed. A request with two different keys is refused. During a
/// key rotation a consumer has two keys; `credential` in the access log shows which one it uses.
///
/// ```yaml
/// - key_auth: { header: apikey }
/// - key_auth: { header: authorization, scheme: Bearer }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct KeyAuthSettings {
    /// Header that carries the key. Default `x-api-key`.
    header: HeaderName,
    /// Word before the key in the header, such as `Bearer`; other values carry no key. Default none.
    scheme: Option<String>,
    /// Query parameter that may carry the key instead. Default none, because URLs end up in histories and in logs
    /// other than ours.
    query: Option<String>,
    /// Cookie that may carry the key instead. Default none.
    cookie: Option<String>,
    /// Whether a path segment that begins with `~` may carry the key instead: `/spot/~KEY/price`. It is removed
    /// before routing, so later filters and the upstream never see it. A second such segment is refused with 400.
    /// Default false.
    path: bool,
    /// A file with more keys: each line has the name of a consumer and a key, in clear text or as a hash; text after
    /// `#` is a comment. The file is watched like the config. Default none.
    file: Option<FilePath>,
    /// Lets requests without a key pass, unnamed. An unknown key is still refused. Default false.
    optional: bool,
    /// Whether the key is removed before the request goes to the upstream. Default true: the upstream cannot leak a
    /// key that it never sees.
    hide: bool,
    /// Header that carries the consumer's name to the upstream. A header of this name from the client is removed.
    /// Default none.
    consumer_header: Option<HeaderName>,
}

struct KeyAuth {
    settings: KeyAuthSettings,
    keys: Keys,
    directory: Option<Arc<Directory>>,
    reads_authorization: bool,
    /// Whether keys come only from the header, without a scheme, and are hidden: then one pass over the head suffices.
    takes_sole_header: bool,
    challenge_missing: Vec<u8>,
    challenge_unknown: Vec<u8>,
    www_authenticate: FieldName,
}

/// The credentials of a request.
enum Presented<'a> {
    Different,
    None,
    One(Cow<'a, [u8]>),
}

impl Default for KeyAuthSettings {
    fn default() -> Self {
        Self {
            header: HeaderName::fixed("x-api-key"),
            scheme: None,
            query: None,
            cookie: None,
            path: false,
            file: None,
            optional: false,
            hide: true,
            consumer_header: None,
        }
    }
}

impl IntoFilter for KeyAuthSettings {
    type Filter = KeyAuth;

    fn into_filter(self, build: &mut Build<'_>) -> Option<KeyAuth> {
        let before = build.mistakes.len();
        allow_name(build, "header", &self.header);
        if let Some(name) = &self.consumer_header {
            allow_name(build, "consumer_header", name);
            if *name == self.header {
                build.refuse("consumer_header", "is the header that carries the key", None);
            }
        }
        if self.query.as_ref().is_some_and(String::is_empty) {
            build.refuse("query", "is empty", Some("name a parameter, or leave it out".into()));
        }
        if let Some(cookie) = self.cookie.as_ref().filter(|cookie| FieldName::new(cookie).is_err()) {
            build.refuse("cookie", format!("`{cookie}` is not a cookie name"), None);
        }
        if let Some(scheme) = &self.scheme
            && FieldName::new(scheme).is_err()
        {
            build.refuse("scheme", format!("`{scheme}` is not a single word"), Some("write Bearer".into()));
        }
        let keys = Keys::read(self.file.as_ref(), build);
        if build.mistakes.len() > before {
            return None;
        }
        let scheme = self.scheme.as_deref().unwrap_or("ApiKey");
        let missing = format!("{scheme} realm=\"weir\"");
        // RFC 6750 §3.1: tells a client that sent a bearer token that the token is at fault.
        let bearer = scheme.eq_ignore_ascii_case("bearer");
        let unknown = if bearer { format!("{missing}, error=\"invalid_token\"") } else { missing.clone() };
        let Self { scheme: word, query, cookie, path, hide, .. } = &self;
        Some(KeyAuth {
            takes_sole_header: word.is_none() && query.is_none() && cookie.is_none() && !path && *hide,
            reads_authorization: self.header.as_str().eq_ignore_ascii_case("authorization"),
            settings: self,
            keys,
            directory: build.directory.cloned(),
            challenge_missing: missing.into_bytes(),
            challenge_unknown: unknown.into_bytes(),
            www_authenticate: FieldName::new("www-authenticate").expect("a name in the source is a token"),
        })
    }
}

// === impl KeyAuth ===

impl Filter for KeyAuth {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let KeyAuthSettings { header, consumer_header, .. } = &self.settings;
        let names = std::iter::once(header).chain(consumer_header);
        FieldGuards { request: names.map(|name| (**name).clone()).collect(), response: Vec::new() }
    }

    fn credentials(&self) -> Vec<FieldName> {
        vec![(*self.settings.header).clone()]
    }

    fn conceals(&self) -> Conceals {
        Conceals {
            path_key: self.settings.path,
            query: self.settings.query.iter().cloned().collect(),
            ..Conceals::default()
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if let Some(Owner { consumer, digits }) = self.take_known_key(head, cx) {
            cx.set_consumer(consumer as usize);
            cx.set_credential(digits);
        } else if let Some(decided) = self.name_caller(head, cx) {
            return decided;
        }
        if self.settings.hide && self.reads_authorization {
            cx.hides_authorization();
        }
        if let Some(name) = &self.settings.consumer_header {
            tell_upstream(name, head, cx);
        }
        Flow::Continue
    }
}

impl KeyAuth {
    /// Hides the key and returns its owner, if keys come only from the header, the request has one such header, its key
    /// was verified before, and its owner may call. That holds for nearly all requests.
    #[inline]
    fn take_known_key(&self, head: &mut RequestHead, cx: &Cx) -> Option<Owner> {
        if !self.takes_sole_header {
            return None;
        }
        head.headers.take_sole(&self.settings.header, |key| {
            let owner = self.keys.remembered(key)?;
            let consumer = cx.consumers().get(owner.consumer as usize)?;
            consumer.may_call_from(&cx.client).then_some(owner)
        })
    }

    /// Names the caller by the keys of the request and hides them, or returns what to answer.
    #[inline(never)]
    fn name_caller(&self, head: &mut RequestHead, cx: &mut Cx) -> Option<Flow> {
        if self.settings.path && cx.path_key().is_some() && has_key_segment(head.path()) {
            return Some(Flow::refuse(&KEY_TWICE)); // only the first was removed: the upstream would see the second
        }
        let found = match self.presented(head, cx) {
            Presented::None => None,
            Presented::Different => Some(Err(Nobody::Unknown)),
            Presented::One(key) => Some(self.find(&key)),
        };
        let found = match found {
            Some(found) => found,
            None if self.settings.optional => {
                if let Some(name) = &self.settings.consumer_header {
                    head.headers.remove(name);
                }
                cx.pass_unnamed();
                return Some(Flow::Continue);
            }
            None => return Some(self.refuse(&KEY_MISSING, &self.challenge_missing)),
        };
        match found {
            Ok((named, digits)) => {
                named.name(cx);
                cx.set_credential(digits);
            }
            Err(Nobody::Unknown) => return Some(self.refuse(&KEY_UNKNOWN, &self.challenge_unknown)),
            Err(Nobody::Unavailable) => return Some(Flow::refuse(&CONSUMERS_UNAVAILABLE)),
        }
        let Some(consumer) = cx.consumer() else {
            return Some(self.refuse(&KEY_UNKNOWN, &self.challenge_unknown));
        };
        if !consumer.may_call_from(&cx.client) {
            return Some(Flow::refuse(&CONSUMER_ADDRESS));
        }
        if self.settings.hide {
            self.hide(head);
        }
        None
    }

    /// The owner of a key, and the first digits of its hash.
    fn find(&self, key: &[u8]) -> Result<(Named, [u8; 8]), Nobody> {
        let of_config = |Owner { consumer, digits }| (Named::Config(consumer as usize), digits);
        if let Some(owner) = self.keys.remembered(key) {
            return Ok(of_config(owner));
        }
        let known = |owner: Owner| (owner.consumer, owner.digits);
        let of_source = |(consumer, digits)| (Named::Listed(consumer), digits);
        let directory = self.directory.as_ref();
        if let Some(directory) = directory
            && let Lookup::Found(consumer, digits) =
                directory.find(KIND.name, |keys: &Keys| keys.remembered(key).map(known))
        {
            return Ok(of_source((consumer, digits)));
        }
        let hash = Sha256::digest(key).into();
        if let Some(owner) = self.keys.verify(key, &hash) {
            return Ok(of_config(owner));
        }
        let Some(directory) = directory else { return Err(Nobody::Unknown) };
        let found = directory.find(KIND.name, |keys: &Keys| keys.verify(key, &hash).map(known));
        listed(found).map(of_source)
    }

    fn presented<'a>(&'a self, head: &'a RequestHead, cx: &'a Cx) -> Presented<'a> {
        let settings = &self.settings;
        let mut in_headers = head.headers.values(&settings.header).filter_map(|v| self.key_of(v));
        let mut presented = match in_headers.next() {
            None => Presented::None,
            Some(key) if in_headers.all(|other| other == key) => Presented::One(Cow::Borrowed(key)),
            Some(_) => Presented::Different,
        };
        if let (Some(name), Some(query)) = (&settings.query, head.query()) {
            query::values(query, name).filter(|key| !key.is_empty()).for_each(|key| presented.add(key));
        }
        if let Some(name) = &settings.cookie {
            let keys = cookies::values(head, name).filter(|key| !key.is_empty());
            keys.for_each(|key| presented.add(Cow::Borrowed(key)));
        }
        if let Some(key) = cx.path_key().filter(|_| settings.path) {
            presented.add(Cow::Borrowed(key));
        }
        presented
    }

    /// The key in the value of a header.
    fn key_of<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        match &self.settings.scheme {
            None => Some(value).filter(|key| !key.is_empty()),
            Some(scheme) => after_scheme(value, scheme),
        }
    }

    fn hide(&self, head: &mut RequestHead) {
        head.headers.remove(&self.settings.header);
        if let Some(cookie) = &self.settings.cookie {
            cookies::remove(head, |name| name == cookie.as_bytes());
        }
        let Some(name) = &self.settings.query else { return };
        let Some(rest) = head.query().and_then(|q| query::without(q, |n| n == name.as_bytes())) else {
            return;
        };
        let rest = if rest.is_empty() { None } else { Some(rest.as_slice()) };
        head.set_query(rest).expect("what is left of a query may stand in a target");
    }

    fn refuse(&self, cause: &'static Cause, challenge: &[u8]) -> Flow {
        // RFC 9110 §11.6.1: a 401 must carry a challenge.
        Flow::refuse_with(cause, vec![(self.www_authenticate.clone(), challenge.to_vec())])
    }
}

/// Writes the consumer's name into a header for the upstream.
fn tell_upstream(name: &FieldName, head: &mut RequestHead, cx: &Cx) {
    let told = cx.consumer().map(|consumer| head.headers.insert(name, consumer.name.as_bytes()));
    if !matches!(told, Some(Ok(()))) {
        head.headers.remove(name); // the name cannot be sent; remove the client's own header
    }
}

/// Whether a segment of a path may be a key.
fn has_key_segment(path: &[u8]) -> bool {
    path.split(|&b| b == b'/').any(|segment| segment.len() > 1 && segment.starts_with(b"~"))
}

impl<'a> Presented<'a> {
    fn add(&mut self, key: Cow<'a, [u8]>) {
        match self {
            Self::None => *self = Self::One(key),
            Self::One(first) if *first == key => {}
            _ => *self = Self::Different,
        }
    }
}

#[cfg(test)]
mod tests;

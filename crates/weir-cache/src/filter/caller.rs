//! What a request tells an upstream beyond its cache key: the caller, and fields that filters behind the cache write.
//!
//! An answer may be kept only if everything it may depend on is in the key, is in its `Vary`, or is the same for
//! everyone:
//!
//! ```text
//!  verified before the cache   in the key (`caller`), or the answer itself must allow sharing (RFC 9111 §3.5)
//!  verified behind the cache   not kept, nor what passed a filter there that turns others away (`ip`, `acl`)
//!  written behind the cache    not kept if it has the client's address or certificate, or if `Vary` names it
//!  told by a trusted proxy     in the key, but for the client's address
//! ```

use super::key::Extra;
use super::storable::WhyNot;
use weir_filter::filter::{Caller, Cx, RequestHead, Revealed};
use weir_h1::{Claim, FieldName, Fields, Known, split_unquoted};
use weir_wire::base64;

use sha2::{Digest, Sha256};

/// A request as the cache saw it, and how the request sent upstream differs.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Its fields, for `Vary` and for conditions.
    pub(super) fields: Fields,
    /// Why an answer is kept only if it explicitly allows sharing.
    private: Option<WhyNot>,
    caller: Caller,
    /// Whether the key includes the caller.
    by_caller: bool,
    /// Whether, since the key was made, the caller was identified further or the upstream learned more about it.
    is_revealed: bool,
    /// Fields that went to the upstream with a different value.
    altered: Vec<FieldName>,
}

/// Fields whose value an answer does not depend on: those that the cache itself changes in the request it sends, and
/// one that decides only the coding, which the answer names.
const NOT_COMPARED: [&str; 3] = ["if-modified-since", "if-none-match", "accept-encoding"];

fn is_not_compared(name: &[u8]) -> bool {
    NOT_COMPARED.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

impl View {
    /// The request of this exchange, for which a cache with these key parts is about to fetch.
    pub(super) fn of(head: &RequestHead, cx: &Cx, extras: &[Extra]) -> Self {
        let by_caller = extras.contains(&Extra::Caller);
        let caller = cx.caller();
        Self {
            fields: head.headers.to_owned_fields(),
            private: private(head, caller, extras),
            caller: known(caller, by_caller),
            by_caller,
            ..Self::default()
        }
    }

    /// The request is about to be sent with these fields. Nearly always they are those that the cache saw.
    pub(super) fn departs(&mut self, sent: &Fields) {
        let lines = |fields| Fields::iter(fields).filter(|(name, _)| !is_not_compared(name));
        if lines(sent).eq(lines(&self.fields)) {
            return;
        }
        for (name, _) in sent.iter() {
            let Some(name) = str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok()) else {
                continue;
            };
            if is_not_compared(name.as_str().as_bytes()) || self.is_altered(&name) {
                continue;
            }
            if !sent.values(&name).eq(self.fields.values(&name)) {
                self.altered.push(name);
            }
        }
    }

    /// The answer has arrived. Compares the caller with the one that the key was made for.
    pub(super) fn returns(&mut self, caller: Caller) {
        self.is_revealed |= self.caller != known(caller, self.by_caller);
    }

    /// Why the answer must not be kept, regardless of its fields. `shared`: it allows shared caches to store it.
    pub(super) fn refuses(&self, shared: bool) -> Option<WhyNot> {
        if self.is_revealed { Some("caller") } else { self.private.filter(|_| !shared) }
    }

    /// Whether a field went to the upstream with a value that the cache did not see.
    pub(super) fn is_altered(&self, name: &FieldName) -> bool {
        self.altered.iter().any(|known| known.as_str().eq_ignore_ascii_case(name.as_str()))
    }
}

#[cfg(test)]
impl From<Fields> for View {
    fn from(fields: Fields) -> Self {
        Self { fields, ..Self::default() }
    }
}

#[cfg(test)]
impl View {
    /// A request with these fields, from an unknown caller.
    pub(super) fn asked(lines: super::testing::Lines<'_>) -> Self {
        let mut head = RequestHead::default();
        for (name, value) in lines {
            head.headers.append(&FieldName::new(name).unwrap(), value.as_bytes()).unwrap();
        }
        let private = private(&head, Caller::default(), &[Extra::Caller]);
        Self { fields: head.headers, private, ..Self::default() }
    }
}

/// The caller as a key with or without it (`by_caller`) sees it: a key with the caller includes the consumer's name.
const fn known(caller: Caller, by_caller: bool) -> Caller {
    if by_caller { caller.but(Revealed::CONSUMER) } else { caller }
}

/// RFC 9111 §3.5, for the request as received: a filter may have removed the credential.
fn private(head: &RequestHead, caller: Caller, extras: &[Extra]) -> Option<WhyNot> {
    let parted = extras.iter().any(|extra| matches!(extra, Extra::Caller | Extra::Shared));
    if head.headers.get_str("authorization").is_some() {
        return Some("authorization");
    }
    let verified = caller.has_authorization() && parted;
    if !verified && head.headers.was_received("authorization") {
        return Some("authorization");
    }
    (caller.is_known() && !parted).then_some("caller")
}

/// Adds the caller to a key; nothing for an unknown caller.
pub(super) fn add_caller(cx: &Cx, mut add: impl FnMut(&[u8], &[u8])) {
    if let Some(consumer) = cx.consumer() {
        add(b"c", consumer.name.as_bytes());
    }
    let revealed = cx.caller().revealed();
    if revealed.has(Revealed::ADDRESS) {
        add(b"t", cx.client.to_canonical().to_string().as_bytes());
    }
    if let Some(certificate) = cx.certificate.as_ref().filter(|_| revealed.has(Revealed::CERTIFICATE)) {
        add(b"m", certificate.fingerprint.as_bytes());
    }
    if cx.identities().is_empty() {
        return;
    }
    let mut hash = Sha256::new();
    for identity in cx.identities().iter() {
        for part in [identity.by.as_bytes(), &identity.who] {
            hash.update(part.len().to_le_bytes()); // the lengths make the encoding of a list unambiguous
            hash.update(part);
        }
    }
    add(b"i", base64::encode_url(&hash.finalize()).as_bytes());
}

/// Adds what a trusted proxy reports about the client's URL: host, port, scheme and prefix. The gateway dropped such
/// fields of untrusted clients before any filter ran, by the same list. The client's address stays out, as the
/// gateway sends it to every upstream.
pub(super) fn add_forwarded(head: &RequestHead, mut add: impl FnMut(&[u8], &[u8])) {
    if !head.headers.has_any(&Known::CLAIMED) {
        return;
    }
    for (name, value) in head.headers.iter() {
        match Known::of(name).claim() {
            None | Some(Claim::Address) => {}
            Some(Claim::Url) => {
                let mut field = name.to_ascii_lowercase();
                field.push(b':');
                field.extend_from_slice(value);
                add(b"f", &field);
            }
            Some(Claim::AddressAndUrl) => {
                let pairs = split_unquoted(value, |b| matches!(b, b';' | b','));
                pairs.filter(|pair| !pair.is_empty() && !is_node(pair)).for_each(|pair| add(b"f", pair));
            }
        }
    }
}

/// Whether a pair of `Forwarded` names a node, the client or a proxy, and cannot be read otherwise (RFC 7239 §6). An
/// upstream may interpret a malformed node, or one in an unclosed quote, differently from us.
fn is_node(pair: &[u8]) -> bool {
    let is = |name: &[u8]| {
        let (begin, value) = pair.split_at_checked(name.len())?;
        value.strip_prefix(b"=").filter(|_| begin.eq_ignore_ascii_case(name))
    };
    let Some(value) = is(b"for").or_else(|| is(b"by")) else { return false };
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    bare.iter().all(|b| b.is_ascii_alphanumeric() || b".:[]_-".contains(b))
}

#[cfg(test)]
mod tests {
    use super::super::testing::fields;
    use super::*;
    use serde_json::json;
    use weir_filter::filter::is_address;
    use weir_filter::testing::{PASS, Stand, request_head};

    #[test]
    fn what_a_proxy_tells_of_the_url() {
        let parts = |request: &str| {
            let mut parts = Vec::new();
            add_forwarded(&request_head(request), |kind, value| {
                parts.push(String::from_utf8([kind, value].concat()).unwrap());
            });
            parts
        };
        assert!(
            parts(
                "GET /\nx-forwarded-for: 192.0.2.1\nx-real-ip: 192.0.2.1\nforwarded: for=\"[::1]:4\", By=_a"
            )
            .is_empty()
        );
        assert!(parts("GET /\nx-envoy-external-address: 192.0.2.1").is_empty());
        assert_eq!(
            parts("GET /\nX-Forwarded-Host: a\nx-forwarded-prefix: /p"),
            ["fx-forwarded-host:a", "fx-forwarded-prefix:/p"]
        );
        assert_eq!(
            parts("GET /\nforwarded: for=1;host=a;proto=https, by=2;Host=b"),
            ["fhost=a", "fproto=https", "fHost=b"]
        );
        // Counts, because someone may read it differently.
        assert_eq!(parts("GET /\nforwarded: for=\"x;host=a"), ["ffor=\"x;host=a"]);
        assert_eq!(
            parts("GET /\nforwarded: for=\"x\\\";host=a\";host=b"),
            ["ffor=\"x\\\";host=a\"", "fhost=b"]
        );
        assert_eq!(parts("GET /\nforwarded: host=\"a;b,c\""), ["fhost=\"a;b,c\""]);
        assert_eq!(parts("GET /\nforwarded: format=1"), ["fformat=1"]);
        for (name, url) in [
            ("front-end-https", true),
            ("x-envoy-external-address", false),
            ("x-envoy-internal", true),
            ("x-envoy-original-host", true),
            ("x-envoy-original-path", true),
            ("x-forwarded-for", false),
            ("x-forwarded-host", true),
            ("x-forwarded-ssl", true),
            ("x-original-url", true),
            ("x-real-ip", false),
            ("x-rewrite-url", true),
            ("x-scheme", true),
        ] {
            let revealed = parts(&format!("GET /\n{name}: 1"));
            let expected = url.then(|| format!("f{name}:1"));
            assert_eq!(revealed, Vec::from_iter(expected), "{name}");
            assert!(Known::of(name.as_bytes()).claim().is_some(), "{name}");
            assert!(url || is_address(name), "{name}: no answer may vary by it");
        }
    }

    #[tokio::test]
    async fn whose_answer_it_is() {
        let cx = || async { Stand::new(&PASS, json!({})).build().request("GET /").await.cx };
        let key = |cx: &Cx| {
            let mut key = Vec::new();
            add_caller(cx, |kind, value| key.push([kind, value].concat()));
            key
        };
        let mut known = Vec::new();
        known.push(key(&cx().await));
        assert!(known[0].is_empty());
        for (by, who) in [("jwt", "alice"), ("jwt", "bob"), ("oidc", "alice")] {
            let one = cx().await;
            one.identify(by, who.as_bytes());
            known.push(key(&one));
            one.identify(by, who.as_bytes());
            known.push(key(&one));
        }
        let one = cx().await;
        one.reveals(Revealed::ADDRESS);
        known.push(key(&one));
        let count = known.len();
        known.sort();
        known.dedup();
        assert_eq!(known.len(), count);
    }

    #[tokio::test]
    async fn what_must_allow_sharing() {
        let cx = || async { Stand::new(&PASS, json!({})).build().request("GET /").await.cx };
        let mut anonymous = request_head("GET /");
        let mut hidden = request_head("GET /\nauthorization: Bearer x");
        hidden.headers.remove(&FieldName::new("authorization").unwrap());
        let shown = request_head("GET /\nauthorization: Bearer x");
        let (apart, shared, none) = ([Extra::Caller], [Extra::Shared], []);
        let plain = cx().await.caller();
        assert_eq!(private(&anonymous, plain, &none), None);
        for extras in [&apart[..], &shared, &none] {
            assert_eq!(private(&shown, plain, extras), Some("authorization"));
            assert_eq!(private(&hidden, plain, extras), Some("authorization"), "nobody verified it");
        }
        let cx = cx().await;
        cx.identify("key_auth", b"shop");
        assert_eq!(private(&hidden, cx.caller(), &apart), Some("authorization"), "another filter's caller");
        cx.hides_authorization();
        let verified = cx.caller();
        assert_eq!(private(&hidden, verified, &apart), None);
        assert_eq!(private(&hidden, verified, &shared), None);
        assert_eq!(private(&hidden, verified, &none), Some("authorization"));
        assert_eq!(private(&anonymous, verified, &none), Some("caller"));
        assert_eq!(private(&shown, verified, &apart), Some("authorization"), "the upstream sees it");
        // A field of that name that a filter wrote was not received.
        anonymous.headers.append(&FieldName::new("authorization").unwrap(), b"x").unwrap();
        anonymous.headers.remove(&FieldName::new("authorization").unwrap());
        assert_eq!(private(&anonymous, plain, &apart), None);
        let mut view = View::of(&anonymous, &cx, &apart);
        view.returns(verified);
        assert_eq!(view.refuses(false), None);
        let alike = View::of(&anonymous, &cx, &none);
        assert_eq!((alike.refuses(false), alike.refuses(true)), (Some("caller"), None));
        // Behind the cache, the upstream learns the consumer's name, which is in the key.
        cx.reveals(Revealed::CONSUMER);
        view.returns(cx.caller());
        assert_eq!(view.refuses(false), None);
        cx.identify("jwt", b"alice");
        view.returns(cx.caller());
        assert_eq!((view.refuses(false), view.refuses(true)), (Some("caller"), Some("caller")));
    }

    #[test]
    fn what_leaves_with_another_value() {
        let mut view = View::from(fields(&[("A", "1"), ("B", "1"), ("C", "1"), ("Accept-Encoding", "gzip")]));
        view.departs(&fields(&[
            ("a", "1"),
            ("b", "2"),
            ("d", "1"),
            ("if-none-match", "x"),
            ("accept-encoding", "br"),
        ]));
        let altered: Vec<&str> = view.altered.iter().map(FieldName::as_str).collect();
        assert_eq!(altered, ["b", "d"]);
        view.departs(&fields(&[("a", "2")]));
        assert!(view.is_altered(&FieldName::new("A").unwrap()));
    }
}

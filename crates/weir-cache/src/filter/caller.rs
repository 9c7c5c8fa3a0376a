//! What a request tells an upstream that its key does not hold: the caller, and what filters behind the cache write.
//!
//! An answer may be kept only if everything it may depend on stands in the key, in its `Vary`, or is the same for everybody:
//!
//! ```text
//!  verified before the cache   in the key (`caller`), or the answer itself must allow sharing (RFC 9111 §3.5)
//!  verified behind the cache   not kept, nor what filters let pass there that turn others away (`ip`, `acl`)
//!  written behind the cache    not kept where the client's address or certificate went into it, or where `Vary` names the field
//!  told by a trusted proxy     in the key, but for the client's address
//! ```

use super::key::Extra;
use super::storable::WhyNot;
use weir_filter::filter::{Caller, Cx, RequestHead, Told};
use weir_h1::{Claim, FieldName, Fields, Known, split_unquoted};
use weir_wire::base64;

use sha2::{Digest, Sha256};

/// A request as the cache saw it, and how the one that went to the upstream differs.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Its fields: what the answer varies by, and its conditions.
    pub(super) fields: Fields,
    /// Why an answer is kept only if it says itself that it may be shared.
    private: Option<WhyNot>,
    caller: Caller,
    /// Whether the key holds the caller.
    by_caller: bool,
    /// More is known of the caller, or was told of him, than when the key was made.
    is_told: bool,
    /// Fields that went to the upstream with another value.
    altered: Vec<FieldName>,
}

/// Fields that the cache itself changes in a request that fetches.
const CONDITIONS: [&str; 2] = ["if-modified-since", "if-none-match"];

/// Fields of which the value decides nothing but the coding of an answer, which the answer names.
const CODINGS: &str = "accept-encoding";

impl View {
    /// The request of this exchange, which a cache with these parts of a key is about to fetch for.
    pub(super) fn of(head: &RequestHead, cx: &Cx, extras: &[Extra]) -> Self {
        let by_caller = extras.contains(&Extra::Caller);
        let caller = cx.caller();
        Self {
            fields: copy(&head.headers),
            private: private(head, caller, extras),
            caller: known(caller, by_caller),
            by_caller,
            ..Self::default()
        }
    }

    /// The request is about to leave, with these fields.
    pub(super) fn departs(&mut self, sent: &Fields) {
        for (name, _) in sent.iter() {
            let Some(name) = str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok()) else {
                continue;
            };
            let ours = CONDITIONS.iter().any(|known| known.eq_ignore_ascii_case(name.as_str()));
            if ours || name.as_str().eq_ignore_ascii_case(CODINGS) || self.is_altered(&name) {
                continue;
            }
            if !sent.values(&name).eq(self.fields.values(&name)) {
                self.altered.push(name);
            }
        }
    }

    /// The answer is there. Compares the caller with the one that the key was made for.
    pub(super) fn returns(&mut self, caller: Caller) {
        self.is_told |= self.caller != known(caller, self.by_caller);
    }

    /// Why the answer is not kept, whatever else it says; `shared`: it says that caches may share it.
    pub(super) fn refuses(&self, shared: bool) -> Option<WhyNot> {
        if self.is_told { Some("caller") } else { self.private.filter(|_| !shared) }
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
    /// A request with these fields, from a caller of whom nothing is known.
    pub(super) fn asked(lines: super::testing::Lines<'_>) -> Self {
        let mut head = RequestHead::default();
        for (name, value) in lines {
            head.headers.append(&FieldName::new(name).unwrap(), value.as_bytes()).unwrap();
        }
        let private = private(&head, Caller::default(), &[Extra::Caller]);
        Self { fields: head.headers, private, ..Self::default() }
    }
}

/// A caller as a key with (`by_caller`) or without him sees him: with him it holds the consumer's name anyway.
const fn known(caller: Caller, by_caller: bool) -> Caller {
    if by_caller { caller.but(Told::CONSUMER) } else { caller }
}

/// RFC 9111 §3.5, for the request as it came: a filter may have taken the credential out of it.
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

/// Adds the caller to a key: nothing for one of whom nothing is known.
pub(super) fn add_caller(cx: &Cx, mut add: impl FnMut(&[u8], &[u8])) {
    if let Some(consumer) = cx.consumer() {
        add(b"c", consumer.name.as_bytes());
    }
    let told = cx.caller().told();
    if told.has(Told::ADDRESS) {
        add(b"t", cx.client.to_canonical().to_string().as_bytes());
    }
    if let Some(certificate) = cx.certificate.as_ref().filter(|_| told.has(Told::CERTIFICATE)) {
        add(b"m", certificate.fingerprint.as_bytes());
    }
    if cx.identities().is_empty() {
        return;
    }
    let mut hash = Sha256::new();
    for identity in cx.identities() {
        for part in [identity.by.as_bytes(), &identity.who] {
            hash.update(part.len().to_le_bytes()); // no two lists of parts are the same bytes
            hash.update(part);
        }
    }
    add(b"i", base64::encode_url(&hash.finalize()).as_bytes());
}

/// Adds what a trusted proxy tells of the URL that its client asked for: host, port, scheme and prefix. What a client says itself was
/// dropped before any filter ran, by the same list. The client's address stays out, as the gateway tells it to every upstream.
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

/// Whether a pair of `Forwarded` names a machine, the client or a proxy, and can be read as nothing else (RFC 7239 §6). An upstream may
/// read what is no node, or stands in a quote that does not end, in another way than we do.
fn is_node(pair: &[u8]) -> bool {
    let is = |name: &[u8]| {
        let (begin, value) = pair.split_at_checked(name.len())?;
        value.strip_prefix(b"=").filter(|_| begin.eq_ignore_ascii_case(name))
    };
    let Some(value) = is(b"for").or_else(|| is(b"by")) else { return false };
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    bare.iter().all(|b| b.is_ascii_alphanumeric() || b".:[]_-".contains(b))
}

/// The fields of a request as they are now.
fn copy(fields: &Fields) -> Fields {
    let mut copy = Fields::default();
    for (name, value) in fields.iter() {
        if let Some(name) = str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok()) {
            let _ = copy.append(&name, value); // it was received as a value
        }
    }
    copy
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
        // What somebody may read in another way counts.
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
            let told = parts(&format!("GET /\n{name}: 1"));
            let expected = url.then(|| format!("f{name}:1"));
            assert_eq!(told, Vec::from_iter(expected), "{name}");
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
            let mut one = cx().await;
            one.identify(by, who.as_bytes());
            known.push(key(&one));
            one.identify(by, who.as_bytes());
            known.push(key(&one));
        }
        let one = cx().await;
        one.tells(Told::ADDRESS);
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
        let mut cx = cx().await;
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
        // Behind the cache the upstream is told the consumer's name, which the key holds.
        cx.tells(Told::CONSUMER);
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

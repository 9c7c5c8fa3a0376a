//! Settings of `jwt`.

use super::super::prelude::*;
use super::super::shared::claimed::{self, Claimed};
use super::super::shared::jose::algorithm::Algorithm;
use super::super::shared::jose::key_set::{KEY_SET_BYTES, KeySet, Secrets};
use super::super::shared::jose::remote::{Keeping, Remote};
use super::claims::Requirement;
use super::{Jwt, Keys};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_h1::FieldName;

/// Requires a valid signed token (JWT, RFC 7519), and identifies the consumer.
///
/// A token is sent as `Authorization: Bearer TOKEN`. The filter verifies its signature with `keys`, then its time,
/// then `issuers`, `audiences` and `require`. It refuses tokens without a signature, without an expiry, with an
/// algorithm that does not fit the type of the key, and with extensions (`crit`, `b64`). It also refuses tokens whose
/// header brings its own key (`jwk`, `jku`, `x5c`, `x5u`), and requests with two tokens. The challenge states the
/// reason (RFC 6750 §3).
///
/// Keys from a URL are fetched in the background, and again when a token names an unknown key, at most every 30 s.
/// While the provider is down, the last keys stay in use for `stale` longer. A set has at most 100 keys in 256 KiB.
/// RSA keys have at least 2,048 bits, and shared secrets are not accepted from a URL.
///
/// Each core remembers verified tokens, in up to 4 MiB, until they expire or the keys change.
///
/// ```yaml
/// - jwt: { keys: "https://idp.example/jwks.json", issuers: [ "https://idp.example" ], audiences: [ orders ] }
/// - jwt:
///     keys: https://idp.example/jwks.json
///     consumer: azp
///     require: { scope: read, tier: [ gold, silver ] }
///     headers: { x-user: sub }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JwtSettings {
    /// The public keys: the URL of a JWKS (`https://…`), a watched file with a JWKS or PEM, or either inline.
    /// Required unless there is a `secret`.
    pub(super) keys: Option<TextOrPath>,
    /// A shared secret of at least 32 bytes, for HS256, HS384 and HS512. Default none.
    secret: Option<String>,
    /// How long keys from a URL are used before they are fetched again. Default 10m.
    refresh: Duration,
    /// How long they stay in use after that while the provider does not answer. Default 24h.
    stale: Duration,
    /// PEM file with the certificate authorities to trust for the URL. Default: those of the system.
    ca: Option<FilePath>,
    /// Allows an `http://` URL outside this machine: anyone on the network path can then sign tokens. Default false.
    insecure: bool,
    /// Accepted issuers: values of `iss`. Default: not checked.
    pub(super) issuers: Vec<String>,
    /// Accepted audiences: one of these must be in `aud`. Default: not checked, so a token for another service of the
    /// same provider passes.
    pub(super) audiences: Vec<String>,
    /// Accepted algorithms. Default: all that fit the keys.
    pub(super) algorithms: Vec<Algorithm>,
    /// Allowed clock difference. Default 30s.
    pub(super) leeway: Duration,
    /// Accepts tokens without `exp`, which are valid until the keys change. Default false.
    pub(super) allow_endless: bool,
    /// Accepted values of the token's `typ`, such as `at+jwt`. Default: not checked.
    pub(super) types: Vec<String>,
    /// Claims and their required values: one value; a list of allowed values; or `{ contains: VALUE }` for a list, or
    /// a text of words, that must contain it. `scope` is always read as words. A dot leads into a claim:
    /// `realm_access.roles`. Default none.
    pub(super) require: BTreeMap<String, Requirement>,
    /// Header that carries the token. Default `authorization`.
    pub(super) header: HeaderName,
    /// Word before the token in the header. Default `Bearer` for `authorization`, else none.
    pub(super) scheme: Option<String>,
    /// Cookie that may carry the token instead. Default none: browsers send cookies with other sites' requests too.
    pub(super) cookie: Option<String>,
    /// Whether the token is removed before the request goes to the upstream. Default false, because many upstreams
    /// read it again.
    pub(super) hide: bool,
    /// Claim that names the consumer, by one of the values under `consumers.NAME.jwt`. A token that names no consumer
    /// is refused. Default none: the consumer stays unnamed.
    pub(super) consumer: Option<String>,
    /// Headers for the upstream, each with the claim that sets it: a text, number or boolean, or a comma-separated
    /// list of them. Headers of these names from the client are removed. Default none.
    pub(super) headers: BTreeMap<String, String>,
    /// Lets requests without a token pass, unnamed. An invalid token is still refused. Default false.
    pub(super) optional: bool,
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            keys: None,
            secret: None,
            refresh: Duration::from_secs(600),
            stale: Duration::from_secs(24 * 3600),
            ca: None,
            insecure: false,
            issuers: Vec::new(),
            audiences: Vec::new(),
            algorithms: Vec::new(),
            leeway: Duration::from_secs(30),
            allow_endless: false,
            types: Vec::new(),
            require: BTreeMap::new(),
            header: HeaderName::fixed("authorization"),
            scheme: None,
            cookie: None,
            hide: false,
            consumer: None,
            headers: BTreeMap::new(),
            optional: false,
        }
    }
}

impl IntoFilter for JwtSettings {
    type Filter = Jwt;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Jwt> {
        let before = build.mistakes.len();
        allow_name(build, "header", &self.header);
        if self.scheme.as_ref().is_some_and(|scheme| FieldName::new(scheme).is_err()) {
            build.refuse("scheme", "is not a single word", Some("write Bearer".into()));
        }
        if self.cookie.as_ref().is_some_and(|name| FieldName::new(name).is_err()) {
            build.refuse("cookie", "is not a cookie name", Some("name one, or leave it out".into()));
        }
        if self.refresh.get().as_secs() == 0 {
            build.refuse("refresh", "is under a second; expected e.g. 10m", None);
        }
        for (key, texts) in
            [("issuers", &self.issuers), ("audiences", &self.audiences), ("types", &self.types)]
        {
            for at in texts.iter().enumerate().filter(|(_, text)| text.is_empty()).map(|(at, _)| at) {
                build.refuse(&format!("{key}[{at}]"), "is empty", Some("leave it out".into()));
            }
        }
        let headers = self.fields(build);
        let consumers = self.consumers(build);
        let keys = self.keys(build);
        if build.mistakes.len() > before {
            return None;
        }
        let bearer =
            *self.header == FieldName::new("authorization").expect("a name in the source is a token");
        Some(Jwt {
            scheme: self.scheme.clone().or_else(|| bearer.then(|| "Bearer".to_owned())),
            bearer,
            leeway: self.leeway.get().as_secs(),
            keys: keys?,
            headers,
            consumers,
            cache: PerCore::new(),
            reads_claims: build.reads_claims,
            www_authenticate: FieldName::new("www-authenticate").expect("a name in the source is a token"),
            settings: self,
        })
    }
}

impl JwtSettings {
    fn fields(&self, build: &mut Build<'_>) -> Vec<(FieldName, String)> {
        claimed::headers(build, &self.headers, |name| {
            (**name == *self.header).then_some("is the header that carries the token")
        })
    }

    pub(super) fn consumers(&self, build: &mut Build<'_>) -> Claimed {
        match self.consumer {
            None => Claimed::nobody(),
            Some(_) => Claimed::new(build, "jwt", "every request"),
        }
    }

    pub(super) fn keys(&self, build: &mut Build<'_>) -> Option<Keys> {
        let read = match (&self.keys, &self.secret) {
            (Some(_), Some(_)) => {
                build.refuse("secret", "there are `keys` too", Some("write one of them".into()));
                return None;
            }
            (None, None) => {
                let hint = "write the URL of a JWKS, a file, or PEM";
                build.refuse("keys", "is missing", Some(hint.into()));
                return None;
            }
            (None, Some(secret)) => KeySet::secret(secret.as_bytes()).map_err(|why| ("secret", why)),
            (Some(keys), None) if is_url(&keys.text) => return self.remote(&keys.text, build),
            (Some(keys), None) => self.read(keys, build).map_err(|why| ("keys", why)),
        };
        match read {
            Ok(set) => {
                if !self.algorithms.is_empty()
                    && !self.algorithms.iter().any(|algorithm| set.fits(*algorithm))
                {
                    build.refuse(
                        "algorithms",
                        "no key is for one of them: every token would be refused",
                        None,
                    );
                }
                Some(Keys::Here(Arc::new(set)))
            }
            Err((key, why)) => {
                build.refuse(key, why, None);
                None
            }
        }
    }

    /// Reads the keys of a file, or inline keys.
    fn read(&self, keys: &TextOrPath, build: &mut Build<'_>) -> Result<KeySet, String> {
        let inline = keys.text.trim_start().starts_with(['{', '-']);
        let bytes = match inline {
            true => keys.text.clone().into_bytes(),
            false => build.read_file(&keys.path, KEY_SET_BYTES)?,
        };
        let (set, left_out) = KeySet::read(&bytes, Secrets::Allowed)?;
        match left_out.first() {
            None => Ok(set),
            Some(why) => Err(why.clone()),
        }
    }

    fn remote(&self, text: &str, build: &mut Build<'_>) -> Option<Keys> {
        let url: Url = match text.parse() {
            Ok(url) => url,
            Err(e) => {
                build.refuse(
                    "keys",
                    format!("is not a URL: {e}"),
                    Some("write https://idp.example/jwks.json".into()),
                );
                return None;
            }
        };
        if !url.is_safe() && !self.insecure {
            let message = "is fetched in clear text: anyone on the network path can insert their own keys";
            build.refuse("keys", message, Some("write https://, or add `insecure: true`".into()));
        }
        if self.algorithms.iter().any(|algorithm| algorithm.name().starts_with("HS")) {
            let message = "HS256, HS384 and HS512 need a shared secret, which is not accepted from a URL";
            build.refuse("algorithms", message, Some("leave them out, or write `secret`".into()));
        }
        let (mut trust, mut trusted) = (Trust::default(), String::new());
        if let Some(ca) = &self.ca {
            // Reads the file to find mistakes, to have it watched, and so that other authorities count as other keys.
            match build.read_file(ca, KEY_SET_BYTES).and_then(|pem| Ok((Trust::file(&ca.0)?, pem))) {
                Ok((read, pem)) => {
                    trust = read;
                    trusted = Sha256::digest(&pem).iter().map(|b| format!("{b:02x}")).collect();
                }
                Err(why) => build.refuse("ca", why, None),
            }
        }
        let (refresh, stale) = (self.refresh.get(), self.stale.get());
        let key = format!("{url} {refresh:?} {stale:?} {trusted}");
        let keeping = Keeping { url, trust, refresh, stale };
        Some(Keys::Remote(build.keep_tended(&key, || Remote::new(keeping))))
    }
}

fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

//! `cors`: decides which pages of other origins may call, and answers the browsers' preflights.
//!
//! The rules are those of the Fetch standard, §3.3 (CORS protocol) and §4.9 (CORS-preflight fetch).

mod origin;

use super::prelude::*;
use origin::Origins;
use weir_h1::{FieldName, Fields, Method, Prepared};

pub(super) static KIND: FilterKind = FilterKind::made_from::<CorsSettings>("cors")
    .with_causes(&[&CORS_HEADER, &CORS_METHOD, &CORS_ORIGIN])
    .judged_by_head();

static CORS_HEADER: Cause = Cause {
    code: "cors_header",
    status: 403,
    meaning: "A preflight asked for a request header that cross-origin pages may not send.",
    change: "`headers` of the filter cors",
    ..Cause::USUAL
};

static CORS_METHOD: Cause = Cause {
    code: "cors_method",
    status: 403,
    meaning: "A preflight asked for a method that cross-origin pages may not use.",
    change: "`methods` of the filter cors",
    ..Cause::USUAL
};

static CORS_ORIGIN: Cause = Cause {
    code: "cors_origin",
    status: 403,
    meaning: "A preflight came from an origin that is not allowed.",
    change: "`origins` of the filter cors",
    ..Cause::USUAL
};

/// Decides which pages of other origins may call, and answers the browsers' preflights.
///
/// A preflight (OPTIONS with `Access-Control-Request-Method`) takes the route of the request that it announces, even
/// if the route's `methods` leave out OPTIONS. The filter answers it with 204, or with 403 and a cause that names
/// what was not allowed. All other requests pass, whatever their origin: the browser is what withholds the response
/// from the page. Every response to an allowed origin gets the CORS fields, including the gateway's own responses;
/// CORS fields from the upstream are replaced.
///
/// Put this filter first. A page can read responses of later filters only, and `weir check` refuses `cors` after a
/// filter that requires credentials, because browsers send none with a preflight.
///
/// ```yaml
/// - cors: { origins: [ "https://app.example.com", "https://*.preview.example.com" ], credentials: true }
/// - cors: { origins: [ "*" ], headers: [ x-version ], expose: [ x-total ] }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CorsSettings {
    /// Origins that may call: an origin (`https://app.example.com`), an origin with any subdomain
    /// (`https://*.example.com`, which does not include `https://example.com`) or any port (`http://localhost:*`), or
    /// `*` for every page. Sandboxed frames and local files send `null`. `credentials` allows neither `*` nor `null`.
    origins: Vec<String>,
    /// Methods that a preflight may ask for; `*` for any. Default GET, HEAD, POST, PUT, PATCH and DELETE.
    #[serde(default = "methods")]
    methods: Vec<String>,
    /// Request headers that a preflight may ask for; `*` for any. Default `authorization` and `content-type`.
    #[serde(default = "headers")]
    headers: Vec<String>,
    /// Response headers that pages may read, in addition to the six that are always readable; `*` for all, but only
    /// without `credentials`. Default none.
    #[serde(default)]
    expose: Vec<String>,
    /// Whether pages may send cookies and other browser credentials, and read the response. Default false.
    #[serde(default)]
    credentials: bool,
    /// With `credentials` and the origin `*`: answers name the page's own origin, which browsers accept with credentials.
    /// Any page can then act as its visitor, so `weir check` warns; list the origins instead where you know them.
    /// Sandboxed frames (`null`) stay excluded. Default false: `*` is refused with `credentials`.
    #[serde(default)]
    reflect: bool,
    /// How long a browser may cache the answer to a preflight. Browsers have their own limit of 2 to 24 hours.
    /// Default 10m.
    #[serde(default = "ten_minutes")]
    max_age: Duration,
    /// Whether public pages may call a gateway in a private network (`Access-Control-Request-Private-Network`).
    /// Default false.
    #[serde(default)]
    private_network: bool,
}

struct Cors {
    origins: Origins,
    methods: Names,
    headers: Names,
    /// Fields of every response to an allowed origin, up to the origin itself; the same with `Vary: Origin` first;
    /// and `Vary: Origin` alone.
    allowed: Prepared,
    allowed_varying: Prepared,
    varying: Prepared,
    origin: FieldName,
    vary: FieldName,
    credentials: bool,
    /// Whether every page may call, and is told its own origin.
    reflects: bool,
    /// What preflights are told of `expose`: browsers ignore it, other clients look for it.
    exposed: Option<Vec<u8>>,
    max_age: Vec<u8>,
    private_network: bool,
}

/// What a preflight may ask for.
enum Names {
    /// Everything, echoing the names in the request: `*` would exclude `Authorization`, and browsers take it
    /// literally with credentials.
    Any,
    /// These names, and the list as sent to browsers.
    Listed(Vec<String>, String),
}

/// Values of [`Cx::note`] for a request: 0 for no allowed origin, one of these, or [`LISTED`] plus the index of a
/// listed origin.
const PREFLIGHT: u64 = 1;
const BY_PATTERN: u64 = 2;
const LISTED: u64 = 3;

/// The origin that a pattern allowed, for the response.
#[derive(Default)]
struct Reflected(Vec<u8>);

fn methods() -> Vec<String> {
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"].map(str::to_owned).to_vec()
}

fn headers() -> Vec<String> {
    ["authorization", "content-type"].map(str::to_owned).to_vec()
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

impl IntoFilter for CorsSettings {
    type Filter = Cors;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Cors> {
        let before = build.mistakes.len();
        let reflects = self.reflect && self.credentials && self.origins == ["*"];
        if reflects {
            let message = "any page can act as its visitor: it may send credentials and read the response";
            build.warn("reflect", "credentials-for-everyone", message, Some("list the origins".into()));
        } else if self.reflect {
            let message = "counts only with `credentials: true` and `origins: [ \"*\" ]`";
            build.refuse("reflect", message, Some("leave it out".into()));
        }
        let origins = Origins::read(&self.origins, self.credentials && !reflects, build);
        let upper: Vec<String> = self.methods.iter().map(|m| m.to_ascii_uppercase()).collect();
        for (i, (method, upper)) in self.methods.iter().zip(&upper).enumerate() {
            if method != upper {
                let message = format!("`{method}` is not a method: methods are case-sensitive");
                build.refuse(&format!("methods[{i}]"), message, Some(format!("write {upper}").into()));
            }
        }
        let methods = Names::read("methods", upper, build);
        let lower = self.headers.iter().map(|h| h.to_ascii_lowercase()).collect();
        let headers = Names::read("headers", lower, build);
        let expose = Names::read("expose", self.expose, build);
        let mut told: Vec<(&str, &str)> = Vec::new();
        if self.credentials {
            told.push(("access-control-allow-credentials", "true"));
        }
        match &expose {
            Names::Any if self.credentials => {
                let hint = "list them, or leave `credentials` out".to_owned();
                let message = "`*` cannot be combined with credentials: true, because browsers then read it as a header named `*`";
                build.refuse("expose", message, Some(hint.into()));
            }
            Names::Any => told.push(("access-control-expose-headers", "*")),
            Names::Listed(_, all) if all.is_empty() => {}
            Names::Listed(_, all) => told.push(("access-control-expose-headers", all)),
        }
        let exposed = told.iter().find(|(name, _)| *name == "access-control-expose-headers");
        let exposed = exposed.map(|(_, all)| all.as_bytes().to_vec());
        told.push(("access-control-allow-origin", ""));
        let vary = ("vary", "Origin");
        let allowed_varying: Vec<_> = std::iter::once(vary).chain(told.iter().copied()).collect();
        (build.mistakes.len() == before).then(|| Cors {
            origins,
            methods,
            headers,
            allowed: prepared(&told),
            allowed_varying: prepared(&allowed_varying),
            varying: prepared(&[vary]),
            origin: field_name("origin"),
            vary: field_name("vary"),
            credentials: self.credentials,
            reflects,
            exposed,
            max_age: self.max_age.get().as_secs().to_string().into_bytes(),
            private_network: self.private_network,
        })
    }
}

/// Prepares fields of ours.
fn prepared(fields: &[(&str, &str)]) -> Prepared {
    let add = |all: Prepared, (name, value): &(&str, &str)| all.and(&field_name(name), value.as_bytes());
    fields.iter().try_fold(Prepared::default(), add).expect("the values are made of tokens that were checked")
}

fn field_name(name: &str) -> FieldName {
    FieldName::new(name).expect("a name in the source is a token")
}

// === impl Names ===

impl Names {
    fn read(key: &str, names: Vec<String>, build: &mut Build<'_>) -> Self {
        if names.iter().any(|name| name == "*") {
            if names.len() > 1 {
                build.refuse(key, "`*` already includes the other names", Some("write [ \"*\" ]".into()));
            }
            return Self::Any;
        }
        for (i, name) in names.iter().enumerate() {
            let field = format!("{key}[{i}]");
            if FieldName::new(name).is_err() {
                let hint = Some("one name in each element of the list".into());
                build.refuse(&field, format!("`{name}` is not a name"), hint);
            } else if names.iter().take(i).any(|other| other == name) {
                build.refuse(&field, format!("`{name}` is listed twice"), None);
            }
        }
        let all = names.join(", ");
        Self::Listed(names, all)
    }

    fn allows(&self, same: impl Fn(&[u8]) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(names, _) => names.iter().any(|name| same(name.as_bytes())),
        }
    }

    /// The list for the response: all allowed names, or the names that were asked for.
    fn response_list(&self, asked: &[u8]) -> Vec<u8> {
        match self {
            Self::Any => asked.to_vec(),
            Self::Listed(_, all) => all.clone().into_bytes(),
        }
    }
}

/// Whether an element of `Access-Control-Request-Headers` is a valid field name.
fn is_token(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| FieldName::new(name).is_ok())
}

// === impl Cors ===

impl Filter for Cors {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE | Hooks::PREFLIGHT
    }

    fn guards(&self) -> FieldGuards {
        let response = ["allow-origin", "allow-credentials", "expose-headers"];
        let name = |name| FieldName::new(&format!("access-control-{name}")).ok();
        FieldGuards { request: Vec::new(), response: response.into_iter().filter_map(name).collect() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let origin = one(&head.headers, &self.origin);
        if head.method() == Method::Options
            && let Some(method) = head.headers.get_str("access-control-request-method")
        {
            return self.preflight(&head.headers, origin, method, cx);
        }
        let Some(origin) = origin else { return Flow::Continue };
        if let Some(at) = self.origins.listed(origin) {
            *cx.note() = LISTED + at as u64;
        } else if self.origins.has_pattern_for(origin) || self.reflects_to(origin) {
            *cx.note() = BY_PATTERN;
            cx.state::<Reflected>().0 = origin.to_vec();
        }
        Flow::Continue
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let note = *cx.note();
        if note == PREFLIGHT {
            return Flow::Continue;
        }
        let fields = &mut head.headers;
        // Browsers reject a duplicated field, for example ours next to the upstream's.
        fields.remove_where(|name, _| is_ours(name));
        let everyone: &[u8] = b"*";
        let reflected;
        let allowed = if self.is_for_everyone() {
            Some(everyone)
        } else if note == BY_PATTERN {
            reflected = std::mem::take(&mut cx.state::<Reflected>().0);
            Some(reflected.as_slice())
        } else {
            note.checked_sub(LISTED).and_then(|at| self.origins.at(at as usize))
        };
        let varies = self.is_for_everyone() || self.varies_by_origin(fields);
        let (prepared, end) = match (allowed, varies) {
            (Some(origin), true) => (&self.allowed, origin),
            (Some(origin), false) => (&self.allowed_varying, origin),
            (None, true) => return Flow::Continue,
            (None, false) => (&self.varying, &b""[..]),
        };
        let _ = fields.append_prepared(prepared, end); // the origin was received in a field, so it is valid in one
        Flow::Continue
    }
}

impl Cors {
    /// Whether every page is answered with `*`.
    const fn is_for_everyone(&self) -> bool {
        self.origins.any && !self.reflects
    }

    /// Whether every page is answered with its origin, and this is one. A sandboxed frame has none.
    fn reflects_to(&self, origin: &[u8]) -> bool {
        let is_plain =
            |origin: &[u8]| origin.iter().all(|b| b.is_ascii_graphic() && !b"\"'<>\\,".contains(b));
        self.reflects && origin.windows(3).any(|three| three == b"://") && is_plain(origin)
    }

    fn varies_by_origin(&self, fields: &Fields) -> bool {
        let names = |line: &[u8]| {
            line.split(|&b| b == b',')
                .map(<[u8]>::trim_ascii)
                .any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
        };
        fields.values(&self.vary).any(names)
    }

    fn preflight(&self, fields: &Fields, origin: Option<&[u8]>, method: &[u8], cx: &mut Cx) -> Flow {
        *cx.note() = PREFLIGHT;
        let allowed = origin.filter(|origin| {
            self.is_for_everyone()
                || self.origins.listed(origin).is_some()
                || self.origins.has_pattern_for(origin)
                || self.reflects_to(origin)
        });
        let Some(origin) = allowed else { return Flow::refuse(&CORS_ORIGIN) };
        // Methods are case-sensitive (RFC 9110 §9.1), field names are not.
        if !is_token(method) || !self.methods.allows(|m| m == method) {
            return Flow::refuse(&CORS_METHOD);
        }
        let asked: Vec<&[u8]> = fields
            .get_all("access-control-request-headers")
            .flat_map(|line| line.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty())
            .collect();
        let fine = |name: &&[u8]| is_token(name) && self.headers.allows(|h| h.eq_ignore_ascii_case(name));
        if !asked.iter().all(fine) {
            return Flow::refuse(&CORS_HEADER);
        }
        let origin: &[u8] = if self.is_for_everyone() { b"*" } else { origin };
        let mut told = vec![
            ("access-control-allow-origin", origin.to_vec()),
            ("access-control-allow-methods", self.methods.response_list(method)),
        ];
        let headers = self.headers.response_list(&asked.join(&b", "[..]));
        if !headers.is_empty() {
            told.push(("access-control-allow-headers", headers));
        }
        if self.credentials {
            told.push(("access-control-allow-credentials", b"true".to_vec()));
        }
        told.extend(self.exposed.iter().map(|exposed| ("access-control-expose-headers", exposed.clone())));
        told.push(("access-control-max-age", self.max_age.clone()));
        let private = "access-control-request-private-network";
        if self.private_network && fields.get_str(private) == Some(b"true") {
            told.push(("access-control-allow-private-network", b"true".to_vec()));
        }
        // By the standard a response to OPTIONS is not cacheable, but some caches store it.
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network";
        told.push(("vary", vary.as_bytes().to_vec()));
        let name = |(name, value)| Some((FieldName::new(name).ok()?, value));
        let headers = told.into_iter().filter_map(name).collect();
        Flow::Answer(Box::new(Answer { status: 204, headers, body: Body::default() }))
    }
}

/// The value of a field that occurs exactly once: two Origins count as none.
fn one<'a>(fields: &'a Fields, name: &'a FieldName) -> Option<&'a [u8]> {
    let mut all = fields.values(name);
    all.next().filter(|_| all.next().is_none())
}

fn is_ours(name: &[u8]) -> bool {
    const BEGIN: &[u8] = b"access-control-";
    name.get(..BEGIN.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(BEGIN))
}

#[cfg(test)]
mod tests;

//! A route's conditions besides host and path: method, listener, headers, query, cookies, the client's network, what
//! must not be met, an expression.
//!
//! A literal value matches a field (or parameter) that occurs exactly once in the request. A repeated one matches no
//! literal and no regex, because peers disagree on which of its values counts; `*` accepts any number. This also
//! makes two literals exclude each other.

use regex::bytes::Regex;
use regex_syntax::hir::Hir;
use smallvec::SmallVec;
use weir_expr::Networks;

use super::cookies;
use super::exclusion::Exclusion;
use super::host::{self, HostBuffer, HostPattern};
use super::parameters::Parameters;
use super::pattern::{self, Pattern, PatternError};
use super::query::decoded;
use super::request::{Failed, Headers, Request};
use super::when::When;

/// All conditions of a route except host and path.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) methods: Vec<Box<[u8]>>,
    pub(super) listeners: Vec<u16>,
    pub(super) headers: Vec<Field>,
    pub(super) query: Vec<Field>,
    pub(super) when: Option<Box<When>>,
    /// Those that few routes have.
    pub(super) rarer: Option<Box<Rarer>>,
}

/// Conditions that few routes have.
#[derive(Clone, Debug, Default)]
pub(super) struct Rarer {
    pub(super) clients: Option<Clients>,
    pub(super) cookies: Vec<Field>,
    pub(super) not: Vec<Excluded>,
}

/// Where the client has to be.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    pub(super) networks: Networks,
    /// As written, for display.
    pub(super) text: Box<str>,
}

/// What a request must not meet as a whole.
#[derive(Clone, Debug)]
pub(super) struct Excluded {
    pub(super) written: Exclusion,
    /// Empty for any.
    pub(super) hosts: Vec<HostPattern>,
    /// Empty for any.
    pub(super) paths: Vec<Pattern>,
    /// Without an expression, and without exclusions.
    pub(super) conditions: Conditions,
}

/// The conditions of a route that has none.
pub(super) static NO_CONDITIONS: Conditions = Conditions {
    methods: Vec::new(),
    listeners: Vec::new(),
    headers: Vec::new(),
    query: Vec::new(),
    when: None,
    rarer: None,
};

/// A condition on one header field or query parameter.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// Lower case for a header; decoded for a parameter.
    pub(super) name: Box<str>,
    pub(super) test: Test,
}

/// A condition on a value.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Exact(Box<[u8]>),
    Present,
    Regex { text: Box<str>, regex: Regex, hir: Box<Hir> },
}

impl Conditions {
    /// How many there are besides the expression. All methods together count as one, all listeners and all networks too;
    /// each header, parameter, cookie and exclusion counts as one.
    #[inline]
    pub(super) fn count(&self) -> usize {
        usize::from(!self.methods.is_empty())
            + usize::from(!self.listeners.is_empty())
            + self.headers.len()
            + self.query.len()
            + self.rarer.as_ref().map_or(0, |rarer| {
                usize::from(rarer.clients.is_some()) + rarer.cookies.len() + rarer.not.len()
            })
    }

    pub(super) fn cookies(&self) -> &[Field] {
        self.rarer.as_ref().map_or(&[], |rarer| &rarer.cookies)
    }

    pub(super) fn clients(&self) -> Option<&Networks> {
        Some(&self.rarer.as_ref()?.clients.as_ref()?.networks)
    }

    pub(super) fn not(&self) -> &[Excluded] {
        self.rarer.as_ref().map_or(&[], |rarer| &rarer.not)
    }

    /// What counts in precedence: their number, and whether there is an expression.
    #[inline]
    pub(super) fn weight(&self) -> (usize, bool) {
        (self.count(), self.when.is_some())
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.weight() == (0, false)
    }

    /// Whether a request, whose route captures `parameters`, meets all of them; otherwise the first that fails. Cheap
    /// ones are checked first.
    ///
    /// Cost: one [`Headers::get_all`] per header condition, one pass over the query per query condition, and that of
    /// the expression, which is bounded when it is compiled.
    pub(super) fn check<H: Headers>(
        &self,
        request: &Request<'_, H>,
        parameters: Parameters<'_>,
    ) -> Result<(), Failed<'_>> {
        self.check_fields(request)?;
        if let Some(when) = &self.when
            && !when.holds(request, parameters)
        {
            return Err(Failed::When);
        }
        Ok(())
    }

    /// As [`check`](Self::check), of conditions without an expression.
    #[inline]
    fn check_fields<H: Headers>(&self, request: &Request<'_, H>) -> Result<(), Failed<'_>> {
        if !self.methods.is_empty() && !self.methods.iter().any(|method| **method == *request.method) {
            return Err(Failed::Method);
        }
        if !self.listeners.is_empty() && !self.listeners.contains(&request.listener) {
            return Err(Failed::Listener);
        }
        for field in &self.headers {
            if !field.test.holds_for_all(request.headers.get_all(field.name.as_bytes())) {
                return Err(Failed::Header(&field.name));
            }
        }
        for field in &self.query {
            if !query_holds(request.query.unwrap_or_default(), field) {
                return Err(Failed::Query(&field.name));
            }
        }
        if let Some(rarer) = &self.rarer {
            rarer.check(request)?;
        }
        Ok(())
    }

    fn check_exclusion<H: Headers>(&self, request: &Request<'_, H>) -> bool {
        self.check_fields(request).is_ok()
    }
}

// === impl Rarer ===

impl Rarer {
    #[inline(never)]
    fn check<H: Headers>(&self, request: &Request<'_, H>) -> Result<(), Failed<'_>> {
        if let Some(clients) = &self.clients
            && !request.headers.client_ip().is_some_and(|address| clients.networks.contain(address))
        {
            return Err(Failed::Client);
        }
        for field in &self.cookies {
            let values = cookies::values(request.headers.get_all(b"cookie"), field.name.as_bytes());
            if !field.test.holds_for_all(values) {
                return Err(Failed::Cookie(&field.name));
            }
        }
        match self.not.iter().position(|excluded| excluded.takes(request)) {
            Some(at) => Err(Failed::Not(at)),
            None => Ok(()),
        }
    }
}

// === impl Excluded ===

impl Excluded {
    /// Whether a request meets all of it.
    fn takes<H: Headers>(&self, request: &Request<'_, H>) -> bool {
        let path = |pattern: &Pattern| pattern.matches(request.path);
        (self.paths.is_empty() || self.paths.iter().any(path))
            && self.conditions.check_exclusion(request)
            && (self.hosts.is_empty() || {
                let mut buffer = HostBuffer::new();
                let host = host::normalize(request.host, &mut buffer);
                self.hosts.iter().any(|pattern| pattern.matches(host))
            })
    }

    /// Whether every request meets it.
    pub(super) fn takes_everything(&self) -> bool {
        let all = |pattern: &Pattern| pattern.is_everything();
        self.conditions.is_empty()
            && (self.hosts.is_empty() || self.hosts.contains(&HostPattern::Any))
            && (self.paths.is_empty() || self.paths.iter().any(all))
    }

    /// What it asks for, without values: they may be secret.
    pub(super) fn kinds(&self) -> String {
        let one = |is: bool, name: &str| is.then(|| name.to_owned());
        let fields = |fields: &[Field], kind: &str| -> Vec<String> {
            fields.iter().map(|field| format!("{kind} {}", field.name)).collect()
        };
        let conditions = &self.conditions;
        let kinds = [
            one(!self.hosts.is_empty(), "host"),
            one(!self.paths.is_empty(), "path"),
            one(!conditions.methods.is_empty(), "method"),
            one(!conditions.listeners.is_empty(), "listener"),
            one(conditions.clients().is_some(), "client"),
        ];
        let named = [
            fields(&conditions.headers, "header"),
            fields(&conditions.query, "query"),
            fields(conditions.cookies(), "cookie"),
        ];
        kinds.into_iter().flatten().chain(named.into_iter().flatten()).collect::<Vec<_>>().join(", ")
    }
}

// === impl Test ===

impl Test {
    /// A header's value: literal, `*`, or `~regex` over the whole value.
    pub(super) fn header(text: &str) -> Result<Self, PatternError> {
        if text == "*" {
            return Ok(Self::Present);
        }
        if let Some(regex) = text.strip_prefix('~') {
            return Self::regex(regex);
        }
        let bad = |byte: u8| (byte < 0x20 && byte != b'\t') || byte == 0x7F;
        if text.bytes().any(bad) || text.trim() != text {
            return Err(PatternError {
                message: "a header's value holds no control bytes and no white space around it".to_owned(),
                hint: "write the value as it is sent, `*` for any value, or `~regex`".to_owned(),
            });
        }
        Ok(Self::Exact(text.as_bytes().into()))
    }

    /// A cookie's value: as a header's.
    pub(super) fn cookie(text: &str) -> Result<Self, PatternError> {
        if !text.starts_with('~') && text.bytes().any(|byte| byte == b';') {
            return Err(PatternError {
                message: "a cookie's value holds no `;`".to_owned(),
                hint: "write the value as it is sent, `*` for any value, or `~regex`".to_owned(),
            });
        }
        Self::header(text)
    }

    /// A parameter's decoded value: literal, `*`, or `~regex` over the whole value.
    pub(super) fn query(text: &str) -> Result<Self, PatternError> {
        match text.strip_prefix('~') {
            Some(regex) => Self::regex(regex),
            None if text == "*" => Ok(Self::Present),
            None => Ok(Self::Exact(text.as_bytes().into())),
        }
    }

    fn regex(text: &str) -> Result<Self, PatternError> {
        let hir = Box::new(pattern::parse_hir(text)?);
        Ok(Self::Regex { text: text.into(), regex: pattern::compile_regex(text)?, hir })
    }

    /// Whether it holds for the values of one name: a repeated one is only present.
    #[inline]
    fn holds_for_all<'v>(&self, mut values: impl Iterator<Item = &'v [u8]>) -> bool {
        match (values.next(), self) {
            (None, _) => false,
            (Some(_), Self::Present) => true,
            (Some(value), test) => values.next().is_none() && test.holds(value),
        }
    }

    #[inline]
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(want) => **want == *value,
            Self::Present => true,
            Self::Regex { regex, .. } => regex.is_match(value),
        }
    }

    /// Whether provably no single value passes both.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present, _) | (_, Self::Present) | (Self::Regex { .. }, Self::Regex { .. }) => false,
            (Self::Exact(value), test) | (test, Self::Exact(value)) => !test.holds(value),
        }
    }

    /// Whether provably every value that passes `self` passes `other`.
    pub(super) fn implies(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Present) => true,
            (Self::Exact(value), test) => test.holds(value),
            (Self::Regex { text: a, .. }, Self::Regex { text: b, .. }) => a == b,
            (Self::Present | Self::Regex { .. }, _) => false,
        }
    }
}

/// A method is a token (RFC 9110 §9.1) and is case-sensitive.
pub(super) fn parse_method(text: &str) -> Result<Box<[u8]>, PatternError> {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"];
    let upper = text.to_ascii_uppercase();
    let error = |message: String, hint: String| Err(PatternError { message, hint });
    match text {
        "CONNECT" => error("CONNECT never reaches a route".to_owned(), "leave it out".to_owned()),
        _ if known.contains(&&*upper) && upper != text => {
            error(format!("`{text}` is not a method that clients send"), format!("write `{upper}`"))
        }
        _ if !is_token(text) => {
            error(format!("`{text}` is not a method"), "expected a token like `GET`".to_owned())
        }
        _ => Ok(text.as_bytes().into()),
    }
}

/// Whether `text` is a token (RFC 9110 §5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[inline]
fn query_holds(query: &[u8], field: &Field) -> bool {
    let mut seen = false;
    let mut held = false;
    for pair in query.split(|&byte| byte == b'&') {
        let cut = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        let (name, value) = (pair.get(..cut).unwrap_or_default(), pair.get(cut + 1..).unwrap_or_default());
        // An empty query is one empty pair; parameters have names.
        if name.is_empty() || !decoded(name).eq(field.name.bytes()) {
            continue;
        }
        match &field.test {
            Test::Present => return true,
            Test::Exact(_) | Test::Regex { .. } if seen => return false,
            Test::Exact(want) => held = decoded(value).eq(want.iter().copied()),
            Test::Regex { regex, .. } => {
                let value: SmallVec<[u8; 64]> = decoded(value).collect();
                held = regex.is_match(&value);
            }
        }
        seen = true;
    }
    held
}

#[cfg(test)]
mod tests {
    use super::super::compiled::Route;
    use super::super::testing::Pairs;
    use super::*;

    fn any() -> Route {
        Route::for_tests("/*")
    }

    fn field(name: &str, test: Result<Test, PatternError>) -> Vec<Field> {
        vec![Field { name: name.into(), test: test.unwrap() }]
    }

    #[test]
    fn headers_hold_when_they_stand_once() {
        let cases: [(&str, Pairs<'_>, bool); 10] = [
            ("blue", &[("X-Env", "blue")], true),
            ("blue", &[("x-env", "Blue")], false),
            ("blue", &[("x-env", "blue"), ("x-env", "blue")], false),
            ("blue", &[], false),
            ("*", &[("x-env", "")], true),
            ("*", &[("x-env", "a"), ("x-env", "b")], true),
            ("*", &[("x-other", "a")], false),
            ("~blue|green", &[("x-env", "green")], true),
            ("~blue|green", &[("x-env", "greenish")], false),
            ("~.*", &[("x-env", "a"), ("x-env", "b")], false),
        ];
        for (test, headers, want) in cases {
            let conditions = Conditions { headers: field("x-env", Test::header(test)), ..Default::default() };
            let request =
                Request { listener: 0, host: b"", method: b"GET", path: b"/", query: None, headers };
            let want = if want { Ok(()) } else { Err(Failed::Header("x-env")) };
            assert_eq!(conditions.check(&request, any().parameters(b"/", b"")), want, "{test} {headers:?}");
        }
    }

    #[test]
    fn a_value_is_one_that_a_header_can_have() {
        for text in ["a\tb", "a b", "ü", "~a b"] {
            assert!(Test::header(text).is_ok(), "{text:?}");
        }
        for text in ["a\u{1}", "a\nb", "a\u{7f}", " a", "a\t"] {
            assert!(Test::header(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn of_two_regexes_one_implies_the_other_where_they_are_the_same() {
        let test = |text| Test::header(text).unwrap();
        assert!(test("~a.*").implies(&test("~a.*")) && test("~a.*").implies(&test("*")));
        assert!(!test("~a.*").implies(&test("~.*")) && !test("~a.*").implies(&test("a")));
    }

    #[test]
    fn parameters_are_compared_decoded() {
        let cases = [
            ("v", "2", Some("v=2"), true),
            ("v", "2", Some("a=1&v=2&b"), true),
            ("v", "2", Some("%76=%32"), true),
            ("v", "2", Some("v=2&v=2"), false),
            ("v", "2", Some("v=22"), false),
            ("v", "2", Some("vv=2"), false),
            ("v", "2", None, false),
            ("v", "", Some("v"), true),
            ("v", "", Some("v="), true),
            ("v", "", Some(""), false),
            ("v", "a b", Some("v=a+b"), true),
            ("v", "a b", Some("v=a%20b"), true),
            ("v", "a+b", Some("v=a%2Bb"), true),
            ("v", "%", Some("v=%"), true),
            ("v", "%4", Some("v=%4"), true),
            ("v", "a=b", Some("v=a=b"), true),
            ("v", "*", Some("v"), true),
            ("v", "*", Some("v=1&v=2"), true),
            ("v", "*", Some("w=1"), false),
            ("v", "~[0-9]+", Some("v=12"), true),
            ("v", "~[0-9]+", Some("v=12a"), false),
            ("v", "~[0-9]+", Some("v=1&v=2"), false),
            ("v", "~[0-9]+", Some("w=1"), false),
            ("v", "~a b", Some("v=a%20b"), true),
            ("v", "~", Some("v"), true),
        ];
        for (name, test, query, want) in cases {
            let conditions = Conditions { query: field(name, Test::query(test)), ..Default::default() };
            let query = query.map(str::as_bytes);
            let request = Request { listener: 0, host: b"", method: b"GET", path: b"/", query, headers: () };
            let want = if want { Ok(()) } else { Err(Failed::Query("v")) };
            assert_eq!(
                conditions.check(&request, any().parameters(b"/", b"")),
                want,
                "{test} {:?}",
                query.map(<[u8]>::escape_ascii)
            );
        }
    }

    #[test]
    fn methods_are_tokens_in_their_own_case() {
        assert!(
            parse_method("GET").is_ok() && parse_method("PURGE").is_ok() && parse_method("M-SEARCH").is_ok()
        );
        for (text, want) in [("get", "`GET`"), ("", "token"), ("A B", "token"), ("CONNECT", "never")] {
            assert!(parse_method(text).expect_err(text).to_string().contains(want), "{text}");
        }
    }

    #[test]
    fn values_exclude_and_imply() {
        let test = |text: &str| Test::header(text).unwrap();
        let cases = [
            ("a", "b", true, false),
            ("a", "a", false, true),
            ("a", "*", false, true),
            ("*", "a", false, false),
        ];
        for (a, b, excludes, implies) in cases {
            assert_eq!(
                (test(a).excludes(&test(b)), test(a).implies(&test(b))),
                (excludes, implies),
                "{a} {b}"
            );
        }
        assert!(test("a").excludes(&test("~b+")) && !test("bb").excludes(&test("~b+")));
        assert!(test("bb").implies(&test("~b+")) && !test("~b+").implies(&test("bb")));
    }
}

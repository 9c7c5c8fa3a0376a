//! Makes up a request that a route matches, from its patterns: for examples of conflicts, `weir bench` and tests.

use std::fmt;
use std::net::IpAddr;

use regex_syntax::hir::{Class, Hir, HirKind};

use super::compiled::Route;
use super::host::HostPattern;
use super::matcher::{Field, Test};
use super::path::{Canonical, Slashes, canonical};
use super::pattern::{Pattern, Segment, Shape, Tail};
use super::request::{Headers, Request};

/// Most bytes of a sample for one regular expression; longer attempts are abandoned.
const SAMPLE_BYTES: usize = 1024;

/// A request as plain data. It displays as the arguments of `weir explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The listener that receives it.
    pub listener: u16,
    /// The method.
    pub method: String,
    /// The host; `localhost` if any would do.
    pub host: String,
    /// The canonical path.
    pub path: String,
    /// The encoded query, if there is one.
    pub query: Option<String>,
    /// Header fields.
    pub headers: Vec<(String, String)>,
    /// The client's address, if it matters.
    pub client: Option<IpAddr>,
}

/// The fields and the client of a [`Sample`].
#[derive(Clone, Copy, Debug)]
pub struct OfSample<'a>(&'a Sample);

impl Headers for OfSample<'_> {
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let same = move |(own, _): &&(String, String)| own.as_bytes().eq_ignore_ascii_case(name);
        self.0.headers.iter().filter(same).map(|(_, value)| value.as_bytes())
    }

    fn client_ip(&self) -> Option<IpAddr> {
        self.0.client
    }
}

impl Sample {
    /// A request that both routes match.
    pub(super) fn of_both(a: &Route, b: &Route) -> Option<Self> {
        Self::new(a, Some(b)).or_else(|| Self::new(b, Some(a)))
    }

    /// A request that `route` matches.
    pub(super) fn of(route: &Route) -> Option<Self> {
        Self::new(route, None)
    }

    /// Another one, with a path that fewer other routes match: longer than a raw prefix, in capitals where the case is
    /// ignored.
    pub(super) fn unusual(route: &Route) -> Option<Self> {
        let Shape::Segments { tail, .. } = &route.pattern.shape else { return None };
        let mut sample = Self::of(route)?;
        if matches!(tail, Tail::Raw(_)) {
            sample.path.push_str("-x");
        }
        if route.pattern.ignores_case() {
            sample.path.make_ascii_uppercase(); // which the digits of an escape are already
        }
        sample.meets(route).then_some(sample)
    }

    /// A request that `route` matches, and `also` too if given.
    fn new(route: &Route, also: Option<&Route>) -> Option<Self> {
        let others = |pick: fn(&Route) -> &[Field]| also.map(pick).unwrap_or_default();
        let mut headers = fields(&route.conditions().headers, others(|route| &route.conditions().headers))?;
        let cookies = fields(route.conditions().cookies(), others(|route| route.conditions().cookies()))?;
        if !cookies.is_empty() {
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            headers.push(("cookie".to_owned(), pairs.join("; ")));
        }
        let networks: Vec<_> =
            [Some(route), also].into_iter().flatten().filter_map(|r| r.conditions().clients()).collect();
        let in_all = |address: &IpAddr| networks.iter().all(|networks| networks.contain(*address));
        let client = match networks.is_empty() {
            true => None,
            false => Some(networks.iter().flat_map(|networks| networks.firsts()).find(in_all)?),
        };
        let query = fields(&route.conditions().query, others(|route| &route.conditions().query))?;
        let shared = |host: &String| also.is_none_or(|also| also.host_for(host.as_bytes()).is_some());
        let host = route.hosts.iter().filter_map(host_text).find(shared)?;
        let methods = &route.conditions().methods;
        let method = match (methods.first(), also.and_then(|also| also.conditions().methods.first())) {
            (None, None) => {
                let not =
                    [Some(route), also].into_iter().flatten().flat_map(|route| route.conditions().not());
                let excluded = |method: &str| {
                    let mut lists = not.clone().map(|not| &not.written.methods);
                    lists.any(|methods| methods.iter().any(|one| one == method))
                };
                let free = ["GET", "POST", "PUT", "DELETE"].into_iter().find(|method| !excluded(method));
                free.unwrap_or("GET").to_owned()
            }
            (None, Some(method)) => text(method)?,
            (Some(_), _) => {
                let theirs = also.map(|also| &also.conditions().methods).filter(|theirs| !theirs.is_empty());
                text(methods.iter().find(|&method| theirs.is_none_or(|theirs| theirs.contains(method)))?)?
            }
        };
        let listeners = [Some(route), also].into_iter().flatten().map(|route| &route.conditions().listeners);
        let mut listeners = listeners.filter(|listeners| !listeners.is_empty());
        let listener = match (listeners.next(), listeners.next()) {
            (Some(a), Some(b)) => *a.iter().find(|listener| b.contains(listener))?,
            (Some(a), None) => *a.first()?,
            (None, _) => 0,
        };
        let encoded: Vec<_> = query.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
        let query = (!encoded.is_empty()).then(|| encoded.join("&"));
        let sample = Self { listener, method, host, path: path(&route.pattern)?, query, headers, client };
        let holds = |route: &Route| sample.meets(route);
        (holds(route) && also.is_none_or(holds)).then_some(sample)
    }

    /// The request in the form that [`Table::find`](crate::Table::find) takes.
    pub fn request(&self) -> Request<'_, OfSample<'_>> {
        Request {
            listener: self.listener,
            host: self.host.as_bytes(),
            method: self.method.as_bytes(),
            path: self.path.as_bytes(),
            query: self.query.as_deref().map(str::as_bytes),
            headers: OfSample(self),
        }
    }

    fn meets(&self, route: &Route) -> bool {
        let request = self.request();
        route.host_for(request.host).is_some()
            && route.pattern.matches(request.path)
            && route.check(&request).is_ok()
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} http://{}{}", self.method, self.host, self.path)?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        for (name, value) in &self.headers {
            write!(f, " -H '{name}: {value}'")?;
        }
        self.client.map_or(Ok(()), |client| write!(f, " --client {client}"))
    }
}

/// A value for each field of either list that passes both.
fn fields(mine: &[Field], theirs: &[Field]) -> Option<Vec<(String, String)>> {
    let mut values: Vec<(String, String)> = Vec::new();
    for field in mine.iter().chain(theirs) {
        if values.iter().any(|(name, _)| **name == *field.name) {
            continue;
        }
        // A literal leaves no choice, so use it before a regex, and a regex before "present".
        let same =
            || mine.iter().chain(theirs).filter(|other| other.name == field.name).map(|other| &other.test);
        let literal = same().find_map(|test| match test {
            Test::Exact(value) => Some(value.to_vec()),
            Test::Present | Test::Regex { .. } => None,
        });
        let regex = || {
            same().find_map(|test| match test {
                Test::Regex { hir, .. } => sample_of(hir, 0),
                Test::Exact(_) | Test::Present => None,
            })
        };
        values.push((field.name.to_string(), text(&literal.or_else(regex).unwrap_or(b"x".to_vec()))?));
    }
    Some(values)
}

fn host_text(host: &HostPattern) -> Option<String> {
    Some(match host {
        HostPattern::Any => "localhost".to_owned(),
        HostPattern::Exact(name) => text(name)?,
        HostPattern::Front(prefix) => format!("{}any", text(prefix)?),
        HostPattern::Regex(regex) => text(&sample_of(&regex.hir, 1)?)?,
        HostPattern::Wildcard(suffix) => format!("any{}", text(suffix)?),
    })
}

fn path(pattern: &Pattern) -> Option<String> {
    match &pattern.shape {
        Shape::Regex(regex) => {
            let sample = sample_of(&regex.hir, 0).unwrap_or_default();
            let tries = [sample.clone(), [b"/", &*sample].concat(), b"/".to_vec(), b"/x".to_vec()];
            text(tries.iter().find(|path| regex.matches(path) && is_canonical(path))?)
        }
        Shape::Segments { segments, tail } => {
            let mut path = String::new();
            for segment in segments {
                path.push('/');
                match segment {
                    Segment::Capture(name) => path.push_str(name),
                    Segment::Folded(literal) | Segment::Literal(literal) => path.push_str(&text(literal)?),
                    Segment::Part(part) => {
                        path.push_str(&text(&part.before)?);
                        path.push_str(&part.name);
                        path.push_str(&text(&part.after)?);
                    }
                }
            }
            if let Tail::Raw(raw) = tail {
                path.push('/');
                path.push_str(&text(&raw.text)?);
            } else if segments.is_empty() || matches!(tail, Tail::Rest(Some(_))) {
                path.push('/');
            }
            Some(path)
        }
    }
}

fn is_canonical(path: &[u8]) -> bool {
    canonical(path, Slashes::Keep, &mut Vec::new()) == Ok(Canonical::AsIs)
}

/// A short text that a regex may match, with each optional part in it `least` times. Look-arounds are ignored, so the
/// caller must verify it.
fn sample_of(hir: &Hir, least: u32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    push_sample(hir, least, &mut out)?;
    Some(out)
}

fn push_sample(hir: &Hir, least: u32, out: &mut Vec<u8>) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(class) => out.push(printable(class)?),
        HirKind::Repetition(repetition) => {
            for _ in 0..repetition.min.max(repetition.max.map_or(least, |most| most.min(least))) {
                push_sample(&repetition.sub, least, out)?;
            }
        }
        HirKind::Capture(capture) => push_sample(&capture.sub, least, out)?,
        HirKind::Concat(all) => all.iter().try_for_each(|hir| push_sample(hir, least, out))?,
        HirKind::Alternation(all) => push_sample(all.first()?, least, out)?,
    }
    (out.len() <= SAMPLE_BYTES).then_some(())
}

/// A byte of the class that needs no escape in a path, preferably a letter or digit.
fn printable(class: &Class) -> Option<u8> {
    let contains = |byte: u8| match class {
        Class::Bytes(class) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&byte))
        }
        Class::Unicode(class) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&char::from(byte)))
        }
    };
    (b'a'..=b'z')
        .chain(b'0'..=b'9')
        .chain(b'A'..=b'Z')
        .chain(*b"-_~.:@!$&'()*+,;=/")
        .find(|&byte| contains(byte))
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// Escapes everything but unreserved characters.
fn encode(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

//! Two observations of one witness, compared.

use super::patterns::Effect;
use super::witness::Ask;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What one program did with a witness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The answers, one for each call.
    pub answers: Vec<Answer>,
    /// The answers of the turns behind the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Answer>,
    /// How long all of it took, in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
}

/// An answer, and what upstreams saw until it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The status; 0 if there was no answer.
    pub status: u16,
    /// Why there was no answer.
    pub failure: String,
    /// Its fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The length of its body.
    pub body_bytes: u64,
    /// A checksum of its body.
    pub body_hash: u64,
    /// The beginning of its body.
    pub body: String,
    /// What upstreams saw, in order.
    pub seen: Vec<Seen>,
}

/// A request as an upstream saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The address that was connected to, as the configs write it.
    pub who: String,
    /// The method; empty if it was not HTTP.
    pub method: String,
    /// The raw target.
    pub target: String,
    /// Its fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The length of its body.
    pub body_bytes: u64,
    /// A checksum of its body.
    pub body_hash: u64,
}

/// Something that the programs do differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name, by which proof.yaml accepts it: `status`, `upstream field x-forwarded-for`.
    pub name: String,
    /// What kind of line causes it.
    pub effect: Effect,
    /// What the old program did.
    pub old: String,
    /// What Weir did.
    pub new: String,
}

impl Difference {
    /// How much it matters, from 0: who passes and where a request goes; then requests and answers; then fields.
    #[must_use]
    pub const fn rank(&self) -> u8 {
        match self.effect {
            Effect::Status(_) | Effect::Who | Effect::Redirect => 0,
            Effect::Target | Effect::Body => 1,
            Effect::AnswerField(_) | Effect::UpstreamField(_) => 2,
        }
    }
}

/// Fields that differ between any two programs and mean nothing here, with the reason. docs/guide/prove.md shows it.
pub const NEUTRAL: &[(Side, &str, &str)] = &[
    (Side::Answer, "accept-ranges", "whether a file can be asked for in parts"),
    (Side::Answer, "connection", "each hop has its own"),
    (Side::Answer, "content-length", "bodies are compared themselves"),
    (Side::Answer, "date", "time"),
    (Side::Answer, "etag", "each program makes its own for a file"),
    (Side::Answer, "keep-alive", "each hop has its own"),
    (Side::Answer, "last-modified", "time"),
    (Side::Answer, "server", "the name of the program"),
    (Side::Answer, "transfer-encoding", "bodies are compared themselves"),
    (Side::Answer, "via", "the name of the program"),
    (Side::Upstream, "connection", "each hop has its own"),
    (Side::Upstream, "content-length", "bodies are compared themselves"),
    (Side::Upstream, "keep-alive", "each hop has its own"),
    (Side::Upstream, "te", "each hop has its own"),
    (Side::Upstream, "transfer-encoding", "bodies are compared themselves"),
    (Side::Upstream, "via", "the name of the program"),
];

/// The name of the difference in what the programs tell upstreams about the client. Weir sends `Forwarded` and
/// `X-Forwarded-*` with each request, and believes no client that says otherwise: one decision for the whole config.
pub const FORWARDING: &str = "forwarding-fields";

/// The fields of [`FORWARDING`]: those that Weir writes itself. One that the old program sends and Weir does not is a
/// difference of its own. `X-Real-IP` belongs to them as far as it has the address that Weir has in X-Forwarded-For.
pub const FORWARDING_FIELDS: &[&str] =
    &["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-prefix", "x-forwarded-proto"];

/// The name of the difference in a status where Weir refuses a path that can be read in two ways and takes another
/// route in one of them: `%2F` or `;` before the end of a prefix. The old program chose one reading.
pub const AMBIGUOUS: &str = "ambiguous-path";

/// How our config says that it refuses such a path.
pub(super) const AMBIGUOUS_CAUSE: &str = "400 ambiguous_path";

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In the answer to the client.
    Answer,
    /// In the request to the upstream.
    Upstream,
}

/// The name of the difference if both limits refuse equally many requests, with different statuses.
const LIMIT_STATUS: &str = "status of a limit";

/// Statuses with which limits refuse.
const REFUSALS: [u16; 2] = [429, 503];

/// Longest value that a difference shows, in characters.
const SHOWN: usize = 300;

/// How the two differ. `groups` are addresses that stand for one another in both configs; `pages` are words of pages
/// that the old program brings along.
#[must_use]
pub fn compare(
    ask: &Ask,
    old: &Observation,
    new: &Observation,
    groups: &[Vec<String>],
    pages: &[&str],
) -> Vec<Difference> {
    let mut found = Vec::new();
    let (Some(first_old), Some(first_new)) = (old.answers.first(), new.answers.first()) else { return found };
    if old.answers.len() > 1 || new.answers.len() > 1 {
        compare_calls(ask, old, new, groups, &mut found);
        if found.iter().any(|difference| difference.name != LIMIT_STATUS) {
            return found;
        }
    }
    // If a limit may have refilled in the meantime, what other callers get proves nothing.
    if uncertain(ask, old, new) == 0 {
        for (turn, (a, b)) in ask.then.iter().zip(old.then.iter().zip(&new.then)) {
            let refused = |answer: &Answer| REFUSALS.contains(&answer.status);
            if a.status != b.status && !(refused(a) && refused(b)) {
                let name = match turn.client {
                    Some(_) => "status of another client",
                    None => "status of another caller",
                };
                differ(&mut found, name, Effect::Status(Vec::new()), status(a), status(b));
            }
        }
    }
    let is_own = pages.iter().any(|words| first_old.body.contains(words))
        || (first_old.body_bytes == 0 && first_old.seen.is_empty());
    let own_page = first_old.status >= 300 && is_own;
    let (mut sorted_old, mut sorted_new) = (first_old.clone(), first_new.clone());
    if ask.copies_ms > 0 {
        // Copies arrive in any order.
        for answer in [&mut sorted_old, &mut sorted_new] {
            answer.seen.sort_by_cached_key(|seen| (group_of(groups, &seen.who), seen.target.clone()));
        }
    }
    compare_answers(&sorted_old, &sorted_new, groups, &ask.url(), own_page, &mut found);
    found
}

/// By how many requests two observations of a limit may differ, because time passes between requests.
#[must_use]
pub fn uncertain(ask: &Ask, old: &Observation, new: &Observation) -> u64 {
    match ask.refill_ms {
        0 => 0,
        refill => old.took_ms.max(new.took_ms) / refill,
    }
}

/// The first address of the group that an address belongs to; the address itself if it belongs to none.
fn group_of<'a>(groups: &'a [Vec<String>], who: &'a str) -> String {
    let group = groups.iter().find(|group| group.iter().any(|known| known == who));
    group.and_then(|group| group.first()).map_or(who, String::as_str).to_owned()
}

fn status(answer: &Answer) -> String {
    match answer.status {
        0 => format!("no answer: {}", answer.failure),
        status => status.to_string(),
    }
}

fn differ(
    found: &mut Vec<Difference>,
    name: &str,
    effect: Effect,
    old: impl Into<String>,
    new: impl Into<String>,
) {
    let cut = |text: String| match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    };
    let (old, new) = (cut(old.into()), cut(new.into()));
    found.push(Difference { name: name.to_owned(), effect, old, new });
}

/// Several calls: how many passed, and who was asked.
fn compare_calls(
    ask: &Ask,
    old: &Observation,
    new: &Observation,
    groups: &[Vec<String>],
    found: &mut Vec<Difference>,
) {
    let statuses = |all: &Observation| {
        let mut counts = BTreeMap::<u16, usize>::new();
        all.answers.iter().for_each(|answer| *counts.entry(answer.status).or_default() += 1);
        counts
    };
    let (a, b) = (statuses(old), statuses(new));
    let set = |counts: &BTreeMap<u16, usize>| counts.keys().copied().collect::<BTreeSet<_>>();
    let most_apart = |a: &BTreeMap<u16, usize>, b: &BTreeMap<u16, usize>| {
        let all = set(a).into_iter().chain(set(b));
        let count = |counts: &BTreeMap<u16, usize>, status| counts.get(&status).copied().unwrap_or(0);
        all.map(|status| count(a, status).abs_diff(count(b, status))).max().unwrap_or(0) as u64
    };
    // All refusals count as one status, so that only their number is compared.
    let refusals = |counts: &BTreeMap<u16, usize>| {
        let mut counts = counts.clone();
        let refused: usize = REFUSALS.iter().filter_map(|status| counts.remove(status)).sum();
        counts.insert(0, refused);
        counts
    };
    let uncertain = uncertain(ask, old, new);
    let alike = match ask.refill_ms {
        // Calls end once every endpoint has answered, so their number may differ.
        0 if !ask.until.is_empty() => set(&a) == set(&b),
        // Programs find out in different ways that an endpoint is dead.
        0 => set(&a) == set(&b) && most_apart(&a, &b) <= 1,
        _ => most_apart(&a, &b) <= uncertain,
    };
    let only_status = ask.refill_ms > 0 && most_apart(&refusals(&a), &refusals(&b)) <= uncertain;
    if !alike {
        let name = if only_status { LIMIT_STATUS } else { "status" };
        let words = |counts: &BTreeMap<u16, usize>| {
            counts.iter().map(|(status, n)| format!("{n} × {status}")).collect::<Vec<_>>().join(", ")
        };
        differ(found, name, Effect::Status(Vec::new()), words(&a), words(&b));
    }
    let who = |all: &Observation| {
        let seen = all.answers.iter().flat_map(|answer| &answer.seen);
        seen.map(|seen| seen.who.clone()).collect::<BTreeSet<_>>()
    };
    let (a, b) = (who(old), who(new));
    let in_one_group = || groups.iter().any(|group| a.union(&b).all(|who| group.contains(who)));
    let same = match ask.until.is_empty() {
        // Few calls need not reach every endpoint.
        true => a == b || (!a.is_empty() && !b.is_empty() && in_one_group()),
        false if ask.by_hash && a.len() == 1 && b.len() == 1 => a == b || in_one_group(),
        false => a == b,
    };
    if !same {
        let words = |who: BTreeSet<String>| nobody(who.into_iter().collect::<Vec<_>>().join(", "));
        differ(found, "who answered", Effect::Who, words(a), words(b));
    }
}

fn nobody(text: String) -> String {
    if text.is_empty() { "no upstream".to_owned() } else { text }
}

fn compare_answers(
    old: &Answer,
    new: &Answer,
    groups: &[Vec<String>],
    url: &str,
    // Whether the old program brought the page along.
    own_page: bool,
    found: &mut Vec<Difference>,
) {
    // Two failures are the same only if they are the same failure: a closed connection and a refused one are not.
    if old.status != new.status || (old.status == 0 && old.failure != new.failure) {
        differ(found, "status", Effect::Status(Vec::new()), status(old), status(new));
    }
    let same = |a: &Seen, b: &Seen| {
        a.who == b.who || groups.iter().any(|group| group.contains(&a.who) && group.contains(&b.who))
    };
    let who_same =
        old.seen.len() == new.seen.len() && old.seen.iter().zip(&new.seen).all(|(a, b)| same(a, b));
    // That a refused request reaches nobody follows from its status.
    let follows = old.status != new.status && (old.seen.is_empty() || new.seen.is_empty());
    if !who_same && !follows {
        let words =
            |seen: &[Seen]| nobody(seen.iter().map(|seen| &*seen.who).collect::<Vec<_>>().join(", then "));
        differ(found, "who answered", Effect::Who, words(&old.seen), words(&new.seen));
    }
    if !found.is_empty() {
        // The rest follows from it.
        return;
    }
    for (a, b) in old.seen.iter().zip(&new.seen) {
        if a.method != b.method {
            differ(found, "upstream method", Effect::Target, &*a.method, &*b.method);
        }
        if a.target != b.target {
            differ(found, "upstream target", Effect::Target, &*a.target, &*b.target);
        }
        fields(Side::Upstream, &a.fields, &b.fields, found);
        if (a.body_bytes, a.body_hash) != (b.body_bytes, b.body_hash) {
            let words = |seen: &Seen| format!("{} bytes", seen.body_bytes);
            differ(found, "upstream body", Effect::Target, words(a), words(b));
        }
    }
    let location = |answer: &Answer| value(&answer.fields, "location");
    let (a, b) = (location(old), location(new));
    if a.as_deref().map(|to| absolute(to, url)) != b.as_deref().map(|to| absolute(to, url)) {
        let words = |to: Option<String>| to.unwrap_or_else(|| "none".to_owned());
        differ(found, "redirect", Effect::Redirect, words(a), words(b));
    }
    let strip = |all: &[(String, String)]| {
        let of_page = |name: &str| matches!(name, "cache-control" | "content-type");
        let left_out = |name: &str| name == "location" || (own_page && of_page(name));
        all.iter().filter(|(name, _)| !left_out(name)).cloned().collect::<Vec<_>>()
    };
    fields(Side::Answer, &strip(&old.fields), &strip(&new.fields), found);
    if !own_page && (old.body_bytes, old.body_hash) != (new.body_bytes, new.body_hash) {
        differ(found, "answer body", Effect::Body, &*old.body, &*new.body);
    }
}

fn value(fields: &[(String, String)], name: &str) -> Option<String> {
    let values: Vec<&str> =
        fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// What the report says of a field that one of the two does not have.
pub(super) const ABSENT: &str = "none";

/// Every field that is not neutral, by name.
fn fields(side: Side, old: &[(String, String)], new: &[(String, String)], found: &mut Vec<Difference>) {
    let names: BTreeSet<&str> = old.iter().chain(new).map(|(name, _)| &**name).collect();
    let mut forwarding = (Vec::new(), Vec::new());
    for name in names {
        if NEUTRAL.iter().any(|(of, known, _)| *of == side && *known == name) {
            continue;
        }
        let (a, b) = (value(old, name), value(new, name));
        let even = |text: &Option<String>| text.as_deref().map(|text| text.replace(", ", ","));
        // Names in a list of names have no case.
        let even = |text: &Option<String>| match name {
            "vary" | "access-control-allow-headers" => even(text).map(|text| text.to_ascii_lowercase()),
            _ => even(text),
        };
        if even(&a) == even(&b) {
            continue;
        }
        let (word, effect) = match side {
            Side::Answer => ("answer", Effect::AnswerField(name.to_owned())),
            Side::Upstream => ("upstream", Effect::UpstreamField(name.to_owned())),
        };
        let words = |value: Option<String>| value.unwrap_or_else(|| ABSENT.to_owned());
        let is_address = name == "x-real-ip" && b == value(new, "x-forwarded-for");
        let is_forwarding = FORWARDING_FIELDS.contains(&name) || is_address;
        if side == Side::Upstream && is_forwarding && b.is_some() {
            forwarding.0.push(format!("{name}: {}", words(a)));
            forwarding.1.push(format!("{name}: {}", words(b)));
            continue;
        }
        differ(found, &format!("{word} field {name}"), effect, words(a), words(b));
    }
    if !forwarding.0.is_empty() {
        let effect = Effect::UpstreamField("x-forwarded-for".to_owned());
        differ(found, FORWARDING, effect, forwarding.0.join("; "), forwarding.1.join("; "));
    }
}

/// A redirect's target as a client resolves it (RFC 9110 §10.2.2): only what begins with `/` is relative here. The
/// usual port is left out.
fn absolute(to: &str, url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split('/').next().unwrap_or(rest);
    let full = match to.strip_prefix("//") {
        Some(rest) => format!("{scheme}://{rest}"),
        None if to.starts_with('/') => format!("{scheme}://{authority}{to}"),
        None => to.to_owned(),
    };
    let (scheme, rest) = full.split_once("://").unwrap_or(("", &full));
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let usual = if scheme == "https" { ":443" } else { ":80" };
    let authority = authority.strip_suffix(usual).unwrap_or(authority).to_ascii_lowercase();
    format!("{scheme}://{authority}{}", if path.is_empty() { "/" } else { path })
}

#[cfg(test)]
mod tests {
    use super::super::patterns::Front;
    use super::super::witness::Turn;
    use super::*;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn answer(status: u16, fields: Fields<'_>, seen: &[(&str, &str, Fields<'_>)]) -> Observation {
        let owned =
            |all: &[(&str, &str)]| all.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect::<Vec<_>>();
        let seen = seen.iter().map(|(who, target, fields)| Seen {
            who: (*who).into(),
            method: "GET".into(),
            target: (*target).into(),
            fields: owned(fields),
            ..Seen::default()
        });
        let seen = seen.collect();
        let answers = vec![Answer { status, fields: owned(fields), seen, ..Answer::default() }];
        Observation { answers, ..Observation::default() }
    }

    fn ask() -> Ask {
        let front = Front { ip: "127.0.0.1".to_owned(), port: 80, tls: false };
        Ask::new(&front, Some("h"), "/x")
    }

    fn names(old: &Observation, new: &Observation) -> Vec<String> {
        names_of(&ask(), old, new)
    }

    fn names_of(ask: &Ask, old: &Observation, new: &Observation) -> Vec<String> {
        let groups = [vec!["a:1".to_owned(), "a:2".to_owned()]];
        let found = compare(ask, old, new, &groups, &[]);
        found.into_iter().map(|difference| difference.name).collect()
    }

    #[test]
    fn everything_but_neutral_fields_is_compared() {
        let base = answer(200, &[("date", "now"), ("x", "1")], &[("a:1", "/x", &[("host", "h")])]);
        let cases: &[(Observation, &[&str])] = &[
            (
                answer(
                    200,
                    &[("server", "weir"), ("x", "1")],
                    &[("a:2", "/x", &[("host", "h"), ("via", "w")])],
                ),
                &[],
            ),
            (answer(403, &[("x", "1")], &[]), &["status"]),
            (answer(403, &[("x", "1")], &[("b:1", "/x", &[])]), &["status", "who answered"]),
            (answer(200, &[("x", "1")], &[("b:1", "/x", &[])]), &["who answered"]),
            (answer(200, &[("x", "1")], &[("a:1", "/X", &[("host", "h")])]), &["upstream target"]),
            (answer(200, &[("x", "2")], &[("a:1", "/x", &[("host", "h")])]), &["answer field x"]),
            (answer(200, &[], &[("a:1", "/x", &[])]), &["upstream field host", "answer field x"]),
            (
                answer(200, &[("x", "1")], &[("a:1", "/x", &[("host", "h"), ("y", "1")])]),
                &["upstream field y"],
            ),
        ];
        for (new, expected) in cases {
            assert_eq!(names(&base, new), *expected, "{new:?}");
        }
    }

    #[test]
    fn what_upstreams_learn_about_the_client_is_one_difference() {
        let sees = |fields: Fields<'_>| answer(200, &[], &[("a:1", "/x", fields)]);
        let own = sees(&[("x-forwarded-for", "1.1.1.1, 2.2.2.2"), ("x-real-ip", "2.2.2.2")]);
        let weir = [
            ("forwarded", "for=2.2.2.2"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "http"),
            ("x-real-ip", "2.2.2.2"),
        ];
        let found = compare(&ask(), &own, &sees(&weir), &[], &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, FORWARDING);
        assert_eq!(
            found[0].old,
            "forwarded: none; x-forwarded-for: 1.1.1.1, 2.2.2.2; x-forwarded-proto: none"
        );
        assert_eq!(found[0].new, "forwarded: for=2.2.2.2; x-forwarded-for: 2.2.2.2; x-forwarded-proto: http");
        // A field that is lost, or that the config writes otherwise, is a difference of its own.
        let lost = names(&own, &sees(&weir[..3]));
        assert_eq!(lost, ["upstream field x-real-ip", FORWARDING]);
        let forged = sees(&[("x-forwarded-for", "2.2.2.2"), ("x-real-ip", "3.3.3.3")]);
        assert_eq!(names(&own, &forged), ["upstream field x-real-ip", FORWARDING]);
    }

    #[test]
    fn redirects_are_compared_as_clients_resolve_them() {
        let to = |location: &str| answer(301, &[("location", location)], &[]);
        assert_eq!(names(&to("http://h/y"), &to("/y")), Vec::<String>::new());
        assert_eq!(names(&to("http://h:80/y"), &to("/y")), Vec::<String>::new());
        assert_eq!(names(&to("http://h/y?a"), &to("/y")), ["redirect"]);
        assert_eq!(names(&to("https://h/y"), &to("/y")), ["redirect"]);
        assert_eq!(names(&to("/y"), &answer(301, &[], &[])), ["redirect"]);
    }

    fn calls(statuses: &[u16], who: &[&str], took_ms: u64) -> Observation {
        let one = |(at, status): (usize, &u16)| {
            let who = who.get(at % who.len().max(1)).copied();
            let seen = who.map(|who| Seen { who: who.to_owned(), ..Seen::default() });
            Answer { status: *status, seen: seen.into_iter().collect(), ..Answer::default() }
        };
        let answers = statuses.iter().enumerate().map(one).collect();
        Observation { answers, took_ms, ..Observation::default() }
    }

    #[test]
    fn a_limit_is_compared_as_exactly_as_time_allows() {
        let ask = Ask { calls: 4, refill_ms: 100, ..ask() };
        let (three, two) = ([200, 200, 200, 429], [200, 200, 429, 429]);
        let of = |statuses: &[u16], took| calls(statuses, &["a:1"], took);
        assert_eq!(names_of(&ask, &of(&three, 50), &of(&two, 60)), ["status"]);
        assert_eq!(names_of(&ask, &of(&three, 50), &of(&two, 160)), Vec::<String>::new());
        assert_eq!(names_of(&ask, &of(&three, 50), &of(&three, 60)), Vec::<String>::new());
        assert_eq!(names_of(&ask, &of(&three, 50), &of(&[200; 4], 60)), ["status"]);
        assert_eq!(names_of(&ask, &of(&three, 50), &of(&[200, 200, 200, 503], 60)), [LIMIT_STATUS]);
        assert_eq!(names_of(&ask, &of(&three, 50), &of(&[200, 200, 503, 503], 160)), [LIMIT_STATUS]);
        assert_eq!(names_of(&ask, &of(&three, 50), &of(&[200, 200, 503, 503], 60)), ["status"]);
        // Whom the limit counts apart.
        let other = Turn { client: Some("127.0.0.2".to_owned()), target: None, fields: Vec::new() };
        let ask = Ask { then: vec![other], ..ask };
        let then = |status: u16, took| Observation {
            then: vec![Answer { status, ..Answer::default() }],
            ..of(&three, took)
        };
        assert_eq!(names_of(&ask, &then(200, 50), &then(429, 50)), ["status of another client"]);
        assert_eq!(names_of(&ask, &then(200, 50), &then(200, 50)), Vec::<String>::new());
        assert_eq!(names_of(&ask, &then(200, 50), &then(429, 150)), Vec::<String>::new());
    }

    #[test]
    fn endpoints_are_compared_as_a_set() {
        let until = ["a:1", "a:2"].map(str::to_owned).to_vec();
        let ask = Ask { calls: 256, until, ..ask() };
        let of = |who: &[&str], calls_made: usize| calls(&vec![200; calls_made], who, 5);
        let both = of(&["a:1", "a:2"], 2);
        assert_eq!(names_of(&ask, &both, &of(&["a:2", "a:2", "a:1"], 3)), Vec::<String>::new());
        assert_eq!(names_of(&ask, &both, &of(&["a:2"], 256)), ["who answered"]);
        assert_eq!(names_of(&ask, &of(&["a:1"], 256), &of(&["a:2"], 256)), ["who answered"]);
        let by_hash = Ask { by_hash: true, ..ask };
        assert_eq!(names_of(&by_hash, &of(&["a:1"], 256), &of(&["a:2"], 256)), Vec::<String>::new());
        assert_eq!(names_of(&by_hash, &of(&["a:1"], 256), &of(&["b:1"], 256)), ["who answered"]);
    }

    #[test]
    fn copies_have_no_order() {
        let (a, b) = (("a:1", "/x", &[][..]), ("b:1", "/x", &[][..]));
        let (old, new) = (answer(200, &[], &[a, b]), answer(200, &[], &[b, ("a:2", "/x", &[])]));
        let copies = Ask { copies_ms: 1, ..ask() };
        assert_eq!(names_of(&copies, &old, &new), Vec::<String>::new());
        assert_eq!(names(&old, &new), ["who answered"]);
        // One that is missing is missing.
        assert_eq!(names_of(&copies, &old, &answer(200, &[], &[a])), ["who answered"]);
    }
}

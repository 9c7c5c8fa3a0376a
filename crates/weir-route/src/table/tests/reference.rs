//! The table against a reference that looks at every route, on random routes and requests.

use super::super::*;
use super::{table, winner};
use crate::testing::{Random, excluding, route, without};
use crate::{Case, ConflictKind, Exclusion, Sample, explain};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A route's rank among those that match one request; the least wins. Written directly from the rules.
type Standing = (Reverse<(u8, usize)>, PathStanding, Reverse<usize>, Reverse<bool>, Reverse<i32>);

fn reference_host(host: &str, sample: &Sample) -> Option<(u8, usize)> {
    let longer = |part: &str| sample.host.len() > part.len();
    match (host.strip_prefix('*'), host.strip_suffix('*')) {
        _ if host.starts_with('~') => {
            let is_match =
                |(text, regex): &(&str, regex::Regex)| *text == host && regex.is_match(&sample.host);
            HOST_REGEXES.iter().any(is_match).then_some((1, 0))
        }
        _ if *host == sample.host => Some((4, 0)),
        (Some(end), _) => (longer(end) && sample.host.ends_with(end)).then_some((3, end.len())),
        (_, Some(begin)) => (longer(begin) && sample.host.starts_with(begin)).then_some((2, begin.len())),
        _ => None,
    }
}

/// Whether a request meets all of it.
fn meets(want: &Exclusion, sample: &Sample) -> bool {
    let holds = |want: &str, values: Vec<&str>| match values[..] {
        [] => false,
        _ if want == "*" => true,
        [value] => value == want,
        _ => false,
    };
    let pairs = |text: Option<&str>, between: char| -> Vec<(String, String)> {
        let pairs = text.into_iter().flat_map(|text| text.split(between)).map(str::trim);
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let all = |wanted: &[(String, String)], pairs: &[(String, String)]| {
        let of = |name: &str| pairs.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect();
        wanted.iter().all(|(name, value)| holds(value, of(name)))
    };
    let cookie = sample.headers.iter().find(|(name, _)| name == "cookie").map(|(_, value)| value.as_str());
    // Networks of whole bytes.
    let client = sample.client.map(|client| client.to_string()).unwrap_or_default();
    let inside = |network: &String| client.starts_with(network.split(".0").next().unwrap());
    (want.hosts.is_empty() || want.hosts.iter().any(|host| reference_host(host, sample).is_some()))
        && (want.paths.is_empty()
            || want.paths.iter().any(|path| reference_path(path, want.case, &sample.path).is_some()))
        && (want.methods.is_empty() || want.methods.contains(&sample.method))
        && (want.listeners.is_empty() || want.listeners.contains(&sample.listener))
        && (want.clients.is_empty() || want.clients.iter().any(inside))
        && all(&want.headers, &sample.headers)
        && all(&want.query, &pairs(sample.query.as_deref(), '&'))
        && all(&want.cookies, &pairs(cookie, ';'))
}

/// The winner among sorted ones: an exact path, else the best regex or the best prefix, whichever has the higher
/// priority, else the regex.
fn best_of(matching: &[(Standing, &str)]) -> Option<usize> {
    let (first, _) = matching.first()?;
    let best =
        |class: u8| matching.iter().position(|((host, path, ..), _)| *host == first.0 && path.0 == class);
    match (best(0), best(1), best(2)) {
        (Some(exact), ..) => Some(exact),
        (None, Some(regex), Some(prefix)) => {
            let priority = |at: usize| matching[at].0.4.0;
            Some(if priority(prefix) > priority(regex) { prefix } else { regex })
        }
        (None, regex, prefix) => regex.or(prefix),
    }
}

/// Exact 0, regex 1, prefix 2; the whole segments of a prefix and its bytes after the last slash; of each segment its
/// kind and literal bytes, all of them and before the capture; whether case is ignored.
type PathStanding = (u8, Reverse<usize>, Reverse<usize>, Vec<(u8, Reverse<usize>, Reverse<usize>)>, bool);

/// One for each path of the route that matches.
fn reference(spec: &RouteSpec, sample: &Sample) -> Vec<Standing> {
    let paths = spec.paths.iter().filter_map(|path| reference_path(path, spec.case, &sample.path));
    paths.filter_map(|path| reference_by_path(spec, path, sample)).collect()
}

fn reference_by_path(spec: &RouteSpec, path: PathStanding, sample: &Sample) -> Option<Standing> {
    let host = if spec.hosts.is_empty() {
        (0, 0)
    } else {
        spec.hosts.iter().filter_map(|host| reference_host(host, sample)).max()?
    };
    let all = |name: &str, pairs: &[(String, String)]| -> Vec<String> {
        pairs.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect()
    };
    let own = excluding(spec.clone());
    // The expressions of `random_route`: a method, or the first value of a field.
    let when = spec.when.as_deref().is_none_or(|when| match when.source().split_once(" == ") {
        Some(("request.method", method)) => sample.method == method.trim_matches('"'),
        Some((_, value)) => all("x-a", &sample.headers).join(", ") == value.trim_matches('"'),
        None => panic!("{spec:?}"),
    });
    let matches = when && meets(&own, sample) && !spec.not.iter().any(|not| meets(not, sample));
    let conditions = usize::from(!spec.methods.is_empty())
        + usize::from(!spec.listeners.is_empty())
        + usize::from(!spec.clients.is_empty())
        + spec.headers.len()
        + spec.cookies.len()
        + spec.not.len()
        + spec.query.len();
    let standing =
        (Reverse(host), path, Reverse(conditions), Reverse(spec.when.is_some()), Reverse(spec.priority));
    matches.then_some(standing)
}

const ROUTE_HOSTS: [&str; 10] = [
    "a.x.test",
    "b.x.test",
    "x.test",
    "*.x.test",
    "*.test",
    "*.a.x.test",
    "x.*",
    "a.x.*",
    r"~.*\.x\..*",
    r"~[ab]\.x\.test",
];

static HOST_REGEXES: LazyLock<Vec<(&str, regex::Regex)>> = LazyLock::new(|| {
    let compile = |text: &str| regex::Regex::new(&format!("^(?:{})$", &text[1..])).unwrap();
    ROUTE_HOSTS.iter().filter(|host| host.starts_with('~')).map(|text| (*text, compile(text))).collect()
});

const REGEXES: [&str; 5] = ["~/a/[a-c]+", "~/a/b.*", "~/b/(a|b)", "~.*c", "~/(a|b)/c?"];

static COMPILED: LazyLock<Vec<(&str, regex::Regex)>> = LazyLock::new(|| {
    REGEXES.iter().map(|text| (*text, regex::Regex::new(&format!("^(?:{})$", &text[1..])).unwrap())).collect()
});

fn reference_path(pattern: &str, case: Case, path: &str) -> Option<PathStanding> {
    if let Some(regex) = pattern.strip_prefix('~') {
        let (_, regex) = COMPILED.iter().find(|(text, _)| text[1..] == *regex).unwrap();
        return regex.is_match(path).then(|| (1, Reverse(0), Reverse(0), Vec::new(), false));
    }
    // Of names nothing is compared, so they may be folded too.
    let fold = |text: &str| match case {
        Case::Insensitive => text.to_ascii_lowercase(),
        Case::Sensitive => text.to_owned(),
    };
    let (written, pattern, path) = (pattern, fold(pattern), fold(path));
    let mut want: Vec<&str> = pattern.split('/').skip(1).collect();
    let have: Vec<&str> = path.split('/').skip(1).collect();
    let last = *want.last()?;
    let prefix = last.ends_with('*') || last.ends_with("*}");
    let mut raw = "";
    if prefix {
        want.pop();
        raw = if last.ends_with("*}") { "" } else { last.trim_end_matches('*') };
        if !raw.is_empty() && !have.get(want.len())?.starts_with(raw) {
            return None;
        }
    }
    if (prefix && have.len() < want.len()) || (!prefix && have.len() != want.len()) {
        return None;
    }
    let mut kinds = Vec::new();
    for (want, have) in want.iter().zip(&have) {
        let Some((before, rest)) = want.split_once('{') else {
            if want != have {
                return None;
            }
            kinds.push((0, Reverse(0), Reverse(0)));
            continue;
        };
        let (_, after) = rest.split_once('}')?;
        let inner = have.strip_prefix(before)?.strip_suffix(after)?;
        let is_part = !(before.is_empty() && after.is_empty());
        if inner.is_empty() || is_part && [".", ".."].contains(&inner) {
            return None;
        }
        let bytes = before.len() + after.len();
        kinds.push((if is_part { 1 } else { 2 }, Reverse(bytes), Reverse(before.len())));
    }
    let letters = written.split('{').next().is_some_and(|first| first.contains(|c: char| c.is_alphabetic()))
        || written.split('}').skip(1).any(|after| {
            after.split('{').next().is_some_and(|text| text.contains(|c: char| c.is_alphabetic()))
        });
    let folded = case == Case::Insensitive && letters;
    let length = if prefix { want.len() } else { 0 };
    Some((if prefix { 2 } else { 0 }, Reverse(length), Reverse(raw.len()), kinds, folded))
}

const WHENS: [&str; 4] = [
    "request.method == \"GET\"",
    "request.method == \"POST\"",
    "request.headers[\"X-A\"] == \"1\"",
    "request.headers[\"x-a\"] == \"1, 3\"",
];

fn random_route(random: &mut Random, number: usize) -> RouteSpec {
    const SEGMENTS: [&str; 5] = ["a", "b", "c", "{p}", "a"];
    const PARTS: [&str; 7] = ["a{p}", "{p}b", "A", "ab", "a{p}b", "{p}B", "{p}ab"];
    let partial = random.below(3) == 0;
    let mut path = String::new();
    if random.below(4) == 0 {
        path.push_str(random.pick(&REGEXES));
    } else {
        for at in 0..random.below(4) {
            path.push('/');
            let segment =
                if partial && random.below(2) == 0 { random.pick(&PARTS) } else { random.pick(&SEGMENTS) };
            path.push_str(&segment.replace('p', &format!("p{at}")));
        }
        match random.below(4) {
            0 if partial => path.push_str(random.pick(&["/a*", "/ab*", "/B*"])),
            0 => path.push_str("/*"),
            1 => path.push_str("/{rest*}"),
            2 if random.below(3) == 0 => path.push('/'),
            _ if path.is_empty() => path.push('/'),
            _ => {}
        }
    }
    let mut spec = route(&format!("r{number}"), &path);
    if random.below(8) == 0 && !path.starts_with('~') {
        let other = random.pick(&["/a/{p0}", "/b/*", "/a/b*", "/c", "~/a/b.*", "~.*c", "/a/*"]);
        spec = spec.or_path(other).or_path("/zz");
    }
    if partial && spec.paths.iter().all(|path| !path.starts_with('~')) && random.below(2) == 0 {
        spec = spec.insensitive();
    }
    for _ in 0..random.below(3) {
        spec.hosts.push(random.pick(&ROUTE_HOSTS).to_owned());
    }
    if random.below(4) == 0 {
        spec = spec.methods(random.pick(&[&["GET"][..], &["POST"], &["GET", "POST"]]));
    }
    if random.below(4) == 0 {
        spec = spec.header("x-a", random.pick(&["1", "2", "*"]));
    }
    if random.below(6) == 0 {
        spec = spec.header("x-b", random.pick(&["1", "*"]));
    }
    if random.below(6) == 0 {
        spec = spec.query("v", random.pick(&["1", "2", "*"]));
    }
    if random.below(6) == 0 {
        spec = spec.listeners(random.pick(&[&[0][..], &[1], &[0, 1]]));
    }
    if random.below(6) == 0 {
        spec = spec.clients(random.pick(&[
            &["10.0.0.0/8"][..],
            &["10.1.0.0/16"],
            &["11.0.0.0/8", "10.2.0.0/16"],
        ]));
    }
    if random.below(6) == 0 {
        spec = spec.cookie("c", random.pick(&["1", "2", "*"]));
    }
    for _ in 0..random.below(3) / 2 + random.below(4) / 3 {
        spec = spec.not(excluding(match random.below(8) {
            0 => without().methods(&["GET"]),
            1 => without().methods(&["GET", "POST"]).header("x-a", "1"),
            2 => route("", "/a/*"),
            3 => route("", "/B*").insensitive().methods(&["POST"]),
            4 => without().clients(&["10.0.0.0/8"]),
            5 => without().hosts(&["*.x.test", "x.*"]),
            6 => without().cookie("c", "1").query("v", "*"),
            _ => without().listeners(&[1]),
        }));
    }
    spec.priority = random.below(3) as i32;
    if random.below(5) == 0 {
        spec = spec.when(random.pick(&WHENS));
    }
    spec
}

fn random_request(random: &mut Random) -> Sample {
    const HOSTS: [&str; 8] =
        ["a.x.test", "b.x.test", "x.test", "c.x.test", "y.test", "z.a.x.test", "other", "q.z.a.x.test"];
    let mut path = String::new();
    for _ in 0..1 + random.below(4) {
        path.push('/');
        path.push_str(random.pick(&["a", "b", "c", "d", "a", "b", "A", "ab", "aB", "aab"]));
    }
    match random.below(6) {
        0 => path.push('/'),
        1 => path = "/".to_owned(),
        _ => {}
    }
    let mut headers = Vec::new();
    for name in ["x-a", "x-b", "x-a"] {
        if random.below(3) == 0 {
            headers.push((name.to_owned(), random.pick(&["1", "2", "3"]).to_owned()));
        }
    }
    if random.below(3) == 0 {
        let cookie = random.pick(&["c=1", "c=2", "d=1; c=1", "c=1; c=2"]);
        headers.push(("cookie".to_owned(), cookie.to_owned()));
    }
    let client = match random.below(3) {
        0 => None,
        _ => Some(random.pick(&["10.1.1.1", "10.2.1.1", "11.3.1.1", "12.1.1.1"]).parse().unwrap()),
    };
    let query = match random.below(3) {
        0 => Some(random.pick(&["v=1", "v=2", "v=1&v=2", "w=1&v=2", ""]).to_owned()),
        _ => None,
    };
    Sample {
        listener: random.below(3) as u16,
        method: random.pick(&["GET", "POST", "PUT"]).to_owned(),
        host: random.pick(&HOSTS).to_owned(),
        path,
        query,
        headers,
        client,
    }
}

/// Builds a table from `specs` without faulty routes, and checks each reported tie against the reference.
fn build_without_faults(mut specs: Vec<RouteSpec>) -> (Vec<RouteSpec>, Table) {
    loop {
        let conflicts = match Table::build(specs.clone()) {
            Ok(table) => return (specs, table),
            Err(conflicts) => conflicts,
        };
        for conflict in &conflicts {
            let Some(other) = conflict.other else {
                let one = matches!(conflict.kind, ConflictKind::BadExclusion | ConflictKind::BadPattern);
                assert!(one, "{conflict:?}");
                continue;
            };
            let (a, b) = (&specs[conflict.route], &specs[other]);
            let by_regex = |spec: &RouteSpec| spec.hosts.iter().any(|host| host.starts_with('~'));
            let hard = a.paths[0].starts_with('~')
                || a.paths.len() > 1
                || a.when.is_some()
                || !a.not.is_empty()
                || !b.not.is_empty()
                || by_regex(a)
                || by_regex(b);
            assert!(conflict.example.is_some() || hard, "{a:?} {b:?}");
            assert_eq!(conflict.kind == ConflictKind::Ambiguous, a.priority == b.priority, "{a:?} {b:?}");
            let example = conflict.example.is_some() && conflict.kind == ConflictKind::Unreachable;
            assert!(!example || b.priority > a.priority, "{a:?} {b:?}");
        }
        let faults: BTreeSet<usize> = conflicts.iter().map(|conflict| conflict.route).collect();
        let mut index = 0;
        specs.retain(|_| {
            index += 1;
            !faults.contains(&(index - 1))
        });
    }
}

#[test]
fn agrees_with_the_reference() {
    let mut random = Random::new(3);
    let (mut found, mut contested, mut beaten) = (0, 0, 0);
    for _ in 0..1_000 {
        let size = 1 + random.below(40);
        let specs = (0..size).map(|number| random_route(&mut random, number)).collect();
        let (specs, table) = build_without_faults(specs);
        for _ in 0..60 {
            let sample = random_request(&mut random);
            let mut matching: Vec<_> = specs
                .iter()
                .flat_map(|spec| reference(spec, &sample).into_iter().map(|one| (one, &*spec.name)))
                .collect();
            matching.sort();
            for alike in matching.windows(2) {
                let [(first, a), (second, b)] = alike else { unreachable!() };
                assert!(
                    first != second || a == b,
                    "{a} and {b} tie on {sample}, which no conflict told: {specs:#?}"
                );
            }
            contested += usize::from(matching.len() > 1);
            let mut want = Vec::new();
            while let Some(best) = best_of(&matching) {
                let (standing, name) = matching.remove(best);
                matching.retain(|(_, other)| *other != name);
                beaten += usize::from(best > 0);
                found += usize::from(want.is_empty());
                want.push((standing, name));
            }
            let want: Vec<&str> = want.iter().map(|(_, name)| *name).collect();
            let request = sample.request();
            let told = explain(&table, &request, 0);
            let got: Vec<&str> = told
                .winner
                .iter()
                .map(|winner| &*winner.route)
                .chain(told.lost.iter().map(|lost| &*lost.route))
                .collect();
            assert_eq!(got, want, "{sample} on {}: {specs:#?}", sample.listener);
            assert_eq!(winner(&table, &request), want.first().copied().unwrap_or("-"));
        }
    }
    assert!(found > 10_000 && contested > 4_000 && beaten > 50, "{found} {contested} {beaten}");
}

#[test]
fn every_route_has_a_sample_that_it_matches() {
    let mut random = Random::new(5);
    for number in 0..500 {
        let mut spec = RouteSpec { when: None, not: Vec::new(), ..random_route(&mut random, number) };
        spec.paths.truncate(1);
        let table = table(vec![spec.clone()]);
        let sample = table.sample(RouteId(0)).unwrap_or_else(|| panic!("{spec:?}"));
        assert_eq!(winner(&table, &sample.request()), &*spec.name, "{sample}");
    }
}

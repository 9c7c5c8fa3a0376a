//! Whether a new route may take requests from an existing one. Yes if in doubt.

use std::borrow::Cow;
use weir_config::Node;

/// Whether one request may match both of these `match` settings. Methods, header fields and listeners are ignored.
pub(super) fn may_overlap(one: Option<&Node>, other: Option<&Node>) -> bool {
    hosts_may_overlap(one, other) && paths_may_overlap(one, other)
}

fn hosts_may_overlap(one: Option<&Node>, other: Option<&Node>) -> bool {
    let (one, other) = (hosts(one), hosts(other));
    let plain = |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
    if one.is_empty() || other.is_empty() || !one.iter().chain(&other).all(|host| plain(host)) {
        return true;
    }
    one.iter().any(|host| other.iter().any(|known| known == host))
}

fn hosts(of: Option<&Node>) -> Vec<String> {
    let Some(hosts) = of.and_then(|of| of.get("hosts")) else { return Vec::new() };
    let one = hosts.as_text().into_iter();
    let all = one.chain(hosts.elements().iter().map(|host| host.as_text().unwrap_or("*")));
    all.map(|host| host.trim_end_matches('.').to_ascii_lowercase()).collect()
}

fn paths_may_overlap(one: Option<&Node>, other: Option<&Node>) -> bool {
    let any_case = ignores_case(one) || ignores_case(other);
    let differ =
        |one: &str, other: &str| if any_case { !one.eq_ignore_ascii_case(other) } else { one != other };
    let (one, other) = (segments(one), segments(other));
    // Below the shorter one there may be anything, unless an earlier segment differs.
    !one.iter().zip(&other).any(|(one, other)| differ(one, other))
}

fn ignores_case(of: Option<&Node>) -> bool {
    let case = of.and_then(|of| of.get("case"));
    case.is_some_and(|case| case.as_text() != Some("sensitive"))
}

/// The leading segments of a path that match only themselves.
fn segments(of: Option<&Node>) -> Vec<Cow<'_, str>> {
    let path = of.and_then(|of| of.get("path")).and_then(Node::as_text).unwrap_or("/*");
    let plain = |segment: &&str| {
        let is_step = segment.chars().all(|c| c == '.'); // an empty one too
        !is_step && segment.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let Some(path) = path.strip_prefix('/') else { return Vec::new() };
    path.split('/').take_while(plain).map(Cow::Borrowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_config::{Diagnostics, parse::parse};

    #[test]
    fn in_doubt_routes_overlap() {
        for (one, other, overlap) in [
            ("{}", "{}", true),
            ("{ path: /a }", "{ path: /b }", false),
            ("{ path: /a }", "{ path: /a/b }", true),
            ("{ path: '/a/*' }", "{ path: /a }", true),
            ("{ path: '/a/*' }", "{ path: /ab }", false),
            ("{ path: '/{x}/b' }", "{ path: /a/c }", true),
            ("{ path: '/a*' }", "{ path: /ab }", true),
            ("{ path: '/x/a*' }", "{ path: /y/ab }", false),
            ("{ path: '/{x}.json' }", "{ path: /a.json }", true),
            ("{ path: /A }", "{ path: /a }", false),
            ("{ path: /A, case: insensitive }", "{ path: /a }", true),
            ("{ path: /A, case: sensitive }", "{ path: /a }", false),
            ("{ path: /A, case: insensitive }", "{ path: /b, case: insensitive }", false),
            ("{ path: '~/b.*' }", "{ path: /a }", true),
            ("{ path: '/%61' }", "{ path: /b }", true),
            ("{ hosts: [ a.test ] }", "{ hosts: [ b.test ] }", false),
            ("{ hosts: [ A.test ] }", "{ hosts: [ b.test, a.test ] }", true),
            ("{ hosts: [ '*.test' ] }", "{ hosts: [ b.test ] }", true),
            ("{ hosts: [ a.test ], path: /a }", "{ hosts: [ b.test ], path: /a }", false),
            ("{ hosts: [ a.test ] }", "{ path: /a }", true),
            ("{ path: /a, methods: [ GET ] }", "{ path: /a, methods: [ POST ] }", true),
        ] {
            let tree = |text: &str| parse(text, Path::new("t"), &mut Diagnostics::default()).unwrap();
            let (one, other) = (tree(one), tree(other));
            assert_eq!(may_overlap(Some(&one), Some(&other)), overlap, "{one:?} {other:?}");
            assert_eq!(may_overlap(Some(&other), Some(&one)), overlap, "{one:?} {other:?}");
        }
    }
}

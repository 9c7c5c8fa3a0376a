//! Paths that servers behind us may read differently: escaped slashes, escaped signs and path parameters.
//!
//! A canonical path has one meaning here. Behind us, nginx and WSGI decode `%2F` before they split. Servlet
//! containers drop the part after a `;` in each segment. One may be behind the other, and Node does neither. Most servers
//! take `%40` for `@`. If such
//! a reading takes another route, a request could use one route's access to reach what another guards: `/admin%2Fx`
//! and `/admin;a/x` are well-known ways around a lock on `/admin/*`. So a path takes its route only if every reading
//! takes it too.

use super::path::{Ambiguity, SIGNS, Slashes, canonical};
use super::request::{Headers, NoTrace, Request, RouteId};
use super::table::Table;

/// What to do with a path that contains `%2F`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EscapedSlashes {
    /// Decode it once, then treat it as if it had arrived so.
    Decode,
    /// Match and forward it as it arrived.
    Keep,
    /// Refuse it if the decoded path takes another route, or none.
    #[default]
    Refuse,
}

/// The route of a path with other readings.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    /// The route, if there is one.
    pub route: Option<RouteId>,
    /// The decoded path, if it is to be forwarded instead of the original.
    pub decoded: Option<Vec<u8>>,
}

/// A path with a reading that takes another route.
#[derive(Debug, PartialEq, Eq)]
pub struct Contested {
    /// The route of the path as written.
    pub route: RouteId,
    /// The other reading.
    pub reading: Vec<u8>,
    /// The route of that reading, if it has one.
    pub other: Option<RouteId>,
}

/// Settles the route of a request whose canonical path is ambiguous. `found` is the route of the path as written.
/// `setting` returns a route's setting for escaped slashes; without a route, the listener's.
///
/// The route of the path as written decides by its setting. `Decode` looks the route up again. `Refuse` requires every
/// reading to take the same route. Path parameters are refused in the same way, whatever the setting, except on a route
/// whose own path contains a `;`: there the config's meaning is clear. Escaped signs are refused likewise. Cost: at
/// most nine more lookups, twice as many if the listener keeps slashes.
///
/// # Errors
/// The reading that takes another route.
pub fn settle<H: Headers + Copy>(
    table: &Table,
    request: &Request<'_, H>,
    found: Option<RouteId>,
    ambiguity: Ambiguity,
    slashes: Slashes,
    setting: impl Fn(Option<RouteId>) -> EscapedSlashes,
) -> Result<Settled, Contested> {
    let route_of = |path: &[u8]| table.find(&Request { path, ..*request }, &mut NoTrace);
    let mode = setting(found);
    let mut settled = Settled { route: found, decoded: None };
    if ambiguity.slash && mode == EscapedSlashes::Decode {
        let path = reread(&decoded(request.path), slashes);
        settled = Settled { route: route_of(&path), decoded: Some(path) };
    }
    let Some(route) = settled.route else { return Ok(settled) };
    let own = settled.decoded.as_deref().unwrap_or(request.path);
    let pattern = table.pattern(route, own).map(|pattern| pattern.as_str());
    let meant = pattern.is_some_and(|p| p.contains(';') || p.contains("%3B"));
    let open = Ambiguity {
        slash: ambiguity.slash && mode == EscapedSlashes::Refuse,
        semicolon: ambiguity.semicolon && !meant,
        sign: ambiguity.sign && pattern.is_none_or(|p| raw_signs(p.as_bytes()) == p.as_bytes()),
    };
    // A listener may keep `//`. Most servers behind us merge it, above all one created by a decoded `%2F` or a
    // dropped `;x`.
    let merged = (slashes == Slashes::Keep).then_some(Slashes::Merge);
    for raw in readings(settled.decoded.as_deref().unwrap_or(request.path), open) {
        for slashes in [Some(slashes), merged].into_iter().flatten() {
            let reading = reread(&raw, slashes);
            let other = route_of(&reading);
            if other != Some(route) {
                return Err(Contested { route, reading, other });
            }
        }
    }
    Ok(settled)
}

/// The possible readings of a canonical path.
fn readings(path: &[u8], open: Ambiguity) -> Vec<Vec<u8>> {
    let mut all = match (open.slash, open.semicolon) {
        (false, false) => Vec::new(),
        (true, false) => vec![decoded(path)],
        (false, true) => vec![without_parameters(path)],
        // If one server is behind the other, either may come first: `/a;b%2Fc` is `/a` or `/a/c`.
        (true, true) => {
            let (slashes, bare) = (decoded(path), without_parameters(path));
            let both = [without_parameters(&slashes), decoded(&bare)];
            [slashes, bare].into_iter().chain(both).collect()
        }
    };
    if open.sign {
        // The order does not matter: no sign ends a segment or its name.
        let with_signs: Vec<_> = all.iter().map(|reading| raw_signs(reading)).collect();
        all.push(raw_signs(path));
        all.extend(with_signs);
    }
    all
}

/// Replaces each escaped sign of a canonical path by the sign. One layer: `%2540` is the text `%40`.
fn raw_signs(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest) {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before);
        let digits = escape.get(1..3).and_then(|digits| str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let used = match value.filter(|value| SIGNS.contains(value)) {
            Some(sign) => {
                out.push(sign);
                3
            }
            None => {
                let used = escape.len().min(3);
                out.extend_from_slice(&escape[..used]);
                used
            }
        };
        rest = &escape[used..];
    }
    out.extend_from_slice(rest);
    out
}

/// Brings a reading into canonical form. That always exists, because paths in which dots would become active are
/// refused earlier; a reading without one would take no route.
fn reread(path: &[u8], slashes: Slashes) -> Vec<u8> {
    let mut out = Vec::new();
    match canonical(path, slashes, &mut out) {
        Ok(form) => form.choose(path, &out).to_vec(),
        Err(_) => Vec::new(),
    }
}

/// Replaces each `%2F` of a canonical path by `/`. One layer: `%252F` contains no `%2F`.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = memchr::memmem::find(rest, b"%2F") {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        out.push(b'/');
        rest = rest.get(at + 3..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// Cuts each segment at its first `;`. `%3B` counts too, because a decoder in front of a servlet container turns it
/// into one.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (n, segment) in path.split(|&b| b == b'/').enumerate() {
        if n > 0 {
            out.push(b'/');
        }
        let raw = memchr::memchr(b';', segment).unwrap_or(segment.len());
        let escaped = memchr::memmem::find(segment, b"%3B").unwrap_or(segment.len());
        out.extend_from_slice(segment.get(..raw.min(escaped)).unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::path::examine;
    use super::super::{Case, RouteSpec};
    use super::*;
    use EscapedSlashes::{Decode, Keep, Refuse};

    const ROUTES: [&str; 9] = [
        "/*",
        "/admin/*",
        "/users/{id}",
        "/projects/*",
        "/calc;v=1/*",
        "/hello",
        "/admin/public/*",
        "/@adm/*",
        "/%40own/*",
    ];

    fn table() -> Table {
        let route = |path: &&str| RouteSpec {
            name: (*path).into(),
            paths: vec![(*path).to_owned()],
            ..RouteSpec::default()
        };
        Table::build(ROUTES.iter().map(route)).unwrap()
    }

    /// The route and the forwarded path, or the reading that takes another route.
    fn take(raw: &str, mode: EscapedSlashes) -> Result<(String, String), String> {
        take_with(raw, mode, Slashes::Merge)
    }

    fn take_with(raw: &str, mode: EscapedSlashes, slashes: Slashes) -> Result<(String, String), String> {
        let (table, mut out) = (table(), Vec::new());
        let (form, ambiguity) = examine(raw.as_bytes(), slashes, &mut out).unwrap();
        let path = form.choose(raw.as_bytes(), &out);
        let request = Request { listener: 0, host: b"", method: b"GET", path, query: None, headers: () };
        let found = table.find(&request, &mut NoTrace);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match settle(&table, &request, found, ambiguity, slashes, |_| mode) {
            Ok(settled) => Ok((
                settled.route.map_or("", |r| ROUTES[r.index()]).to_owned(),
                text(settled.decoded.as_deref().unwrap_or(path)),
            )),
            Err(contested) => Err(text(&contested.reading)),
        }
    }

    #[test]
    fn no_reading_takes_another_route() {
        for (raw, reading) in [
            ("/admin%2Fx", "/admin/x"),
            ("/admin%2fx%2Fy", "/admin/x/y"),
            ("/%2Fadmin/x", "/admin/x"),
            ("/admin;x/y", "/admin/y"),
            ("/;x/admin/y", "/admin/y"),
            ("/admin%3Bx/y", "/admin/y"),
            ("/admin;", "/admin"),
            ("/hello;jsessionid=1", "/hello"),
            ("/users/a%2Fb", "/users/a/b"),
            ("/users/;x", "/users/"),
            ("/admin/public%2Fx", "/admin/public/x"),
            ("/admin/public;a%2F/x", "/admin/public/x"),
            ("/admin;a%2Fb", "/admin"),
            ("/%40adm/x", "/@adm/x"),
            ("/%40adm", "/@adm"),
            ("/x/../%40adm", "/@adm"),
            ("/%40adm;a/x", "/@adm/x"),
            ("/%40adm%2Fx", "/@adm/x"),
        ] {
            assert_eq!(take(raw, Refuse), Err(reading.to_owned()), "{raw}");
        }
    }

    #[test]
    fn a_listener_that_keeps_slashes_knows_that_servers_merge_them() {
        for raw in ["/%2Fadmin/x", "/;/admin/x", "/;a/admin", "/%2F;/admin"] {
            assert!(take_with(raw, Refuse, Slashes::Keep).is_err(), "{raw}");
        }
        assert_eq!(take_with("/;/admin/x", Keep, Slashes::Keep), Err("/admin/x".to_owned()));
        for raw in ["/projects//a%2Fb", "/projects/;x/b", "/x//y%2Fz"] {
            assert!(take_with(raw, Refuse, Slashes::Keep).is_ok(), "{raw}");
        }
    }

    #[test]
    fn what_takes_the_same_route_goes_on_as_it_came() {
        for (raw, route) in [
            ("/projects/a%2Fb", "/projects/*"),
            ("/projects/a;b=1/c%2Fd", "/projects/*"),
            ("/users/a;b", "/users/{id}"),
            ("/x%252Fadmin", "/*"),
            ("/admin%252Fx", "/*"),
            ("/calc;v=1/x", "/calc;v=1/*"),
            ("/calc;v=1/x;y", "/calc;v=1/*"),
            ("/a;b=c/d", "/*"),
            ("/x%2F%2Fadmin", "/*"),
            ("/x;y%2F/admin", "/*"),
            ("/users/a%40b%2Bc", "/users/{id}"),
            ("/@adm/a%40b", "/@adm/*"),
            ("/%2540adm/x", "/*"),
            ("/%40own/a", "/%40own/*"),
        ] {
            for mode in [Refuse, Keep] {
                assert_eq!(take(raw, mode), Ok((route.to_owned(), raw.to_owned())), "{raw}");
            }
        }
        assert_eq!(take("/admin%2Fx", Keep), Ok(("/*".to_owned(), "/admin%2Fx".to_owned())));
        // Escaped slashes and parameters are separate settings.
        assert_eq!(take("/admin;x/y", Keep), Err("/admin/y".to_owned()));
    }

    /// The new forms: `/secret*` and `/Vault/*` in any case are guarded, and `/p/{id}.json` is open.
    #[test]
    fn no_reading_gets_around_a_raw_prefix_a_part_or_a_case() {
        const ROUTES: [(&str, Case); 6] = [
            ("/*", Case::Sensitive),
            ("/secret*", Case::Sensitive),
            ("/Vault/*", Case::Insensitive),
            ("/p/{id}.json", Case::Sensitive),
            ("/p/{id}", Case::Sensitive),
            ("/Deep/{id}.Xml", Case::Insensitive),
        ];
        let spec = |(path, case): &(&str, Case)| RouteSpec {
            name: (*path).into(),
            paths: vec![(*path).to_owned()],
            case: *case,
            ..RouteSpec::default()
        };
        let table = Table::build(ROUTES.iter().map(spec)).unwrap();
        let take = |raw: &str, slashes: Slashes, mode: EscapedSlashes| {
            let mut out = Vec::new();
            let Ok((form, ambiguity)) = examine(raw.as_bytes(), slashes, &mut out) else { return None };
            let path = form.choose(raw.as_bytes(), &out);
            let request = Request { listener: 0, host: b"", method: b"GET", path, query: None, headers: () };
            let found = table.find(&request, &mut NoTrace);
            let settled = settle(&table, &request, found, ambiguity, slashes, |_| mode).ok()?;
            Some(settled.route.map_or("", |route| ROUTES[route.index()].0))
        };
        for raw in [
            "/%2Fsecret",
            "/x/..;/secret",
            "/;a/secretx",
            "/x%2F..%2Fsecret",
            "/VAULT%2Fx",
            "/vault;a/x",
            "/%2FvAuLt/x",
            "/;x/VAULT/y",
            "/vault%3B/x",
            "/VAULT;",
            "/p/a%2Fb.json",
            "/p/a;x.json",
            "/p/a.json;x",
            "/p%2Fa.json",
            "/deep/a%2Fb.xml",
            "/DEEP%2Fa.xml",
            "/deep/a;.xml",
            "/deep/a.xml;b",
        ] {
            assert_eq!(take(raw, Slashes::Merge, Refuse), None, "{raw}");
            assert_eq!(take(raw, Slashes::Keep, Refuse), None, "{raw}");
        }
        for (raw, route) in [
            ("/x/../secrets", "/secret*"),
            ("/%73ecret", "/secret*"),
            ("/secret%2Fx", "/secret*"),
            ("/secret;a/x", "/secret*"),
            ("/./VAULT/x", "/Vault/*"),
            ("/%56ault/x", "/Vault/*"),
            ("/x/../VAULT/a%2Fb", "/Vault/*"),
            ("/vault/a;b", "/Vault/*"),
            ("/p/%61.json", "/p/{id}.json"),
            ("/p/..json", "/p/{id}"),
            ("/SECRET", "/*"),
            ("/p/...json", "/p/{id}"),
        ] {
            assert_eq!(take(raw, Slashes::Merge, Refuse), Some(route), "{raw}");
        }
        assert_eq!(take("/VAULT%2Fx", Slashes::Merge, Decode), Some("/Vault/*"));
        assert_eq!(take("/secret%2Fx", Slashes::Merge, Decode), Some("/secret*"));
        // The text of a capture takes whole escapes only, also where they are kept.
        assert_eq!(take("/p/a%2F.json", Slashes::Merge, Keep), Some("/p/{id}.json"));
    }

    #[test]
    fn decoded_once() {
        for (raw, route, sent) in [
            ("/admin%2Fx", "/admin/*", "/admin/x"),
            ("/users/a%2Fb", "/*", "/users/a/b"),
            ("/a%2F.%2F%2Fb", "/*", "/a/b"),
            ("/admin%252Fx", "/*", "/admin%252Fx"),
            ("/projects%2Fa;b", "/projects/*", "/projects/a;b"),
        ] {
            assert_eq!(take(raw, Decode), Ok((route.to_owned(), sent.to_owned())), "{raw}");
        }
        assert_eq!(take("/admin;x%2Fy", Decode), Err("/admin/y".to_owned()));
    }
}

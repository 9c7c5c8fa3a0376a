//! Applies a processor's changes to heads and trailers, within what it may set.

use super::messages::{Action, Mutation, Set};
use weir_filter::filter::{RequestHead, ResponseHead, line_of, write_line};
use weir_filter::route::{Slashes, canonical};
use weir_h1::{FieldName, Fields};

/// Why a change cannot be made.
const INVALID: &str = "it sets a field that cannot be sent";

/// Fields that a processor may neither set nor remove: they frame the message, name its host, or belong to one
/// connection. Envoy's default rules forbid `host` and `x-envoy-*`; the codecs of both own the others.
fn is_forbidden(name: &str) -> bool {
    const FORBIDDEN: [&str; 12] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-weir-cause",
    ];
    FORBIDDEN.contains(&name) || name.starts_with(':') || name.starts_with("x-envoy-")
}

/// Changes of fields that can all be made. A mutation is checked as a whole first: with `without: pass`, a half of one
/// would go on.
struct Checked<'a> {
    remove: Vec<FieldName>,
    set: Vec<(FieldName, &'a [u8], Action)>,
    /// How many changes a processor may not make.
    ignored: u64,
}

impl<'a> Checked<'a> {
    /// All changes but those of `pseudo`, which its caller makes.
    fn new(mutation: &'a Mutation, pseudo: &str) -> Result<Self, &'static str> {
        let mut all = Self { remove: Vec::new(), set: Vec::new(), ignored: 0 };
        for name in &mutation.remove {
            if is_forbidden(&name.to_ascii_lowercase()) {
                all.ignored += 1;
            } else {
                let name = FieldName::new(name).map_err(|_| "it removes a field with an invalid name")?;
                all.remove.push(name);
            }
        }
        let mut trial = Fields::default();
        for Set { name, value, action } in mutation.set.iter().filter(|set| set.name != pseudo) {
            if is_forbidden(name) {
                all.ignored += 1;
            } else {
                let name = FieldName::new(name).map_err(|_| INVALID)?;
                trial.append(&name, value).map_err(|_| INVALID)?;
                all.set.push((name, value, *action));
            }
        }
        Ok(all)
    }

    /// Makes them. Returns how many were ignored.
    fn apply(self, fields: &mut Fields) -> u64 {
        for name in &self.remove {
            fields.remove(name);
        }
        for (name, value, action) in &self.set {
            match (action, fields.contains(name)) {
                (Action::AddIfAbsent, true) | (Action::OverwriteIfExists, false) => continue,
                (Action::Append, _) | (Action::AddIfAbsent, false) => {}
                (Action::Overwrite, _) | (Action::OverwriteIfExists, true) => {
                    fields.remove(name);
                }
            }
            fields.append(name, value).expect("the value was tried before");
        }
        self.ignored
    }
}

/// Changes a request. `:path` is the only pseudo-field that may change. Returns how many changes were ignored.
///
/// # Errors
/// Why a change cannot be made. Then none is.
pub(super) fn of_request(mutation: &Mutation, head: &mut RequestHead) -> Result<u64, &'static str> {
    let changes = Checked::new(mutation, ":path")?;
    let mut target = None;
    for set in mutation.set.iter().filter(|set| set.name == ":path") {
        let query = set.value.iter().position(|&b| b == b'?');
        let (path, query) = set.value.split_at(query.unwrap_or(set.value.len()));
        let mut made = Vec::new();
        canonical(path, Slashes::Keep, &mut made).map_err(|_| "it sets a path that has no canonical form")?;
        let path = if made.is_empty() { path.to_vec() } else { made };
        let query = query.get(1..).map(<[u8]>::to_vec);
        set_target(&mut RequestHead::default(), &path, query.as_deref())?;
        target = Some((path, query));
    }
    if let Some((path, query)) = target {
        set_target(head, &path, query.as_deref())?;
    }
    // An upstream that reads `_` as `-` must not see the client's field beside the processor's.
    for (name, ..) in &changes.set {
        head.headers.remove_where(|other, _| is_twin(other, name.as_str()));
    }
    Ok(changes.apply(&mut head.headers))
}

fn set_target(head: &mut RequestHead, path: &[u8], query: Option<&[u8]>) -> Result<(), &'static str> {
    head.set_path(path).map_err(|_| INVALID)?;
    head.set_query(query).map_err(|_| INVALID)
}

/// Changes a response. `:status` may change to another one that has a body if and only if this one has.
///
/// # Errors
/// Why a change cannot be made. Then none is.
pub(super) fn of_response(mutation: &Mutation, head: &mut ResponseHead) -> Result<u64, &'static str> {
    let changes = Checked::new(mutation, ":status")?;
    let mut ignored = 0;
    for set in mutation.set.iter().filter(|set| set.name == ":status") {
        let status: Option<u16> = std::str::from_utf8(&set.value).ok().and_then(|text| text.parse().ok());
        match status {
            Some(status @ 200..=599)
                if !matches!(status, 204 | 304) && !matches!(head.status(), 204 | 304) =>
            {
                head.set_status(status);
            }
            _ => ignored += 1,
        }
    }
    Ok(ignored + changes.apply(&mut head.headers))
}

/// Changes trailers, lines with their CRLF. Returns them, and how many changes were ignored.
pub(super) fn of_trailers(mutation: &Mutation, lines: &[u8]) -> Result<(Vec<u8>, u64), &'static str> {
    let (mut out, mut ignored) = (lines.to_vec(), 0);
    for name in &mutation.remove {
        if is_forbidden(&name.to_ascii_lowercase()) {
            ignored += 1;
        } else {
            out = without(&out, name);
        }
    }
    for Set { name, value, action } in &mutation.set {
        if is_forbidden(name) {
            ignored += 1;
            continue;
        }
        let exists = line_of(&out, name).is_some();
        match (action, exists) {
            (Action::AddIfAbsent, true) | (Action::OverwriteIfExists, false) => continue,
            (Action::Append, _) | (Action::AddIfAbsent, false) => {}
            (Action::Overwrite, _) | (Action::OverwriteIfExists, true) => out = without(&out, name),
        }
        let before = out.len();
        write_line(&FieldName::new(name).map_err(|_| INVALID)?, value, &mut out);
        if out.len() == before {
            return Err(INVALID);
        }
    }
    Ok((out, ignored))
}

/// The lines without those of one field.
fn without(lines: &[u8], name: &str) -> Vec<u8> {
    let others = lines.split_inclusive(|&b| b == b'\n').filter(|line| line_of(line, name).is_none());
    others.collect::<Vec<_>>().concat()
}

/// Whether some programs read this name as the other.
fn is_twin(name: &[u8], of: &str) -> bool {
    let alike = |(a, b): (&u8, u8)| a.eq_ignore_ascii_case(&b) || (*a == b'_' && b == b'-');
    name.contains(&b'_')
        && name.len() == of.len()
        && name.iter().zip(of.bytes()).all(alike)
        && !name.eq_ignore_ascii_case(of.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_filter::testing::request_head;

    fn set(name: &str, value: &str, action: Action) -> Set {
        Set { name: name.to_owned(), value: value.as_bytes().to_vec(), action }
    }

    fn sets(sets: Vec<Set>) -> Mutation {
        Mutation { set: sets, remove: Vec::new() }
    }

    #[test]
    fn each_action() {
        let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        for (action, known, unknown) in [
            (Action::AddIfAbsent, texts(&["1"]), texts(&["2"])),
            (Action::Append, texts(&["1", "2"]), texts(&["2"])),
            (Action::Overwrite, texts(&["2"]), texts(&["2"])),
            (Action::OverwriteIfExists, texts(&["2"]), texts(&[])),
        ] {
            let mut head = request_head("GET /\nX-A: 1\nX_A: forged\nX_B: forged");
            let mutation = sets(vec![set("x-a", "2", action), set("x-b", "2", action)]);
            assert_eq!(of_request(&mutation, &mut head), Ok(0));
            let all = |name: &str| head.headers.get_all(name).map(text).collect::<Vec<_>>();
            assert_eq!((all("x-a"), all("x-b")), (known.clone(), unknown.clone()), "{action:?}");
            assert!(all("x_a").is_empty() && all("x_b").is_empty());
            let (lines, _) = of_trailers(&mutation, b"x-a: 1\r\n").unwrap();
            let of = |name: &str| {
                let found = lines.split(|&b| b == b'\n').filter_map(|line| line_of(line, name));
                found.map(text).collect::<Vec<_>>()
            };
            assert_eq!((of("x-a"), of("x-b")), (known, unknown), "{action:?}");
        }
    }

    #[test]
    fn what_may_not_be_set() {
        let names = [
            ":authority",
            ":method",
            ":scheme",
            ":status",
            "connection",
            "content-length",
            "host",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "x-envoy-original-path",
            "x-weir-cause",
        ];
        for name in names {
            let mut head = request_head("POST /\nContent-Length: 5");
            let mut mutation = sets(vec![set(name, "1", Action::Overwrite)]);
            mutation.remove.push(name.to_owned());
            assert_eq!(of_request(&mutation, &mut head), Ok(2), "{name}");
            assert_eq!(head.headers.get_str("content-length"), Some(&b"5"[..]));
            assert_eq!(of_trailers(&mutation, b"a: 1\r\n"), Ok((b"a: 1\r\n".to_vec(), 2)), "{name}");
        }
    }

    #[test]
    fn paths() {
        for (value, expected) in [
            ("/new?a=1", Ok((&b"/new"[..], Some(&b"a=1"[..])))),
            ("/a/../b", Ok((&b"/b"[..], None))),
            ("/new?", Ok((&b"/new"[..], Some(&b""[..])))),
            ("new", Err(())),
            ("/../x", Err(())),
            ("/a b", Err(())),
            ("/a?b c", Err(())),
            ("", Err(())),
        ] {
            let mut head = request_head("GET /old?q=1");
            let done = of_request(&sets(vec![set(":path", value, Action::Overwrite)]), &mut head);
            match expected {
                Ok((path, query)) => {
                    assert_eq!(done, Ok(0), "{value}");
                    assert_eq!((head.path(), head.query()), (path, query), "{value}");
                }
                Err(()) => assert!(done.is_err(), "{value}"),
            }
        }
    }

    #[test]
    fn statuses() {
        for (before, value, after, ignored) in [
            (200, "404", 404, 0),
            (200, "204", 200, 1),
            (200, "304", 200, 1),
            (200, "101", 200, 1),
            (200, "999", 200, 1),
            (200, "x", 200, 1),
            (204, "200", 204, 1),
        ] {
            let mut head = ResponseHead::made(before);
            let mutation = sets(vec![set(":status", value, Action::Overwrite)]);
            assert_eq!(of_response(&mutation, &mut head), Ok(ignored), "{value}");
            assert_eq!(head.status(), after, "{value}");
        }
    }

    /// With `without: pass` what a processor wanted only in part must not reach the upstream or the client.
    #[test]
    fn a_mutation_is_made_whole_or_not_at_all() {
        for wrong in [set("x", "a\r\nb: c", Action::Append), set("x y", "1", Action::OverwriteIfExists)] {
            let mut mutation = sets(vec![
                set(":path", "/new?a=1", Action::Overwrite),
                set(":status", "404", Action::Overwrite),
                set("x-role", "admin", Action::Overwrite),
                wrong.clone(),
            ]);
            mutation.remove.push("x-safe".to_owned());
            let mut head = request_head("GET /old?q=1\nX-Role: user\nX_Role: other\nX-Safe: 1");
            let texts = |fields: &Fields| fields.iter().map(|(n, v)| [n, v].concat()).collect::<Vec<_>>();
            let before = texts(&head.headers);
            assert!(of_request(&mutation, &mut head).is_err());
            assert_eq!((head.path(), head.query()), (&b"/old"[..], Some(&b"q=1"[..])));
            assert_eq!(texts(&head.headers), before, "{wrong:?}");
            let mut head = ResponseHead::made(200);
            head.headers.append(&FieldName::new("x-safe").unwrap(), b"1").unwrap();
            assert!(of_response(&mutation, &mut head).is_err());
            assert_eq!((head.status(), texts(&head.headers)), (200, vec![b"x-safe1".to_vec()]), "{wrong:?}");
        }
        let two = ["/new", "/a b"].map(|path| set(":path", path, Action::Overwrite));
        let mut head = request_head("GET /old?q=1");
        assert!(of_request(&sets(two.to_vec()), &mut head).is_err());
        assert_eq!((head.path(), head.query()), (&b"/old"[..], Some(&b"q=1"[..])));
    }

    #[test]
    fn what_cannot_be_sent_fails() {
        for (name, value) in [("x a", "1"), ("", "1"), ("x", "a\r\nb: c"), ("x", "a\0")] {
            let mutation = sets(vec![set(name, value, Action::Append)]);
            assert!(of_request(&mutation, &mut request_head("GET /")).is_err(), "{name}");
            assert!(of_response(&mutation, &mut ResponseHead::made(200)).is_err(), "{name}");
            assert!(of_trailers(&mutation, b"").is_err(), "{name}");
        }
        let mutation = Mutation { remove: vec!["x y".to_owned()], ..Mutation::default() };
        assert!(of_request(&mutation, &mut request_head("GET /")).is_err());
    }
}

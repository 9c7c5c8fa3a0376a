//! Finds the binding for a method and a path: a tree of segments, in which literals win over `*`, and `*` over `**`.

use crate::schema::Names;
use crate::template::{SEGMENTS, Segment, Template};
use std::borrow::Cow;

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct Router {
    root: Node,
}

#[derive(Debug, Default)]
struct Node {
    literals: Names<Self>,
    one: Option<Box<Self>>,
    /// Templates that end here.
    ends: Vec<End>,
    /// Templates whose `**` matches everything that follows.
    rests: Vec<End>,
}

/// The end of a template.
#[derive(Debug)]
struct End {
    method: Box<str>,
    verb: Option<Box<str>>,
    target: Target,
}

/// The destination of a template, as an index into the lists of [`crate::rules::Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Binding(usize),
    /// A refused rule. It stays in the tree: its requests must not reach a less literal rule, which may map to
    /// another method.
    Refused(usize),
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Target(Target),
    /// The path exists, but only with these methods.
    Methods(Vec<String>),
    Nothing,
}

impl Router {
    /// Adds a template. If another target matches exactly the same requests, that target stays and is returned as the
    /// error.
    pub(crate) fn add(&mut self, method: &str, template: &Template, target: Target) -> Result<(), Target> {
        let mut node = &mut self.root;
        let mut ends_in_rest = false;
        for segment in &template.segments {
            match segment {
                Segment::Literal(text) => node = node.literals.entry(canonical(text).into()).or_default(),
                Segment::One => node = node.one.get_or_insert_default(),
                Segment::Rest => ends_in_rest = true,
            }
        }
        let ends = if ends_in_rest { &mut node.rests } else { &mut node.ends };
        if let Some(same) = ends.iter().find(|end| *end.method == *method && end.verb == template.verb) {
            return Err(same.target);
        }
        ends.push(End { method: method.into(), verb: template.verb.clone(), target });
        Ok(())
    }

    /// Finds a binding for a method and the segments of a path.
    ///
    /// Cost: visits each tree node that matches the path so far once.
    pub(crate) fn find(&self, method: &str, segments: &[&[u8]]) -> Found {
        let mut others = Vec::new();
        // Try the verb first: `/a/b:c` more likely has the verb c than a segment `b:c`.
        if let Some((last, before)) = segments.split_last()
            && let Some(colon) = last.iter().rposition(|&b| b == b':')
            && let (Some(short), Some(verb)) = (last.get(..colon), last.get(colon + 1..))
            && let Ok(verb) = std::str::from_utf8(verb)
        {
            let mut shortened = before.to_vec();
            shortened.push(short);
            if let Some(target) = self.root.find(method, Some(verb), &shortened, &mut others) {
                return Found::Target(target);
            }
        }
        match self.root.find(method, None, segments, &mut others) {
            Some(target) => Found::Target(target),
            None if others.is_empty() => Found::Nothing,
            None => {
                others.sort_unstable();
                others.dedup();
                Found::Methods(others)
            }
        }
    }
}

impl Node {
    fn find(
        &self,
        method: &str,
        verb: Option<&str>,
        segments: &[&[u8]],
        others: &mut Vec<String>,
    ) -> Option<Target> {
        let Some((first, after)) = segments.split_first() else {
            let ending = [&self.ends, &self.rests];
            return ending.into_iter().find_map(|ends| pick(ends, method, verb, others));
        };
        let literal = std::str::from_utf8(first).ok().and_then(|first| self.literals.get(first));
        literal
            .and_then(|node| node.find(method, verb, after, others))
            .or_else(|| {
                let one = self.one.as_ref().filter(|_| !first.is_empty())?;
                one.find(method, verb, after, others)
            })
            .or_else(|| pick(&self.rests, method, verb, others))
    }
}

fn pick(ends: &[End], method: &str, verb: Option<&str>, others: &mut Vec<String>) -> Option<Target> {
    let mut with_verb = ends.iter().filter(|end| end.verb.as_deref() == verb);
    let found = with_verb.clone().find(|end| *end.method == *method || *end.method == *"*");
    if found.is_none() {
        let offered = with_verb.by_ref().filter(|end| matches!(end.target, Target::Binding(_)));
        others.extend(offered.map(|end| end.method.to_string()));
    }
    found.map(|end| end.target)
}

/// A literal in the form of canonical request paths: unnecessary escapes are resolved.
fn canonical(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let digits = escape.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (Some(byte), Some(after)) = (digits, escape.get(3..)) else {
            out.push_str(escape);
            return Cow::Owned(out);
        };
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The segments of a path that starts with a slash; `None` if there are too many.
pub(crate) fn segments(path: &[u8]) -> Option<Vec<&[u8]>> {
    let rest = path.strip_prefix(b"/")?;
    let segments: Vec<&[u8]> = rest.split(|&b| b == b'/').take(SEGMENTS + 1).collect();
    (segments.len() <= SEGMENTS).then_some(segments)
}

/// The segments without the template's verb.
pub(crate) fn without_verb<'p>(template: &Template, mut segments: Vec<&'p [u8]>) -> Vec<&'p [u8]> {
    if let (Some(verb), Some(last)) = (&template.verb, segments.last_mut()) {
        *last = last.get(..last.len().saturating_sub(verb.len() + 1)).unwrap_or_default();
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(templates: &[(&str, &str)]) -> (Router, Vec<Template>) {
        let mut router = Router::default();
        let mut all = Vec::new();
        for (at, (method, text)) in templates.iter().enumerate() {
            let template = Template::new(text).unwrap();
            router.add(method, &template, Target::Binding(at)).unwrap();
            all.push(template);
        }
        (router, all)
    }

    const TEMPLATES: &[(&str, &str)] = &[
        ("GET", "/v1/{id}"),
        ("GET", "/v1/{name=shelves/*/books/*}"),
        ("GET", "/v1/shelves/top"),
        ("POST", "/v1/{id}:start"),
        ("GET", "/v1/{path=files/**}"),
        ("GET", "/v1/files/{path=**}:read"),
        ("GET", "/v1/a%20b%41"),
        ("POST", "/v1/{id}"),
        ("*", "/any"),
    ];

    #[test]
    fn the_most_literal_wins() {
        let (router, templates) = router(TEMPLATES);
        for (method, path, want) in [
            ("GET", "/v1/7", Some((0, &["7"][..]))),
            ("GET", "/v1/a%2Fb%20c", Some((0, &["a/b c"]))),
            ("GET", "/v1/shelves/1/books/2", Some((1, &["shelves/1/books/2"]))),
            ("GET", "/v1/shelves/a%2Fb/books/%41", Some((1, &["shelves/a%2Fb/books/A"]))),
            ("GET", "/v1/shelves/top", Some((2, &[]))),
            ("POST", "/v1/7:start", Some((3, &["7"]))),
            ("GET", "/v1/7:start", Some((0, &["7:start"]))),
            ("POST", "/v1/7:stop", Some((7, &["7:stop"]))),
            ("GET", "/v1/files", Some((4, &["files"]))),
            ("GET", "/v1/files/a/b", Some((4, &["files/a/b"]))),
            ("GET", "/v1/files/a/b:read", Some((5, &["a/b"]))),
            ("GET", "/v1/a%20bA", Some((6, &[]))),
            ("PURGE", "/any", Some((8, &[]))),
            ("GET", "/v1/", None),
            ("GET", "/v1", None),
            ("GET", "/v1/shelves/1/books", None),
            ("GET", "/v1/%ff", None),
            ("GET", "/", None),
        ] {
            let parts = segments(path.as_bytes()).unwrap();
            let mut found = match router.find(method, &parts) {
                Found::Target(Target::Binding(at)) => {
                    templates[at].values(&strip(&templates[at], &parts), path.as_bytes()).map(|v| (at, v))
                }
                _ => None,
            };
            let want =
                want.map(|(at, values)| (at, values.iter().map(|v| Cow::Borrowed(*v)).collect::<Vec<_>>()));
            assert_eq!(found.take(), want, "{method} {path}");
        }
    }

    fn strip<'a>(template: &Template, parts: &[&'a [u8]]) -> Vec<&'a [u8]> {
        without_verb(template, parts.to_vec())
    }

    #[test]
    fn other_methods_are_told() {
        let (router, _) = router(TEMPLATES);
        let found = router.find("DELETE", &segments(b"/v1/7").unwrap());
        assert_eq!(found, Found::Methods(vec!["GET".to_owned(), "POST".to_owned()]));
        assert_eq!(router.find("GET", &segments(b"/v2").unwrap()), Found::Nothing);
        assert!(segments(&[b'/'; 100]).is_none());
    }

    #[test]
    fn the_same_requests_twice() {
        let mut router = Router::default();
        let mut add = |method: &str, text: &str, at| {
            router.add(method, &Template::new(text).unwrap(), Target::Binding(at))
        };
        add("GET", "/v1/{a}", 0).unwrap();
        assert_eq!(add("GET", "/v1/{b=*}", 1), Err(Target::Binding(0)));
        assert_eq!(add("GET", "/v1/{b}:c", 2), Ok(()));
        assert_eq!(add("PUT", "/v1/{a}", 3), Ok(()));
    }

    #[test]
    fn a_refused_template_keeps_its_requests_and_offers_no_method() {
        let mut router = Router::default();
        let mut add =
            |method: &str, text: &str, target| router.add(method, &Template::new(text).unwrap(), target);
        add("DELETE", "/v1/{id}", Target::Binding(0)).unwrap();
        add("DELETE", "/v1/default", Target::Refused(0)).unwrap();
        add("PUT", "/v1/only", Target::Refused(1)).unwrap();
        let find = |method, path: &str| router.find(method, &segments(path.as_bytes()).unwrap());
        assert_eq!(find("DELETE", "/v1/7"), Found::Target(Target::Binding(0)));
        assert_eq!(find("DELETE", "/v1/default"), Found::Target(Target::Refused(0)));
        assert_eq!(find("GET", "/v1/only"), Found::Methods(vec!["DELETE".to_owned()]));
        assert_eq!(find("PUT", "/v1/7"), Found::Methods(vec!["DELETE".to_owned()]));
    }
}

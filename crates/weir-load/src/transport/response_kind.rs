//! Who made a response, as far as its head tells: server, content type, and whether a cache answered.
//!
//! Read only where a head is parsed or decoded. A head that equals the one before it has the kind of that one, so a
//! target that always answers the same costs nothing more.

use std::cell::RefCell;
use std::rc::Rc;
use weir_report::report::AnswerKind;
use weir_report::units::shown;

/// Longest part of a field value that tells kinds apart.
const VALUE_MOST: usize = 128;

/// The number of a kind in a thread's [`Kinds`].
pub(crate) type KindId = u8;

/// The kinds that a thread has seen. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds(Rc<RefCell<Vec<AnswerKind>>>);

/// The fields of one head, collected one by one.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    server: Option<String>,
    content_type: Option<String>,
    cached: bool,
}

impl Marks {
    /// Reads a field. `name` may have any case.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        // Lengths first: most fields are none of these.
        match name.len() {
            3 if is("age") => self.cached = true, // RFC 9111 §5.1: the response was not made for this request
            6 if is("server") => self.server = Some(text(value)),
            7 if is("x-cache") => self.cached |= is_hit(value),
            12 if is("content-type") => self.content_type = Some(text(value)),
            12 if is("cache-status") => self.cached |= is_hit(value), // RFC 9211 §2.1
            14 if is("x-cache-status") => self.cached |= is_hit(value),
            15 if is("cf-cache-status") => self.cached |= is_hit(value),
            _ => {}
        }
    }
}

fn text(value: &[u8]) -> String {
    shown(value.get(..VALUE_MOST).unwrap_or(value))
}

/// `HIT`, `Hit from cloudfront`, `HIT, MISS`, `ExampleCache; hit`; but not `hit-for-miss` or `nohit`.
fn is_hit(value: &[u8]) -> bool {
    value.split(|b| b" ,;\t\"=".contains(b)).any(|word| {
        word.eq_ignore_ascii_case(b"hit")
            || word.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"hit:"))
            || [&b"tcp_hit"[..], b"tcp_mem_hit"].iter().any(|squid| word.eq_ignore_ascii_case(squid))
    })
}

impl Kinds {
    /// The number of this kind. Beyond [`AnswerKind::MOST`], the last one.
    pub(crate) fn of(&self, marks: Marks) -> KindId {
        let Marks { server, content_type, cached } = marks;
        let mut all = self.0.borrow_mut();
        let same = |kind: &AnswerKind| {
            kind.cached == cached && kind.server == server && kind.content_type == content_type
        };
        let at = all.iter().position(same).unwrap_or_else(|| {
            if all.len() < AnswerKind::MOST {
                all.push(AnswerKind { server, content_type, cached, responses: 0 });
            }
            all.len() - 1
        });
        at as KindId // fits: MOST is 8
    }

    /// All kinds, by number.
    pub(crate) fn list(&self) -> Vec<AnswerKind> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_known_by_its_fields() {
        let cached = |name: &str, value: &str| {
            let mut marks = Marks::default();
            marks.field(name.as_bytes(), value.as_bytes());
            marks.cached
        };
        for (name, value) in [
            ("Age", "0"),
            ("x-cache", "HIT"),
            ("X-Cache", "Hit from cloudfront"),
            ("X-Cache", "MISS, HIT"),
            ("X-Cache-Status", "HIT"),
            ("CF-Cache-Status", "HIT"),
            ("Cache-Status", "\"a cache\"; hit; ttl=30"),
            ("X-Cache", "TCP_HIT from proxy"),
        ] {
            assert!(cached(name, value), "{name}: {value}");
        }
        for (name, value) in [
            ("x-cache", "MISS"),
            ("x-cache", "hit-for-miss"),
            ("Cache-Status", "ExampleCache; fwd=miss"),
            ("x-age", "3"),
            ("x-cache", ""),
        ] {
            assert!(!cached(name, value), "{name}: {value}");
        }
    }

    #[test]
    fn kinds_have_numbers_and_a_limit() {
        let kinds = Kinds::default();
        let of = |server: &str| {
            let mut marks = Marks::default();
            marks.field(b"SERVER", server.as_bytes());
            kinds.of(marks)
        };
        assert_eq!((of("a"), of("b"), of("a")), (0, 1, 0));
        for i in 0..100 {
            of(&format!("s{i}"));
        }
        assert_eq!((of("s99"), kinds.list().len()), (7, AnswerKind::MOST));
    }
}

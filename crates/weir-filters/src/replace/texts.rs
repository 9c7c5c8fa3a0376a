//! The texts that are searched, and what stands for each: a stream of bytes in, a stream of bytes out.
//!
//! A match may lie across pieces. What could be the beginning of a text at the end of a piece is held back, which is at
//! most one byte less than the longest text. Everything else leaves at once.

use aho_corasick::{AhoCorasick, BuildError, Input, MatchKind};
use std::borrow::Cow;

/// How much longer than its input one piece may become, in bytes: 16 KiB in place of each byte of a 64 KiB piece would
/// be 1 GiB.
pub(super) const GROWTH_BYTES: usize = 4 * 1024 * 1024;

/// Texts and what stands for them.
#[derive(Debug)]
pub(super) struct Texts {
    automaton: AhoCorasick,
    /// Sorted by the searched text, whose position is its number in `automaton`.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    longest: usize,
}

/// The replacements in a piece would exceed [`GROWTH_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// What became of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// What goes on; `None` if that is the piece as it was.
    pub(super) out: Option<Vec<u8>>,
    /// How many texts were replaced.
    pub(super) count: u64,
}

impl Texts {
    /// Texts, none of which may be empty, in ascending order.
    pub(super) fn new<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, BuildError> {
        let pairs: Vec<_> = texts.map(|(text, by)| (text.into(), by.into())).collect();
        debug_assert!(pairs.is_sorted_by(|(a, _): &(Vec<u8>, Vec<u8>), (b, _)| a < b));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(pairs.iter().map(|(text, _)| text))?;
        let longest = pairs.iter().map(|(text, _)| text.len()).max().unwrap_or_default();
        Ok(Self { automaton, pairs, longest })
    }

    /// Replaces the texts in what was held back and in the next piece of a body, and holds back what may be the
    /// beginning of a text, unless the body ends.
    ///
    /// # Errors
    /// The piece would become too long.
    pub(super) fn replace(&self, held: &mut Vec<u8>, data: &[u8], last: bool) -> Result<Replaced, TooLong> {
        let whole = if held.is_empty() {
            Cow::Borrowed(data)
        } else {
            held.extend_from_slice(data);
            // A text that arrives byte by byte costs one look each, not a search.
            if !last && self.is_beginning(held) {
                return Ok(Replaced { out: Some(Vec::new()), count: 0 });
            }
            Cow::Owned(std::mem::take(held))
        };
        let mut open = if last { whole.len() } else { self.unfinished(&whole, 0) };
        let (mut out, mut done, mut count) = (Vec::new(), 0, 0);
        // Before `open`, everything that a match could depend on has arrived.
        while let Some(found) = self.automaton.find(Input::new(&*whole).span(done..whole.len()))
            && found.start() < open
        {
            let by = self.pairs.get(found.pattern().as_usize()).map_or(&[][..], |(_, by)| by);
            out.extend_from_slice(whole.get(done..found.start()).unwrap_or_default());
            out.extend_from_slice(by);
            (done, count) = (found.end(), count + 1);
            if done > open {
                open = self.unfinished(&whole, done); // the match contains what looked like a beginning
            }
            if out.len() > whole.len().saturating_add(GROWTH_BYTES) {
                return Err(TooLong);
            }
        }
        *held = whole.get(open..).unwrap_or_default().to_vec();
        if count == 0 && open == whole.len() {
            let out = match whole {
                Cow::Borrowed(_) => None,
                Cow::Owned(whole) => Some(whole),
            };
            return Ok(Replaced { out, count });
        }
        out.extend_from_slice(whole.get(done..open).unwrap_or_default());
        Ok(Replaced { out: Some(out), count })
    }

    /// Where the first text begins that `whole` ends before, looking from `from` on. Its length if there is none.
    fn unfinished(&self, whole: &[u8], from: usize) -> usize {
        let first = from.max((whole.len() + 1).saturating_sub(self.longest));
        let mut starts = first..whole.len();
        starts.find(|&at| whole.get(at..).is_some_and(|rest| self.is_beginning(rest))).unwrap_or(whole.len())
    }

    /// Whether a text begins with these bytes and goes on.
    fn is_beginning(&self, bytes: &[u8]) -> bool {
        let next = self.pairs.partition_point(|(text, _)| text.as_slice() <= bytes);
        self.pairs.get(next).is_some_and(|(text, _)| text.starts_with(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        let mut pairs = pairs.to_vec();
        pairs.sort_unstable();
        Texts::new(pairs.into_iter()).unwrap()
    }

    /// What becomes of a body that arrives in these pieces, and the most that was held back.
    fn run<'a>(texts: &Texts, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, usize) {
        let (mut held, mut out, mut most) = (Vec::new(), Vec::new(), 0);
        for piece in pieces {
            let replaced = texts.replace(&mut held, piece, false).unwrap();
            out.extend(replaced.out.as_deref().unwrap_or(piece));
            most = most.max(held.len());
        }
        out.extend(texts.replace(&mut held, b"", true).unwrap().out.unwrap_or_default());
        assert!(held.is_empty());
        (out, most)
    }

    /// What stands for the leftmost, and of those the longest text, looked for at each position.
    fn naive(pairs: &[(&str, &str)], whole: &[u8]) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        while at < whole.len() {
            let here = pairs.iter().filter(|(text, _)| whole[at..].starts_with(text.as_bytes()));
            match here.max_by_key(|(text, _)| text.len()) {
                Some((text, by)) => {
                    out.extend_from_slice(by.as_bytes());
                    at += text.len();
                }
                None => {
                    out.push(whole[at]);
                    at += 1;
                }
            }
        }
        out
    }

    #[test]
    fn leftmost_then_longest_wherever_pieces_end() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(Pairs<'_>, &str, &str)] = &[
            (
                &[("http://old", "https://new")],
                "a http://old/b http://olb http://ol",
                "a https://new/b http://olb http://ol",
            ),
            (&[("ab", "1"), ("abcd", "2")], "abcabcdab", "1c21"),
            (&[("abcd", "1"), ("bc", "2")], "abcxabcd", "a2x1"),
            (&[("abcd", "1"), ("cde", "2"), ("bc", "3")], "abcdeabce", "1ea3e"),
            (&[("aab", "x")], "aaaabaaab", "aaxax"),
            (&[("aa", "a")], "aaaaa", "aaa"),
            (&[("a", ""), ("b", "bb")], "abab", "bbbb"),
            (&[("a", "ab"), ("b", "a")], "ab", "aba"),
            (&[("\n\n", "\n")], "a\n\n\n\nb\n", "a\n\nb\n"),
            (&[("ä", "ae")], "\u{e4}\u{e5}", "aeå"),
        ];
        for (pairs, whole, expected) in cases {
            let texts = texts(pairs);
            let longest = pairs.iter().map(|(text, _)| text.len()).max().unwrap();
            assert_eq!(naive(pairs, whole.as_bytes()), expected.as_bytes(), "{pairs:?}");
            for size in 1..=whole.len() {
                let (out, most) = run(&texts, whole.as_bytes().chunks(size));
                assert_eq!(String::from_utf8_lossy(&out), *expected, "{pairs:?} in pieces of {size}");
                assert!(most < longest, "{pairs:?}: {most} bytes held back");
            }
        }
    }

    #[test]
    fn as_a_naive_search_does() {
        let mut random = fastrand::Rng::with_seed(26);
        for _ in 0..3000 {
            let mut word = |most: usize| -> String {
                (0..random.usize(1..=most)).map(|_| random.char('a'..='c')).collect()
            };
            let mut owned: Vec<(String, String)> = (0..4).map(|_| (word(5), word(3))).collect();
            let whole = word(60);
            owned.sort();
            owned.dedup_by(|a, b| a.0 == b.0);
            let pairs: Vec<_> = owned.iter().map(|(text, by)| (text.as_str(), by.as_str())).collect();
            let (texts, expected) = (texts(&pairs), naive(&pairs, whole.as_bytes()));
            let mut rest = whole.as_bytes();
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(random.usize(1..=rest.len().min(9)));
                pieces.push(piece);
                rest = behind;
            }
            let (out, most) = run(&texts, pieces.into_iter());
            assert_eq!(out, expected, "{pairs:?} in {whole}");
            assert!(most < texts.longest, "{pairs:?}: {most}");
        }
    }

    #[test]
    fn only_a_beginning_waits() {
        let texts = texts(&[("http://old", "x")]);
        let mut held = Vec::new();
        assert_eq!(texts.replace(&mut held, b"data: 1\n\n", false), Ok(Replaced { out: None, count: 0 }));
        assert!(held.is_empty());
        let out = texts.replace(&mut held, b"see http:", false).unwrap().out;
        assert_eq!((out.as_deref(), held.as_slice()), (Some(&b"see "[..]), &b"http:"[..]));
        let out = texts.replace(&mut held, b"/", false).unwrap().out;
        assert_eq!((out.as_deref(), held.as_slice()), (Some(&b""[..]), &b"http:/"[..]));
        let out = texts.replace(&mut held, b".", false).unwrap().out;
        assert_eq!((out.as_deref(), held.as_slice()), (Some(&b"http:/."[..]), &b""[..]));
    }

    #[test]
    fn a_piece_grows_to_its_limit() {
        let long = "y".repeat(16 * 1024);
        let texts = texts(&[("x", &long)]);
        let fits = GROWTH_BYTES / long.len();
        assert!(texts.replace(&mut Vec::new(), "x".repeat(fits).as_bytes(), false).is_ok());
        assert_eq!(texts.replace(&mut Vec::new(), "x".repeat(fits + 1).as_bytes(), false), Err(TooLong));
    }
}

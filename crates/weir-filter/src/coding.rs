//! Which content coding a client wants: Accept-Encoding (RFC 9110 §12.5.3).

pub use weir_config::schema::Coding;

/// Most codings read from a request; the rest count as not named.
const CODINGS: usize = 32;

/// All acceptable codings, best first, and equally preferred ones in the order of `ours`. Empty if the client accepts
/// none, or prefers the content unencoded.
pub fn ranked<'a>(accept: impl Iterator<Item = &'a [u8]>, ours: &[Coding]) -> Vec<Coding> {
    let mut wanted: Vec<_> = AcceptEncoding::read(accept, ours).of(ours).collect();
    wanted.sort_by_key(|(_, quality)| std::cmp::Reverse(*quality)); // stable: equals keep the order of `ours`
    wanted.into_iter().map(|(coding, _)| coding).collect()
}

/// A client's preferences, in thousandths.
#[derive(Default)]
struct AcceptEncoding {
    /// Of our codings, by position: at most three.
    named: [Option<u16>; 3],
    /// Of all codings not named.
    others: Option<u16>,
    identity: Option<u16>,
}

impl AcceptEncoding {
    fn read<'a>(accept: impl Iterator<Item = &'a [u8]>, ours: &[Coding]) -> Self {
        let mut wishes = Self::default();
        let items = accept.flat_map(|value| value.split(|&b| b == b',')).map(<[u8]>::trim_ascii);
        for item in items.filter(|item| !item.is_empty()).take(CODINGS) {
            let mut parts = item.split(|&b| b == b';').map(<[u8]>::trim_ascii);
            let coding = parts.next().unwrap_or_default();
            let quality = Some(quality(parts));
            if coding == b"*" {
                wishes.others = wishes.others.max(quality);
            } else if coding.eq_ignore_ascii_case(b"identity") {
                wishes.identity = wishes.identity.max(quality);
            } else if let Some(at) = ours.iter().position(|&ours| is_named(ours, coding))
                && let Some(place) = wishes.named.get_mut(at)
            {
                *place = (*place).max(quality);
            }
        }
        wishes
    }

    /// Our codings that the client accepts at least as much as unencoded content.
    fn of(self, ours: &[Coding]) -> impl Iterator<Item = (Coding, u16)> {
        let Self { named, others, identity } = self;
        let qualities =
            ours.iter().zip(named).map(move |(&ours, named)| (ours, named.or(others).unwrap_or(0)));
        qualities
            .filter(move |(_, quality)| *quality > 0 && identity.is_none_or(|identity| identity <= *quality))
    }
}

fn is_named(ours: Coding, coding: &[u8]) -> bool {
    coding.eq_ignore_ascii_case(ours.name().as_bytes())
        || ours == Coding::Gzip && coding.eq_ignore_ascii_case(b"x-gzip") // RFC 9110 §8.4.1.3
}

/// The quality in a coding's parameters, in thousandths. A malformed one is ignored.
pub fn quality<'a>(mut parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    let Some(text) = parameters.find_map(|p| p.strip_prefix(b"q=").or(p.strip_prefix(b"Q="))) else {
        return 1000;
    };
    match text {
        [b'0' | b'1'] | [b'0' | b'1', b'.', ..] if text.len() <= 5 => {
            let digits = text.get(2..).unwrap_or_default();
            if !digits.iter().all(u8::is_ascii_digit) {
                return 0;
            }
            let mut thousandths = if text.first() == Some(&b'1') { 1000 } else { 0 };
            for (digit, weight) in digits.iter().zip([100, 10, 1]) {
                thousandths += u16::from(digit - b'0') * weight;
            }
            if thousandths > 1000 { 0 } else { thousandths }
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::Coding::{Br, Gzip, Zstd};
    use super::*;

    fn chosen(accept: &str) -> Option<Coding> {
        ranked(accept.split('\n').map(str::as_bytes), &[Zstd, Br, Gzip]).first().copied()
    }

    #[test]
    fn quality_decides_and_then_our_order() {
        for (accept, expected) in [
            ("gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip, deflate, br", Some(Br)),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0.8", Some(Gzip)),
            ("gzip;q=0.5 , br ; q=0.501", Some(Br)),
            ("gzip\nbr", Some(Br)),
            ("gzip;q=0.001", Some(Gzip)),
            ("*", Some(Zstd)),
            ("*, zstd;q=0", Some(Br)),
            ("gzip, *;q=0", Some(Gzip)),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("identity;q=0", None),
            ("identity, gzip;q=0.5", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("*;q=0", None),
            ("deflate", None),
            ("identity", None),
            ("", None),
        ] {
            assert_eq!(chosen(accept), expected, "{accept}");
        }
        assert_eq!(ranked([&b"*"[..]].into_iter(), &[Gzip, Br]), [Gzip, Br]);
        assert_eq!(ranked(std::iter::empty(), &[Gzip]), []);
    }

    #[test]
    fn all_wishes_in_order() {
        let ranked = |accept: &str| ranked([accept.as_bytes()].into_iter(), &[Zstd, Br, Gzip]);
        assert_eq!(ranked("gzip, br;q=0.5, zstd;q=0"), [Gzip, Br]);
        assert_eq!(ranked("br, gzip"), [Br, Gzip]);
        assert_eq!(ranked("*;q=0.3, gzip"), [Gzip, Zstd, Br]);
        assert_eq!(ranked("identity"), []);
    }

    #[test]
    fn hostile_values_are_no_wish() {
        for accept in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=1.5",
            "gzip;q=0.0001",
            "gzip;q=-1",
            "gzip;q=",
            "gzip;q=.5",
            "gzip;q=1x",
            "gzip;q=0,5x",
            "gzip;q=nan",
            "gzip;q=0.5.5",
            "gzip br",
            "gzi",
            "gzipp",
            ",,,;;;,q=1",
            ";q=1",
            "\u{0}gzip",
        ] {
            assert_eq!(chosen(accept), None, "{accept}");
        }
        let many = format!("{}gzip", "a,".repeat(CODINGS));
        assert_eq!(chosen(&many), None, "behind the last that is read");
        assert_eq!(chosen(&many[2..]), Some(Gzip));
        assert_eq!(chosen(&"gzip;q=0,".repeat(100_000)), None);
    }
}

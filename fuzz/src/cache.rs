//! The parsers of `cache`, compiled from its own files: `Cache-Control`, `Vary`, dates and ages, ranges and
//! conditions. Whatever the input, nothing is kept longer, or given to more clients, than the fields allow.
//!
//! An input consists of lines; each target documents their meaning.

#![allow(dead_code)] // only the filter uses the rest

#[path = "../../crates/weir-cache/src/filter/conditional.rs"]
mod conditional;
#[path = "../../crates/weir-cache/src/filter/control.rs"]
mod control;
#[path = "../../crates/weir-cache/src/filter/freshness.rs"]
mod freshness;
#[path = "../../crates/weir-cache/src/filter/vary.rs"]
mod vary;

/// A request as received, which no filter changes here.
mod caller {
    use weir_h1::{FieldName, Fields};

    pub(super) struct View {
        pub(super) fields: Fields,
    }

    impl View {
        pub(super) fn is_altered(&self, _: &FieldName) -> bool {
            false
        }
    }
}

/// A coding's weight in thousandths, parsed differently from the gateway.
fn quality<'a>(mut parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    let weight = parameters.find_map(|p| p.strip_prefix(b"q=").or(p.strip_prefix(b"Q=")));
    let number = |text| str::from_utf8(text).ok().and_then(|text| text.parse::<f32>().ok());
    weight.map_or(1000, |text| {
        number(text).filter(|q| (0.0..=1.0).contains(q)).map_or(0, |q| (q * 1000.0) as u16)
    })
}

/// No field of these requests contains an address.
fn is_address(_: &str) -> bool {
    false
}

use caller::View;
use conditional::{Part, Validators, client_has_it, part};
use control::Control;
use freshness::{ByStatus, Defaults, Freshness, Ignored, date};
use std::time::{Duration, SystemTime};
use vary::Variant;
use weir_h1::{FieldName, Fields};

/// Two lines of `Cache-Control`: together they forbid what either forbids, and allow no longer lifetime than either.
/// The same lines as `CDN-Cache-Control` must not panic.
pub fn control(data: &[u8]) {
    let lines = lines::<2>(data);
    let Some(both) = fields(&[("cache-control", lines[0]), ("cache-control", lines[1])]) else { return };
    let one =
        |line| fields(&[("cache-control", line)]).map(|fields| Control::of(&fields)).unwrap_or_default();
    let (a, b, both) = (one(lines[0]), one(lines[1]), Control::of(&both));
    let flags = |c: &Control| {
        let said = [c.must_revalidate, c.must_understand, c.no_cache, c.no_store];
        (said, [c.only_if_cached, c.private, c.proxy_revalidate, c.public])
    };
    let ((a1, a2), (b1, b2), (both1, both2)) = (flags(&a), flags(&b), flags(&both));
    for at in 0..4 {
        assert_eq!(both1[at], a1[at] || b1[at]);
        assert_eq!(both2[at], a2[at] || b2[at]);
    }
    for lifetime in [
        |c: &Control| c.max_age,
        |c: &Control| c.s_maxage,
        |c: &Control| c.stale_if_error,
        |c: &Control| c.stale_while_revalidate,
    ] {
        let least = [lifetime(&a), lifetime(&b)].into_iter().flatten().min();
        assert_eq!(lifetime(&both), least);
        assert!(least.is_none_or(|seconds| seconds <= 1 << 31));
    }
    if let Some(fields) = fields(&[("cdn-cache-control", lines[0]), ("cdn-cache-control", lines[1])]) {
        let _ = Control::targeted(&fields); // its parser has its own target
    }
}

/// A status, and lines of `Date`, `Expires`, `Age`, `Last-Modified` and `Cache-Control`. A parsed date survives
/// writing and parsing. No answer lives longer, or is younger, than it says; where
/// the config ignores what it says, the config alone decides.
pub fn freshness(data: &[u8]) {
    let Some((status, data)) = data.split_first_chunk::<2>() else { return };
    let status = 200 + u16::from_be_bytes(*status) % 400;
    let lines = lines::<5>(data);
    let named = ["date", "expires", "age", "last-modified", "cache-control"];
    let all: Vec<_> = named.into_iter().zip(lines).filter(|(_, line)| !line.is_empty()).collect();
    let Some(all) = fields(&all) else { return };
    let freshness = Freshness::of(status, &all, Ignored::default());
    for line in lines {
        if let Some(at) = date(line) {
            assert_eq!(date(httpdate::fmt_http_date(at).as_bytes()), Some(at));
        }
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let took = Duration::from_secs(2);
    let age = freshness.age_when(now, took);
    if let Ok(seconds) = std::str::from_utf8(lines[2].trim_ascii()).unwrap_or("-").parse::<u32>() {
        assert!(
            age >= Duration::from_secs(u64::from(seconds.min(1 << 31))),
            "{age:?} is less than {seconds} s"
        );
    }
    for heuristic in [false, true] {
        let ttl = Some(Duration::from_secs(7));
        let defaults = Defaults { ttl, negative: ttl, heuristic, ..Defaults::default() };
        let lifetime = freshness.lifetime(&defaults, now);
        if let Some(most) = freshness.control.s_maxage.or(freshness.control.max_age) {
            assert_eq!(lifetime, Some(Duration::from_secs(most.into())));
        } else if lines[1].is_empty() {
            assert!(lifetime.is_none_or(|lifetime| lifetime <= Duration::from_secs(24 * 3600)));
        } else if date(lines[1]).is_none() {
            assert_eq!(lifetime, Some(Duration::ZERO), "what is no date is in the past");
        }
    }
    let ignored = Ignored { control: true, expires: true, vary: false };
    let by_status = ByStatus { any: Some(Duration::from_secs(7)), ..ByStatus::default() };
    let defaults = Defaults { by_status: Some(by_status.clone()), ignored, ..Defaults::default() };
    let lifetime = Freshness::of(status, &all, ignored).lifetime(&defaults, now);
    assert_eq!(lifetime, by_status.of(status), "an ignored field counts");
}

/// A length in the first byte, and lines of `Range`, `If-Range` and `If-None-Match`. A part lies within the body and
/// is not empty; an unlisted tag never matches.
pub fn range(data: &[u8]) {
    let Some((&length, data)) = data.split_first() else { return };
    let lines = lines::<3>(data);
    let named = ["range", "if-range", "if-none-match"];
    let all: Vec<_> = named.into_iter().zip(lines).filter(|(_, line)| !line.is_empty()).collect();
    let Some(asked) = fields(&all) else { return };
    let validators = Validators { etag: Some(b"\"a\""), ..Validators::default() };
    for length in [u64::from(length), u64::from(length) << 40, u64::MAX] {
        match part(&asked, &validators, length) {
            Part::Bytes(range) => assert!(range.start < range.end && range.end <= length),
            Part::Outside => assert!(!lines[0].is_empty()),
            Part::Whole => {}
        }
    }
    if client_has_it(&asked, &validators) {
        let list = lines[2];
        assert!(
            list.windows(3).any(|three| three == b"\"a\"") || list.contains(&b'*'),
            "{}",
            list.escape_ascii()
        );
    }
}

/// A line of `Vary` and two requests of two lines each. A variant answers the request that it was made for. It
/// answers another one exactly if that would make the same variant.
pub fn vary(data: &[u8]) {
    let lines = lines::<5>(data);
    let request = |a: &[u8], b: &[u8]| fields(&[("accept-encoding", a), ("x-lang", b)]);
    let (Some(answer), Some(one), Some(other)) =
        (fields(&[("vary", lines[0])]), request(lines[1], lines[3]), request(lines[2], lines[4]))
    else {
        return;
    };
    let (one, other) = (View { fields: one }, View { fields: other });
    let Ok(variant) = Variant::of(&answer, &one, false) else {
        return;
    };
    assert!(!lines[0].split(|&b| b == b',').any(|name| name.trim_ascii() == b"*"), "a star is nobody's");
    assert!(variant.answers(&one.fields));
    if let Ok(same) = Variant::of(&answer, &other, false) {
        assert_eq!(variant == same, variant.answers(&other.fields));
    }
    let ignoring = Variant::of(&answer, &one, true).expect("an ignored Vary is not too large");
    assert!(ignoring.answers(&other.fields), "an ignored Vary counts");
}

/// The first lines of an input; missing ones are empty.
fn lines<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut rest = data.split(|&b| b == b'\n');
    std::array::from_fn(|_| rest.next().unwrap_or_default())
}

/// The fields of a message, if they are valid.
fn fields(lines: &[(&str, &[u8])]) -> Option<Fields> {
    let mut fields = Fields::default();
    for (name, value) in lines {
        fields.append(&FieldName::new(name).ok()?, value).ok()?;
    }
    Some(fields)
}

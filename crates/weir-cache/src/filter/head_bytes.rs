//! The metadata beside a body on a disk: an answer's head and the times that decide its use, as bytes.
//!
//! It uses wall-clock times, because monotonic ones mean nothing to another process. Each part is preceded by its
//! length, and a truncated or overlong one is rejected. The store's checksums detect damage by the disk.

use super::freshness::{Freshness, Ignored};
use super::object::{Head, Meta};
use super::vary::Variant;
use std::time::{Duration, Instant, SystemTime};
use weir_h1::{FieldName, Fields};

/// The version of the format.
const FORM: u8 = 2;

/// The same of an answer whose Cache-Control does not count.
const FORM_IGNORING: u8 = 3;

/// Serializes the head of an answer.
pub(super) fn write(meta: &Meta, now: Instant, time: SystemTime) -> Vec<u8> {
    let mut out = vec![if meta.freshness.ignores_control { FORM_IGNORING } else { FORM }];
    out.extend_from_slice(&meta.status.to_le_bytes());
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    for time in [meta.lifetime, meta.age(now), since] {
        out.extend_from_slice(&u64::try_from(time.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
    }
    for (name, value) in &meta.fields {
        put(name.as_str().as_bytes(), &mut out);
        put(value, &mut out);
    }
    out
}

/// Deserializes it at a later time. Adds the time passed since to its age; a clock that was set back adds none.
pub(super) fn read(bytes: &[u8], variant: Variant, now: Instant, time: SystemTime) -> Option<Meta> {
    let (&form, rest) = bytes.split_first()?;
    let (status, mut rest) = rest.split_first_chunk::<2>()?;
    let mut times = [Duration::ZERO; 3];
    for time in &mut times {
        let (millis, behind) = rest.split_first_chunk::<8>()?;
        *time = Duration::from_millis(u64::from_le_bytes(*millis));
        rest = behind;
    }
    if !matches!(form, FORM | FORM_IGNORING) {
        return None;
    }
    let mut fields = Fields::default();
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let name = FieldName::new(str::from_utf8(take(&mut rest)?).ok()?).ok()?;
        let value = take(&mut rest)?;
        fields.append(&name, value).ok()?;
        kept.push((name, value.to_vec()));
    }
    let [lifetime, age, written] = times;
    let passed = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(written);
    let status = u16::from_le_bytes(*status);
    let head = Head { status, fields: kept, variant, lifetime, age: age.saturating_add(passed) };
    let ignored = Ignored { control: form == FORM_IGNORING, ..Ignored::default() };
    Some(Meta::of_head(head, Freshness::of(status, &fields, ignored), now))
}

fn put(part: &[u8], out: &mut Vec<u8>) {
    // No part of a head is longer than 64 KiB.
    out.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(part);
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::super::freshness::Defaults;
    use super::super::object::Received;
    use super::super::storable::{SetCookie, storable};
    use super::super::testing::fields;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let answer =
            fields(&[("Cache-Control", "max-age=60, must-revalidate"), ("ETag", "\"e\""), ("Vary", "x")]);
        let freshness = Freshness::of(200, &answer, Ignored::default());
        let settings = (&Defaults::default(), SetCookie::Refuse);
        let (now, time) = (Instant::now(), SystemTime::now());
        let found = storable(&freshness, &answer, &fields(&[("x", "1")]).into(), settings, time).unwrap();
        let variant = found.variant.clone();
        let received = Received { at: now, time, took: Duration::from_secs(2) };
        let meta = Meta::new(freshness, &answer, found, SetCookie::Refuse, received);
        let written = write(&meta, now, time);
        let later = time + Duration::from_secs(10);
        let read_again = read(&written, variant.clone(), now, later).unwrap();
        assert_eq!((read_again.status, &read_again.fields), (200, &meta.fields));
        assert_eq!(
            (read_again.lifetime, read_again.freshness.control),
            (meta.lifetime, meta.freshness.control)
        );
        assert_eq!(read_again.age(now).as_secs(), 12);
        assert!(read_again.is_fresh(now) && !read_again.is_fresh(now + Duration::from_secs(60)));
        let before = read(&written, variant.clone(), now, time - Duration::from_secs(10)).unwrap();
        assert_eq!(before.age(now).as_secs(), 2, "a clock that was set back makes nothing younger");
        for at in 0..written.len() {
            // Cut after a field, it is a valid shorter head, which the store's checksums detect.
            let _ = read(&written[..at], variant.clone(), now, later);
        }
        assert!(read(&[1], Variant::default(), now, time).is_none());
    }
}

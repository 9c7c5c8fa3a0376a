//! Whether an answer may be stored for others: RFC 9111 §3 and §3.5, and further restrictions of this cache.

use super::caller::View;
use super::freshness::{Defaults, Freshness};
use super::vary::Variant;
use std::time::{Duration, SystemTime};
use weir_h1::Fields;

/// What to do with an answer that sets cookies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(super) enum SetCookie {
    /// Keep it with its cookies, for everyone.
    Keep,
    /// Do not keep it.
    #[default]
    Refuse,
    /// Keep it without its cookies.
    Strip,
}

/// An answer that may be stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Storable {
    pub(super) lifetime: Duration,
    pub(super) variant: Variant,
}

/// Why an answer is not stored: a word for `Cache-Status`.
pub(super) type WhyNot = &'static str;

/// Decides about an answer to `asked`.
///
/// # Errors
/// Why it is not stored.
pub(super) fn storable(
    freshness: &Freshness,
    answer: &Fields,
    asked: &View,
    (defaults, cookies): (&Defaults, SetCookie),
    received: SystemTime,
) -> Result<Storable, WhyNot> {
    let control = &freshness.control;
    match freshness.status {
        206 | 416 => return Err("partial"),
        200..=299 | 300..=303 | 305..=599 => {}
        _ => return Err("status"),
    }
    // RFC 9111 §5.2.2.3: a cache that understands the status may ignore `no-store` beside it.
    if control.must_understand && !is_understood(freshness.status) {
        return Err("must-understand");
    }
    if control.no_store && !control.must_understand {
        return Err("no-store");
    }
    if control.private {
        return Err("private");
    }
    let allowed = control.public || control.must_revalidate || control.s_maxage.is_some();
    if let Some(why) = asked.refuses(allowed) {
        return Err(why);
    }
    if cookies == SetCookie::Refuse && (answer.get_str("set-cookie").is_some()) {
        return Err("set-cookie");
    }
    let variant = Variant::of(answer, asked, defaults.ignored.vary).map_err(|_| "vary")?;
    let lifetime = match freshness.lifetime(defaults, received) {
        // A client that sends cookies may be logged in, and an upstream unaware of caches may answer for that client
        // alone.
        Some(_)
            if !freshness.says_lifetime()
                && !defaults.with_cookie
                && asked.fields.get_str("cookie").is_some() =>
        {
            return Err("cookie");
        }
        Some(lifetime) => lifetime,
        None if control.no_cache => Duration::ZERO,
        None => return Err("no-lifetime"),
    };
    // An object that needs revalidation is worth storing only if the upstream can revalidate it.
    let can_be_asked = answer.get_str("etag").is_some() || freshness.last_modified.is_some();
    if (lifetime.is_zero() || control.no_cache) && !can_be_asked {
        return Err("stale");
    }
    Ok(Storable { lifetime, variant })
}

/// The statuses whose caching rules we know (RFC 9110 §15).
const fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200 | 201 | 202 | 203 | 204 | 300..=303 | 307 | 308 | 400..=405 | 410 | 414 | 451 | 500..=504
    )
}

#[cfg(test)]
mod tests {
    use super::super::freshness::Ignored;
    use super::super::testing::{Lines, fields};
    use super::*;

    fn decide(status: u16, answer: Lines<'_>, asked: Lines<'_>, cookies: SetCookie) -> Result<u64, WhyNot> {
        let (answer, asked) = (fields(answer), View::asked(asked));
        let freshness = Freshness::of(status, &answer, Ignored::default());
        let settings = (&Defaults::default(), cookies);
        let found = storable(&freshness, &answer, &asked, settings, SystemTime::UNIX_EPOCH)?;
        Ok(found.lifetime.as_secs())
    }

    #[test]
    fn what_is_kept() {
        let authorized = [("Authorization", "Basic x")];
        let cc = |text| ("Cache-Control", text);
        let etag = ("ETag", "\"a\"");
        let fresh = cc("max-age=9");
        let cases: &[(u16, Lines<'_>, Lines<'_>, Result<u64, WhyNot>)] = &[
            (200, &[fresh], &[], Ok(9)),
            (500, &[fresh], &[], Ok(9)),
            (206, &[fresh], &[], Err("partial")),
            (304, &[fresh], &[], Err("status")),
            (101, &[fresh], &[], Err("status")),
            (200, &[], &[], Err("no-lifetime")),
            (200, &[etag], &[], Err("no-lifetime")),
            (200, &[cc("no-store, max-age=9")], &[], Err("no-store")),
            (200, &[cc("private, max-age=9")], &[], Err("private")),
            (200, &[cc("private, max-age=9"), ("CDN-Cache-Control", "max-age=5")], &[], Ok(5)),
            (200, &[cc("no-cache")], &[], Err("stale")),
            (200, &[cc("no-cache"), etag], &[], Ok(0)),
            (200, &[cc("max-age=0")], &[], Err("stale")),
            (200, &[cc("max-age=0"), etag], &[], Ok(0)),
            (599, &[cc("max-age=9, must-understand")], &[], Err("must-understand")),
            (200, &[cc("max-age=9, must-understand, no-store")], &[], Ok(9)),
            (200, &[fresh], &authorized, Err("authorization")),
            (200, &[cc("max-age=9, public")], &authorized, Ok(9)),
            (200, &[cc("s-maxage=9")], &authorized, Ok(9)),
            (200, &[cc("max-age=9, must-revalidate")], &authorized, Ok(9)),
            (200, &[fresh, ("Vary", "*")], &[], Err("vary")),
            (200, &[fresh, ("Set-Cookie", "a=b")], &[], Err("set-cookie")),
            (200, &[fresh], &[("Cookie", "a=b")], Ok(9)),
            (200, &[("Expires", "Thu, 01 Jan 1970 00:00:09 GMT")], &[("Cookie", "a=b")], Ok(9)),
        ];
        for (status, answer, asked, expected) in cases {
            assert_eq!(decide(*status, answer, asked, SetCookie::Refuse), *expected, "{status} {answer:?}");
        }
        let silent = |asked: Lines<'_>, with_cookie| {
            let (answer, asked) = (fields(&[]), View::asked(asked));
            let defaults = Defaults { ttl: Some(Duration::from_secs(5)), with_cookie, ..Defaults::default() };
            let settings = (&defaults, SetCookie::Refuse);
            storable(
                &Freshness::of(200, &answer, Ignored::default()),
                &answer,
                &asked,
                settings,
                SystemTime::UNIX_EPOCH,
            )
            .map(drop)
        };
        assert_eq!(silent(&[], false), Ok(()));
        assert_eq!(silent(&[("Cookie", "a=b")], false), Err("cookie"));
        assert_eq!(silent(&[("Cookie", "a=b")], true), Ok(()));
        let cookie = [fresh, ("Set-Cookie", "a=b")];
        assert_eq!(decide(200, &cookie, &[], SetCookie::Strip), Ok(9));
        assert_eq!(decide(200, &cookie, &[], SetCookie::Keep), Ok(9));
    }

    #[test]
    fn what_is_ignored() {
        let ignored = Ignored { control: true, expires: true, vary: true };
        let ttl = Some(Duration::from_secs(5));
        let defaults = Defaults { ttl, ignored, ..Defaults::default() };
        let decide = |answer: Lines<'_>, asked: Lines<'_>| {
            let (answer, asked) = (fields(answer), View::asked(asked));
            let freshness = Freshness::of(200, &answer, ignored);
            let settings = (&defaults, SetCookie::Strip);
            let found = storable(&freshness, &answer, &asked, settings, SystemTime::UNIX_EPOCH)?;
            Ok((found.lifetime.as_secs(), found.variant.weight() > 0))
        };
        let cc = |text| ("Cache-Control", text);
        for answer in [
            &[cc("private")][..],
            &[cc("no-store, max-age=9")],
            &[cc("no-cache")],
            &[("Expires", "0")],
            &[("Vary", "*")],
            &[("Vary", "Cookie, Accept-Encoding")],
            &[("Set-Cookie", "a=b")],
        ] {
            assert_eq!(decide(answer, &[]), Ok((5, false)), "{answer:?}");
        }
        // A coding that the client did not ask for is no answer, whatever is ignored.
        let coded = [("Content-Encoding", "gzip"), ("Vary", "Cookie, Accept-Encoding")];
        assert_eq!(decide(&coded, &[]), Ok((5, true)));
        assert_eq!(decide(&[("Content-Encoding", "gzip")], &[]), Ok((5, true)));
        // What is meant for this cache counts, and a credential keeps its answer to itself.
        assert_eq!(decide(&[cc("max-age=9"), ("CDN-Cache-Control", "no-store")], &[]), Err("no-store"));
        for answer in [&[][..], &[cc("public")], &[cc("s-maxage=9")]] {
            assert_eq!(decide(answer, &[("Authorization", "x")]), Err("authorization"), "{answer:?}");
        }
        assert_eq!(decide(&[cc("max-age=9")], &[("Cookie", "a=b")]), Err("cookie"));
    }
}

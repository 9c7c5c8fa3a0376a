//! Bodies that are to be read as JSON: their media type and content coding.

use flate2::bufread::GzDecoder;
use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use weir_h1::Fields;

/// Why a body is not read as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It has a content coding other than gzip, or several.
    Coding,
    /// Decoded, it is longer than allowed.
    TooLong,
    /// It is no gzip, or something follows it.
    Undecodable,
    /// It has another media type, or none, or several; what was expected.
    Media(&'static str),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coding => "its content coding is not gzip",
            Self::Media(why) => why,
            Self::TooLong => "decoded, it is too long",
            Self::Undecodable => "it is not what its content coding says",
        })
    }
}

/// The content coding of a message, if its head says that its body is JSON and it can be read.
///
/// # Errors
/// Why not.
pub fn coded_json(fields: &Fields) -> Result<Coded, Unread> {
    let media = media_type(fields)?;
    if !is_json(media) {
        return Err(Unread::Media("JSON"));
    }
    refuse_charset(media)?;
    coding(fields)
}

/// The media type of a message, if it has exactly one.
///
/// # Errors
/// Why the body is not read.
pub fn media_type(fields: &Fields) -> Result<&[u8], Unread> {
    let mut all = fields.get_all("content-type");
    let Some(one) = all.next() else { return Err(Unread::Media("there is no Content-Type")) };
    if all.next().is_some() {
        return Err(Unread::Media("there is more than one Content-Type"));
    }
    Ok(one)
}

/// Whether a message says that its body is JSON, perhaps among other things. Whoever reads the body may believe that.
pub fn claims_json(fields: &Fields) -> bool {
    fields.get_all("content-type").any(is_json)
}

/// Media types that end in `+json`, and whose bodies are messages with a length before each.
const FRAMED: [&[u8]; 3] =
    [b"application/connect+json", b"application/grpc+json", b"application/grpc-web+json"];

/// Whether a media type is JSON: `application/json`, `text/json` or anything that ends in `+json`, but for gRPC's.
pub fn is_json(media: &[u8]) -> bool {
    let media = media.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
    if FRAMED.iter().any(|framed| media.eq_ignore_ascii_case(framed)) {
        return false;
    }
    let suffix = media.len().checked_sub(5).and_then(|at| media.split_at_checked(at));
    media.eq_ignore_ascii_case(b"application/json")
        || media.eq_ignore_ascii_case(b"text/json")
        || suffix.is_some_and(|(kind, suffix)| kind.contains(&b'/') && suffix.eq_ignore_ascii_case(b"+json"))
}

/// Refuses charsets other than UTF-8, in which JSON is written (RFC 8259 §8.1). An upstream that obeyed such a charset
/// would read another text than we do.
///
/// # Errors
/// Why the body is not read.
pub fn refuse_charset(media: &[u8]) -> Result<(), Unread> {
    let parameters = media.split(|&b| b == b';').skip(1).map(<[u8]>::trim_ascii);
    for parameter in parameters {
        let mut halves = parameter.splitn(2, |&b| b == b'=');
        let name = halves.next().unwrap_or_default().trim_ascii();
        let value = halves.next().unwrap_or_default().trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
        let is_utf8 =
            [&b"utf-8"[..], b"utf8", b"us-ascii"].iter().any(|known| value.eq_ignore_ascii_case(known));
        if name.eq_ignore_ascii_case(b"charset") && !is_utf8 {
            return Err(Unread::Media("JSON is written in UTF-8, and this has another charset"));
        }
    }
    Ok(())
}

/// A content coding that can be taken off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coded {
    /// gzip.
    Gzip,
    /// None.
    #[default]
    No,
}

/// The content coding of a message.
///
/// # Errors
/// Why the body is not read.
pub fn coding(fields: &Fields) -> Result<Coded, Unread> {
    let mut all = codings(fields);
    match (all.next(), all.next()) {
        (None, _) => Ok(Coded::No),
        (Some(one), None) if [&b"gzip"[..], b"x-gzip"].iter().any(|gzip| one.eq_ignore_ascii_case(gzip)) => {
            Ok(Coded::Gzip)
        }
        _ => Err(Unread::Coding),
    }
}

/// A body without its content coding. At most `limit` bytes are decoded.
///
/// gzip has to be one member with nothing behind it: some decoders stop after the first and others go on, so that an
/// upstream could read something that nobody has checked.
///
/// # Errors
/// Why the body is not read.
pub fn decoded(coded: Coded, body: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, Unread> {
    if coded == Coded::No {
        return Ok(Cow::Borrowed(body));
    }
    let mut decoder = GzDecoder::new(body);
    let mut content = Vec::new();
    let most = (limit as u64).saturating_add(1);
    decoder.by_ref().take(most).read_to_end(&mut content).map_err(|_| Unread::Undecodable)?;
    if content.len() > limit {
        return Err(Unread::TooLong);
    }
    if !decoder.into_inner().is_empty() {
        return Err(Unread::Undecodable);
    }
    Ok(Cow::Owned(content))
}

fn codings(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    let all = fields.get_all("content-encoding").flat_map(|value| value.split(|&b| b == b','));
    all.map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request_head;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn media_types_of_json() {
        for (media, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("text/json", true),
            ("application/jsonp", false),
            ("application/gRPC+json", false),
            ("application/grpc-web+json", false),
            ("application/connect+json", false),
            ("application/json, text/html", false),
            ("application/x-json-seq", false),
            ("+json", false),
            ("text/plain; a=application/json", false),
            ("", false),
        ] {
            assert_eq!(is_json(media.as_bytes()), expected, "{media}");
        }
        for (media, expected) in [
            ("application/json", true),
            ("application/json; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/json; profile=x; charset=us-ascii", true),
            ("application/json; charset=utf-16", false),
            ("application/json; CharSet = \"iso-8859-1\"", false),
            ("application/json; charset=utf-8; charset=utf-7", false),
            ("application/json; charset=", false),
        ] {
            assert_eq!(refuse_charset(media.as_bytes()).is_ok(), expected, "{media}");
        }
    }

    #[test]
    fn decodes_within_bounds_or_refuses() {
        let read = |named: &str, body: &[u8]| {
            let head = request_head(&format!("POST /\nContent-Encoding: {named}"));
            decoded(coding(&head.headers)?, body, 100).map(Cow::into_owned)
        };
        let one = gzip(b"{}");
        assert_eq!(read("gzip", &one).as_deref(), Ok(&b"{}"[..]));
        assert_eq!(read("X-GZIP", &one).as_deref(), Ok(&b"{}"[..]));
        assert_eq!(read("identity, ", b"{}").as_deref(), Ok(&b"{}"[..]));
        for coding in ["br", "gzip, gzip", "gzip\nContent-Encoding: gzip", "deflate", "zstd, gzip", "none"] {
            assert_eq!(read(coding, &one), Err(Unread::Coding), "{coding}");
        }
        assert_eq!(read("gzip", b"{}"), Err(Unread::Undecodable));
        assert_eq!(read("gzip", &one[..one.len() - 1]), Err(Unread::Undecodable));
        assert_eq!(read("gzip", &[&one[..], &one[..]].concat()), Err(Unread::Undecodable), "a second member");
        assert_eq!(read("gzip", &[&one[..], b"x"].concat()), Err(Unread::Undecodable));
        assert_eq!(read("gzip", &gzip(&[b' '; 100])).map(|c| c.len()), Ok(100));
        assert_eq!(read("gzip", &gzip(&vec![b' '; 10_000_000])), Err(Unread::TooLong), "a bomb");
    }
}

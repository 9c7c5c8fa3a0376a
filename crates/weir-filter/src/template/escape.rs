//! How values are escaped for the place where they are written.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use std::io::Write;

/// What to escape in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// Characters that could end a text or an attribute in HTML and XML.
    Html,
    /// Characters that could end a string in JSON or JavaScript.
    Json,
    /// Nothing: a header value.
    Nothing,
    /// Characters not allowed in a query's name or value.
    Query,
    /// Characters not allowed in a URL. Values that come from one stay as they are.
    Url,
}

impl Escape {
    /// How to escape values in a text of this media type.
    pub fn of_media(media: &str) -> Self {
        let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if essence.ends_with("json") || essence.ends_with("javascript") || essence.ends_with("ecmascript") {
            Self::Json
        } else if essence.ends_with("html") || essence.ends_with("xml") {
            Self::Html
        } else {
            Self::Nothing
        }
    }
}

/// What is escaped in a URL: everything but unreserved characters (RFC 3986 §2.3).
pub static RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes everything but unreserved characters (RFC 3986 §2.3).
pub fn escape(text: &str) -> Vec<u8> {
    utf8_percent_encode(text, &RESERVED).flat_map(str::bytes).collect()
}

/// Appends a text that is safe within text or an attribute of HTML and XML.
pub(super) fn push_html(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        match b {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            _ => out.push(b),
        }
    }
}

/// Appends a text that is safe within a string of JSON or JavaScript, also inside HTML or in single quotes.
pub(super) fn push_json(text: &[u8], out: &mut Vec<u8>) {
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\0'..='\x1f' | '\x7f' | '&' | '\'' | '<' | '>' | '`' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c)); // a Vec takes everything
            }
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Appends an escaped value. With `is_encoded`, its escapes of a URL are left as they are.
pub(super) fn push(raw: &[u8], escape: Escape, is_encoded: bool, out: &mut Vec<u8>) {
    match escape {
        Escape::Html => push_html(raw, out),
        Escape::Json => push_json(raw, out),
        Escape::Nothing => out.extend_from_slice(raw),
        Escape::Query | Escape::Url => raw.iter().for_each(|&b| match b {
            b'%' if is_encoded => out.push(b),
            _ => push_escaped(b, out),
        }),
    }
}

pub(super) fn push_escaped(b: u8, out: &mut Vec<u8>) {
    percent_encode(&[b], &RESERVED).for_each(|piece| out.extend_from_slice(piece.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_leave_their_place() {
        let html = |text: &str| {
            let mut out = Vec::new();
            push_html(text.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(html("<a href='x' b=\"&\">"), "&lt;a href=&#39;x&#39; b=&quot;&amp;&quot;&gt;");
        let json = |text: &[u8]| {
            let mut out = Vec::new();
            push_json(text, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(json(b"a\"b\\c\n</script>\xff"), "a\\\"b\\\\c\\u000a\\u003c/script\\u003e\u{fffd}");
        let parsed: String = serde_json::from_str(&format!("\"{}\"", json(b"\"\\'\t<"))).unwrap();
        assert_eq!(parsed, "\"\\'\t<");
    }
}

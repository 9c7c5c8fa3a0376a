//! The certificate that a peer presented, as filters and logs show it.
//!
//! The handshake verified the certificate, but it may still contain any text that its authority accepted. So we
//! escape characters that could break a line or look like the end of an entry.

use super::der::{self, elements};
use crate::hex;
use aws_lc_rs::digest::{SHA256, digest};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The certificate of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Its subject, in the notation of RFC 4514: `CN=shop,O=Example`.
    pub subject: String,
    /// Its alternative names (RFC 5280 §4.2.1.6): `dns:shop.internal`, `email:…`, `ip:…`, `uri:…`. Omits other kinds.
    pub names: Vec<String>,
    /// The same names as one text, separated by commas.
    pub san: String,
    /// SHA-256 of the whole certificate, in lower-case hexadecimal digits.
    pub fingerprint: String,
    /// The whole certificate, as received (DER).
    pub der: Vec<u8>,
}

impl PeerCertificate {
    /// Whether `told` identifies this certificate: one of its names after `dns:`, `email:`, `uri:` or `ip:`, its
    /// subject after `subject:`, or its fingerprint after `sha256:`.
    pub fn is(&self, told: &str) -> bool {
        match told.split_once(':') {
            Some(("sha256", digits)) => digits.eq_ignore_ascii_case(&self.fingerprint),
            Some(("subject", subject)) => !subject.is_empty() && subject == self.subject,
            Some(("dns", _)) => self.names.iter().any(|name| name.eq_ignore_ascii_case(told)),
            Some(("email" | "uri" | "ip", _)) => self.names.iter().any(|name| name == told),
            _ => false,
        }
    }

    /// Parses a DER certificate. Fields that cannot be parsed are empty.
    pub fn of(certificate: &[u8]) -> Self {
        let names = der::alternative_names(certificate).into_iter();
        let names: Vec<String> = names.filter_map(|(tag, value)| name_text(tag, value)).collect();
        Self {
            subject: der::subject(certificate).map(subject_text).unwrap_or_default(),
            san: names.join(","),
            names,
            fingerprint: hex::encode(digest(&SHA256, certificate).as_ref()),
            der: certificate.to_vec(),
        }
    }
}

/// A distinguished name in the notation of RFC 4514 §2.1: the last part first.
fn subject_text(name: &[u8]) -> String {
    let parts: Vec<&[u8]> =
        elements(name).filter(|(tag, _)| *tag == der::SET).map(|(_, value)| value).collect();
    let part =
        |set: &&[u8]| elements(set).filter_map(|(_, pair)| attribute(pair)).collect::<Vec<_>>().join("+");
    parts.iter().rev().map(part).collect::<Vec<_>>().join(",")
}

/// One attribute of a name: its type and its value.
fn attribute(pair: &[u8]) -> Option<String> {
    let (kind, value) = der::element(pair, der::OBJECT)?;
    let &tag = value.first()?;
    let (text, _) = der::element(value, tag)?;
    let known = KINDS.iter().find(|(object, _)| *object == kind).map(|(_, name)| *name);
    Some(match (known, string(tag, text)) {
        (Some(name), Some(text)) => format!("{name}={}", escaped_value(&text)),
        // RFC 4514 §2.4: a type without a name is written as its encoding.
        (known, _) => {
            format!("{}=#{}", known.map_or_else(|| dotted(kind), str::to_owned), hex::encode(value))
        }
    })
}

/// Attribute types with a short name: those of RFC 4514 §3, and emailAddress, which OpenSSL writes too.
const KINDS: [(&[u8], &str); 10] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// The text of a string (RFC 5280 §4.1.2.4); `None` if it is no string.
fn string(tag: u8, value: &[u8]) -> Option<String> {
    const UTF8: u8 = 0x0c;
    const PRINTABLE: u8 = 0x13;
    const TELETEX: u8 = 0x14;
    const IA5: u8 = 0x16;
    const BMP: u8 = 0x1e;
    match tag {
        UTF8 | PRINTABLE | IA5 => std::str::from_utf8(value).ok().map(str::to_owned),
        // Nobody implements T.61; strings labelled T.61 are in practice Latin-1.
        TELETEX => Some(value.iter().map(|b| char::from(*b)).collect()),
        BMP if value.len().is_multiple_of(2) => {
            let units = value.chunks(2).map(|pair| pair.iter().fold(0, |unit, b| unit << 8 | u16::from(*b)));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        _ => None,
    }
}

/// Escapes a value as RFC 4514 §2.4 requires.
fn escaped_value(text: &str) -> String {
    let mut out = escaped(text, &['"', '+', ',', ';', '<', '>', '\\']);
    if out.starts_with([' ', '#']) {
        out.insert(0, '\\');
    }
    if text.len() > 1 && out.ends_with(' ') {
        out.insert(out.len() - 1, '\\');
    }
    out
}

/// The text with a backslash before each special character, and each byte of a control character as two digits.
fn escaped(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(out, "\\{byte:02X}"); // writing to a String cannot fail
            }
            continue;
        }
        if special.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// An alternative name with its kind.
fn name_text(tag: u8, value: &[u8]) -> Option<String> {
    let text = |kind: &str| {
        let text = std::str::from_utf8(value).ok()?;
        Some(format!("{kind}:{}", escaped(text, &[',', '\\'])))
    };
    match tag {
        0x81 => text("email"),
        der::DNS_NAME => text("dns").map(|name| name.to_ascii_lowercase()),
        0x86 => text("uri"),
        0x87 => match value.len() {
            4 => Some(format!("ip:{}", Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?))),
            16 => Some(format!("ip:{}", Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?))),
            _ => None,
        },
        _ => None,
    }
}

/// An object identifier as numbers: `1.2.840.113549.1.9.1` (X.690 §8.19).
fn dotted(object: &[u8]) -> String {
    let mut out = String::new();
    let mut number = 0u64;
    for byte in object {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        let _ = match out.is_empty() {
            true => write!(out, "{}.{}", (number / 40).min(2), number - (number / 40).min(2) * 40),
            false => write!(out, ".{number}"),
        };
        number = 0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DER element with a short length.
    fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
        [&[tag, value.len() as u8], value].concat()
    }

    fn part(kind: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        tlv(der::SET, &tlv(der::SEQUENCE, &[tlv(der::OBJECT, kind), tlv(tag, text)].concat()))
    }

    #[test]
    fn names_are_written_as_rfc_4514_does() {
        let (country, organization, name) = (KINDS[1].0, KINDS[5].0, KINDS[0].0);
        for (parts, text) in [
            (vec![part(country, 0x13, b"DE"), part(name, 0x0c, b"shop")], "CN=shop,C=DE"),
            (vec![part(organization, 0x0c, "A, B+\"C\"".as_bytes())], "O=A\\, B\\+\\\"C\\\""),
            (vec![part(name, 0x0c, b" #x ")], "CN=\\ #x\\ "),
            (vec![part(name, 0x0c, b"#x")], "CN=\\#x"),
            (vec![part(name, 0x0c, b" ")], "CN=\\ "),
            (vec![part(name, 0x0c, b"a\r\nb\0")], "CN=a\\0D\\0Ab\\00"),
            (vec![part(name, 0x0c, "ü".as_bytes())], "CN=ü"),
            (vec![part(name, 0x14, b"\xfc")], "CN=ü"),
            (vec![part(name, 0x1e, b"\x00\xfc")], "CN=ü"),
            (vec![part(&[0x2a, 0x86, 0x48, 1], 0x0c, b"x")], "1.2.840.1=#0c0178"),
            (vec![part(name, 0x02, b"\x01")], "CN=#020101"),
            (vec![], ""),
        ] {
            assert_eq!(subject_text(&parts.concat()), text);
        }
        let both = [part(name, 0x0c, b"a"), part(organization, 0x0c, b"b")];
        let inner = both.map(|set| set[2..].to_vec()).concat();
        assert_eq!(subject_text(&tlv(der::SET, &inner)), "CN=a+O=b");
    }

    #[test]
    fn alternative_names_say_their_kind() {
        for (tag, value, text) in [
            (0x81, &b"a@b.example"[..], Some("email:a@b.example")),
            (0x82, b"Shop.Internal", Some("dns:shop.internal")),
            (0x82, b"a,dns:admin\n", Some("dns:a\\,dns:admin\\0a")),
            (0x86, b"spiffe://a/b", Some("uri:spiffe://a/b")),
            (0x87, &[10, 0, 0, 1], Some("ip:10.0.0.1")),
            (0x87, &[0; 16], Some("ip:::")),
            (0x87, &[1], None),
            (0xa0, b"other", None),
            (0x82, b"\xff", None),
        ] {
            assert_eq!(name_text(tag, value).as_deref(), text);
        }
    }

    #[test]
    fn a_certificate_is_read_whole_or_in_part() {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        let certificate = made.cert.der();
        let read = PeerCertificate::of(certificate);
        assert_eq!(read.subject, "CN=rcgen self signed cert");
        assert_eq!(read.san, "dns:a.test,ip:10.0.0.1");
        assert_eq!(read.fingerprint, hex::encode(digest(&SHA256, certificate).as_ref()));
        for cut in 0..certificate.len() {
            let part = PeerCertificate::of(&certificate[..cut]);
            assert!(part.subject.is_empty() && part.names.is_empty(), "{cut}");
        }
    }
}

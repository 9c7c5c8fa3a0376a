//! The algorithms that tokens are signed with (RFC 7518 §3.1, RFC 8037 §3.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Algorithm {
    /// Ed25519; tokens may call it `Ed25519` too (RFC 9864).
    EdDSA,
    /// ECDSA with P-256 and SHA-256.
    ES256,
    /// ECDSA with P-384 and SHA-384.
    ES384,
    /// ECDSA with P-521 and SHA-512.
    ES512,
    /// HMAC with SHA-256, by a shared secret.
    HS256,
    /// HMAC with SHA-384, by a shared secret.
    HS384,
    /// HMAC with SHA-512, by a shared secret.
    HS512,
    /// RSASSA-PSS with SHA-256.
    PS256,
    /// RSASSA-PSS with SHA-384.
    PS384,
    /// RSASSA-PSS with SHA-512.
    PS512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RS256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RS384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RS512,
}

impl Algorithm {
    /// All algorithms.
    pub(crate) const ALL: [Self; 13] = [
        Self::EdDSA,
        Self::ES256,
        Self::ES384,
        Self::ES512,
        Self::HS256,
        Self::HS384,
        Self::HS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::RS256,
        Self::RS384,
        Self::RS512,
    ];

    /// Relative time to verify a signature, where P-256 and RSA are 1. Our guess, in whole numbers: it depends on the
    /// processor.
    pub(crate) const fn cost(self) -> u32 {
        match self {
            Self::ES384 => 5,
            Self::ES512 => 10,
            _ => 1,
        }
    }

    /// The algorithm for a value of `alg`. Names are case-sensitive, and `none` is not an algorithm.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if name == "Ed25519" {
            return Some(Self::EdDSA);
        }
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Its `alg`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EdDSA => "EdDSA",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::ES512 => "ES512",
            Self::HS256 => "HS256",
            Self::HS384 => "HS384",
            Self::HS512 => "HS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::of(algorithm.name()), Some(algorithm));
            assert_eq!(serde_json::to_value(algorithm).unwrap(), algorithm.name());
        }
        assert_eq!(Algorithm::of("Ed25519"), Some(Algorithm::EdDSA));
        for none in ["none", "None", "rs256", "", "ES256K", "HS1", "Ed448"] {
            assert_eq!(Algorithm::of(none), None);
        }
    }
}

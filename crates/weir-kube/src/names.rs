//! Names of the config's things, made from names of objects.
//!
//! Parts are joined by `_`, which no name of Kubernetes has, so `a-b`/`c` and `a`/`b-c` differ. A name of Weir has at
//! most 64 characters; a longer one is cut and gets a digest of the whole. Its mark `__` occurs in no other, because no
//! part is empty.

use sha2::{Digest, Sha256};

/// Most bytes of a name.
const MOST: usize = 64;
/// Bytes of the digest that a long name gets: 96 bits, so nobody can make two names collide.
const DIGEST: usize = 12;

/// Joins parts to a name.
pub(crate) fn join(parts: &[&str]) -> String {
    let whole = parts.join("_");
    if whole.len() <= MOST {
        return whole;
    }
    let digest = hex(whole.as_bytes(), DIGEST);
    let kept = whole.get(..MOST - digest.len() - 2).unwrap_or_default();
    format!("{kept}__{digest}")
}

/// The first bytes of a content's SHA-256, in hex.
pub(crate) fn hex(content: &[u8], bytes: usize) -> String {
    weir_wire::hex::encode(Sha256::digest(content).get(..bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_collide() {
        assert_ne!(join(&["svc", "a-b", "c", "80"]), join(&["svc", "a", "b-c", "80"]));
        let long = |last: &str| join(&["svc", &"n".repeat(63), &"s".repeat(253), last]);
        assert_ne!(long("80"), long("81"));
        assert_eq!(long("80").len(), MOST);
        assert!(long("80").bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)));
    }
}

//! Content-Digest (RFC 9530): the expected digests of a body, and whether it matches them.

use aws_lc_rs::digest::{self, Context};
use weir_filter::sfv::{Bare, Item, Member, dictionary};

/// The digests of a body that is passing.
pub(super) struct Digests(Vec<(Context, Vec<u8>)>);

/// The algorithms that are verified (§5). The field may contain others; broken ones are ignored.
const ALGORITHMS: [(&str, &digest::Algorithm); 2] =
    [("sha-256", &digest::SHA256), ("sha-512", &digest::SHA512)];

impl Digests {
    /// Reads the digests in a field; `None` if it is malformed or has none that we verify.
    pub(super) fn read(field: &[u8]) -> Option<Self> {
        let mut all = Vec::new();
        for (name, member) in dictionary(field)? {
            let Member::Item(Item { value: Bare::Bytes(expected), .. }) = member else { return None };
            if let Some((_, algorithm)) = ALGORITHMS.iter().find(|(known, _)| *known == name) {
                all.push((Context::new(algorithm), expected));
            }
        }
        (!all.is_empty()).then_some(Self(all))
    }

    /// Adds a piece of the body.
    pub(super) fn update(&mut self, piece: &[u8]) {
        self.0.iter_mut().for_each(|(context, _)| context.update(piece));
    }

    /// Whether the body matches all digests.
    pub(super) fn agree(self) -> bool {
        self.0.into_iter().all(|(context, expected)| context.finish().as_ref() == expected)
    }
}

/// The value of the field for a body.
pub(crate) fn sha256(body: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, body);
    format!("sha-256=:{}:", weir_wire::base64::encode(digest.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9530 B.1 and B.2.
    #[test]
    fn examples() {
        let body = b"{\"hello\": \"world\"}\n";
        let digests = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        assert!(agrees(digests, body));
        assert_eq!(sha256(body), digests);
        let both = "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:, unixsum=:AAA=:";
        assert!(agrees(both, body));
        for wrong in [&body[..18], b"", b"{\"hello\": \"World\"}\n"] {
            assert!(!agrees(digests, wrong));
        }
        assert!(!agrees(&format!("{both}, sha-256=:AAAA:"), body), "all must agree");
    }

    fn agrees(field: &str, body: &[u8]) -> bool {
        let mut digests = Digests::read(field.as_bytes()).unwrap();
        for piece in body.chunks(5) {
            digests.update(piece);
        }
        digests.agree()
    }

    #[test]
    fn none_that_is_verified() {
        for none in [
            "",
            "md5=:AAAA:",
            "unixsum=:AA==:",
            "sha-256=\"x\"",
            "sha-256=1",
            "sha-256",
            "sha-256=(:AAAA:)",
            "SHA-256=:AA==:",
        ] {
            assert!(Digests::read(none.as_bytes()).is_none(), "{none}");
        }
    }
}

//! What a filter that changes the bytes of a response body owes the rest of the message.

use weir_filter::filter::{Cx, RequestHead, ResponseHead};
use weir_h1::{FieldName, Fields};

/// Fields that describe the bytes of a body, which are no longer those that the upstream described.
pub(crate) const OF_THE_BYTES: &[&[u8]] =
    &[b"accept-ranges", b"content-digest", b"content-md5", b"digest", b"repr-digest"];

/// The tags of If-None-Match if some are weak: ours may be among them.
#[derive(Debug, Default)]
pub(crate) struct WeakTags(Vec<u8>);

impl WeakTags {
    /// Keeps those of a request.
    pub(crate) fn remember(head: &RequestHead, cx: &mut Cx) {
        let tags = head.headers.get_str("if-none-match");
        if let Some(tags) = tags.filter(|tags| tags.starts_with(b"W/") || tags.contains(&b',')) {
            cx.state::<Self>().0 = tags.to_vec();
        }
    }

    /// Weakens the tag of a 304 for a client that holds a changed copy, which has the weak tag that we gave it.
    pub(crate) fn answer(head: &mut ResponseHead, etag: &FieldName, cx: &mut Cx) {
        let Some(tag) = head.headers.get(etag) else { return };
        let given = |held: &[u8]| held.trim_ascii().strip_prefix(b"W/").is_some_and(|held| held == tag);
        if cx.state::<Self>().0.split(|&b| b == b',').any(given) {
            weaken(head, etag);
        }
    }
}

/// Makes a strong ETag weak: it promises the same bytes (RFC 9110 §8.8.1).
pub(crate) fn weaken(head: &mut ResponseHead, etag: &FieldName) {
    let Some(tag) = head.headers.get(etag).filter(|tag| tag.starts_with(b"\"")) else { return };
    let weak = [b"W/", tag].concat();
    let _ = head.headers.insert(etag, &weak); // the tag without `W/` was received, so it is valid
}

/// RFC 9111 §5.2.1.6 and §5.2.2.6: intermediaries must not change the content.
pub(crate) fn no_transform(fields: &Fields) -> bool {
    let mut directives = fields.get_all("cache-control").flat_map(|value| value.split(|&b| b == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

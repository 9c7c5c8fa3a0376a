//! After an attempt: sends the file that the upstream's response names in a field, in place of its body.

use super::sent::Attempt;
use super::{Exchange, Next, Stop, unless_gone};
use crate::files::ByHeader;
use crate::respond;
use std::pin::pin;
use std::sync::Arc;
use weir_h1::FieldName;

/// Fields that describe the upstream's body or connection, or that the file itself decides.
const OF_BODY: [&str; 17] = [
    "accept-ranges",
    "age",
    "connection",
    "content-digest",
    "content-encoding",
    "content-length",
    "content-md5",
    "content-range",
    "date",
    "digest",
    "etag",
    "keep-alive",
    "last-modified",
    "repr-digest",
    "trailer",
    "transfer-encoding",
    "x-weir-cause",
];

impl Exchange<'_> {
    /// Removes the fields that name files. If the response is a success that names one, sends that file with the other
    /// fields of the response; otherwise gives the attempt back.
    #[cold]
    pub(super) async fn send_named(
        &mut self,
        by_header: Arc<ByHeader>,
        mut attempt: Attempt,
    ) -> Result<Result<Next, Attempt>, Stop> {
        let named = by_header.take(&mut attempt.response.headers);
        let Some(named) = named.filter(|_| (200..300).contains(&attempt.response.status())) else {
            return Ok(Err(attempt));
        };
        self.stick(&mut attempt);
        let fields: Vec<(FieldName, Vec<u8>)> = attempt
            .response
            .headers
            .iter()
            .filter_map(|(name, value)| {
                let name = std::str::from_utf8(name).ok()?;
                let stays = !OF_BODY.iter().any(|of| of.eq_ignore_ascii_case(name));
                if stays { Some((FieldName::new(name).ok()?, value.to_vec())) } else { None }
            })
            .collect();
        self.let_go(attempt);
        let core = self.client.core.handle.clone();
        let sent = by_header.answer(&named, &self.head, &core);
        let mut answer = match unless_gone(self.client, pin!(sent)).await? {
            Ok(answer) => answer,
            Err(refusal) => return Err(Stop::Refuse(refusal)),
        };
        let has = |name: &str, all: &[(FieldName, Vec<u8>)]| {
            all.iter().any(|(known, _)| known.as_str().eq_ignore_ascii_case(name))
        };
        let is_parts = |(name, value): &(FieldName, Vec<u8>)| {
            name.as_str().eq_ignore_ascii_case("content-type") && value.starts_with(b"multipart/byteranges")
        };
        let keeps_type = answer.status == 304 || answer.headers.iter().any(is_parts);
        if has("content-type", &fields) && !keeps_type {
            answer.headers.retain(|(name, _)| !name.as_str().eq_ignore_ascii_case("content-type"));
        }
        let is_type = |name: &FieldName| name.as_str().eq_ignore_ascii_case("content-type");
        answer.headers.extend(fields.into_iter().filter(|(name, _)| !(keeps_type && is_type(name))));
        self.answers_itself();
        Ok(Ok(self.write_local(respond::answer(answer)).await))
    }
}

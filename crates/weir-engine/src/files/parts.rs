//! Several parts of a file in one answer: `multipart/byteranges` (RFC 9110 §14.6).

use super::conditions::Part;
use super::{Content, slice};
use bytes::Bytes;
use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use weir_filter::file_source::FileSource;
use weir_filter::filter::{BodySource, CoreHandle, FileRange};
use weir_upstream::error::Cause;

/// The body of such an answer.
pub(super) struct Parts {
    /// The text before each part, and the part.
    ahead: VecDeque<(Bytes, Part)>,
    /// The part of a copy that comes next.
    copied: Option<Bytes>,
    end: Option<Bytes>,
    length: u64,
    content: Content,
    core: CoreHandle,
    reading: Option<FileSource>,
}

impl Parts {
    /// `size` is the file's; `boundary` separates the parts.
    pub(super) fn new(
        content: Content,
        parts: Vec<Part>,
        media: &str,
        size: u64,
        boundary: &str,
        core: CoreHandle,
    ) -> Self {
        let mut length = 0;
        let ahead: VecDeque<_> = parts
            .into_iter()
            .enumerate()
            .map(|(at, part)| {
                let line_end = if at == 0 { "" } else { "\r\n" };
                let (from, to) = (part.start, part.end.saturating_sub(1));
                let head = format!(
                    "{line_end}--{boundary}\r\ncontent-type: {media}\r\ncontent-range: bytes {from}-{to}/{size}\r\n\r\n"
                );
                length += head.len() as u64 + (part.end - part.start);
                (head.into(), part)
            })
            .collect();
        let end = format!("\r\n--{boundary}--\r\n");
        length += end.len() as u64;
        Self { ahead, copied: None, end: Some(end.into()), length, content, core, reading: None }
    }
}

impl BodySource for Parts {
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static Cause>> {
        if let Some(reading) = &mut self.reading {
            if let Some(piece) = ready!(reading.poll_piece(cx))? {
                return Poll::Ready(Ok(Some(piece)));
            }
            self.reading = None;
        }
        if let Some(piece) = self.copied.take() {
            return Poll::Ready(Ok(Some(piece)));
        }
        let Some((head, part)) = self.ahead.pop_front() else { return Poll::Ready(Ok(self.end.take())) };
        match &self.content {
            Content::Copy(bytes) => self.copied = Some(slice(bytes, part)),
            Content::Opened(file) => {
                let (file, length) = (file.clone(), part.end - part.start);
                let range = FileRange { file, offset: part.start, length };
                self.reading = Some(FileSource::new(range, self.core.clone()));
            }
        }
        Poll::Ready(Ok(Some(head)))
    }
}

//! What the codec of HTTP/3 hands to the counter of responses.

use crate::transport::h2::counter::{Counter, FieldPart, Lost};
use crate::transport::h2::stream::Stream;
use std::ops::ControlFlow;
use weir_h3::code;
use weir_h3::codec::{Failed, Part, Piece, Section, Sink, Taken};
use weir_h3::qpack::Undecodable;
use weir_wire::h2::{HeadFacts, Malformed};

/// What a line of a section counts beside its text (RFC 9114 §4.2.2).
const LINE: usize = 32;

impl Sink for Counter {
    type Kept = Stream;

    const HELD: bool = false;

    fn head(
        &mut self,
        stream: &mut Stream,
        section: Section<'_>,
    ) -> Result<Result<HeadFacts, Malformed>, Undecodable> {
        let part = if section.part == Part::Trailers { FieldPart::Trailers } else { FieldPart::Head };
        let (bytes, most) = (section.bytes, section.most);
        // Required Insert Count 0 (RFC 9204 §4.5.1): the section refers to the static table only.
        let is_constant = bytes.first() == Some(&0);
        let mut size = 0;
        let told = self.fields(stream, part, bytes, 0, |field| {
            section.decode(|name, value| {
                size += name.len() + value.len() + LINE;
                if size > most {
                    return ControlFlow::Break(());
                }
                field(name, value);
                ControlFlow::Continue(())
            })?;
            Ok(is_constant && size <= most)
        })?;
        if size > most {
            return Ok(Err(Malformed("a head that is too large")));
        }
        if told.is_ok() {
            stream.response.head_bytes += bytes.len() as u64;
            self.notice(stream);
        }
        Ok(told)
    }

    fn data(&mut self, stream: &mut Stream, piece: &Piece<'_>) -> Result<Taken, Malformed> {
        self.body(stream, piece.data)?;
        Ok(Taken::Read)
    }

    fn over(&mut self, stream: &mut Stream, failed: Option<Failed>) {
        match failed {
            Some(failed) => {
                let lost = lost(failed, stream.response.status > 0);
                self.lost(stream, lost);
            }
            None => self.answered(stream),
        }
    }

    fn clear(stream: &mut Stream) {
        stream.clear();
    }
}

/// What a stream's failure means for its request. `is_begun` says whether the final head had arrived.
fn lost(failed: Failed, is_begun: bool) -> Lost {
    let reset = |code| Lost::Reset(format!("the target reset the stream: {}", code::name(code)));
    match failed {
        Failed::Malformed(rule) => Lost::Protocol(format!("HTTP/3: {rule}")),
        Failed::Refused { by_reset: true } if is_begun => reset(code::REQUEST_REJECTED),
        Failed::Refused { .. } => Lost::Again,
        Failed::Reset(code) => reset(code),
        Failed::Closed | Failed::GivenUp => Lost::Reset("the connection has ended".to_owned()),
    }
}

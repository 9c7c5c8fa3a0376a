//! `request.body` of expressions: the JSON of a body, read once for all filters that name it.
//!
//! The engine has the body read before the first filter that names it (`Hooks::READS_BODY`) sees the head. It is read
//! again only if a filter has changed it since.
//!
//! A body that says it is JSON and cannot be read as such refuses the request. If it had no value instead, a condition
//! that excludes (`request.body.role != "admin"`) would hold for JSON that the upstream reads less strictly.

use super::{Cx, Refusal};
use crate::json_body::{Unread, claims_json, coded_json, decoded};
use bytes::Bytes;
use serde_json::Value as Json;
use std::fmt;
use std::rc::Rc;
use weir_expr::json::{self, Limits};
use weir_h1::{BodyKind, RequestHead};
use weir_upstream::error::{BODY_NOT_JSON, BODY_TOO_LARGE};

/// How deep lists and objects may be nested in a body that expressions read. A deeper one is refused.
pub const BODY_DEPTH: usize = 64;

/// Most values in a body that is read as JSON, for expressions and by `transform`. Each takes 32 to 150 bytes beside its
/// text while it is held.
pub const BODY_VALUES: usize = 100_000;

/// Under this number the context has what was read, among the filters' states.
const OWNER: u32 = u32::MAX - 1;

/// A body that was read.
#[derive(Debug)]
pub(crate) struct ReadBody {
    /// The bytes. Holding them keeps their address from being reused.
    of: Bytes,
    /// `None` if they do not claim to be JSON, or there are none.
    value: Option<Json>,
}

type Kept = Option<Rc<ReadBody>>;

impl ReadBody {
    pub(crate) fn value(&self) -> Option<&Json> {
        self.value.as_ref()
    }
}

impl Cx {
    /// Whether a body with this head is read for expressions. If not, that of an earlier head is forgotten.
    pub fn expects_json(&mut self, head: &RequestHead) -> bool {
        let expects = head.body() != BodyKind::Empty && claims_json(&head.headers);
        if !expects {
            self.forget_body();
        }
        expects
    }

    /// Reads the body, which is here whole, for expressions. It has a value if its head says that it is JSON, unless it
    /// is empty.
    ///
    /// # Errors
    /// It is longer than `limit`, as received or decoded, or is not JSON as `json` of weir-expr has it.
    pub fn read_body(&mut self, head: &RequestHead, limit: usize) -> Result<(), Box<Refusal>> {
        if self.has_read_body() {
            return Ok(());
        }
        let of = self.share_whole();
        if of.len() > limit {
            return Err(Refusal::new(&BODY_TOO_LARGE));
        }
        let value = match claims_json(&head.headers) && !of.is_empty() {
            true => parsed(head, &of, limit)?,
            false => None,
        };
        *self.read_slot() = Some(Rc::new(ReadBody { of, value }));
        Ok(())
    }

    /// Whether the body that is here whole has been read, and no filter that looks at bodies waits for it.
    pub fn has_read_body(&self) -> bool {
        let (Some(whole), Some(read)) = (&self.whole, self.share_read_body()) else { return false };
        self.request_bodies.is_empty() && (whole.as_ptr(), whole.len()) == (read.of.as_ptr(), read.of.len())
    }

    /// Replaces the request's body, which this filter asked for whole, by JSON: for the filters after it, and for the
    /// expressions of these, which need not read it again.
    pub fn set_whole_json(&mut self, body: impl Into<Bytes>, value: Json) {
        let of = body.into();
        self.set_whole(of.clone());
        *self.read_slot() = Some(Rc::new(ReadBody { of, value: Some(value) }));
    }

    /// Frees what was read: no filter sees the request any more.
    pub fn forget_body(&mut self) {
        if let Some((_, state)) = self.states.iter_mut().find(|(owner, _)| *owner == OWNER)
            && let Some(kept) = state.downcast_mut::<Kept>()
        {
            *kept = None;
        }
    }

    /// The JSON of the request's body, if it was read and is some.
    pub(crate) fn body_json(&self) -> Option<&Json> {
        self.share_read_body()?.value()
    }

    pub(crate) fn share_read_body(&self) -> Option<&Rc<ReadBody>> {
        let (_, state) = self.states.iter().find(|(owner, _)| *owner == OWNER)?;
        state.downcast_ref::<Kept>()?.as_ref()
    }

    fn read_slot(&mut self) -> &mut Kept {
        let running = std::mem::replace(&mut self.filter, OWNER);
        self.state::<Kept>(); // made before it is borrowed for the caller
        self.filter = running;
        let slot = self.states.iter_mut().find(|(owner, _)| *owner == OWNER);
        slot.and_then(|(_, state)| state.downcast_mut()).expect("it was made above")
    }
}

/// The JSON of a body; `None` if it is empty once decoded.
fn parsed(head: &RequestHead, body: &[u8], limit: usize) -> Result<Option<Json>, Box<Refusal>> {
    let coded = coded_json(&head.headers).map_err(|why| not_json(&why))?;
    let text = match decoded(coded, body, limit) {
        Ok(text) if text.is_empty() => return Ok(None),
        Ok(text) => text,
        Err(Unread::TooLong) => return Err(Refusal::new(&BODY_TOO_LARGE)),
        Err(why) => return Err(not_json(&why)),
    };
    let limits = Limits { depth: BODY_DEPTH, values: BODY_VALUES };
    let document = json::parse(&text, limits).map_err(|why| not_json(&why))?;
    Ok(Some(document.value))
}

fn not_json(why: &dyn fmt::Display) -> Box<Refusal> {
    let detail = Some(format!("The body says that it is JSON, but {why}."));
    Box::new(Refusal { detail, ..*Refusal::new(&BODY_NOT_JSON) })
}

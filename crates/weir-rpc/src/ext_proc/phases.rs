//! What is asked of the processor in each phase of an exchange, and what its answers change.

use super::messages::{Common, Pair, Phase};
use super::session::{Fault, Place, Shared, ask};
use super::settings::{BodyMode, Without};
use super::{
    EXT_PROC_ANSWERED, EXT_PROC_UNAVAILABLE, ExtProc, Known, PIECE, REQUEST_BODY, RESPONSE_BODY, Step,
    messages, mutation,
};
use crate::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weir_filter::filter::Made;
use weir_filter::grpc;
use weir_h1::{BodyKind, Method};

impl ExtProc {
    pub(super) async fn request(&self, head: &mut RequestHead, cx: &mut Cx) -> Result<Flow, Fault> {
        let Some(session) = cx.state::<Known>().session.clone() else { return Ok(Flow::Continue) };
        let place = self.place(cx);
        let has_body = *cx.note() & REQUEST_BODY != 0 || !cx.whole().is_empty();
        if cx.state::<Known>().request == Step::Head {
            cx.state::<Known>().request = Step::Body;
            if self.modes.request.headers {
                let mut path = head.path().to_vec();
                if let Some(query) = head.query() {
                    path.push(b'?');
                    path.extend_from_slice(query);
                }
                let scheme: &[u8] = if cx.tls { b"https" } else { b"http" };
                let mut fields: Vec<Pair<'_>> = vec![
                    (&b":method"[..], head.method_name()),
                    (&b":scheme"[..], scheme),
                    (&b":authority"[..], head.authority()),
                    (&b":path"[..], &path[..]),
                ];
                let others = head.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(b"host"));
                fields.extend(self.shown(others));
                let message = messages::headers(Phase::RequestHeaders, &fields, !has_body);
                let Some(common) = ask(&session, &place, Phase::RequestHeaders, message).await? else {
                    return Ok(Flow::Continue);
                };
                if common.replaces {
                    self.fits(&common)?;
                }
                self.follow_wish(&session, cx)?;
                self.change_request(&common, head)?;
                if common.replaces {
                    cx.state::<Known>().replacement = Some(common.body.unwrap_or_default());
                }
            }
        }
        if let Some(body) = cx.state::<Known>().replacement.take() {
            if has_body && !cx.has_whole() {
                cx.state::<Known>().replacement = Some(body);
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            cx.give_whole(body);
            return Ok(Flow::Continue);
        }
        let known = cx.state::<Known>();
        let side = known.modes.unwrap_or(self.modes).request;
        let body = side.body(known.is_grpc);
        if !has_body || (body == BodyMode::None && !side.trailers) {
            return Ok(Flow::Continue);
        }
        match body {
            BodyMode::Buffered if !cx.has_whole() => {
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            BodyMode::Buffered => {
                let message = messages::body(Phase::RequestBody, cx.whole(), true);
                if let Some(common) = ask(&session, &place, Phase::RequestBody, message).await? {
                    self.fits(&common)?;
                    self.change_request(&common, head)?;
                    if let Some(body) = common.body {
                        cx.set_whole(body);
                    }
                }
            }
            BodyMode::Streamed if cx.has_whole() => {
                let body = self.stream(&session, &place, Phase::RequestBody, cx.share_whole()).await?;
                cx.set_whole(body);
            }
            // No trailers follow it, and `Change` would cost it its Content-Length.
            BodyMode::None if cx.has_whole() || matches!(head.body(), BodyKind::Length(_)) => {}
            BodyMode::None | BodyMode::Streamed => cx.see_request_body(BodyUse::Change),
        }
        Ok(Flow::Continue)
    }

    pub(super) async fn response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Result<Flow, Fault> {
        let has_body = *cx.note() & RESPONSE_BODY != 0;
        let place = self.place(cx);
        let known = cx.state::<Known>();
        let Some(session) = known.session.clone() else { return Ok(Flow::Continue) };
        let sends_head = known.modes.unwrap_or(self.modes).response.headers;
        let is_first = std::mem::replace(&mut known.response, Step::Body) == Step::Head;
        if is_first {
            known.replacement = None;
        }
        if is_first && sends_head {
            let status = head.status().to_string();
            let mut fields: Vec<Pair<'_>> = vec![(&b":status"[..], status.as_bytes())];
            fields.extend(self.shown(head.headers.iter()));
            let message = messages::headers(Phase::ResponseHeaders, &fields, !has_body);
            let Some(common) = ask(&session, &place, Phase::ResponseHeaders, message).await? else {
                return Ok(Flow::Continue);
            };
            let replaces = common.replaces && has_body;
            if replaces {
                self.fits(&common)?;
            }
            self.follow_wish(&session, cx)?;
            self.change_response(&common, head)?;
            if replaces {
                cx.state::<Known>().replacement = Some(common.body.unwrap_or_default());
            }
        }
        if let Some(body) = cx.state::<Known>().replacement.take() {
            if !cx.has_whole() {
                cx.state::<Known>().replacement = Some(body);
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            cx.set_whole(body);
            return Ok(Flow::Continue);
        }
        let known = cx.state::<Known>();
        let side = known.modes.unwrap_or(self.modes).response;
        let body = side.body(known.is_grpc || grpc::is_grpc(&head.headers));
        if !has_body || (body == BodyMode::None && !side.trailers) {
            return Ok(Flow::Continue);
        }
        match body {
            BodyMode::Buffered if !cx.has_whole() => {
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            BodyMode::Buffered => {
                let message = messages::body(Phase::ResponseBody, cx.whole(), true);
                if let Some(common) = ask(&session, &place, Phase::ResponseBody, message).await? {
                    self.fits(&common)?;
                    self.change_response(&common, head)?;
                    if let Some(body) = common.body {
                        cx.set_whole(body);
                    }
                }
            }
            BodyMode::Streamed if cx.has_whole() => {
                let body = self.stream(&session, &place, Phase::ResponseBody, cx.share_whole()).await?;
                cx.set_whole(body);
            }
            BodyMode::None if cx.has_whole() || matches!(head.body(Method::Get), BodyKind::Length(_)) => {}
            BodyMode::None | BodyMode::Streamed => cx.see_response_body(BodyUse::Change),
        }
        Ok(Flow::Continue)
    }

    fn change_request(&self, common: &Common, head: &mut RequestHead) -> Result<(), Fault> {
        let ignored = mutation::of_request(&common.mutation, head).map_err(Fault::Failed)?;
        self.counts.ignored.fetch_add(ignored, Relaxed);
        Ok(())
    }

    fn change_response(&self, common: &Common, head: &mut ResponseHead) -> Result<(), Fault> {
        let ignored = mutation::of_response(&common.mutation, head).map_err(Fault::Failed)?;
        self.counts.ignored.fetch_add(ignored, Relaxed);
        Ok(())
    }

    /// Checks the length of an answer's body before any part of the answer is applied, so that all of it or nothing is.
    fn fits(&self, common: &Common) -> Result<(), Fault> {
        match &common.body {
            Some(body) if body.len() > self.settings.limit.as_usize() => {
                Err(Fault::Failed("its body is too long"))
            }
            _ => Ok(()),
        }
    }

    /// Sends a whole body in pieces.
    async fn stream(
        &self,
        session: &Shared,
        place: &Place,
        phase: Phase,
        whole: Bytes,
    ) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::with_capacity(whole.len());
        let pieces = whole.len().div_ceil(PIECE);
        for (at, piece) in whole.chunks(PIECE).enumerate() {
            let message = messages::body(phase, piece, at + 1 == pieces);
            let common = ask(session, place, phase, message).await?;
            out.extend_from_slice(common.and_then(|common| common.body).as_deref().unwrap_or(piece));
        }
        Ok(out)
    }

    /// Lets the processor change a piece of a body that is under way, and the trailers after the last piece.
    pub(super) fn later(&self, phase: Phase, piece: &mut Piece<'_>, cx: &mut Cx) {
        if piece.is_pause() || (piece.data().is_empty() && !piece.is_last()) {
            return;
        }
        let place = self.place(cx);
        let known = cx.state::<Known>();
        let (Some(session), Some(modes)) = (known.session.clone(), known.modes) else { return };
        let (side, of_trailers) = match phase {
            Phase::RequestBody => (modes.request, Phase::RequestTrailers),
            _ => (modes.response, Phase::ResponseTrailers),
        };
        if session.borrow().is_over() {
            return;
        }
        let mut trailers = Vec::new();
        if side.trailers && piece.is_last() {
            for (name, value) in piece.trailers() {
                trailers.extend_from_slice(name);
                trailers.extend_from_slice(b": ");
                trailers.extend_from_slice(value);
                trailers.extend_from_slice(b"\r\n");
            }
        }
        let streams = side.body != BodyMode::None;
        if !streams && trailers.is_empty() {
            return;
        }
        let ends = piece.is_last() && trailers.is_empty();
        let (data, counts) = (piece.data().to_vec(), Arc::clone(&self.counts));
        let passes = self.settings.without == Without::Pass;
        let withhold = self.settings.withhold.clone();
        piece.make_later(async move {
            let mut made = Made { data, trailers: None };
            let work = async {
                if streams && (ends || !made.data.is_empty()) {
                    let message = messages::body(phase, &made.data, ends);
                    if let Some(body) =
                        ask(&session, &place, phase, message).await?.and_then(|common| common.body)
                    {
                        made.data = body;
                    }
                }
                if !trailers.is_empty() {
                    let fields = trailers.split(|&b| b == b'\n').filter_map(|line| {
                        let colon = line.iter().position(|&b| b == b':')?;
                        Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
                    });
                    let hidden = |name: &[u8]| {
                        withhold.iter().any(|hidden| hidden.as_str().as_bytes().eq_ignore_ascii_case(name))
                    };
                    let fields: Vec<Pair<'_>> = fields.filter(|(name, _)| !hidden(name)).collect();
                    let message = messages::trailers(of_trailers, &fields);
                    if let Some(common) = ask(&session, &place, of_trailers, message).await? {
                        let (changed, ignored) =
                            mutation::of_trailers(&common.mutation, &trailers).map_err(Fault::Failed)?;
                        counts.ignored.fetch_add(ignored, Relaxed);
                        made.trailers = Some(changed);
                    }
                }
                Ok::<(), Fault>(())
            };
            match work.await {
                Ok(()) => Ok(made),
                Err(Fault::Answered) => Err(&EXT_PROC_ANSWERED),
                Err(Fault::Failed(_)) => {
                    counts.failed.fetch_add(1, Relaxed);
                    if passes {
                        session.borrow_mut().pass();
                        return Ok(made);
                    }
                    Err(&EXT_PROC_UNAVAILABLE)
                }
            }
        });
    }
}

//! The request that a filter continues after it has answered its client.

use super::{Begun, Cx, FILTER};
use std::any::Any;
use std::rc::Rc;
use weir_h1::RequestHead;

/// A request that continues in the background after a filter has answered its client.
pub(super) struct Background {
    head: Box<RequestHead>,
    /// The filter that asked for it, and its state.
    filter: u32,
    state: Box<dyn Any>,
    note: u64,
    /// The filters that it has yet to pass.
    rest: Box<[u32]>,
}

impl Cx {
    /// Continues this request as `head` in the background, after the answer that this filter is about to give. It
    /// passes the remaining filters and the route's target. Only those filters and this one see the result; this one
    /// finds `state` and `note` as its own there. The request has no body.
    pub fn continue_in_background<T: 'static>(&mut self, head: RequestHead, state: T, note: u64) {
        let filter = self.filter & FILTER;
        self.rare_mut().background = Some(Box::new(Background {
            head: Box::new(head),
            filter,
            state: Box::new(state),
            note,
            rest: Box::default(),
        }));
    }

    /// The filters that the request in the background has yet to pass.
    pub fn continue_with(&mut self, rest: Box<[u32]>) {
        if let Some(background) = self.rare.as_mut().and_then(|rare| rare.background.as_mut()) {
            background.rest = rest;
        }
    }

    /// Whether a filter asked to continue after its answer.
    #[inline]
    pub fn continues_in_background(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.background.is_some())
    }

    /// Whether this request continues in the background: no client asked for it.
    #[inline]
    pub const fn is_background(&self) -> bool {
        self.is_background
    }

    /// Takes the request that continues, with its own context, and the filters it has yet to pass.
    pub fn take_background(&mut self) -> Option<(Self, Box<RequestHead>, Box<[u32]>)> {
        let Background { head, filter, state, note, rest } = *self.rare.as_mut()?.background.take()?;
        let mut cx = Self::new(Begun {
            scope: Rc::clone(&self.scope),
            client: self.client,
            tls: self.tls,
            certificate: self.certificate.clone(),
            path_key: None,
            random: self.random.next(),
            at: None,
        });
        cx.is_background = true;
        cx.request_id.clone_from(&self.request_id);
        cx.unnamed = self.unnamed;
        self.copy_caller(&mut cx);
        cx.prefix.clone_from(&self.prefix);
        cx.limits = self.limits;
        cx.arm = self.arm; // the draw does not run again behind a filter of its arm
        cx.filter = filter;
        cx.states.push((filter, state));
        if let Some(told) = self.told() {
            cx.rare_mut().told = told.clone();
        }
        cx.note = (filter, note);
        Some((cx, head, rest))
    }
}

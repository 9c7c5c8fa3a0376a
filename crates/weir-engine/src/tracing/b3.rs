//! Zipkin's fields, `b3` and `x-b3-*`, from callers that do not use Trace Context yet.
//!
//! A caller that sends them has a service behind the gateway that reads them. They are rewritten with the ids of the
//! `traceparent`, so that both name one trace. Source: openzipkin/b3-propagation.

use super::context::{Parent, digits, hex};
use weir_h1::{FieldName, RequestHead};

/// The names of the fields.
#[derive(Debug)]
pub(super) struct Names {
    single: FieldName,
    trace: FieldName,
    span: FieldName,
    sampled: FieldName,
}

/// What a caller sent in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Incoming {
    pub(super) forms: Forms,
    /// The trace and the caller's span; `sampled` is its decision, if it has made one.
    pub(super) parent: Option<Parent>,
    pub(super) decision: Option<bool>,
}

/// Which of the two forms the caller used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forms {
    single: bool,
    several: bool,
}

impl Names {
    pub(super) fn new(name: impl Fn(&'static str) -> FieldName) -> Self {
        Self {
            single: name("b3"),
            trace: name("x-b3-traceid"),
            span: name("x-b3-spanid"),
            sampled: name("x-b3-sampled"),
        }
    }
}

impl Forms {
    pub(super) const fn any(self) -> bool {
        self.single || self.several
    }
}

/// Which form a field belongs to: the single one or the multiple one.
pub(super) fn form_of(name: &[u8]) -> Forms {
    let several = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"x-b3-"));
    Forms { single: name.eq_ignore_ascii_case(b"b3"), several }
}

/// Reads a head's fields. A repeated or malformed field is ignored; the single form has precedence.
#[cold]
pub(super) fn read(head: &RequestHead) -> Incoming {
    let mut incoming = Incoming::default();
    for (name, _) in head.headers.iter() {
        let form = form_of(name);
        incoming.forms.single |= form.single;
        incoming.forms.several |= form.several;
    }
    let only = |name: &'static str| only(head, name);
    let (trace, span, decision) = match only("b3") {
        Some(single) => {
            let mut parts = single.split(|&b| b == b'-');
            match (parts.next(), parts.next(), parts.next()) {
                (Some(decision), None, _) => (None, None, Some(decision)),
                (trace, span, decision) => (trace, span, decision),
            }
        }
        None => {
            let debug = only("x-b3-flags").filter(|flags| *flags == b"1");
            (only("x-b3-traceid"), only("x-b3-spanid"), debug.or_else(|| only("x-b3-sampled")))
        }
    };
    incoming.decision = match decision {
        Some(b"1" | b"d" | b"true") => Some(true),
        Some(b"0" | b"false") => Some(false),
        _ => None,
    };
    incoming.parent = trace.zip(span).and_then(|(trace, span)| {
        let trace = hex(trace).filter(|_| matches!(trace.len(), 16 | 32))?;
        let span = u64::try_from(hex(span).filter(|_| span.len() == 16)?).ok()?;
        let sampled = incoming.decision.unwrap_or_default();
        (trace != 0 && span != 0).then_some(Parent { trace, span, sampled })
    });
    incoming
}

/// The value of a field that occurs once.
fn only<'h>(head: &'h RequestHead, name: &'static str) -> Option<&'h [u8]> {
    let mut all = head.headers.get_all(name);
    all.next().filter(|_| all.next().is_none())
}

/// Rewrites the fields in the forms that arrived.
#[cold]
pub(super) fn write(names: &Names, head: &mut RequestHead, forms: Forms, context: Parent) {
    let (mut trace, mut span) = ([0; 32], [0; 16]);
    digits(&mut trace, context.trace);
    digits(&mut span, context.span.into());
    let sampled: &[u8] = if context.sampled { b"1" } else { b"0" };
    head.headers.remove_where(|name, _| form_of(name).any());
    if forms.single {
        let text = [&trace[..], b"-", &span, b"-", sampled].concat();
        let _ = head.headers.append(&names.single, &text); // only digits
    }
    if forms.several {
        for (name, value) in [(&names.trace, &trace[..]), (&names.span, &span), (&names.sampled, sampled)] {
            let _ = head.headers.append(name, value); // as above
        }
    }
}

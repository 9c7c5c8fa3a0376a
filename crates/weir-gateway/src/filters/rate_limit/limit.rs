//! One limit of a filter: its rate, its counters, and what clients are told of it.

use super::calendar::Calendar;
use super::gcra::{Cell, Decision, Rate, SECOND, Time};
use super::settings::{Per, Read};
use super::table::{self, Table};
use super::{State, field_name};
use crate::filter::Consumers;
use crate::filters::shared::by::Counted;
use smallvec::SmallVec;
use std::sync::Arc;
use weir_h1::{FieldName, Prepared};

pub(super) const POLICY: &str = "RateLimit-Policy";
pub(super) const LIMIT: &str = "RateLimit";

pub(super) struct Limit {
    pub(super) rate: Rate,
    pub(super) state: Arc<State>,
    consumers: Vec<Arc<Cell>>,
    pub(super) fields: Option<Fields>,
}

/// Where a request is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    All,
    Consumer(usize),
    Key(table::Key),
}

/// The fields that tell the client of the limit, as far as they are known beforehand.
pub(super) struct Fields {
    policy: Prepared,
    /// `"name";r=`
    limit: Prepared,
}

/// The end of a value of `RateLimit`: two numbers of at most 20 digits and what stands between them.
type LimitEnd = SmallVec<[u8; 48]>;

impl Limit {
    pub(super) fn new(read: Read, state: Arc<State>, consumers: &Consumers, headers: bool) -> Self {
        let fields = headers.then(|| Fields::new(&read));
        Self { rate: read.rate, consumers: state.cells_of(consumers), state, fields }
    }

    pub(super) fn has_consumer(&self, index: usize) -> bool {
        index < self.consumers.len()
    }

    /// Where somebody is counted. A consumer that is not known is nobody: see [`Limit::has_consumer`].
    pub(super) fn spot(&self, counted: &Counted<'_>) -> Spot {
        match counted {
            Counted::All => Spot::All,
            Counted::Consumer(index) => Spot::Consumer(*index),
            Counted::Key(key) => Spot::Key(self.state.table.key(key)),
        }
    }

    /// The clock that this limit counts by: that of a quota stands still at the beginning of its span.
    fn clock(&self, now: Time) -> Time {
        self.calendar().map_or(now, |calendar| calendar.span(now).0)
    }

    pub(super) fn calendar(&self) -> Option<&Calendar> {
        self.state.calendar.as_ref()
    }

    pub(super) fn charge(&self, spot: Spot, now: Time) -> Decision {
        let clock = self.clock(now);
        let decision = match spot {
            Spot::Key(key) => self.table().charge(key, &self.rate, clock),
            Spot::All => self.state.route.charge(&self.rate, clock),
            Spot::Consumer(index) => match self.consumers.get(index) {
                Some(cell) => cell.charge(&self.rate, clock),
                None => Decision::Allowed { used: self.rate.amount },
            },
        };
        match (decision, self.calendar()) {
            (Decision::Denied { used, .. }, Some(calendar)) => {
                Decision::Denied { used, wait: calendar.span(now).1.saturating_sub(now) }
            }
            _ => decision,
        }
    }

    /// Gives back what was charged.
    pub(super) fn refund(&self, spot: Spot) {
        match spot {
            Spot::Key(key) => self.table().refund(key, self.rate.amount),
            Spot::All => self.state.route.refund(self.rate.amount),
            Spot::Consumer(index) => {
                if let Some(cell) = self.consumers.get(index) {
                    cell.refund(self.rate.amount);
                }
            }
        }
    }

    /// Takes what a request turned out to cost beyond the one that it was charged for; how much is then used.
    pub(super) fn force(&self, spot: Spot, more: u32, now: Time) -> Time {
        let (clock, amount) = (self.clock(now), self.rate.interval.saturating_mul(more.into()));
        match spot {
            Spot::Key(key) => self.table().force(key, &self.rate, amount, clock),
            Spot::All => self.state.route.force(&self.rate, amount, clock),
            Spot::Consumer(index) => {
                self.consumers.get(index).map_or(0, |cell| cell.force(&self.rate, amount, clock))
            }
        }
    }

    fn table(&self) -> &Table {
        &self.state.table
    }

    /// The values of the fields while so much is used, where they are told.
    pub(super) fn told(
        &self,
        used: Time,
        now: impl FnOnce() -> Time,
    ) -> Option<(&Prepared, &Prepared, LimitEnd)> {
        let fields = self.fields.as_ref()?;
        let reset = match self.calendar() {
            Some(calendar) => {
                let now = now();
                calendar.span(now).1.saturating_sub(now)
            }
            None => used,
        };
        Some((&fields.policy, &fields.limit, limit_end(&self.rate, used, reset)))
    }

    /// The same as fields of an answer.
    pub(super) fn tell(&self, used: Time, now: Time, headers: &mut Vec<(FieldName, Vec<u8>)>) {
        if let Some((policy, limit, end)) = self.told(used, || now) {
            headers.push((field_name(POLICY), policy.value_begin().to_vec()));
            headers.push((field_name(LIMIT), [limit.value_begin(), &end].concat()));
        }
    }
}

impl Fields {
    fn new(read: &Read) -> Self {
        // `w` counts whole seconds; for other times, and for months, it is left out, which the draft allows.
        let window = match read.per {
            Per::Time(per) if per.get().as_secs() > 0 && per.get().subsec_nanos() == 0 => {
                format!(";w={}", per.get().as_secs())
            }
            Per::Span(super::calendar::Unit::Day) => ";w=86400".to_owned(),
            Per::Time(_) | Per::Span(_) => String::new(),
        };
        let prepared = |field, value: String| {
            Prepared::new(&field_name(field), value.as_bytes())
                .expect("digits and a checked name may be sent")
        };
        let (name, requests) = (&read.name, read.requests);
        Self {
            policy: prepared(POLICY, format!("\"{name}\";q={requests}{window}")),
            limit: prepared(LIMIT, format!("\"{name}\";r=")),
        }
    }
}

/// `r`: requests that would pass now. `t`: seconds until all of the limit is there again.
fn limit_end(rate: &Rate, used: Time, reset: Time) -> LimitEnd {
    let mut digits = itoa::Buffer::new();
    let mut end = LimitEnd::from_slice(digits.format(rate.remaining(used)).as_bytes());
    end.extend_from_slice(b";t=");
    end.extend_from_slice(digits.format(reset.div_ceil(SECOND)).as_bytes());
    end
}

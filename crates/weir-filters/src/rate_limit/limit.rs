//! One limit of a filter: its rate, its counters, and the response fields that describe it.

use super::calendar::Calendar;
use super::gcra::{Cell, Decision, Rate, SECOND, Time};
use super::settings::{Per, Read};
use super::table::{self, Table};
use super::{State, field_name};
use crate::shared::by::Counted;
use std::sync::Arc;
use weir_filter::filter::Consumers;
use weir_h1::{FieldName, Numbered, Prepared};

pub(super) const POLICY: &str = "RateLimit-Policy";
pub(super) const LIMIT: &str = "RateLimit";

pub(super) struct Limit {
    pub(super) rate: Rate,
    pub(super) state: Arc<State>,
    consumers: Vec<Arc<Cell>>,
    pub(super) fields: Option<Fields>,
    /// For operators: `100 in 1s`.
    pub(super) described: String,
}

/// Where a request is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    All,
    Consumer(usize),
    Key(table::Key),
}

/// The response fields that describe the limit, with the parts known in advance.
pub(super) struct Fields {
    /// Both fields, up to the numbers at the end of the second.
    both: Numbered<{ RESET.len() }>,
    policy: String,
    /// `"name";r=`
    limit: String,
}

/// The text between the two numbers of `RateLimit`.
const RESET: [u8; 3] = *b";t=";

/// The state of a limit, as sent to a client.
pub(super) struct LimitFields<'a> {
    fields: &'a Fields,
    /// Requests that would pass now.
    left: u64,
    /// Time until the whole limit is available again.
    reset: Time,
}

impl Limit {
    pub(super) fn new(read: Read, state: Arc<State>, consumers: &Consumers, headers: bool) -> Self {
        let fields = headers.then(|| Fields::new(&read));
        let described = read.described();
        Self { rate: read.rate, consumers: state.cells_of(consumers), state, fields, described }
    }

    /// Requests that pass at once after a pause, or in a whole day or month.
    pub(super) const fn burst(&self) -> u64 {
        self.rate.window / self.rate.interval
    }

    pub(super) fn has_consumer(&self, index: usize) -> bool {
        index < self.consumers.len()
    }

    /// Where a request is counted. An unknown consumer has no spot: see [`Limit::has_consumer`].
    pub(super) fn spot(&self, counted: &Counted<'_>) -> Spot {
        match counted {
            Counted::All => Spot::All,
            Counted::Consumer(index) => Spot::Consumer(*index),
            Counted::Key(key) => Spot::Key(self.state.table.key(key)),
        }
    }

    /// The clock of this limit. For a quota it stands still at the beginning of the span.
    fn clock(&self, now: Time) -> Time {
        self.calendar().map_or(now, |calendar| calendar.span(now).0)
    }

    pub(super) fn calendar(&self) -> Option<&Calendar> {
        self.state.calendar.as_ref()
    }

    /// This gateway's part of the rate if `of` gateways share it. One request always fits.
    fn share(&self, of: u32) -> Rate {
        let (interval, amount) =
            (self.rate.interval.saturating_mul(of.into()), self.rate.amount.saturating_mul(of.into()));
        Rate { interval, amount: amount.min(self.rate.window), ..self.rate }
    }

    /// Charges a request, with `of` gateways sharing the limit.
    #[inline(always)] // where the caller knows that it is a consumer's, only a compare-and-swap is left
    pub(super) fn charge(&self, spot: Spot, of: u32, now: Time) -> Decision {
        let (clock, rate) = (self.clock(now), self.share(of));
        let decision = match spot {
            Spot::Key(key) => self.table().charge(key, &rate, clock),
            Spot::All => self.state.route.charge(&rate, clock),
            Spot::Consumer(index) => match self.consumers.get(index) {
                Some(cell) => cell.charge(&rate, clock),
                None => Decision::Allowed { used: rate.amount },
            },
        };
        match (decision, self.calendar()) {
            (Decision::Denied { used, .. }, Some(calendar)) => {
                Decision::Denied { used, wait: calendar.span(now).1.saturating_sub(now) }
            }
            _ => decision,
        }
    }

    /// Refunds a charge.
    pub(super) fn refund(&self, spot: Spot, of: u32) {
        let amount = self.share(of).amount;
        match spot {
            Spot::Key(key) => self.table().refund(key, amount),
            Spot::All => self.state.route.refund(amount),
            Spot::Consumer(index) => {
                if let Some(cell) = self.consumers.get(index) {
                    cell.refund(amount);
                }
            }
        }
    }

    /// Takes the cost of a request beyond the one already charged; returns how much is then used.
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

    /// What the client gets when this much is used, if the limit has response fields.
    #[inline(always)] // returned, it would be copied twice
    pub(super) fn fields_used(&self, used: Time, now: impl FnOnce() -> Time) -> Option<LimitFields<'_>> {
        let fields = self.fields.as_ref()?;
        let reset = match self.calendar() {
            Some(calendar) => {
                let now = now();
                calendar.span(now).1.saturating_sub(now)
            }
            None => used,
        };
        Some(LimitFields { fields, left: self.rate.remaining(used), reset })
    }

    /// The same for values counted elsewhere: requests left, and the time until the limit is full again.
    pub(super) fn fields_left(&self, left: u64, reset: Time) -> Option<LimitFields<'_>> {
        Some(LimitFields { fields: self.fields.as_ref()?, left, reset })
    }
}

impl LimitFields<'_> {
    /// Adds the fields to a response.
    #[inline]
    pub(super) fn add_to(&self, fields: &mut weir_h1::Fields) {
        fields.append_numbered(&self.fields.both, self.numbers());
    }

    /// The same, as a list for a response of the gateway.
    pub(super) fn list(&self) -> Vec<(FieldName, Vec<u8>)> {
        let Fields { policy, limit, .. } = self.fields;
        let [left, seconds] = self.numbers();
        let between = str::from_utf8(&RESET).unwrap_or_default();
        vec![
            (field_name(POLICY), policy.clone().into_bytes()),
            (field_name(LIMIT), format!("{limit}{left}{between}{seconds}").into_bytes()),
        ]
    }

    /// What is left, and the seconds until the reset.
    const fn numbers(&self) -> [u64; 2] {
        [self.left, self.reset.div_ceil(SECOND)]
    }
}

impl Fields {
    fn new(read: &Read) -> Self {
        // `w` is in whole seconds. For other times, and for months, it is left out, which the draft allows.
        let window = match read.per {
            Per::Time(per) if per.get().as_secs() > 0 && per.get().subsec_nanos() == 0 => {
                format!(";w={}", per.get().as_secs())
            }
            Per::Span(super::calendar::Unit::Day) => ";w=86400".to_owned(),
            Per::Time(_) | Per::Span(_) => String::new(),
        };
        let (name, requests) = (&read.name, read.requests);
        let policy = format!("\"{name}\";q={requests}{window}");
        let limit = format!("\"{name}\";r=");
        let both = Prepared::new(&field_name(POLICY), policy.as_bytes())
            .and_then(|first| first.and(&field_name(LIMIT), limit.as_bytes()))
            .and_then(|fields| Numbered::new(fields, RESET))
            .expect("digits and a checked name may be sent");
        Self { both, policy, limit }
    }
}

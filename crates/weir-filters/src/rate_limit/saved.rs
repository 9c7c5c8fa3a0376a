//! Counters serialized for the process that an upgrade starts, so that limits do not restart from zero.
//!
//! ```text
//!   saved at (ns since 1970) │ interval │ route's debt │ table: shared seed, own seed, n × (key, debt)
//!   │ n × (name, debt) of consumers
//! ```
//! A quota is saved as of the beginning of its day or month, so its debts continue in the same span only.
//!
//! The *interval* is what one request took. A limit with another interval keeps the same number of used requests:
//! each debt is scaled.
//!
//! All numbers are 64 bits, big-endian. A *debt* is how far a TAT lies ahead of the moment of saving, because clocks
//! that start with a process mean nothing to the next one. Keys are saved as hashes, together with the seeds that
//! they were hashed with.

use super::State;
use super::calendar::Calendar;
use super::gcra::{self, Cell, Time};
use super::table::{Seeds, Table};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest consumer name that is read back, in bytes. A longer one means the text is corrupt.
const NAME_BYTES: u64 = 4096;

/// Nanoseconds since 1970.
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn save(state: &State) -> Vec<u8> {
    let (now, wall) = clocks(state.calendar.as_ref());
    save_at(state, now, wall)
}

/// The moment that debts are measured from, on the clock of this process and on the wall clock.
fn clocks(calendar: Option<&Calendar>) -> (Time, u64) {
    match calendar {
        Some(calendar) => (calendar.span(gcra::now()).0, calendar.began().saturating_mul(1_000_000_000)),
        None => (gcra::now(), wall_clock()),
    }
}

/// `None` if [`save`] did not write the text, or if the table's seeds cannot be adopted.
pub(super) fn load(saved: &[u8], keys: u32, interval: Time, calendar: Option<Calendar>) -> Option<State> {
    let (now, wall) = clocks(calendar.as_ref());
    Some(State { calendar, ..load_at(saved, (keys, interval), now, wall)? })
}

fn save_at(state: &State, now: Time, wall: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |number: u64| out.extend_from_slice(&number.to_be_bytes());
    put(wall);
    put(state.interval);
    put(state.route.debt(now));
    let seeds = state.table.seeds();
    put(seeds.shared);
    put(seeds.own);
    let debts = state.table.debts(now);
    put(debts.len() as u64);
    for (key, debt) in debts {
        put(key);
        put(debt);
    }
    let consumers = state.consumers.lock().unwrap_or_else(PoisonError::into_inner);
    let consumers: Vec<_> =
        consumers.iter().filter_map(|(name, cell)| Some((name, cell.upgrade()?.debt(now)))).collect();
    out.extend_from_slice(&(consumers.len() as u64).to_be_bytes());
    for (name, debt) in consumers {
        out.extend_from_slice(&(name.len() as u64).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&debt.to_be_bytes());
    }
    out
}

fn load_at(saved: &[u8], (keys, interval): (u32, Time), now: Time, wall: u64) -> Option<State> {
    let mut rest = saved;
    // If the clock was set back in between, no time counts as passed.
    let passed = wall.saturating_sub(number(&mut rest)?).saturating_mul(16);
    let then = number(&mut rest).filter(|interval| *interval > 0)?;
    // Multiplies first, to keep the number of whole requests.
    let scaled = |debt: u64| u128::from(debt) * u128::from(interval) / u128::from(then);
    let tat = |debt: u64| {
        let debt = scaled(debt.saturating_sub(passed));
        now.saturating_add(u64::try_from(debt).unwrap_or(u64::MAX))
    };
    let route = Cell::at(tat(number(&mut rest)?));
    let seeds = Seeds { shared: number(&mut rest)?, own: number(&mut rest)? };
    let table = Table::with_seeds(keys as usize, seeds)?;
    for _ in 0..number(&mut rest)? {
        let (key, debt) = (number(&mut rest)?, number(&mut rest)?);
        if debt > passed {
            table.restore(key, tat(debt), now);
        }
    }
    let mut consumers = HashMap::new();
    for _ in 0..number(&mut rest)? {
        let length = number(&mut rest).filter(|length| *length <= NAME_BYTES)?;
        let (name, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        rest = after;
        let name = String::from_utf8(name.to_vec()).ok()?;
        consumers.insert(name, Arc::new(Cell::at(tat(number(&mut rest)?))));
    }
    let known = consumers.iter().map(|(name, cell)| (name.clone(), Arc::downgrade(cell))).collect();
    let inherited = Mutex::new(consumers.into_values().collect());
    rest.is_empty().then(|| State {
        calendar: None,
        interval,
        keys,
        route,
        table,
        consumers: Mutex::new(known),
        inherited,
    })
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::super::gcra::{Decision, Rate, SECOND};
    use super::*;
    use std::time::Duration;
    use weir_filter::filter::Consumer;

    const NOW: Time = 1000 * SECOND;

    fn allowed(decision: Decision) -> bool {
        matches!(decision, Decision::Allowed { .. })
    }

    #[test]
    fn debts_travel_and_shrink_on_the_way() {
        let rate = Rate::new(10, Duration::from_secs(10), 10).unwrap();
        let old = State::new(64, SECOND, None);
        let consumers: Arc<[Consumer]> = [Consumer { name: "shop".into(), ..Consumer::default() }].into();
        let of_consumers = old.cells_of(&consumers);
        let key = old.table.key((b'h', b"tenant".as_slice()));
        for _ in 0..10 {
            assert!(allowed(old.table.charge(key, &rate, NOW)));
            assert!(allowed(old.route.charge(&rate, NOW)));
            assert!(allowed(of_consumers[0].charge(&rate, NOW)));
        }
        let saved = save_at(&old, NOW, 5_000_000_000);

        // Two seconds later, in a process whose own clock has just started: two requests fit, but no third.
        let (began, wall) = (SECOND, 7_000_000_000);
        let new = load_at(&saved, (64, SECOND), began, wall).unwrap();
        let of_consumers = new.cells_of(&consumers);
        let key = new.table.key((b'h', b"tenant".as_slice()));
        for nth in 1..=3 {
            assert_eq!(allowed(new.table.charge(key, &rate, began)), nth <= 2, "key, request {nth}");
            assert_eq!(allowed(new.route.charge(&rate, began)), nth <= 2, "route, request {nth}");
            assert_eq!(allowed(of_consumers[0].charge(&rate, began)), nth <= 2, "consumer, request {nth}");
        }
        let other = new.table.key((b'h', b"other".as_slice()));
        assert!(allowed(new.table.charge(other, &rate, began)));
    }

    #[test]
    fn what_was_used_stays_used_when_the_limit_moves() {
        let of = |requests| Rate::new(requests, Duration::from_secs(60), requests).unwrap();
        for (before, after, used, left) in [
            (20, 19, 15, 4),
            (20, 40, 15, 25),
            (20, 15, 15, 0),
            (20, 10, 15, 0),
            (7, 9, 3, 6),
            (20, 20, 0, 20),
        ] {
            let old = State::new(64, of(before).interval, None);
            let key = old.table.key(1);
            for _ in 0..used {
                assert!(allowed(old.table.charge(key, &of(before), NOW)));
                assert!(allowed(old.route.charge(&of(before), NOW)));
            }
            let saved = save_at(&old, NOW, 0);
            let new = load_at(&saved, (8, of(after).interval), NOW, 0).unwrap();
            for nth in 1..=left + 1 {
                assert_eq!(
                    allowed(new.table.charge(key, &of(after), NOW)),
                    nth <= left,
                    "{before} to {after}: {nth}"
                );
                assert_eq!(
                    allowed(new.route.charge(&of(after), NOW)),
                    nth <= left,
                    "{before} to {after}: {nth}"
                );
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_refused() {
        let old = State::new(64, SECOND, None);
        let rate = Rate::new(1, Duration::from_secs(1), 1).unwrap();
        old.table.charge(old.table.key(1), &rate, NOW);
        let saved = save_at(&old, NOW, 0);
        assert!(load_at(&saved, (64, SECOND), NOW, 0).is_some());
        for length in 0..saved.len() {
            assert!(load_at(&saved[..length], (64, SECOND), NOW, 0).is_none(), "{length} bytes");
        }
        assert!(load_at(&[&saved[..], b"x"].concat(), (64, SECOND), NOW, 0).is_none());
    }
}

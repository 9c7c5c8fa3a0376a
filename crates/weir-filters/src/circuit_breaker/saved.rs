//! Open circuits, serialized for the process that an upgrade starts. The counts of closed circuits are not saved,
//! because a window is short.
//!
//! ```text
//!   saved at (ns since 1970) │ n × (bytes of the name, name of the upstream, ns that it stays open)
//! ```
//! All numbers are 64 bits, big-endian. A half-open circuit is saved as one whose time has passed: the next attempt
//! is a probe.

use super::asked::now;
use super::circuit::Circuit;
use super::{ByUpstream, Circuits};
use crate::prelude::Portable;
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest upstream name that is read back, in bytes. A longer one means the text is corrupt.
const NAME_BYTES: u64 = 4096;

impl Portable for Circuits {
    fn save(&self) -> Vec<u8> {
        save_at(self, now(), wall_clock())
    }
}

/// `None` if [`Circuits::save`] did not write the text. No circuit stays open longer than `most`, the setting `open`.
pub(super) fn load(saved: &[u8], most: Duration) -> Option<Circuits> {
    load_at(saved, most, now(), wall_clock())
}

/// Time since 1970.
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn save_at(circuits: &Circuits, now: Duration, wall: Duration) -> Vec<u8> {
    let mut out = nanos(wall).to_vec();
    for (name, circuit) in circuits.by_upstream.load().iter() {
        if let Some(left) = circuit.still_open(now) {
            out.extend_from_slice(&(name.len() as u64).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&nanos(left));
        }
    }
    out
}

fn load_at(saved: &[u8], most: Duration, now: Duration, wall: Duration) -> Option<Circuits> {
    let mut rest = saved;
    // If the clock was set back in between, no time counts as passed.
    let passed = wall.saturating_sub(Duration::from_nanos(number(&mut rest)?));
    let mut by_upstream = ByUpstream::default();
    while !rest.is_empty() {
        let length = number(&mut rest).filter(|length| *length <= NAME_BYTES)?;
        let (name, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        rest = after;
        let name = String::from_utf8(name.to_vec()).ok()?;
        let left = Duration::from_nanos(number(&mut rest)?).saturating_sub(passed).min(most);
        by_upstream.insert(name, Arc::new(Circuit::open_until(now + left)));
    }
    Some(Circuits { by_upstream: ArcSwap::from_pointee(by_upstream), adding: Mutex::default() })
}

fn nanos(time: Duration) -> [u8; 8] {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_be_bytes()
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::super::circuit::{AttemptResult, Pass, Rules};
    use super::*;

    const OPEN: Duration = Duration::from_secs(15);
    const RULES: Rules = Rules {
        errors: 0.5,
        slow: f64::INFINITY,
        minimum: 2,
        window: Duration::from_secs(10),
        open: OPEN,
        probes: 1,
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ask(circuits: &Circuits, upstream: &str, now: u64) -> Pass {
        circuits.of(upstream).ask(&RULES, || at(now)).0
    }

    /// `ill` has failed twice, `well` never.
    fn saved() -> Vec<u8> {
        let old = Circuits::default();
        for _ in 0..2 {
            let Pass::Counted(generation) = ask(&old, "ill", 100) else { panic!("it is closed") };
            old.of("ill").count(generation, AttemptResult::Failed, &RULES, at(100));
        }
        assert!(matches!(ask(&old, "well", 100), Pass::Counted(_)));
        save_at(&old, at(105), at(5000))
    }

    #[test]
    fn what_is_open_stays_open_for_what_is_left() {
        // 10 s are left when it is saved; 4 s later, a process whose clock has just started loads it.
        let new = load_at(&saved(), OPEN, at(1), at(5004)).unwrap();
        assert_eq!(ask(&new, "ill", 1), Pass::Refused(at(6)));
        assert!(matches!(ask(&new, "well", 1), Pass::Counted(_)));
        let Pass::Probe(generation) = ask(&new, "ill", 7) else { panic!("its time has passed") };
        // Another upgrade while the probe is under way makes the next attempt a probe.
        let newer = load_at(&save_at(&new, at(7), at(6000)), OPEN, at(0), at(6000)).unwrap();
        assert!(matches!(ask(&newer, "ill", 0), Pass::Probe(_)));
        new.of("ill").probed(generation, Some(AttemptResult::Well), &RULES, at(8));
        assert_eq!(new.of("ill").still_open(at(8)), None);
        assert!(matches!(ask(&new, "ill", 8), Pass::Counted(_)));
    }

    #[test]
    fn no_clock_keeps_it_open_for_longer_than_the_settings_do() {
        for wall in [0, 4999, 5000] {
            let new = load_at(&saved(), at(3), at(1), at(wall)).unwrap();
            assert_eq!(ask(&new, "ill", 1), Pass::Refused(at(3)), "{wall}");
        }
        let late = load_at(&saved(), OPEN, at(1), at(9000)).unwrap();
        assert!(matches!(ask(&late, "ill", 1), Pass::Probe(_)));
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_refused() {
        let saved = saved();
        for length in (0..saved.len()).filter(|length| *length != 8) {
            assert!(load_at(&saved[..length], OPEN, at(1), at(1)).is_none(), "{length} bytes");
        }
        assert!(load_at(&[&saved[..], b"x"].concat(), OPEN, at(1), at(1)).is_none());
        let endless = [&saved[..8], &u64::MAX.to_be_bytes()].concat();
        assert!(load_at(&endless, OPEN, at(1), at(1)).is_none());
    }
}

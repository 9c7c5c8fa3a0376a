//! When to renew a certificate, and when to retry after a failure. Pure: times (in seconds since 1970) and random
//! numbers are arguments.

use crate::failure::{Failure, Kind};
use serde::{Deserialize, Serialize};
use weir_wire::tls::Validity;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Without a suggestion by the authority, certificates with a shorter life than this are renewed after half of it,
/// others after two thirds.
const SHORT_LIVED: i64 = 10 * DAY;

/// Waits after consecutive failures. Let's Encrypt allows five failed proofs per name and hour.
const REFUSED: [i64; 8] = [MINUTE, 5 * MINUTE, 15 * MINUTE, 45 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR];

/// Waits if the authority was unreachable, which costs it nothing.
const AWAY: [i64; 8] = [1, 2, 5, 10, 30, MINUTE, 2 * MINUTE, 5 * MINUTE];

/// Shortest and longest time between two requests for renewal information (RFC 9773 §4.3.2), and the default if the
/// authority names none.
const LOOK_SOONEST: i64 = MINUTE;
const LOOK_LATEST: i64 = DAY;
const LOOK_USUAL: i64 = 6 * HOUR;

/// A renewal window suggested by the authority (RFC 9773).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suggestion {
    /// The certificate it applies to.
    pub(crate) certificate: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The time chosen within the window: the same after a restart and on every node.
    pub(crate) chosen: i64,
    /// When to ask again.
    pub(crate) look_at: i64,
    /// The reason, as a URL for people.
    #[serde(default)]
    pub(crate) explanation: Option<String>,
}

impl Suggestion {
    /// A window from an authority; `None` if it is invalid. `dice` is any number.
    pub(crate) fn new(
        certificate: &str,
        start: i64,
        end: i64,
        now: i64,
        wait: Option<u64>,
        dice: u64,
    ) -> Option<Self> {
        if end <= start {
            return None; // RFC 9773 §4.2
        }
        let look_at = now + look_again(wait);
        let chosen = start + below(dice, end - start);
        Some(Self { certificate: certificate.to_owned(), start, end, chosen, look_at, explanation: None })
    }
}

/// How many seconds to wait before asking again.
pub(crate) fn look_again(wait: Option<u64>) -> i64 {
    let wait = wait.and_then(|wait| i64::try_from(wait).ok()).unwrap_or(LOOK_USUAL);
    wait.clamp(LOOK_SOONEST, LOOK_LATEST)
}

/// When to renew a certificate. A suggestion by the authority counts, but cannot move renewal into the last sixth of
/// the certificate's life.
pub(crate) fn due(validity: Validity, suggestion: Option<&Suggestion>, dice: u64) -> i64 {
    let life = (validity.not_after - validity.not_before).max(0);
    let usual = || {
        let share = if life < SHORT_LIVED { life / 2 } else { life / 3 * 2 };
        // A little earlier, at random, so that certificates ordered together are not renewed together.
        validity.not_before + share - below(dice, life / 50)
    };
    let latest = validity.not_after - life / 6;
    suggestion.map_or_else(usual, |suggestion| suggestion.chosen).min(latest)
}

/// How long to wait after a failure: `failures` consecutive ones, including this one. `left` is the remaining
/// validity of the certificate in use.
pub(crate) fn wait_after(failure: &Failure, failures: u32, left: Option<i64>, dice: u64) -> i64 {
    let steps = if failure.kind == Kind::Away { AWAY } else { REFUSED };
    let step = usize::try_from(failures.max(1) - 1).unwrap_or(usize::MAX).min(steps.len() - 1);
    let wait = steps[step];
    let wait = wait + below(dice, wait / 5);
    // The closer the expiry, the shorter the wait. But the authority's own waits and limits still count.
    let wait = match left.filter(|left| *left > 0) {
        Some(left) => wait.min((left / 20).max(10 * MINUTE)),
        None => wait,
    };
    let asked = failure.retry_after.and_then(|wait| i64::try_from(wait).ok()).unwrap_or(0);
    wait.max(asked)
}

/// A number from 0 to `limit` - 1; 0 if `limit` is not positive.
fn below(dice: u64, limit: i64) -> i64 {
    match u64::try_from(limit) {
        Ok(limit) if limit > 0 => i64::try_from(dice % limit).unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000 * DAY;

    fn lives(days: i64) -> Validity {
        Validity { not_before: NOW, not_after: NOW + days * DAY }
    }

    #[test]
    fn without_a_suggestion_two_thirds_or_half_of_a_life_count() {
        for dice in [0, 1, 12_345, u64::MAX] {
            let long = due(lives(90), None, dice) - NOW;
            assert!((58 * DAY..=60 * DAY).contains(&long), "{}", long / DAY);
            let short = due(lives(6), None, dice) - NOW;
            assert!((2 * DAY..=3 * DAY).contains(&short), "{}", short / HOUR);
        }
        let none = Validity { not_before: NOW, not_after: NOW - 5 };
        assert!(due(none, None, 7) <= NOW, "a life of nothing is over");
    }

    #[test]
    fn a_suggestion_counts_but_not_into_the_end() {
        let window =
            |from: i64, to: i64, dice| Suggestion::new("c", NOW + from, NOW + to, NOW, None, dice).unwrap();
        for dice in [0, 5, u64::MAX] {
            let at = due(lives(90), Some(&window(10 * DAY, 11 * DAY, dice)), 0);
            assert!((NOW + 10 * DAY..NOW + 11 * DAY).contains(&at));
        }
        assert_eq!(due(lives(90), Some(&window(100 * DAY, 101 * DAY, 0)), 0), NOW + 75 * DAY);
        assert!(due(lives(90), Some(&window(-3 * DAY, -2 * DAY, 9)), 0) < NOW, "revoked: at once");
        assert_eq!(Suggestion::new("c", 5, 5, NOW, None, 0), None);
        assert_eq!(window(1, 9, 0).look_at, NOW + LOOK_USUAL);
        assert_eq!((look_again(Some(0)), look_again(Some(600))), (LOOK_SOONEST, 600));
        assert_eq!(look_again(Some(30 * 86_400)), LOOK_LATEST);
    }

    #[test]
    fn waits_grow_and_end() {
        let refused = Failure::new(Kind::Challenge, "");
        let waits: Vec<i64> = (1..=9).map(|n| wait_after(&refused, n, None, 0)).collect();
        assert!(waits.is_sorted() && waits[8] == 12 * HOUR, "{waits:?}");
        // Four attempts in the first hour: Let's Encrypt allows five failures.
        let hour = waits.iter().scan(0, |at, wait| {
            *at += wait;
            Some(*at)
        });
        assert_eq!(1 + hour.filter(|at| *at <= HOUR).count(), 4);
        let away = Failure::new(Kind::Away, "");
        assert_eq!((wait_after(&away, 1, None, 0), wait_after(&away, 99, None, 0)), (1, 5 * MINUTE));
    }

    #[test]
    fn the_end_of_a_certificate_shortens_waits_and_an_authority_lengthens_them() {
        let mut refused = Failure::new(Kind::Refused, "");
        assert_eq!(wait_after(&refused, 9, Some(20 * HOUR), 0), HOUR);
        assert_eq!(wait_after(&refused, 9, Some(HOUR), 0), 10 * MINUTE);
        assert_eq!(wait_after(&refused, 1, Some(HOUR), 0), MINUTE);
        refused.retry_after = Some(7_200);
        assert_eq!(wait_after(&refused, 1, Some(HOUR), 0), 7_200);
    }
}

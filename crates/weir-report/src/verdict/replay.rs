//! Whether a replay sent what was recorded, and when it was recorded.

use super::{ERRORS, LATE_NS, percent, share};
use crate::Report;
use crate::report::{BROKEN, ReplayStats, is_expected};
use crate::units::{grouped, time};

/// How late the requests of a replay may be at p99: 5 % of the mean time between them, but not below [`LATE_NS`],
/// which timers need, and not above 10 ms.
const LATE_MOST_NS: u64 = 10_000_000;
const LATE_OF_GAP: u64 = 20;

pub(super) fn late_starts(replay: &ReplayStats) -> Option<String> {
    let p99 = replay.drift.quantile(0.99);
    let most = (replay.gap_ns / LATE_OF_GAP).clamp(LATE_NS, LATE_MOST_NS);
    (p99 > most).then(|| {
        format!(
            "requests were sent late: p99 {} after the planned moment, and {} is the most: use more connections, or a lower --speed",
            time(p99 as f64),
            time(most as f64)
        )
    })
}

/// Responses of a replay whose status is unexpected and not the recorded one.
pub(super) fn unexpected(replay: &ReplayStats) -> u64 {
    let is_new = |then: Option<u16>, now: u16| !is_expected(now) && then != Some(now);
    replay.statuses.iter().filter(|p| p.now.is_some_and(|now| is_new(p.then, now))).map(|p| p.requests).sum()
}

pub(super) fn unread_records(r: &Report) -> Option<String> {
    let replay = r.replay.as_ref()?;
    let n = replay.unusable();
    // Nobody knows how many records a broken file had.
    let is_broken = replay.left_out.contains_key(BROKEN);
    (is_broken || share(n, replay.records) > ERRORS).then(|| {
        let first = replay.first_unread.first();
        let first = first.map_or_else(String::new, |u| format!("; the first in line {} ({})", u.line, u.why));
        format!("{} of {} records could not be replayed{first}", grouped(n), grouped(replay.records))
    })
}

pub(super) fn out_of_order(r: &Report) -> Option<String> {
    let replay = r.replay.as_ref()?;
    let n = replay.out_of_order;
    (share(n, replay.planned) > ERRORS).then(|| {
        format!(
            "{} of the requests came too late in the log to be sorted, and were sent at once: raise --reorder",
            percent(share(n, replay.planned))
        )
    })
}

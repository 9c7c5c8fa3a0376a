//! Makes the plan of `weir replay`.

use crate::plan::Plan;
use crate::replay::{Replay, ReplayOptions};
use crate::{Mistake, Options};
use std::collections::BTreeSet;
use weir_report::Threshold;
use weir_report::report::Pace;

/// Default connections: as many as other open and closed loops have.
const CONNECTIONS: u64 = super::CONNECTIONS_RATE;
const CONNECTIONS_MAX_SPEED: u64 = super::CONNECTIONS;

impl Plan {
    /// A plan that replays a recording against the one target of `options`.
    ///
    /// # Errors
    /// Every mistake that can be found without sending a request. The first records are read for it.
    pub fn replaying(options: &Options, recording: &ReplayOptions) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        refuse_unfit(options, recording, &mut mistakes);
        let opened = Replay::open(recording, &mut mistakes);
        let is_max = recording.speed.as_deref() == Some("max");
        let default = if is_max { CONNECTIONS_MAX_SPEED } else { CONNECTIONS };
        let (of_replay, others) = thresholds(options, &mut mistakes);
        let options = Options {
            connections: options.connections.or(Some(default)),
            thresholds: others,
            ..options.clone()
        };
        let plans = Self::new(&options).and_then(|plan| {
            let head = Options { method: Some("HEAD".to_owned()), ..options.clone() };
            Ok((plan, Self::new(&head)?))
        });
        let (mut plan, head) = match plans {
            Ok(plans) => plans,
            Err(found) => {
                mistakes.extend(found);
                return Err(mistakes);
            }
        };
        if let Some(target) = plan.as_run.targets.first().filter(|t| t.path != "/") {
            let hint = "paths and queries are those of the recording: give the target without them";
            mistakes.push(Mistake::new(&format!("--target {}", target.url), hint));
        }
        let Some(mut replay) = opened else { return Err(mistakes) };
        if let Some(written) = plan.targets.first() {
            replay.set_head(written.bytes.get(..written.head_bytes).unwrap_or_default(), &given(&options));
        }
        if mistakes.is_empty() {
            replay.check_first(&mut mistakes);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        plan.targets.extend(head.targets);
        plan.as_run.targets.extend(head.as_run.targets);
        if let Some(target) = plan.as_run.targets.first_mut() {
            "any".clone_into(&mut target.method); // the other one counts HEAD
        }
        plan.as_run.pace = Pace::Replay { speed: replay.speed() };
        (plan.stop_ns, plan.as_run.stop.duration_ns) = (None, None);
        plan.replay = Some(replay);
        plan.thresholds.extend(of_replay);
        Ok(plan)
    }
}

/// The conditions on figures that only a replay has, and the others as written. The routes that they name are known at
/// the end only.
fn thresholds(options: &Options, mistakes: &mut Vec<Mistake>) -> (Vec<Threshold>, Vec<String>) {
    let (mut of_replay, mut others) = (Vec::new(), Vec::new());
    for text in &options.thresholds {
        match Threshold::parse("--threshold", text) {
            Ok(threshold) if threshold.is_of_replay() => of_replay.push(threshold),
            Ok(threshold) if threshold.scope().is_some() => {
                let hint = "of a route, only ratio, statuses-changed and lengths-changed are known";
                mistakes.push(Mistake::new(&format!("--threshold {text}"), hint));
            }
            _ => others.push(text.clone()), // a mistake in it is reported with those of the other options
        }
    }
    (of_replay, others)
}

/// Reports options that do not fit a replay.
fn refuse_unfit(options: &Options, recording: &ReplayOptions, mistakes: &mut Vec<Mistake>) {
    let by_client = recording.connections_by_client;
    for (option, is_wrong, hint) in [
        (
            "--connections-by client",
            by_client && options.streams.is_some_and(|n| n > 1),
            "a client has a connection of its own, so -m must be 1",
        ),
        (
            "--connections-by client",
            by_client && (options.http2 || options.http3),
            "works with HTTP/1.1 only: leave out --http2 and --http3",
        ),
    ] {
        if is_wrong {
            mistakes.push(Mistake::new(option, hint));
        }
    }
}

/// The fields that the command line gives, in lower case.
fn given(options: &Options) -> BTreeSet<String> {
    let named = |header: &String| Some(header.split_once(':')?.0.trim().to_ascii_lowercase());
    let mut given: BTreeSet<String> = options.headers.iter().filter_map(named).collect();
    if options.user.is_some() || options.bearer.is_some() {
        given.insert("authorization".to_owned());
    }
    if !options.cookies.is_empty() {
        given.insert("cookie".to_owned());
    }
    given
}

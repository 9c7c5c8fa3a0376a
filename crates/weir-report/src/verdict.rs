//! Whether a result can be believed: a pure function of the report, so that a saved report can be judged again.
//!
//! Each reason is a function from a [`Report`] to an optional sentence. docs/explain/verdict.md explains each code
//! and what to do about it.

mod addresses;
mod agents;
mod answers;
mod blocks;
mod connections;
mod contention;
mod course;
mod generator;
mod journey;
mod outside;
mod parts;
mod replay;
mod standstill;

pub use contention::{LITTLE, WAITED};
pub use journey::{BROKEN, KEEPS, WEIGHTS};
pub use outside::{Placement, spoilt_from_outside};
pub use standstill::{STILL, STILL_SHARE, STILL_TIMES};

use crate::Report;
use crate::report::{End, Grade, Reason, Verdict, responses_for};
use crate::units::{counted, grouped, time};

/// Possible reasons against a result, the most serious first.
pub static REASONS: &[Rule] = &[
    Rule { code: "no_responses", side: Side::Run, grade: Grade::Invalid, look: no_responses },
    Rule {
        code: "merge_mismatch",
        side: Side::Generator,
        grade: Grade::Invalid,
        look: agents::merge_mismatch,
    },
    Rule { code: "agent_lost", side: Side::Generator, grade: Grade::Invalid, look: agents::agent_lost },
    Rule { code: "wrong_protocol", side: Side::Answers, grade: Grade::Invalid, look: wrong_protocol },
    Rule { code: "not_grpc", side: Side::Answers, grade: Grade::Invalid, look: not_grpc },
    Rule { code: "mostly_errors", side: Side::Run, grade: Grade::Invalid, look: mostly_errors },
    Rule { code: "mostly_refused", side: Side::Answers, grade: Grade::Invalid, look: mostly_refused },
    Rule { code: "unequal_work", side: Side::Answers, grade: Grade::Invalid, look: unequal_work },
    Rule {
        code: "starved_connections",
        side: Side::Run,
        grade: Grade::Invalid,
        look: connections::starved_connections,
    },
    Rule {
        code: "out_of_ports",
        side: Side::Generator,
        grade: Grade::Invalid,
        look: generator::out_of_ports,
    },
    Rule {
        code: "out_of_descriptors",
        side: Side::Generator,
        grade: Grade::Invalid,
        look: generator::out_of_descriptors,
    },
    Rule { code: "rate_missed", side: Side::Run, grade: Grade::Invalid, look: rate_missed },
    Rule {
        code: "failed_keeps",
        side: Side::Answers,
        grade: Grade::Invalid,
        look: journey::mostly_failed_keeps,
    },
    Rule { code: "failed_keeps", side: Side::Answers, grade: Grade::Suspect, look: journey::failed_keeps },
    Rule { code: "broken_off", side: Side::Answers, grade: Grade::Invalid, look: journey::mostly_broken_off },
    Rule { code: "broken_off", side: Side::Answers, grade: Grade::Suspect, look: journey::broken_off },
    Rule { code: "unreached_step", side: Side::Run, grade: Grade::Suspect, look: journey::unreached_step },
    Rule { code: "weights_missed", side: Side::Run, grade: Grade::Suspect, look: journey::weights_missed },
    Rule {
        code: "agent_lost",
        side: Side::Generator,
        grade: Grade::Suspect,
        look: agents::agent_lost_and_borne,
    },
    Rule { code: "agents_apart", side: Side::Generator, grade: Grade::Suspect, look: agents::agents_apart },
    Rule { code: "agents_uneven", side: Side::Generator, grade: Grade::Suspect, look: agents::agents_uneven },
    Rule { code: "builds_differ", side: Side::Generator, grade: Grade::Suspect, look: agents::builds_differ },
    Rule { code: "part_invalid", side: Side::Run, grade: Grade::Suspect, look: part_invalid },
    Rule { code: "changed_by_hand", side: Side::Run, grade: Grade::Suspect, look: changed_by_hand },
    Rule { code: "clock_step", side: Side::Run, grade: Grade::Suspect, look: clock_step },
    Rule { code: "unfinished", side: Side::Run, grade: Grade::Suspect, look: unfinished },
    Rule { code: "stalled", side: Side::Run, grade: Grade::Suspect, look: standstill::stalled },
    Rule {
        code: "generator_paused",
        side: Side::Generator,
        grade: Grade::Suspect,
        look: standstill::generator_paused,
    },
    Rule {
        code: "generator_throttled",
        side: Side::Generator,
        grade: Grade::Suspect,
        look: standstill::generator_throttled,
    },
    Rule {
        code: "generator_busy",
        side: Side::Generator,
        grade: Grade::Suspect,
        look: generator::generator_busy,
    },
    Rule {
        code: "generator_waited",
        side: Side::Generator,
        grade: Grade::Suspect,
        look: generator::generator_waited,
    },
    Rule { code: "late_starts", side: Side::Generator, grade: Grade::Suspect, look: generator::late_starts },
    Rule { code: "out_of_order", side: Side::Run, grade: Grade::Suspect, look: replay::out_of_order },
    Rule { code: "unread_records", side: Side::Run, grade: Grade::Suspect, look: replay::unread_records },
    Rule { code: "littles_law", side: Side::Run, grade: Grade::Suspect, look: littles_law },
    Rule { code: "errors", side: Side::Run, grade: Grade::Suspect, look: errors },
    Rule { code: "status_mix", side: Side::Answers, grade: Grade::Suspect, look: status_mix },
    Rule { code: "redirects", side: Side::Answers, grade: Grade::Suspect, look: redirects },
    Rule { code: "odd_values", side: Side::Run, grade: Grade::Suspect, look: odd_values },
    Rule { code: "failed_checks", side: Side::Answers, grade: Grade::Suspect, look: failed_checks },
    Rule {
        code: "body_length_changed",
        side: Side::Answers,
        grade: Grade::Suspect,
        look: body_length_changed,
    },
    Rule {
        code: "answers_differ",
        side: Side::Answers,
        grade: Grade::Suspect,
        look: answers::answers_differ,
    },
    Rule { code: "cached", side: Side::Answers, grade: Grade::Suspect, look: answers::cached },
    Rule { code: "not_modified", side: Side::Answers, grade: Grade::Suspect, look: answers::not_modified },
    Rule {
        code: "not_kept_alive",
        side: Side::Run,
        grade: Grade::Suspect,
        look: connections::not_kept_alive,
    },
    Rule {
        code: "syn_retransmits",
        side: Side::Run,
        grade: Grade::Suspect,
        look: connections::syn_retransmits,
    },
    Rule { code: "one_stream", side: Side::Run, grade: Grade::Suspect, look: connections::one_stream },
    Rule { code: "few_streams", side: Side::Run, grade: Grade::Suspect, look: connections::few_streams },
    Rule { code: "delayed_ack", side: Side::Run, grade: Grade::Suspect, look: connections::delayed_ack },
    Rule { code: "dead_address", side: Side::Run, grade: Grade::Suspect, look: addresses::dead_address },
    Rule {
        code: "sessions_differ",
        side: Side::Run,
        grade: Grade::Suspect,
        look: connections::sessions_differ,
    },
    Rule { code: "unsolicited", side: Side::Answers, grade: Grade::Suspect, look: unsolicited },
    Rule { code: "cold_start", side: Side::Run, grade: Grade::Suspect, look: course::cold_start },
    Rule { code: "changed_midway", side: Side::Run, grade: Grade::Suspect, look: course::changed_midway },
    Rule { code: "drifted", side: Side::Run, grade: Grade::Suspect, look: course::drifted },
    Rule { code: "imported", side: Side::Run, grade: Grade::Suspect, look: imported },
    Rule { code: "short_blocks", side: Side::Run, grade: Grade::Suspect, look: blocks::short_blocks },
    Rule { code: "too_short", side: Side::Run, grade: Grade::Suspect, look: too_short },
    Rule { code: "ended_early", side: Side::Run, grade: Grade::Suspect, look: ended_early },
    // Intended, but readers of the figures must know it.
    Rule { code: "shared_cores", side: Side::Generator, grade: Grade::Valid, look: generator::shared_cores },
    Rule { code: "data_ended", side: Side::Run, grade: Grade::Valid, look: journey::data_ended },
    Rule { code: "one_identity", side: Side::Run, grade: Grade::Valid, look: journey::one_identity },
    Rule { code: "no_keepalive", side: Side::Run, grade: Grade::Valid, look: connections::no_keepalive },
    Rule { code: "resumed", side: Side::Run, grade: Grade::Valid, look: connections::resumed },
];

/// One possible reason against a result.
#[derive(Debug)]
pub struct Rule {
    /// Its stable name.
    pub code: &'static str,
    /// Who causes it.
    pub side: Side,
    /// The grade that it causes.
    pub grade: Grade,
    /// The observation, if the reason applies.
    pub look: fn(&Report) -> Option<String>,
}

/// Who causes a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Only the target, by its answers.
    Answers,
    /// The generator or its machine.
    Generator,
    /// Either or neither: the course of the run.
    Run,
}

/// The grade that the reason with this code causes.
pub(crate) fn grade_of(code: &str) -> Grade {
    REASONS.iter().find(|rule| rule.code == code).map_or(Grade::Suspect, |rule| rule.grade)
}

/// Who causes the reason with this code.
pub(crate) fn side_of(code: &str) -> Side {
    REASONS.iter().find(|rule| rule.code == code).map_or(Side::Run, |rule| rule.side)
}

/// If a generator thread uses the processor more than this, the result measures the generator.
pub const BUSY: f64 = 0.80;

/// Shorter runs are not judged by processor use, since starting and ending would outweigh the load. They are
/// `too_short` anyway.
pub const JUDGED_NS: u64 = 200_000_000;

/// A block of a comparison, or of `--rounds`, must hold at least this many mean response times.
pub(crate) const TURNS_LEAST: f64 = 10.0;

/// How late the generator itself may be at p99: 1 ms.
pub const LATE_NS: u64 = 1_000_000;

/// Share of planned starts that may be missing.
pub const MISSED: f64 = 0.02;

/// Share of requests that may end in an error or an unexpected status.
pub const ERRORS: f64 = 0.001;

/// Share of WebSocket messages that may be unsolicited.
pub const UNSOLICITED: f64 = 0.01;

/// Share of responses that may be the last on their connection despite keep-alive.
pub const REOPENED: f64 = 0.01;

/// A clock change above this is a step and not drift: NTP slews by 0.05 % at most; this is ten times that, but at
/// least 10 ms.
pub const CLOCK_SHARE: f64 = 0.005;

/// The error text if a target without HTTP/2 is asked for it by prior knowledge.
pub const ANSWERED_OLD: &str = "the target answered in HTTP/1 to a client that started with HTTP/2";

/// The error text if a target does not choose HTTP/2, which gRPC needs.
pub const CHOSE_OLD: &str = "the target did not choose HTTP/2 by ALPN, which gRPC needs";

/// Judges a report by its own figures.
pub fn judge(report: &Report) -> Verdict {
    judge_by(report, |_| true)
}

/// Reasons that the figures of a run in progress can show. The others need its end, or the threads' final results.
const DEVELOPING: [&str; 8] = [
    "errors",
    "failed_checks",
    "generator_busy",
    "mostly_errors",
    "mostly_refused",
    "no_responses",
    "stalled",
    "status_mix",
];

/// Judges a run in progress.
pub fn developing(report: &Report) -> Verdict {
    judge_by(report, |rule| DEVELOPING.contains(&rule.code))
}

/// Reasons that the figures of one part of a shape can show.
const OF_PART: [&str; 12] = [
    "no_responses",
    "not_grpc",
    "mostly_errors",
    "mostly_refused",
    "rate_missed",
    "unfinished",
    "late_starts",
    "errors",
    "status_mix",
    "redirects",
    "failed_checks",
    "too_short",
];

/// Judges a part of a shape, as a report of its own.
pub(crate) fn of_part(part: &Report) -> Verdict {
    judge_by(part, |rule| OF_PART.contains(&rule.code))
}

/// Reasons that recorded requests give in any case, since they differ from each other.
const NOT_OF_REPLAY: [&str; 6] =
    ["answers_differ", "body_length_changed", "cached", "not_modified", "redirects", "unequal_work"];

fn judge_by(report: &Report, is_asked: impl Fn(&Rule) -> bool) -> Verdict {
    let applies = |rule: &&Rule| report.replay.is_none() || !NOT_OF_REPLAY.contains(&rule.code);
    let found = REASONS.iter().filter(applies).filter(|rule| is_asked(rule)).filter_map(|rule| {
        let text = (rule.look)(report)?;
        Some(Reason { code: rule.code.to_owned(), grade: rule.grade, text })
    });
    let reasons: Vec<Reason> = found.collect();
    Verdict { grade: reasons.iter().map(|r| r.grade).max().unwrap_or_default(), reasons }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.001 {
        format!("{:.3} %", share * 100.0)
    } else {
        format!("{:.1} %", share * 100.0)
    }
}

fn no_responses(r: &Report) -> Option<String> {
    (r.counts.responses == 0).then(|| format!("no response to {} requests", grouped(r.counts.requests)))
}

fn wrong_protocol(r: &Report) -> Option<String> {
    let asked = r.plan.protocol.to_string();
    // A plan may have steps that speak others.
    let is_other = |p: &String| *p != asked && !r.plan.also.iter().any(|also| also.to_string() == *p);
    let other: u64 = r.ledger.protocols.iter().filter(|(p, _)| is_other(p)).map(|(_, n)| n).sum();
    let names: Vec<&str> = r.ledger.protocols.keys().filter(|p| is_other(p)).map(String::as_str).collect();
    // A target may continue without choosing, or end the handshake with an alert.
    let refused = |text: &String| text == CHOSE_OLD || text.contains("NoApplicationProtocol");
    if r.counts.error_texts.keys().any(refused) {
        let so = if r.is_grpc() { ", which gRPC requires" } else { "" };
        return Some(format!("the target did not choose {asked} by ALPN{so}"));
    }
    if r.counts.error_texts.contains_key(ANSWERED_OLD) {
        return Some(format!("the target answered in HTTP/1, but {asked} was requested"));
    }
    (other > 0).then(|| {
        format!("{} responses came as {}, but {asked} was requested", grouped(other), names.join(", "))
    })
}

fn not_grpc(r: &Report) -> Option<String> {
    let n = r.counts.not_grpc;
    (n > 0).then(|| {
        let others: Vec<String> = r
            .counts
            .statuses
            .iter()
            .filter(|(s, _)| **s != 200)
            .map(|(s, n)| format!("{s}: {}", grouped(*n)))
            .collect();
        let of =
            if others.is_empty() { String::new() } else { format!(" (HTTP statuses {})", others.join(", ")) };
        format!("{} responses are not gRPC: another content-type, or no grpc-status{of}", grouped(n))
    })
}

fn mostly_errors(r: &Report) -> Option<String> {
    let errors = r.counts.errors.total();
    (r.counts.responses > 0 && errors * 2 > r.finished())
        .then(|| format!("{} of the requests ended in an error", percent(share(errors, r.finished()))))
}

/// Whether a check states the wanted statuses or codes; then it decides, as `failed_checks`.
fn has_status_check(r: &Report) -> bool {
    let is_mixed = r.counts.unexpected.is_some();
    let is_of = |check: &str| match check.starts_with("grpc=") || check.starts_with("grpc-status=") {
        true => r.is_grpc(),
        false => check.starts_with("status=") && (is_mixed || !r.is_grpc()),
    };
    r.checks.iter().any(|c| is_of(&c.check))
}

fn unexpected(r: &Report) -> u64 {
    if let Some(replay) = &r.replay {
        return replay::unexpected(replay);
    }
    r.counts.responses.saturating_sub(r.expected())
}

/// What is unexpected in the responses, as a phrase.
fn unexpected_words(r: &Report) -> &'static str {
    match (r.counts.unexpected.is_some(), r.is_grpc()) {
        (true, _) => "a status outside of 200 to 399, or a code that is not OK",
        (false, true) => "a code that is not OK",
        (false, false) => "a status outside of 200 to 399",
    }
}

fn mostly_refused(r: &Report) -> Option<String> {
    let unexpected = unexpected(r);
    (!has_status_check(r) && unexpected * 2 > r.counts.responses && r.counts.responses > 0).then(|| {
        format!(
            "{} of the responses have {}",
            percent(share(unexpected, r.counts.responses)),
            unexpected_words(r)
        )
    })
}

fn unequal_work(r: &Report) -> Option<String> {
    if r.is_journey() {
        return None; // its steps are meant to differ
    }
    let told = crate::work::unequal_places(r);
    (!r.plan.unequal_ok && !told.is_empty())
        .then(|| format!("{}: use `--unequal ok` if this is intended", told.join("; ")))
}

/// Statuses that redirect the client (RFC 9110 §15.4). 304 is an answer.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

fn redirects(r: &Report) -> Option<String> {
    let n: u64 = REDIRECTS.iter().filter_map(|status| r.counts.statuses.get(status)).sum();
    let are_followed = r.steps.iter().any(|s| s.name.ends_with(" (redirect)"));
    (!has_status_check(r) && !are_followed && n * 2 > r.counts.responses).then(|| {
        format!(
            "{} of the responses are redirects, which are not followed: request their target instead",
            percent(share(n, r.counts.responses))
        )
    })
}

fn odd_values(r: &Report) -> Option<String> {
    let mut all: Vec<String> =
        r.plan.targets.iter().flat_map(|t| &t.odd_values).map(|v| format!("`{v}`")).collect();
    all.sort_unstable();
    all.dedup();
    (!all.is_empty())
        .then(|| format!("requests contain {}, as if a placeholder was not filled in", all.join(", ")))
}

fn rate_missed(r: &Report) -> Option<String> {
    if r.is_journey() {
        return journey::iterations_missed(r);
    }
    let due = r.counts.requests + r.counts.unsent;
    let missed = share(r.counts.unsent, due);
    (!r.plan.pace.is_closed() && r.end != End::Interrupted && missed > MISSED).then(|| {
        format!("{} of the planned requests were not sent: all connections were busy", percent(missed))
    })
}

fn part_invalid(r: &Report) -> Option<String> {
    let invalid = r.parts.iter().filter(|part| part.verdict.grade == Grade::Invalid);
    let told = |part: &crate::report::PartStats| {
        let codes: Vec<&str> = part.verdict.reasons.iter().map(|reason| reason.code.as_str()).collect();
        format!("`{}` ({})", part.name, codes.join(", "))
    };
    let n = invalid.clone().count();
    let names: Vec<String> = invalid.take(PARTS_NAMED).map(told).collect();
    let more = if n > names.len() { format!(" and {} more", n - names.len()) } else { String::new() };
    (n > 0).then(|| {
        format!("{} INVALID by its own figures: {}{more}", counted(n as u64, "part"), names.join(", "))
    })
}

/// Most parts that a reason names.
const PARTS_NAMED: usize = 4;

fn changed_by_hand(r: &Report) -> Option<String> {
    let (first, n) = (r.changes.first()?, r.changes.len() as u64);
    let more = if n > 1 { format!(", and {} more", n - 1) } else { String::new() };
    Some(format!(
        "the load was changed on the control socket: {} after {}{more}",
        first.command,
        time(first.at_ns as f64)
    ))
}

fn clock_step(r: &Report) -> Option<String> {
    let step = r.health.clock_step_ns.unsigned_abs();
    let drift = ((r.duration_ns + r.warmup_ns) as f64 * CLOCK_SHARE) as u64;
    (step > drift.max(10_000_000))
        .then(|| format!("the machine's clock was changed by {} during the run", time(step as f64)))
}

fn unfinished(r: &Report) -> Option<String> {
    let n = r.counts.unfinished;
    (n > 0).then(|| {
        format!(
            "{} requests had no response when the run ended: the slowest responses are missing",
            grouped(n)
        )
    })
}

fn littles_law(r: &Report) -> Option<String> {
    let residual = r.little_residual()?;
    // Users that start late and leave early may have been active for less than the run.
    let is_long = r.duration_ns >= JUDGED_NS && r.clients_ns() >= JUDGED_NS as f64;
    (residual > LITTLE && r.counts.responses > 0 && is_long).then(|| {
        format!("connections were idle for {} of their time, apart from think time: rate times latency does not equal the number of connections", percent(residual))
    })
}

fn errors(r: &Report) -> Option<String> {
    let e = &r.counts.errors;
    let all = e.total();
    let named: Vec<String> =
        e.kinds().iter().filter(|(_, n)| *n > 0).map(|(kind, n)| format!("{kind} {}", grouped(*n))).collect();
    (share(all, r.finished()) > ERRORS).then(|| {
        format!(
            "{} of the requests ended in an error ({})",
            percent(share(all, r.finished())),
            named.join(", ")
        )
    })
}

fn status_mix(r: &Report) -> Option<String> {
    let n = unexpected(r);
    let s = share(n, r.counts.responses);
    (!has_status_check(r) && s > ERRORS && s <= 0.5).then(|| {
        format!(
            "{} of the responses have {}, and may be faster than normal ones",
            percent(s),
            unexpected_words(r)
        )
    })
}

fn failed_checks(r: &Report) -> Option<String> {
    let n = r.counts.failed_checks;
    (share(n, r.counts.responses) > ERRORS)
        .then(|| format!("{} of the responses failed a check", percent(share(n, r.counts.responses))))
}

fn body_length_changed(r: &Report) -> Option<String> {
    let n = r.counts.other_length;
    let spread = r.targets.iter().filter_map(|t| t.body_bytes).find(|(low, high)| low != high);
    (n > 0).then(|| {
        let (low, high) = spread.unwrap_or_default();
        format!("the bodies of good responses differ in length: {} to {} bytes", grouped(low), grouped(high))
    })
}

fn unsolicited(r: &Report) -> Option<String> {
    let ws = r.websocket.as_ref()?;
    (share(ws.unsolicited, ws.received) > UNSOLICITED).then(|| {
        format!(
            "{} of the {} messages came unsolicited: some may have been counted as answers",
            grouped(ws.unsolicited),
            grouped(ws.received)
        )
    })
}

fn too_short(r: &Report) -> Option<String> {
    // A percentile in no threshold is omitted from the report if there are too few responses for it.
    let asked = r.thresholds.iter().filter_map(|t| {
        let quantile = crate::threshold::quantile_of(&t.threshold)?;
        let threshold = crate::Threshold::parse("", &t.threshold).ok()?;
        let n = match threshold.scope() {
            Some(scope) => r.part(scope)?.counts.responses,
            None => r.counts.responses,
        };
        let of = threshold.scope().map_or_else(String::new, |scope| format!(" of `{scope}`"));
        (n > 0 && n < responses_for(quantile)).then_some((quantile, n, of))
    });
    let (quantile, n, of) = asked.max_by_key(|(quantile, ..)| responses_for(*quantile))?;
    let p = format!("{:.4}", quantile * 100.0);
    let p = p.trim_end_matches('0').trim_end_matches('.');
    Some(format!(
        "{} responses are too few for the requested p{p}{of}, which needs {}",
        grouped(n),
        grouped(responses_for(quantile))
    ))
}

/// Rules that need figures which the other tool did not record cannot apply, so the result is at most SUSPECT.
fn imported(r: &Report) -> Option<String> {
    let source = r.source.as_ref()?;
    Some(format!("measured by {}, whose results do not say {}", source.tool, source.unknown.join("; ")))
}

fn ended_early(r: &Report) -> Option<String> {
    match &r.end {
        End::Aborted { condition } => Some(format!("the run was ended by --abort-on {condition}")),
        End::Failed { reason } => Some(reason.clone()),
        End::Interrupted => Some("the run was interrupted".to_owned()),
        End::Stopped => Some("the run was stopped on the control socket".to_owned()),
        End::Duration | End::Requests => None,
    }
}

#[cfg(test)]
mod tests;

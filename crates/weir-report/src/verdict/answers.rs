//! Whether the responses are the target's own: several makers behind one address, caches before it, answers without
//! a body.

use super::{ERRORS, percent, share};
use crate::Report;
use crate::report::{AnswerKind, TargetStats};
use crate::units::grouped;

/// Good responses of one target by server and content type, without regard to caches, the most frequent first.
fn makers(target: &TargetStats) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    for kind in &target.kinds {
        let name = name_of(kind);
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, n)) => *n += kind.responses,
            None => all.push((name, kind.responses)),
        }
    }
    all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    all
}

fn name_of(kind: &AnswerKind) -> String {
    let of = |field: &Option<String>, without: &str| field.clone().unwrap_or_else(|| without.to_owned());
    format!("{} from {}", of(&kind.content_type, "no content type"), of(&kind.server, "an unnamed server"))
}

/// One target answers as if it were several: another server, or an error page with the status 200.
pub(super) fn answers_differ(r: &Report) -> Option<String> {
    r.targets.iter().find_map(|target| {
        let makers = makers(target);
        let all: u64 = makers.iter().map(|(_, n)| n).sum();
        let (_, most) = makers.first()?;
        (share(all - most, all) > ERRORS).then(|| {
            let shown: Vec<String> = makers
                .iter()
                .take(3)
                .map(|(name, n)| format!("{} {name}", percent(share(*n, all))))
                .collect();
            format!("good responses of one target are of different kinds: {}", shown.join(", "))
        })
    })
}

/// A cache between generator and target answers in its place.
pub(super) fn cached(r: &Report) -> Option<String> {
    let (mut hits, mut all) = (0, 0);
    for kind in r.targets.iter().flat_map(|target| &target.kinds) {
        all += kind.responses;
        hits += if kind.cached { kind.responses } else { 0 };
    }
    (!r.plan.cached_ok && share(hits, all) > ERRORS).then(|| {
        format!(
            "{} of the good responses came from a cache, by their Age or X-Cache fields: the target did not make them; use `--cached ok` if this is intended",
            percent(share(hits, all))
        )
    })
}

/// Fields that make a request conditional (RFC 9110 §13.1).
const CONDITIONS: [&str; 2] = ["if-none-match", "if-modified-since"];

/// 304 to a request without a condition: the sender, or something before the target, answers what nobody asked.
pub(super) fn not_modified(r: &Report) -> Option<String> {
    let is_conditional = |headers: &[(String, String)]| {
        headers.iter().any(|(name, _)| CONDITIONS.iter().any(|c| name.eq_ignore_ascii_case(c)))
    };
    let plain = r.plan.targets.iter().all(|target| !is_conditional(&target.headers));
    let n = r.counts.statuses.get(&304).copied().unwrap_or(0);
    // A scenario's conditions are those of its steps, and its checks say which statuses they expect.
    (plain && !r.is_journey() && !r.plan.targets.is_empty() && share(n, r.counts.responses) > ERRORS).then(|| {
        format!(
            "{} responses are 304 Not Modified, which have no body, although the requests have no condition",
            grouped(n)
        )
    })
}

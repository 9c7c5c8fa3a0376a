//! New pointers: written by `weir fleet publish`, `halt`, `resume` and `rollback`. Pure. The caller writes the result
//! in a transaction on the revision that it was derived from, so that of two concurrent publishers one gets an error.

use crate::digest::Digest;
use crate::pointer::{KEPT, Pointer, Rollout, State, Step, VERSION, place};
use crate::report::NodeReport;
use std::fmt;
use std::time::Duration;

/// Who publishes, why, and when.
#[derive(Clone, Debug, Default)]
pub struct Author {
    /// The author's name.
    pub name: String,
    /// The reason, in the author's words.
    pub message: String,
    /// The time: RFC 3339.
    pub time: String,
}

/// The nodes that come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canary {
    /// The groups of nodes that take the bundle, in order; all other nodes follow.
    pub steps: Vec<Step>,
    /// How long each step must stay healthy.
    pub hold: Duration,
}

/// Why there is no new pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPlanned {
    /// The bundle already runs.
    AlreadyThere,
    /// The bundle is being rolled out: the number of open steps, and of all steps.
    UnderWay(usize, usize),
    /// There is no earlier bundle, except ones that the fleet was rolled back from.
    NothingBefore,
    /// The fleet has no bundle yet.
    NothingThere,
    /// No live node belongs to the step with this number, counted from 1.
    NobodyIn(usize),
    /// No rollout is running.
    NotRunning,
    /// The rollout is not halted.
    NotHalted,
    /// This bundle is not among those kept.
    Unknown(Digest),
}

impl fmt::Display for NotPlanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyThere => f.write_str("the fleet has this bundle already: nothing to publish"),
            Self::UnderWay(open, steps) => write!(
                f,
                "this bundle is being rolled out, step {open} of {steps} is open: nothing to publish; `weir fleet rollback` ends the rollout"
            ),
            Self::NothingBefore => f.write_str(
                "there is no earlier bundle to go back to, but for those that the fleet was taken back from: to run one of these, write `rollback` with its name from `weir fleet status`",
            ),
            Self::NothingThere => f.write_str("nothing was published here yet"),
            Self::NobodyIn(step) => write!(
                f,
                "no live node belongs to step {step}: no node would try the bundle, and the rollout would never continue"
            ),
            Self::NotRunning => f.write_str("no rollout is under way; `weir fleet status` says how the last one ended"),
            Self::NotHalted => f.write_str("the rollout is not halted"),
            Self::Unknown(digest) => write!(f, "bundle {} is not kept any more", digest.short()),
        }
    }
}

impl std::error::Error for NotPlanned {}

/// The pointer to a new bundle, and the bundles that are no longer needed. Without a canary, or without an earlier
/// bundle, all nodes take it immediately.
///
/// # Errors
/// Why there is nothing to write.
pub fn publish(
    before: Option<&Pointer>,
    to: Digest,
    canary: Option<Canary>,
    nodes: &[NodeReport],
    author: Author,
) -> Result<(Pointer, Vec<Digest>), NotPlanned> {
    let from = before.map(settled);
    if let Some(Rollout { state, open, steps, .. }) = before.filter(|b| b.to == to).map(|b| &b.rollout) {
        match state {
            State::Done => return Err(NotPlanned::AlreadyThere),
            State::Running => return Err(NotPlanned::UnderWay(*open, steps.len())),
            State::Halted => {}
        }
    }
    let rollout = match canary {
        // A return to the previous bundle needs no trial, and has no bundle to fall back to.
        Some(canary) if from.is_some_and(|from| from != to) => staged(canary, nodes, to)?,
        _ => at_once(),
    };
    let mut earlier = before.map(|before| before.earlier.clone()).unwrap_or_default();
    earlier.retain(|kept| Some(*kept) != from && *kept != to);
    earlier.splice(0..0, from.filter(|from| *from != to));
    // A halted bundle failed its trial, so it is not kept to go back to.
    let mut unused: Vec<Digest> = before.map(|before| before.to).into_iter().collect();
    unused.extend(earlier.split_off(earlier.len().min(KEPT)));
    unused.retain(|digest| *digest != to && !earlier.contains(digest) && Some(*digest) != from);
    let mut left = before.map(|before| before.left.clone()).unwrap_or_default();
    // A bundle that the fleet has settled on counts as good.
    left.retain(|digest| earlier.contains(digest) && Some(*digest) != from);
    let pointer = Pointer {
        version: VERSION,
        generation: before.map_or(1, |before| before.generation.saturating_add(1)),
        to,
        from: from.filter(|from| *from != to),
        author: author.name,
        message: author.message,
        time: author.time,
        rollout,
        earlier,
        left,
        // Without a list of nodes, keep the known number.
        nodes: match u32::try_from(nodes.len()).unwrap_or(u32::MAX) {
            0 => before.map_or(0, |before| before.nodes),
            some => some,
        },
    };
    Ok((pointer, unused))
}

/// The bundle that the fleet returns to if nothing else happens: the one that every node should run, else the one
/// before it.
///
/// Once its last step is open, a rollout has reached every node, although its health is not known yet. Nodes outside
/// of the next canary keep that bundle. A halted rollout failed, so nodes go back.
pub fn settled(pointer: &Pointer) -> Digest {
    match (pointer.rollout.state, pointer.from) {
        (State::Running, Some(from)) if pointer.is_tried() => from,
        (State::Halted, Some(from)) => from,
        _ => pointer.to,
    }
}

const fn at_once() -> Rollout {
    Rollout { steps: Vec::new(), open: 0, hold_ms: 0, state: State::Done, why: String::new() }
}

fn staged(canary: Canary, nodes: &[NodeReport], to: Digest) -> Result<Rollout, NotPlanned> {
    let mut steps = canary.steps;
    for (number, step) in steps.iter_mut().enumerate() {
        if nodes.iter().any(|node| step.has(&node.node, &node.labels, to)) {
            continue;
        }
        // A share of a few nodes may be empty; then add the first node in order.
        match (step, nodes.iter().min_by_key(|node| place(&node.node, to))) {
            (Step::Share { also, .. }, Some(first)) => also.push(first.node.clone()),
            _ => return Err(NotPlanned::NobodyIn(number + 1)),
        }
    }
    if steps.last() != Some(&Step::All) {
        steps.push(Step::All);
    }
    let hold_ms = u64::try_from(canary.hold.as_millis()).unwrap_or(u64::MAX);
    Ok(Rollout { steps, open: 1, hold_ms, state: State::Running, why: String::new() })
}

/// Halts a rollout: nodes that took the bundle keep it.
///
/// # Errors
/// If no rollout is in progress.
pub fn halt(before: &Pointer, why: &str) -> Result<Pointer, NotPlanned> {
    if before.rollout.state != State::Running {
        return Err(NotPlanned::NotRunning);
    }
    let mut pointer = before.clone();
    pointer.rollout.state = State::Halted;
    why.clone_into(&mut pointer.rollout.why);
    Ok(pointer)
}

/// Resumes a rollout where it halted; from the first step, if a gate closed all steps.
///
/// # Errors
/// If it is not halted.
pub fn resume(before: &Pointer) -> Result<Pointer, NotPlanned> {
    if before.rollout.state != State::Halted {
        return Err(NotPlanned::NotHalted);
    }
    let mut pointer = before.clone();
    pointer.rollout.state = State::Running;
    pointer.rollout.open = pointer.rollout.open.max(1).min(pointer.rollout.steps.len());
    pointer.rollout.why.clear();
    Ok(pointer)
}

/// All nodes run an earlier bundle immediately: the previous one, or one of those kept. Repeating it goes further
/// back, never forward to a bundle that the fleet was rolled back from; such a bundle must be named.
///
/// # Errors
/// If there is no such bundle.
pub fn roll_back(
    before: &Pointer,
    to: Option<Digest>,
    author: Author,
) -> Result<(Pointer, Vec<Digest>), NotPlanned> {
    let target = match (to, before.rollout.state) {
        (Some(to), _) => to,
        // During a rollout, back means out of it.
        (None, State::Halted | State::Running) => before.from.ok_or(NotPlanned::NothingBefore)?,
        (None, State::Done) => {
            let mut good = before.earlier.iter().filter(|digest| !before.left.contains(digest));
            *good.next().ok_or(NotPlanned::NothingBefore)?
        }
    };
    if target != before.to && before.from != Some(target) && !before.earlier.contains(&target) {
        return Err(NotPlanned::Unknown(target));
    }
    if target == before.to && before.rollout.state == State::Done {
        return Err(NotPlanned::AlreadyThere);
    }
    let (mut pointer, mut unused) =
        publish(Some(before), target, None, &[], author).or_else(|not| match not {
            // The rollout's own bundle: all nodes take it now.
            NotPlanned::UnderWay(..) => Ok((before.clone(), Vec::new())),
            not => Err(not),
        })?;
    pointer.rollout = at_once();
    // Keep the abandoned bundle, so that one can go forward again.
    if before.to != target && !pointer.earlier.contains(&before.to) {
        pointer.earlier.insert(0, before.to);
        unused.extend(pointer.earlier.split_off(pointer.earlier.len().min(KEPT)));
    }
    if before.to != target && !pointer.left.contains(&before.to) {
        pointer.left.push(before.to);
    }
    pointer.left.retain(|digest| pointer.earlier.contains(digest));
    unused.retain(|digest| !pointer.earlier.contains(digest) && *digest != pointer.to);
    Ok((pointer, unused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointer::Labels;

    fn d(n: u64) -> Digest {
        Digest::of(&[&n.to_be_bytes()])
    }

    fn node(name: &str, canary: bool) -> NodeReport {
        let labels = canary.then(|| ("canary".to_owned(), "true".to_owned()));
        NodeReport { node: name.to_owned(), labels: labels.into_iter().collect(), ..NodeReport::default() }
    }

    fn canary() -> Canary {
        let labels = Labels::from([("canary".to_owned(), "true".to_owned())]);
        Canary { steps: vec![Step::Labels(labels)], hold: Duration::from_secs(120) }
    }

    fn first() -> Pointer {
        publish(None, d(1), None, &[], Author::default()).unwrap().0
    }

    #[test]
    fn the_first_bundle_goes_everywhere() {
        let (pointer, unused) = publish(None, d(1), Some(canary()), &[], Author::default()).unwrap();
        assert_eq!((pointer.generation, pointer.from, pointer.rollout.state), (1, None, State::Done));
        assert!(unused.is_empty());
        assert_eq!(
            publish(Some(&pointer), d(1), None, &[], Author::default()),
            Err(NotPlanned::AlreadyThere)
        );
    }

    #[test]
    fn a_canary_comes_first() {
        let nodes = [node("a", false), node("b", true)];
        let (pointer, _) = publish(Some(&first()), d(2), Some(canary()), &nodes, Author::default()).unwrap();
        assert_eq!((pointer.generation, pointer.from, pointer.rollout.open), (2, Some(d(1)), 1));
        assert_eq!(pointer.rollout.steps.len(), 2);
        assert_eq!(pointer.wanted("b", &nodes[1].labels), Some(d(2)));
        assert_eq!(pointer.wanted("a", &nodes[0].labels), Some(d(1)));
        let nobody = publish(Some(&first()), d(2), Some(canary()), &nodes[..1], Author::default());
        assert_eq!(nobody, Err(NotPlanned::NobodyIn(1)));
    }

    #[test]
    fn who_runs_a_bundle_by_the_last_step_keeps_it_beside_the_next_canary() {
        let nodes = [node("a", false), node("b", true)];
        let plain = &nodes[0].labels;
        let publish = |before: &Pointer, to| {
            publish(Some(before), to, Some(canary()), &nodes, Author::default()).unwrap()
        };
        let (mut second, _) = publish(&first(), d(2));
        // Only its first step is open: other nodes never had it.
        assert_eq!(publish(&second, d(3)).0.wanted("a", plain), Some(d(1)));
        second.rollout.open = second.rollout.steps.len();
        let (third, unused) = publish(&second, d(3));
        assert_eq!((third.wanted("a", plain), third.from), (Some(d(2)), Some(d(2))));
        assert_eq!(third.wanted("b", &nodes[1].labels), Some(d(3)));
        assert!(unused.is_empty(), "{unused:?}");
        assert_eq!(third.earlier, [d(2), d(1)]);
        // After it failed, no node keeps it.
        let halted = halt(&second, "errors").unwrap();
        assert_eq!(publish(&halted, d(3)).0.wanted("a", plain), Some(d(1)));
    }

    #[test]
    fn a_share_is_somebody() {
        let nodes = [node("a", false), node("b", false)];
        let share =
            Canary { steps: vec![Step::Share { percent: 1, also: Vec::new() }], hold: Duration::ZERO };
        let (pointer, _) = publish(Some(&first()), d(2), Some(share), &nodes, Author::default()).unwrap();
        let taking = nodes.iter().filter(|n| pointer.wanted(&n.node, &n.labels) == Some(d(2))).count();
        assert_eq!(taking, 1);
    }

    #[test]
    fn out_of_a_rollout() {
        let nodes = [node("b", true)];
        let (staged, _) = publish(Some(&first()), d(2), Some(canary()), &nodes, Author::default()).unwrap();
        let halted = halt(&staged, "by hand").unwrap();
        assert_eq!((halted.rollout.state, halted.rollout.open), (State::Halted, 1));
        assert_eq!(halt(&halted, ""), Err(NotPlanned::NotRunning));
        assert_eq!(resume(&halted).unwrap(), staged);
        assert_eq!(resume(&staged), Err(NotPlanned::NotHalted));
        let (back, unused) = roll_back(&halted, None, Author::default()).unwrap();
        assert_eq!((back.to, back.rollout.state, back.generation), (d(1), State::Done, 3));
        assert_eq!((back.earlier, unused), (vec![d(2)], vec![]));
        // The next rollout does not return to a bundle that was never fully rolled out.
        let (next, unused) = publish(Some(&halted), d(3), Some(canary()), &nodes, Author::default()).unwrap();
        assert_eq!((next.from, unused), (Some(d(1)), vec![d(2)]));
        // The same bundle again, after the problem was fixed elsewhere.
        let (again, unused) =
            publish(Some(&halted), d(2), Some(canary()), &nodes, Author::default()).unwrap();
        assert_eq!((again.from, again.to, unused), (Some(d(1)), d(2), vec![]));
    }

    /// Repeated rollbacks never go forward to a bad bundle.
    #[test]
    fn back_is_never_forward() {
        let publish =
            |before: &Pointer, n: u64| publish(Some(before), d(n), None, &[], Author::default()).unwrap().0;
        let back = |before: &Pointer| roll_back(before, None, Author::default());
        let third = publish(&publish(&first(), 2), 3);
        let second = back(&third).unwrap().0;
        let one = back(&second).unwrap().0;
        assert_eq!((second.to, one.to), (d(2), d(1)));
        assert_eq!(back(&one), Err(NotPlanned::NothingBefore));
        // It can be named, and then counts as good again.
        let (named, _) = roll_back(&one, Some(d(3)), Author::default()).unwrap();
        let fourth = publish(&named, 4);
        assert_eq!(back(&fourth).unwrap().0.to, d(3));
        // Twice out of a rollout that a gate has halted.
        let nodes = [node("b", true)];
        let staged =
            super::publish(Some(&fourth), d(5), Some(canary()), &nodes, Author::default()).unwrap().0;
        let out = back(&halt(&staged, "bad").unwrap()).unwrap().0;
        assert_eq!((out.to, back(&out).unwrap().0.to), (d(4), d(3)));
    }

    #[test]
    fn back_to_what_ran_before_needs_no_canary() {
        let nodes = [node("b", true)];
        let staged = publish(Some(&first()), d(2), Some(canary()), &nodes, Author::default()).unwrap().0;
        let (back, _) = publish(Some(&staged), d(1), Some(canary()), &nodes, Author::default()).unwrap();
        assert_eq!((back.to, back.rollout.state), (d(1), State::Done));
        let again = publish(Some(&staged), d(2), None, &nodes, Author::default());
        assert_eq!(again, Err(NotPlanned::UnderWay(1, 2)));
    }

    #[test]
    fn back_and_forth() {
        let mut pointer = first();
        assert_eq!(roll_back(&pointer, None, Author::default()), Err(NotPlanned::NothingBefore));
        pointer = publish(Some(&pointer), d(2), None, &[], Author::default()).unwrap().0;
        pointer = roll_back(&pointer, None, Author::default()).unwrap().0;
        assert_eq!((pointer.to, &*pointer.earlier), (d(1), &[d(2)][..]));
        pointer = roll_back(&pointer, Some(d(2)), Author::default()).unwrap().0;
        assert_eq!((pointer.to, &*pointer.earlier), (d(2), &[d(1)][..]));
        assert_eq!(roll_back(&pointer, Some(d(9)), Author::default()), Err(NotPlanned::Unknown(d(9))));
        assert_eq!(roll_back(&pointer, Some(d(2)), Author::default()), Err(NotPlanned::AlreadyThere));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut pointer = first();
        let mut gone = Vec::new();
        for n in 2..40 {
            let (next, unused) = publish(Some(&pointer), d(n), None, &[], Author::default()).unwrap();
            (pointer, gone) = (next, [gone, unused].concat());
        }
        assert_eq!(pointer.earlier, (29..39).rev().map(d).collect::<Vec<_>>());
        assert_eq!(gone, (1..29).map(d).collect::<Vec<_>>());
        assert!(pointer.write().len() < crate::pointer::POINTER_BYTES);
    }
}

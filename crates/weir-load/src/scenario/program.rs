//! The steps of a scenario as a flat list of operations with jumps, so that a user at any depth of nesting is one
//! number: the next operation.

use weir_plan::{Condition, Exec, Pause, Repeat, Request, Step};

/// A part of a scenario: `start`, `steps` or `end`.
#[derive(Debug, Default)]
pub(crate) struct Program(pub(crate) Vec<Op>);

/// One operation.
#[derive(Debug)]
pub(crate) enum Op {
    /// Round 0 of a repeat begins.
    Enter,
    /// Asks a program.
    Exec(Box<Exec>),
    /// Go on at this operation.
    Jump(usize),
    /// The repeat is over.
    Leave,
    /// The next round.
    Next,
    /// At most so many at once.
    Parallel(usize, Vec<Request>),
    Pause(Pause),
    Request(Box<Request>),
    /// Go on at this operation if this many rounds are over.
    UnlessFewer(u32, usize),
    /// Go on at this operation unless the condition holds.
    UnlessHolds(Condition, usize),
}

impl Program {
    /// Compiles a list of steps.
    pub(crate) fn of(steps: &[Step]) -> Self {
        let mut program = Self::default();
        program.add(steps);
        program
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every request in it.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.0.iter().flat_map(|op| match op {
            Op::Request(request) => std::slice::from_ref(&**request),
            Op::Parallel(_, all) => all.as_slice(),
            _ => &[],
        })
    }

    /// Every `exec` step in it.
    pub(crate) fn execs(&self) -> impl Iterator<Item = &Exec> {
        self.0.iter().filter_map(|op| if let Op::Exec(exec) = op { Some(&**exec) } else { None })
    }

    /// The most requests at once.
    pub(crate) fn most_at_once(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Parallel(most, all) => (*most).min(all.len()),
            Op::Exec(_) | Op::Request(_) => 1,
            _ => 0,
        };
        self.0.iter().map(of).max().unwrap_or(0)
    }

    fn add(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Exec(exec) => self.0.push(Op::Exec(Box::new(exec.clone()))),
                Step::Pause(pause) => self.0.push(Op::Pause(*pause)),
                Step::Request(request) => self.0.push(Op::Request(request.clone())),
                Step::Parallel { most, steps } => self.0.push(Op::Parallel((*most).max(1), steps.clone())),
                Step::If { condition, then, otherwise } => {
                    let test = self.0.len();
                    self.0.push(Op::UnlessHolds(condition.clone(), 0));
                    self.add(then);
                    if !otherwise.is_empty() {
                        let over = self.0.len();
                        self.0.push(Op::Jump(0));
                        self.land(test);
                        self.add(otherwise);
                        self.land(over);
                    } else {
                        self.land(test);
                    }
                }
                Step::Repeat { count, steps } => {
                    self.0.push(Op::Enter);
                    let begin = self.0.len();
                    let most = match count {
                        Repeat::Times(n) => *n,
                        Repeat::While { max, .. } => *max,
                    };
                    self.0.push(Op::UnlessFewer(most, 0));
                    if let Repeat::While { condition, .. } = count {
                        self.0.push(Op::UnlessHolds(condition.clone(), 0));
                    }
                    let tests = begin..self.0.len();
                    self.add(steps);
                    self.0.push(Op::Next);
                    self.0.push(Op::Jump(begin));
                    tests.for_each(|test| self.land(test));
                    self.0.push(Op::Leave);
                }
            }
        }
    }

    /// Points the jump at this place to the current end of the program.
    fn land(&mut self, at: usize) {
        let end = self.0.len();
        if let Some(Op::Jump(to) | Op::UnlessFewer(_, to) | Op::UnlessHolds(_, to)) = self.0.get_mut(at) {
            *to = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pause(ms: u64) -> Step {
        Step::Pause(Pause::Fixed(Duration::from_millis(ms)))
    }

    /// The pauses in the order in which a user without conditions meets them.
    fn walked(steps: &[Step]) -> Vec<u128> {
        let (program, mut at, mut rounds, mut seen) = (Program::of(steps), 0, Vec::new(), Vec::new());
        while let Some(op) = program.0.get(at) {
            at += 1;
            match op {
                Op::Pause(Pause::Fixed(time)) => seen.push(time.as_millis()),
                Op::Enter => rounds.push(0),
                Op::Next => *rounds.last_mut().unwrap() += 1,
                Op::Leave => drop(rounds.pop()),
                Op::Jump(to) => at = *to,
                Op::UnlessFewer(most, to) if *rounds.last().unwrap() >= *most => at = *to,
                _ => {}
            }
        }
        seen
    }

    #[test]
    fn repeats_nest() {
        let times = |n, steps| Step::Repeat { count: Repeat::Times(n), steps };
        let steps = [
            pause(1),
            times(2, vec![pause(2), times(3, vec![pause(3)])]),
            times(0, vec![pause(9)]),
            pause(4),
        ];
        assert_eq!(walked(&steps), [1, 2, 3, 3, 3, 2, 3, 3, 3, 4]);
        assert_eq!(walked(&[]), []);
    }
}

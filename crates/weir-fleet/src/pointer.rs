//! The pointer: the only mutable state of a fleet. It says which bundle to run, which one ran before, and which nodes
//! get it.
//!
//! ```text
//!              publish                    every step passed
//!   (nothing) ───────► Running, open: 1 ──────────────────► Done: every node runs `to`
//!                        │        ▲
//!             halt, or a │        │ resume
//!             gate fails ▼        │
//!                       Halted: by hand, where it is; by a gate, with no step open: every node runs `from`
//! ```

use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this format. Nodes ignore pointers of later versions.
pub const VERSION: u32 = 1;

/// Largest pointer, in bytes.
pub const POINTER_BYTES: usize = 64 << 10;

/// Most steps of a rollout, and most labels of a step or a node.
pub const STEPS: usize = 16;

/// How many earlier bundles are kept for rollbacks.
pub const KEPT: usize = 10;

/// The labels of a node.
pub type Labels = BTreeMap<String, String>;

/// Labels as text for people and metrics: `region=eu,tier=edge`.
pub fn labels_text(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// The bundle to run, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// [`VERSION`].
    pub version: u32,
    /// Counted from 1; increases with every published bundle, and stays the same during its rollout.
    pub generation: u64,
    /// The bundle to run.
    pub to: Digest,
    /// The previous bundle, for nodes without an open step.
    #[serde(default)]
    pub from: Option<Digest>,
    /// The name of the publisher.
    #[serde(default)]
    pub author: String,
    /// The reason, in the author's words.
    #[serde(default)]
    pub message: String,
    /// The time of publication: RFC 3339, by the publisher's clock. For people only.
    #[serde(default)]
    pub time: String,
    /// The progress of the rollout.
    pub rollout: Rollout,
    /// Earlier bundles, newest first: at most [`KEPT`].
    #[serde(default)]
    pub earlier: Vec<Digest>,
    /// Earlier bundles that the fleet was rolled back from: it returns to one only if someone names it.
    #[serde(default)]
    pub left: Vec<Digest>,
    /// The number of nodes at publication, which determines how far reads of the bundle are spread.
    #[serde(default)]
    pub nodes: u32,
}

/// How a bundle reaches the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// The groups of nodes that take it, in order.
    pub steps: Vec<Step>,
    /// How many of the steps are open.
    pub open: usize,
    /// How long each step must stay healthy.
    pub hold_ms: u64,
    /// The state of the rollout.
    pub state: State,
    /// Why it halted.
    #[serde(default)]
    pub why: String,
}

/// The state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Every step is open and passed.
    Done,
    /// Nodes change nothing until someone resumes the rollout.
    Halted,
    /// Steps open one after another.
    Running,
}

impl State {
    /// The name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Halted => "halted",
            Self::Running => "running",
        }
    }
}

/// A group of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Every node.
    All,
    /// Nodes with all of these labels.
    Labels(Labels),
    /// A percentage of the nodes, the same for every caller, plus named nodes.
    Share {
        /// From 1 to 100.
        percent: u8,
        /// Nodes that always belong to it: a share of a small fleet might be empty.
        #[serde(default)]
        also: Vec<String>,
    },
}

/// A pointer that cannot be followed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl Pointer {
    /// Parses a pointer. Rejects impossible values here, so that no other code needs to check.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Only {
            version: u32,
        }
        let wrong = |why: String| Err(Unreadable(why));
        if bytes.len() > POINTER_BYTES {
            return wrong(format!("it has {} bytes; {POINTER_BYTES} are the most", bytes.len()));
        }
        match serde_json::from_slice::<Only>(bytes) {
            Ok(only) if only.version > VERSION => {
                return wrong(format!("version {} is later than this Weir knows", only.version));
            }
            Ok(_) => {}
            Err(e) => return wrong(e.to_string()),
        }
        let pointer: Self = serde_json::from_slice(bytes).map_err(|e| Unreadable(e.to_string()))?;
        let Rollout { steps, open, .. } = &pointer.rollout;
        let kept = [&pointer.earlier, &pointer.left].into_iter().all(|list| list.len() <= KEPT);
        if steps.len() > STEPS || *open > steps.len() || !kept {
            return wrong("it has more steps or earlier bundles than it may".to_owned());
        }
        Ok(pointer)
    }

    /// The encoded form.
    pub fn write(&self) -> Vec<u8> {
        // Strings, numbers and lists always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The bundle that a node should run; `None` if it keeps what it has.
    pub fn wanted(&self, node: &str, labels: &Labels) -> Option<Digest> {
        let Rollout { steps, open, state, .. } = &self.rollout;
        let is_open = |step: &Step| step.has(node, labels, self.to);
        if *state == State::Done || steps.iter().take(*open).any(is_open) { Some(self.to) } else { self.from }
    }

    /// Whether some nodes try the bundle while others do not get it yet.
    pub fn is_tried(&self) -> bool {
        self.rollout.state == State::Running && self.rollout.open < self.rollout.steps.len()
    }

    /// Whether a node belongs to an open step.
    pub fn is_open_to(&self, node: &str, labels: &Labels) -> bool {
        self.rollout.steps.iter().take(self.rollout.open).any(|step| step.has(node, labels, self.to))
    }
}

impl Step {
    /// Whether a node belongs to this step. A share depends on the bundle, so that it is not always the same nodes.
    pub fn has(&self, node: &str, labels: &Labels, to: Digest) -> bool {
        match self {
            Self::All => true,
            Self::Labels(asked) => {
                !asked.is_empty() && asked.iter().all(|(name, value)| labels.get(name) == Some(value))
            }
            Self::Share { percent, also } => {
                let share = u64::MAX / 100 * u64::from(*percent);
                place(node, to) < share || *percent >= 100 || also.iter().any(|named| named == node)
            }
        }
    }
}

/// The position of a node among all nodes, as a number.
pub fn place(node: &str, to: Digest) -> u64 {
    Digest::of(&[node.as_bytes(), b"\n", to.to_string().as_bytes()]).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(steps: Vec<Step>, open: usize, state: State) -> Pointer {
        Pointer {
            version: VERSION,
            generation: 2,
            to: Digest::of(&[b"to"]),
            from: Some(Digest::of(&[b"from"])),
            author: String::new(),
            message: String::new(),
            time: String::new(),
            rollout: Rollout { steps, open, hold_ms: 1, state, why: String::new() },
            earlier: Vec::new(),
            left: Vec::new(),
            nodes: 0,
        }
    }

    #[test]
    fn only_open_steps_take_it() {
        let canary = Labels::from([("canary".to_owned(), "true".to_owned())]);
        let more =
            Labels::from([("canary".to_owned(), "true".to_owned()), ("zone".to_owned(), "a".to_owned())]);
        let steps = vec![Step::Labels(canary.clone()), Step::All];
        for (open, state, labels, takes) in [
            (0, State::Running, &canary, false),
            (1, State::Running, &canary, true),
            (1, State::Running, &more, true),
            (1, State::Running, &Labels::new(), false),
            (1, State::Halted, &canary, true),
            (0, State::Halted, &canary, false),
            (2, State::Running, &Labels::new(), true),
            (0, State::Done, &Labels::new(), true),
        ] {
            let pointer = pointer(steps.clone(), open, state);
            let wanted = if takes { Some(pointer.to) } else { pointer.from };
            assert_eq!(pointer.wanted("n", labels), wanted, "{open} {state:?} {labels:?}");
        }
        // A step without labels is an error, and must not match every node.
        assert!(!Step::Labels(Labels::new()).has("n", &canary, Digest::of(&[])));
    }

    #[test]
    fn a_share_is_a_share() {
        let to = Digest::of(&[b"to"]);
        let of = |percent, to| {
            (0..10_000)
                .filter(|n| {
                    Step::Share { percent, also: Vec::new() }.has(&format!("node-{n}"), &Labels::new(), to)
                })
                .collect::<Vec<_>>()
        };
        let five = of(5, to);
        assert!((400..600).contains(&five.len()), "{}", five.len());
        assert_ne!(five, of(5, Digest::of(&[b"other"])));
        assert_eq!(of(100, to).len(), 10_000);
        let twenty = of(20, to);
        assert!(five.iter().all(|node| twenty.contains(node)));
        assert!(Step::Share { percent: 1, also: vec!["x".to_owned()] }.has("x", &Labels::new(), to));
    }

    #[test]
    fn strangers_cannot_point_anywhere() {
        let good = pointer(vec![Step::All], 1, State::Done);
        assert_eq!(Pointer::read(&good.write()), Ok(good.clone()));
        let mut later = good.clone();
        later.version = 2;
        let mut open = good.clone();
        open.rollout.open = 2;
        let mut steps = good.clone();
        steps.rollout.steps = vec![Step::All; STEPS + 1];
        for wrong in [
            later.write(),
            open.write(),
            steps.write(),
            b"{".to_vec(),
            b"null".to_vec(),
            vec![b' '; POINTER_BYTES + 1],
        ] {
            assert!(Pointer::read(&wrong).is_err(), "{}", String::from_utf8_lossy(&wrong));
        }
    }
}

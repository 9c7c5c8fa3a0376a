//! The pointer: the one thing in a fleet that changes. It says which bundle is to run, which one ran before, and whose turn it is.
//!
//! ```text
//!              publish                    every step passed
//!   (nothing) ───────► Running, open: 1 ──────────────────► Done: everybody runs `to`
//!                        │        ▲
//!             halt, or a │        │ resume
//!             gate fails ▼        │
//!                       Halted: by hand, where it is; by a gate, with no step open, so that everybody runs `from` again
//! ```

use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of what is written here. Nodes leave alone what a later one wrote.
pub const VERSION: u32 = 1;

/// Largest pointer, in bytes.
pub const POINTER_BYTES: usize = 64 << 10;

/// Most steps of a rollout, labels of a step or a node, and bundles that are kept.
pub const STEPS: usize = 16;

/// How many bundles before this one are kept, to go back to.
pub const KEPT: usize = 10;

/// What labels a node has.
pub type Labels = BTreeMap<String, String>;

/// Labels as people and metrics read them: `region=eu,tier=edge`.
pub fn labels_text(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Which bundle is to run, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// [`VERSION`].
    pub version: u32,
    /// Counted from 1; one more with every bundle that is published, the same while it is rolled out.
    pub generation: u64,
    /// What is to run.
    pub to: Digest,
    /// What ran before, and runs where no step is open.
    #[serde(default)]
    pub from: Option<Digest>,
    /// Who published it.
    #[serde(default)]
    pub author: String,
    /// In the author's own words.
    #[serde(default)]
    pub message: String,
    /// When: RFC 3339, by the publisher's clock. For people only.
    #[serde(default)]
    pub time: String,
    /// How it gets there.
    pub rollout: Rollout,
    /// The bundles before, newest first: at most [`KEPT`].
    #[serde(default)]
    pub earlier: Vec<Digest>,
    /// Those of them that the fleet was taken back from: it goes to one of these only where somebody names it.
    #[serde(default)]
    pub left: Vec<Digest>,
    /// How many nodes there were when it was published: so far their reads of the bundle are spread.
    #[serde(default)]
    pub nodes: u32,
}

/// How a bundle gets to the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Who takes it, one step after the other.
    pub steps: Vec<Step>,
    /// How many of the steps are open.
    pub open: usize,
    /// How long each step must do well.
    pub hold_ms: u64,
    /// Where it stands.
    pub state: State,
    /// Why it halted.
    #[serde(default)]
    pub why: String,
}

/// Where a rollout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Every step is open and passed.
    Done,
    /// Nobody moves until somebody resumes it.
    Halted,
    /// Steps open one after the other.
    Running,
}

impl State {
    /// As the log has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Halted => "halted",
            Self::Running => "running",
        }
    }
}

/// Whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Every node.
    All,
    /// Nodes with all of these labels.
    Labels(Labels),
    /// So many of a hundred nodes, the same whoever asks, and those named.
    Share {
        /// From 1 to 100.
        percent: u8,
        /// Nodes that belong to it in any case: a share of a small fleet might be nobody.
        #[serde(default)]
        also: Vec<String>,
    },
}

/// A pointer that cannot be followed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl Pointer {
    /// Reads one. What cannot be meant is refused here, so that nobody else needs to ask.
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

    /// As it is written.
    pub fn write(&self) -> Vec<u8> {
        // Strings, numbers and lists always can be.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What a node is to run; `None` where it goes on with what it has.
    pub fn wanted(&self, node: &str, labels: &Labels) -> Option<Digest> {
        let Rollout { steps, open, state, .. } = &self.rollout;
        let is_open = |step: &Step| step.has(node, labels, self.to);
        if *state == State::Done || steps.iter().take(*open).any(is_open) { Some(self.to) } else { self.from }
    }

    /// Whether some nodes try the bundle out while others are kept from it.
    pub fn is_tried(&self) -> bool {
        self.rollout.state == State::Running && self.rollout.open < self.rollout.steps.len()
    }

    /// Whether a node belongs to an open step.
    pub fn is_open_to(&self, node: &str, labels: &Labels) -> bool {
        self.rollout.steps.iter().take(self.rollout.open).any(|step| step.has(node, labels, self.to))
    }
}

impl Step {
    /// Whether a node belongs to it. Who belongs to a share changes with the bundle, so that it is not the same nodes each time.
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

/// Where a node stands among all of them, as one number.
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
        // A step that asks for nothing is a mistake, and must not be everybody.
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

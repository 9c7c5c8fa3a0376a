//! What a bundle costs a node before any request is served: the time to compile it, and memory. One that costs many times what the one before
//! did is a mistake of whatever made it, and goes no further than its canary.

use std::time::Duration;

/// So many times as long may it take to compile.
const TIMES: u32 = 10;

/// What is too short for that to say anything.
const SHORT: Duration = Duration::from_secs(1);

/// So many times as much memory may the process have, and so many bytes more: for a moment it holds the config before it too.
const GROWTH: u64 = 2;
const MORE: u64 = 256 << 20;

/// What a bundle cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// To check, to compile and to hand to the cores.
    pub compile: Duration,
    /// The memory of the process before that, in bytes; 0 where it is not known.
    pub held: u64,
    /// And after.
    pub memory: u64,
}

impl Weight {
    /// What is wrong with this one, after the one before; nothing in most cases.
    pub fn complaint(self, before: Self) -> Option<String> {
        if self.compile > SHORT && self.compile > before.compile.saturating_mul(TIMES) {
            let [now, then] = [self, before].map(|weight| weight.compile.as_secs_f64());
            return Some(format!("it took {now:.1} s to compile, the one before {then:.1} s"));
        }
        // Not what the process had with the one before: traffic and caches have their part in that.
        let most = self.held.saturating_mul(GROWTH).saturating_add(MORE);
        (self.held > 0 && self.memory > most).then(|| {
            format!(
                "the process has {} MiB of memory with it, {} MiB before",
                self.memory >> 20,
                self.held >> 20
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_times_what_was_before() {
        let weight = |ms, held: u64, memory: u64| Weight {
            compile: Duration::from_millis(ms),
            held: held << 20,
            memory: memory << 20,
        };
        let before = weight(120, 10, 10);
        assert_eq!(
            weight(1_300, 100, 100).complaint(before).as_deref(),
            Some("it took 1.3 s to compile, the one before 0.1 s")
        );
        assert_eq!(
            weight(130, 100, 500).complaint(before).as_deref(),
            Some("the process has 500 MiB of memory with it, 100 MiB before")
        );
        // Ten times nothing is nothing, twice a little memory is little, and what traffic needs is not the config's.
        for fine in [
            weight(1_000, 100, 100),
            weight(1_150, 100, 100),
            weight(120, 100, 456),
            weight(120, 2_000, 2_100),
        ] {
            assert_eq!(fine.complaint(before), None, "{fine:?}");
        }
        assert_eq!(weight(1, 0, 5_000).complaint(before), None, "what was before is not known");
    }
}

//! The cost of a bundle before it serves any request: the time to compile it, and memory. A bundle that costs many
//! times as much as its predecessor is probably a mistake of its generator, and stops at its canary.

use std::time::Duration;

/// How many times as long as its predecessor a bundle may take to compile.
const TIMES: u32 = 10;

/// Compile times below this are too short to compare.
const SHORT: Duration = Duration::from_secs(1);

/// How many times as much memory the process may have, and how many bytes more: for a moment it holds the previous
/// config too.
const GROWTH: u64 = 2;
const MORE: u64 = 256 << 20;

/// The cost of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Time to check it, compile it and hand it to the cores.
    pub compile: Duration,
    /// Memory of the process before that, in bytes; 0 if unknown.
    pub held: u64,
    /// Memory of the process after that, in bytes.
    pub memory: u64,
}

impl Weight {
    /// What is wrong with this cost, compared with the previous bundle's; usually `None`.
    pub fn complaint(self, before: Self) -> Option<String> {
        if self.compile > SHORT && self.compile > before.compile.saturating_mul(TIMES) {
            let [now, then] = [self, before].map(|weight| weight.compile.as_secs_f64());
            return Some(format!("it took {now:.1} s to compile, the one before {then:.1} s"));
        }
        // Not compared with the memory under the previous bundle, because traffic and caches contributed to that.
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
        // Ten times nothing is nothing, and twice a little memory is little. Memory for traffic does not count
        // against the config.
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

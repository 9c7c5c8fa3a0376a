//! Whether the processor limit of the generator's cgroup held it back: `nr_throttled` of `cpu.stat`.
//!
//! A limit may be set on the process's own cgroup or on any above it, as containers and systemd units do.

use std::fs;
use std::path::{Path, PathBuf};

/// Cgroups above our own that are read.
const DEPTH: usize = 16;

/// What the limits have cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// Periods that ended with the processor time used up.
    pub(crate) periods: u64,
    /// How long threads waited for the next period, summed.
    pub(crate) ns: u64,
}

impl Throttled {
    /// Reads the present counts. All 0 without cgroups.
    pub(crate) fn now() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::of(&own, Path::new("/sys/fs/cgroup"))
    }

    /// The counts since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self { periods: self.periods.saturating_sub(earlier.periods), ns: self.ns.saturating_sub(earlier.ns) }
    }

    /// The largest counts of our cgroup and those above it. `own` is `/proc/self/cgroup`.
    fn of(own: &str, root: &Path) -> Self {
        let mut most = Self::default();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let folder = match controllers {
                "" => root.to_owned(),
                v1 if v1.split(',').any(|c| c == "cpu") => root.join(v1),
                _ => continue,
            };
            let own = path.trim_start_matches('/');
            let above = Path::new(own).ancestors().take(DEPTH).map(|a| folder.join(a));
            // In a container, our own path may not be visible below the mount, whose root is then our cgroup.
            let all: Vec<PathBuf> = above.chain([folder.clone()]).collect();
            for stat in all.iter().filter_map(|folder| fs::read_to_string(folder.join("cpu.stat")).ok()) {
                let told = Self::read(&stat);
                if told.ns > most.ns {
                    most = told;
                }
            }
        }
        most
    }

    /// Version 2 counts in `throttled_usec`, version 1 in `throttled_time`, which is nanoseconds.
    fn read(stat: &str) -> Self {
        let field = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let ns =
            field("throttled_usec").map(|us| us.saturating_mul(1_000)).or_else(|| field("throttled_time"));
        Self { periods: field("nr_throttled").unwrap_or(0), ns: ns.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions_are_read_at_any_height() {
        let root = std::env::temp_dir().join(format!("weir-throttle-{}", std::process::id()));
        let folder = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let two = "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 250\n";
        fs::write(folder("a").join("cpu.stat"), two).unwrap();
        fs::write(folder("a/b").join("cpu.stat"), "usage_usec 5\n").unwrap();
        let one = "nr_periods 10\nnr_throttled 2\nthrottled_time 77\n";
        fs::write(folder("cpu,cpuacct/c").join("cpu.stat"), one).unwrap();
        let told = |own: &str| Throttled::of(own, &root);
        assert_eq!(told("0::/a/b\n"), Throttled { periods: 4, ns: 250_000 });
        assert_eq!(told("4:cpu,cpuacct:/c\n1:name=systemd:/x\n"), Throttled { periods: 2, ns: 77 });
        assert_eq!(told("0::/elsewhere\n"), Throttled::default());
        assert_eq!(told("nonsense"), Throttled::default());
        fs::remove_dir_all(&root).unwrap();
    }
}

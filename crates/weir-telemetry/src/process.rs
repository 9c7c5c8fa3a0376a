//! Kernel figures of this process, read from /proc at each scrape. Omits what cannot be read.

use std::fs;
use std::time::Duration;

/// Clock ticks per second in /proc: `USER_HZ`, which is 100 on every architecture that we build for.
const TICKS: u64 = 100;

/// The figures of this process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// CPU time, user and system.
    pub(crate) cpu: Option<Duration>,
    /// The start time, since 1970.
    pub(crate) started: Option<Duration>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) open_fds: Option<u64>,
    pub(crate) max_fds: Option<u64>,
    pub(crate) threads: Option<u64>,
}

impl Process {
    pub(crate) fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let mut process = Self { open_fds: open_fds(), ..Self::default() };
        process.stat(&text("/proc/self/stat"), &text("/proc/stat"));
        process.status(&text("/proc/self/status"));
        process.max_fds = max_fds(&text("/proc/self/limits"));
        process
    }

    /// Source: proc_pid_stat(5). The second field, the name, may contain anything, so count fields after the last
    /// parenthesis.
    fn stat(&mut self, own: &str, system: &str) {
        let fields: Vec<&str> =
            own.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace().collect()).unwrap_or_default();
        // The first of these is field 3 in the manual page.
        let field = |number: usize| fields.get(number - 3).and_then(|value| value.parse::<u64>().ok());
        let ticks = |n: u64| Duration::from_millis(n * (1000 / TICKS));
        self.cpu = field(14).zip(field(15)).map(|(user, kernel)| ticks(user + kernel));
        self.virtual_bytes = field(23);
        let boot = system.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        self.started = boot.zip(field(22)).map(|(boot, since)| Duration::from_secs(boot) + ticks(since));
    }

    fn status(&mut self, status: &str) {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        self.resident_bytes = value("VmRSS:").map(|kib| kib * 1024);
        self.threads = value("Threads:");
    }
}

/// Linux 6.2 and later report the number as the size of the directory. On older kernels we count: some milliseconds
/// with 10,000 connections.
fn open_fds() -> Option<u64> {
    let size = fs::metadata("/proc/self/fd").map(|meta| meta.len()).unwrap_or(0);
    if size > 0 {
        return Some(size);
    }
    // One of them is the descriptor of the directory itself.
    fs::read_dir("/proc/self/fd").ok().map(|entries| (entries.count() as u64).saturating_sub(1))
}

fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_skipped() {
        let mut process = Process::default();
        let own = "42 (a) b (c) S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 1000 4096000 500 1844674";
        process.stat(own, "cpu 1 2 3\nbtime 1700000000\nprocesses 9\n");
        assert_eq!(process.cpu, Some(Duration::from_secs(3)));
        assert_eq!(process.started, Some(Duration::from_secs(1_700_000_010)));
        assert_eq!(process.virtual_bytes, Some(4_096_000));
    }

    #[test]
    fn limits_and_nothing() {
        assert_eq!(
            max_fds("Max open files            1024                 4096                 files\n"),
            Some(1024)
        );
        assert_eq!(
            max_fds("Max open files            unlimited            unlimited            files\n"),
            None
        );
        let mut process = Process::default();
        process.stat("", "");
        process.status("");
        assert!(process.cpu.is_none() && process.started.is_none() && process.threads.is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_readable() {
        let process = Process::read();
        assert!(process.resident_bytes.unwrap() > 100_000);
        assert!(process.open_fds.unwrap() >= 3);
        assert!(process.threads.unwrap() >= 1);
        assert!(process.started.unwrap() > Duration::from_secs(1_600_000_000));
    }
}

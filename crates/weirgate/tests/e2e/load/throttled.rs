//! A generator whose cgroup limits its processor time, as Kubernetes does with `limits: { cpu }`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use weir_report::Report;
use weir_report::report::Grade;
use weir_testkit::{command_for, weir_command};

use super::{expect_reason, origin};

/// A cgroup of this test, removed with it.
struct Limited(PathBuf);

impl Limited {
    /// A cgroup that gets 5 ms of a processor in each 100 ms; or why there can be none here.
    fn new() -> Result<Self, String> {
        let name = format!("weir-test-{}", std::process::id());
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let below = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let mut why = vec!["no cgroup with a limit can be made:".to_owned()];
        for (parent, limit) in [
            (Path::new("/sys/fs/cgroup").join(below), &[("cpu.max", "5000 100000")][..]),
            (PathBuf::from("/sys/fs/cgroup"), &[("cpu.max", "5000 100000")]),
            // Version 1.
            (
                PathBuf::from("/sys/fs/cgroup/cpu"),
                &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "5000")],
            ),
        ] {
            let folder = parent.join(&name);
            if let Err(e) = std::fs::create_dir(&folder) {
                why.push(format!("{}: {e}", folder.display()));
                continue;
            }
            let made = Self(folder.clone());
            let set = limit.iter().try_for_each(|(file, value)| {
                // Not every parent passes the controller on.
                if !folder.join(file).exists() {
                    return Err(format!("{}: there is no {file}", folder.display()));
                }
                std::fs::write(folder.join(file), value).map_err(|e| format!("{file}: {e}"))
            });
            match set {
                Ok(()) => return Ok(made),
                Err(e) => why.push(e),
            }
        }
        Err(why.join("\n  "))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0); // its processes have ended
    }
}

#[test]
fn a_generator_that_its_cgroup_throttles_says_so() {
    let group = match Limited::new() {
        Ok(group) => group,
        Err(why) => return eprintln!("SKIPPED a_generator_that_its_cgroup_throttles_says_so: {why}"),
    };
    let (_origin, url) = origin("/");
    let weir = weir_command("/".as_ref());
    // Another process may leave it less than it may have, so that there is nothing to throttle.
    let mut told = Vec::new();
    for _ in 0..5 {
        let mut command = command_for("/bin/sh".as_ref(), "/".as_ref());
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&group.0);
        command.arg(weir.get_program()).args([
            "load",
            "-c4",
            "-d3s",
            "--threads=2",
            "--format",
            "json",
            &url,
        ]);
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let r: Report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
        if r.health.throttled > 0 && r.health.throttled_ns > r.duration_ns / 10 {
            expect_reason(&r, "generator_throttled", Grade::Suspect);
            return;
        }
        told.push((r.health.throttled, r.health.throttled_ns, r.duration_ns));
    }
    panic!("throttled periods, nanoseconds in them, and the run's: {told:?}");
}

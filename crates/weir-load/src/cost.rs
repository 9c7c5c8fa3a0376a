//! A run's cost for its target: processor time, memory, threads and context switches of a process and its
//! descendants, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_report::Mistake;
use weir_report::report::TargetCost;

/// How often memory and threads are sampled. The report has the largest sample.
const EVERY: Duration = Duration::from_millis(250);

/// Reads `--pid`: a number, or `auto` for the process that listens on the target's address, with HTTP/3 by UDP.
pub(crate) fn find(text: &str, target: &[SocketAddr], is_udp: bool) -> Result<u32, Mistake> {
    let bad = |hint: String| Mistake::new(&format!("--pid {text}"), &hint);
    if text != "auto" {
        let pid = text.parse().map_err(|_| bad("expected a number or `auto`".to_owned()))?;
        return if fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false) {
            Ok(pid)
        } else {
            Err(bad("there is no such process".to_owned()))
        };
    }
    if target.is_empty() {
        return Err(bad("only a target with a port can be found; give the number".to_owned()));
    }
    let owner = if is_udp { weir_wire::port_owner::of_udp } else { weir_wire::port_owner::of };
    let Some(pid) = target.iter().find_map(|address| owner(*address)) else {
        let all: Vec<String> = target.iter().map(ToString::to_string).collect();
        let all = format!("{}{}", if is_udp { "UDP " } else { "" }, all.join(" or "));
        return Err(bad(format!("no process on this machine that Weir can inspect listens on {all}")));
    };
    Ok(root_of(pid))
}

/// The root of the tree that a listening process belongs to. The socket may be a worker's; the topmost ancestor of the
/// same name is the root. If the target is our child and the same program, that ancestor may be ourselves.
pub(crate) fn root_of(mut pid: u32) -> u32 {
    let above = |p: &u32| *p > 1 && *p != std::process::id();
    while let Some(parent) = stat(pid).map(|s| s.parent).filter(|p| above(p) && command(*p) == command(pid)) {
        pid = parent;
    }
    pid
}

/// The start of a watch: what the process had spent before.
pub(crate) struct Begun(Instant, Sample);

impl Begun {
    pub(crate) fn now(pid: u32) -> Self {
        let sample = Sample::of(pid);
        Self(Instant::now(), sample)
    }
}

/// Samples `pid` until `stop` fires or is dropped. Returns what was spent since `begun`, without `responses`. Stores
/// each sample in `so_far`.
fn watch(pid: u32, begun: Begun, stop: &Receiver<()>, so_far: &Mutex<Option<TargetCost>>) -> TargetCost {
    let mut cost = TargetCost { pid, command: command(pid), ..TargetCost::default() };
    let Begun(begun, first) = begun;
    let mut threads = first.threads.clone();
    loop {
        let ended = stop.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
        let now = Sample::of(pid);
        cost.rss_bytes_max = cost.rss_bytes_max.max(now.rss_bytes);
        cost.threads_max = cost.threads_max.max(now.threads.len() as u64);
        threads.extend(now.threads);
        cost.sampled_ns = crate::clock::nanos(begun.elapsed());
        cost.processes = now.processes.len() as u64;
        cost.rss_bytes_end = now.rss_bytes;
        cost.cpu_ns = spent(&first.processes, &now.processes, |p| p.cpu_ns);
        cost.system_ns = spent(&first.processes, &now.processes, |p| p.system_ns).min(cost.cpu_ns);
        if !ended {
            *so_far.lock().unwrap_or_else(PoisonError::into_inner) = Some(cost.clone());
            continue;
        }
        for (tid, thread) in &threads {
            let before = first.threads.get(tid).copied().unwrap_or_default();
            cost.voluntary_switches += thread.voluntary.saturating_sub(before.voluntary);
            cost.involuntary_switches += thread.involuntary.saturating_sub(before.involuntary);
        }
        cost.net_received = now.net.0.saturating_sub(first.net.0);
        cost.net_sent = now.net.1.saturating_sub(first.net.1);
        return cost;
    }
}

#[derive(Default)]
struct Sample {
    processes: BTreeMap<u32, Process>,
    threads: BTreeMap<u32, Thread>,
    rss_bytes: u64,
    net: (u64, u64),
}

/// What a process has spent since it started, including its ended threads.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    cpu_ns: Time,
    system_ns: Time,
}

/// Processor time of a process: its own, and that of descendants that ended and were waited for.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    own: u64,
    reaped: u64,
}

/// A thread takes these counts along when it ends; its activity since the last sample is lost.
#[derive(Clone, Copy, Default)]
struct Thread {
    voluntary: u64,
    involuntary: u64,
}

/// What a tree spent between two samples. A process that ended in between has passed all its time to the process that
/// waited for it, including time from before the first sample.
fn spent(first: &BTreeMap<u32, Process>, now: &BTreeMap<u32, Process>, of: fn(&Process) -> Time) -> u64 {
    let (mut own, mut reaped) = (0, 0);
    for (pid, process) in now {
        let (before, now) = (first.get(pid).map(of).unwrap_or_default(), of(process));
        own += now.own.saturating_sub(before.own);
        reaped += now.reaped.saturating_sub(before.reaped);
    }
    let gone = first.iter().filter(|(pid, _)| !now.contains_key(pid)).map(|(_, process)| of(process));
    own + reaped.saturating_sub(gone.map(|time| time.own + time.reaped).sum())
}

impl Sample {
    fn of(root: u32) -> Self {
        let mut sample = Self { net: net(root), ..Self::default() };
        for pid in tree(root) {
            if let Some(mut process) = stat(pid).map(|s| s.spent) {
                // The process clock is more exact than `stat`, which counts in 10 ms.
                process.cpu_ns.own = crate::os::process_cpu_ns(pid).unwrap_or(process.cpu_ns.own);
                sample.processes.insert(pid, process);
            }
            sample.rss_bytes += field(&read(&format!("/proc/{pid}/status")), "VmRSS:") * 1024;
            for tid in numbers(&format!("/proc/{pid}/task")) {
                let status = read(&format!("/proc/{pid}/task/{tid}/status"));
                let thread = Thread {
                    voluntary: field(&status, "voluntary_ctxt_switches:"),
                    involuntary: field(&status, "nonvoluntary_ctxt_switches:"),
                };
                sample.threads.insert(tid, thread);
            }
        }
        sample
    }
}

/// A process and its descendants. Costs nothing for other processes, however many there are.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let (mut found, mut todo) = (Vec::new(), vec![root]);
    while let Some(pid) = todo.pop() {
        found.push(pid);
        for tid in numbers(&format!("/proc/{pid}/task")) {
            // proc_pid_children(5): each thread lists the processes that it started.
            match fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")) {
                Ok(children) => {
                    todo.extend(children.split_ascii_whitespace().filter_map(|c| c.parse::<u32>().ok()))
                }
                Err(_) if pid == root && fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false) => {
                    return tree_by_parents(root); // a kernel without CONFIG_PROC_CHILDREN
                }
                Err(_) => {}
            }
        }
    }
    found
}

/// The same from the parents of all processes.
fn tree_by_parents(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in numbers("/proc") {
        if let Some(s) = stat(pid) {
            children.entry(s.parent).or_default().push(pid);
        }
    }
    let (mut found, mut todo) = (Vec::new(), vec![root]);
    while let Some(pid) = todo.pop() {
        found.push(pid);
        todo.extend(children.remove(&pid).unwrap_or_default());
    }
    found
}

struct Stat {
    parent: u32,
    spent: Process,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = read(&format!("/proc/{pid}/stat"));
    // The name may contain blanks and parentheses; the fields after the last parenthesis are regular.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    // proc_pid_stat(5) counts from 1, and two fields are cut off. USER_HZ is 100 on every architecture that Linux
    // still supports.
    let ticks = |number: usize| Some(fields.get(number - 3)?.parse::<u64>().ok()? * 10_000_000);
    let (user, system, reaped_user, reaped_system) = (ticks(14)?, ticks(15)?, ticks(16)?, ticks(17)?);
    let spent = Process {
        cpu_ns: Time { own: user + system, reaped: reaped_user + reaped_system },
        system_ns: Time { own: system, reaped: reaped_system },
    };
    Some(Stat { parent: fields.get(1)?.parse().ok()?, spent })
}

fn command(pid: u32) -> String {
    read(&format!("/proc/{pid}/comm")).trim().to_owned()
}

/// Bytes received and sent on all interfaces of the process's network namespace.
fn net(pid: u32) -> (u64, u64) {
    let text = read(&format!("/proc/{pid}/net/dev"));
    let columns = text.lines().filter_map(|line| {
        let mut columns = line.split_once(':')?.1.split_ascii_whitespace();
        Some((columns.next()?.parse::<u64>().ok()?, columns.nth(7)?.parse::<u64>().ok()?))
    });
    columns.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// The file's content; empty if the process has ended.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A watch on its own thread.
pub(crate) struct Watch {
    thread: std::thread::JoinHandle<TargetCost>,
    stop: std::sync::mpsc::Sender<()>,
    so_far: Arc<Mutex<Option<TargetCost>>>,
}

impl Watch {
    /// Starts watching after a delay, or from `begun` if that was earlier.
    pub(crate) fn start(pid: u32, begun: Option<Begun>, after: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = std::sync::mpsc::channel();
        let so_far = Arc::new(Mutex::default());
        let told = Arc::clone(&so_far);
        let work = move || {
            let begun = begun.unwrap_or_else(|| {
                let _ = stopped.recv_timeout(after); // if the run ended in the warm-up, there is nothing to report
                Begun::now(pid)
            });
            watch(pid, begun, &stopped, &told)
        };
        let thread = std::thread::Builder::new().name("weir-load-cost".to_owned()).spawn(work)?;
        Ok(Self { thread, stop, so_far })
    }

    /// The last sample; `None` in the warm-up.
    pub(crate) fn so_far(&self) -> Option<TargetCost> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the watch.
    pub(crate) fn end(self, responses: u64) -> Option<TargetCost> {
        drop(self.stop);
        let cost = self.thread.join().ok()?;
        Some(TargetCost { responses, ..cost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    #[test]
    fn our_own_work_is_seen() {
        let watch =
            Watch::start(std::process::id(), Some(Begun::now(std::process::id())), Duration::ZERO).unwrap();
        let begun = Instant::now();
        while clock::nanos(begun.elapsed()) < 60_000_000 {
            std::hint::black_box(0);
        }
        let cost = watch.end(10).unwrap();
        assert!(cost.cpu_ns > 5_000_000 && cost.rss_bytes_max > 0 && cost.threads_max >= 2, "{cost:?}");
        assert_eq!((cost.responses, cost.pid), (10, std::process::id()));
        assert!(!cost.command.is_empty() && cost.sampled_ns > 0);
    }

    #[test]
    fn what_ended_before_the_last_look_has_spent_its_time() {
        let pid = std::process::id();
        let watch = Watch::start(pid, Some(Begun::now(pid)), Duration::ZERO).unwrap();
        let work = || while crate::os::thread_cpu_ns() < 60_000_000 {};
        std::thread::spawn(work).join().unwrap();
        let cost = watch.end(1).unwrap();
        assert!(cost.cpu_ns >= 60_000_000, "a thread: {cost:?}");

        let script = "read a; (i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); echo done; read b";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let watch = Watch::start(shell.id(), Some(Begun::now(shell.id())), Duration::ZERO).unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.write_all(b"\n").unwrap();
        let mut said = [0; 5];
        shell.stdout.take().unwrap().read_exact(&mut said).unwrap();
        let cost = watch.end(1).unwrap();
        drop(input);
        shell.wait().unwrap();
        assert!(cost.cpu_ns >= 20_000_000, "a process: {cost:?}");
    }

    #[test]
    fn time_is_counted_once_wherever_it_went() {
        let tree = |times: &[(u32, u64, u64)]| -> BTreeMap<u32, Process> {
            let process = |own, reaped| Process { cpu_ns: Time { own, reaped }, ..Process::default() };
            times.iter().map(|(pid, own, reaped)| (*pid, process(*own, *reaped))).collect()
        };
        let of = |p: &Process| p.cpu_ns;
        for (what, first, now, want) in [
            ("a process works", tree(&[(1, 10, 0)]), tree(&[(1, 15, 0)]), 5),
            ("a child begins", tree(&[(1, 10, 0)]), tree(&[(1, 10, 0), (2, 4, 0)]), 4),
            ("a child ends", tree(&[(1, 10, 0), (2, 4, 0)]), tree(&[(1, 11, 7)]), 1 + 3),
            ("a child comes and goes", tree(&[(1, 10, 2)]), tree(&[(1, 10, 8)]), 6),
            ("a child is let go", tree(&[(1, 10, 0), (2, 4, 0)]), tree(&[(1, 11, 0)]), 1),
        ] {
            assert_eq!(spent(&first, &now, of), want, "{what}");
        }
    }

    #[test]
    fn both_ways_find_the_same_tree() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & a=$!; sleep 60 & b=$!; echo ready; read x; kill $a $b"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        shell.stdout.take().unwrap().read_exact(&mut said).unwrap();
        let sorted = |mut pids: Vec<u32>| {
            pids.sort_unstable();
            pids
        };
        let (by_children, by_parents) = (sorted(tree(shell.id())), sorted(tree_by_parents(shell.id())));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!((by_children.len(), &by_children), (3, &by_parents));
    }

    #[test]
    fn whoever_listens_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = find("auto", &[listener.local_addr().unwrap()], false).unwrap();
        assert_eq!(command(found), command(std::process::id()));
        for bad in ["x", "-1", "4194999"] {
            assert!(find(bad, &[], false).is_err(), "{bad}");
        }
        assert!(find("auto", &[], false).is_err());
    }
}

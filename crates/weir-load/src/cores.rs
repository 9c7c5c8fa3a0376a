//! Who used this machine's processors during a run: the difference of two readings of `/proc`.
//!
//! The generator notices by its own means that it waits for a core; this module names the process that has the core.
//! Reading all processes takes time that grows with their number (20 µs each), so the first reading is taken when a
//! thread has waited, and a run that has its cores to itself reads none. Processes that started and ended between the
//! readings are attributed to nobody. Time is counted in ticks of 10 ms, which is enough to name processes with a
//! share that matters.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use weir_report::report::{CoreUse, CoreUser};
use weir_report::verdict::Placement;

/// Maximum number of processes examined in one reading, which keeps it to milliseconds.
const PROCESSES_MOST: usize = 4096;

/// How many other processes are named.
const NAMED: usize = 3;

/// What the machine and its processes had spent at one moment.
pub(crate) struct Look {
    at: Instant,
    machine: Machine,
    /// Processor time of this process.
    own_ns: u64,
    processes: BTreeMap<u32, Process>,
}

/// Time of all cores, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Machine {
    cores: u64,
    busy: u64,
    stolen: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Process {
    command: String,
    cpu_ns: u64,
}

impl Look {
    /// Takes a reading; `None` without a usable `/proc`.
    pub(crate) fn now() -> Option<Self> {
        let machine = machine(&fs::read_to_string("/proc/stat").ok()?)?;
        let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        let read = |pid: u32| Some((pid, process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?));
        let processes = pids.take(PROCESSES_MOST).filter_map(read).collect();
        let own_ns = crate::os::process_cpu_ns(std::process::id()).unwrap_or(0);
        Some(Self { at: Instant::now(), machine, own_ns, processes })
    }

    /// What was spent since this reading: by this process, by the run's targets, and by others.
    pub(crate) fn until_now(&self, targets: &BTreeSet<u32>) -> Option<CoreUse> {
        Some(Self::now()?.since(self, targets))
    }

    fn since(&self, earlier: &Self, targets: &BTreeSet<u32>) -> CoreUse {
        let generator_ns = self.own_ns.saturating_sub(earlier.own_ns);
        let mut spent: Vec<CoreUser> = Vec::new();
        for (pid, process) in &self.processes {
            let before = earlier.processes.get(pid).map_or(0, |p| p.cpu_ns);
            let cpu_ns = process.cpu_ns.saturating_sub(before);
            spent.push(CoreUser { pid: *pid, command: process.command.clone(), cpu_ns });
        }
        let (of_targets, mut others): (Vec<_>, Vec<_>) =
            spent.into_iter().partition(|user| targets.contains(&user.pid));
        others.retain(|user| user.cpu_ns > 0 && user.pid != std::process::id());
        others.sort_by_key(|user| std::cmp::Reverse(user.cpu_ns));
        others.truncate(NAMED);
        CoreUse {
            length_ns: crate::clock::nanos(self.at.duration_since(earlier.at)),
            cores: self.machine.cores,
            busy_ns: self.machine.busy.saturating_sub(earlier.machine.busy),
            stolen_ns: self.machine.stolen.saturating_sub(earlier.machine.stolen),
            generator_ns,
            target_ns: (!targets.is_empty()).then(|| of_targets.iter().map(|user| user.cpu_ns).sum()),
            others,
        }
    }
}

/// The processes of the targets at these addresses, and `pid` with its descendants. Empty if they run on another
/// machine or we may not inspect them.
pub(crate) fn of_targets(pid: Option<u32>, addresses: &[SocketAddr]) -> BTreeSet<u32> {
    let mut roots: Vec<u32> = pid.into_iter().collect();
    let mut asked: Vec<SocketAddr> = addresses.iter().copied().filter(is_here).collect();
    asked.sort_unstable();
    asked.dedup();
    roots.extend(asked.iter().filter_map(|address| owner(*address)));
    roots.into_iter().flat_map(crate::cost::tree).collect()
}

/// Whether an address is of this machine: only such an address can be bound.
fn is_here(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

/// Whether the targets at these addresses, and the processes that they need, are kept off the generator's cores.
pub(crate) fn placement(pid: Option<u32>, targets: &[Vec<SocketAddr>], needed: &[u32]) -> Placement {
    let own = fs::read_to_string("/proc/thread-self/status").ok().and_then(|text| allowed(&text));
    let (Some(own), Some(roots)) = (own, roots(pid, targets)) else { return Placement::Shared };
    let mut all = roots.iter().chain(needed).flat_map(|pid| crate::cost::tree(*pid));
    let are_apart = |pid: u32| {
        // A process that has ended has no threads here, and is ignored.
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut statuses = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        statuses.all(|text| allowed(&text).is_some_and(|cores| cores.is_disjoint(&own)))
    };
    if all.all(are_apart) { Placement::Apart } else { Placement::Shared }
}

/// The processes that listen for the targets; `None` if that is unknown for any address that a connection may go to.
/// An address on another machine counts as unknown: receiving its packets takes time on our cores.
fn roots(pid: Option<u32>, targets: &[Vec<SocketAddr>]) -> Option<BTreeSet<u32>> {
    let mut roots: BTreeSet<u32> = pid.into_iter().collect();
    for addresses in targets {
        if !addresses.iter().all(is_here) {
            return None;
        }
        // One listening address is enough: a name often has an IPv4 and an IPv6 address, and its server uses only one.
        let listeners: Option<Vec<Vec<u32>>> =
            addresses.iter().map(|address| weir_wire::port_owner::all(*address)).collect();
        match listeners.map(|found| found.concat()).filter(|found| !found.is_empty()) {
            Some(found) => roots.extend(found.into_iter().map(crate::cost::root_of)),
            // Nobody listens or `/proc` does not show who, but the user named the process of the only target.
            None if pid.is_some() && targets.len() == 1 => {}
            None => return None,
        }
    }
    (!roots.is_empty()).then_some(roots)
}

/// The cores that a thread may run on, by its `/proc/PID/task/TID/status`.
fn allowed(status: &str) -> Option<BTreeSet<u32>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let mut cores = BTreeSet::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        cores.extend(from.parse::<u32>().ok()?..=to.parse::<u32>().ok()?);
    }
    Some(cores)
}

/// The process that listens on an address of this machine. A comparison asks once per block, and finding it means
/// reading the descriptors of every process, so the last answer is kept while it is true.
fn owner(address: SocketAddr) -> Option<u32> {
    static KNOWN: Mutex<BTreeMap<SocketAddr, (u32, u32)>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((listener, root)) = known.get(&address)
        && weir_wire::port_owner::holds(*listener, address)
    {
        return Some(*root);
    }
    let listener = weir_wire::port_owner::of(address)?;
    let root = crate::cost::root_of(listener);
    known.insert(address, (listener, root));
    Some(root)
}

/// One tick of the clock that counts processor time, in nanoseconds: 10 ms on every Linux.
const TICK_NS: u64 = 10_000_000;

/// The lines of `/proc/stat`: first all cores together, then each core.
fn machine(text: &str) -> Option<Machine> {
    let all = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = all.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else { return None };
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(Machine {
        cores: text.lines().filter(is_core).count() as u64,
        busy: (user + nice + system + irq + softirq) * TICK_NS,
        stolen: ticks.get(7).copied().unwrap_or(0) * TICK_NS,
    })
}

/// `/proc/PID/stat`: the command is in parentheses and may itself contain parentheses.
fn process(text: &str) -> Option<Process> {
    let (before, after) = text.rsplit_once(')')?;
    let command = before.split_once('(')?.1.to_owned();
    let mut fields = after.split_ascii_whitespace().skip(11).map_while(|n| n.parse::<u64>().ok());
    Some(Process { command, cpu_ns: (fields.next()? + fields.next()?) * TICK_NS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read() {
        let stat = "cpu  100 5 50 900 7 1 2 3 0 0\ncpu0 50 5 25 450 7 1 2 3 0 0\ncpu1 50 0 25 450 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(machine(stat), Some(Machine { cores: 2, busy: 158 * TICK_NS, stolen: 3 * TICK_NS }));
        let line = "42 (a (b) c) S 1 42 42 0 -1 4194304 1 2 3 4 70 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(process(line), Some(Process { command: "a (b) c".to_owned(), cpu_ns: 100 * TICK_NS }));
        assert_eq!((machine("cpu x\n"), process("42 (a S")), (None, None));
    }

    #[test]
    fn who_used_the_cores_is_told_apart() {
        let look = |busy: u64, spent: &[(u32, &str, u64)]| Look {
            at: Instant::now(),
            machine: Machine { cores: 2, busy, stolen: 0 },
            own_ns: spent.iter().find(|(pid, ..)| *pid == std::process::id()).map_or(0, |(_, _, ns)| *ns),
            processes: spent
                .iter()
                .map(|(pid, name, ns)| (*pid, Process { command: (*name).to_owned(), cpu_ns: *ns }))
                .collect(),
        };
        let own = std::process::id();
        let begin = look(1_000, &[(own, "weir", 100), (u32::MAX, "target", 50), (u32::MAX - 1, "sh", 10)]);
        let end = look(
            2_000,
            &[
                (own, "weir", 500),
                (u32::MAX, "target", 350),
                (u32::MAX - 1, "sh", 110),
                (u32::MAX - 2, "idle", 0),
            ],
        );
        let used = end.since(&begin, &BTreeSet::from([u32::MAX]));
        assert_eq!((used.busy_ns, used.generator_ns, used.target_ns), (1_000, 400, Some(300)));
        assert_eq!(used.others_ns(), 300);
        let names: Vec<&str> = used.others.iter().map(|user| user.command.as_str()).collect();
        assert_eq!(names, ["sh"]);
        assert_eq!(end.since(&begin, &BTreeSet::new()).target_ns, None);
    }

    #[test]
    fn the_cores_of_a_thread_are_read() {
        let of = |list: &str| allowed(&format!("Name:\tweir\nCpus_allowed_list:\t{list}\nSpeculation:\tx\n"));
        assert_eq!(of("1"), Some(BTreeSet::from([1])));
        assert_eq!(of("0-2,7"), Some(BTreeSet::from([0, 1, 2, 7])));
        assert_eq!((of(""), of("0-x"), allowed("Name:\tweir\n")), (None, None, None));
    }

    #[test]
    fn a_target_on_our_cores_or_on_another_machine_is_not_apart() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(placement(None, &[vec![listener.local_addr().unwrap()]], &[]), Placement::Shared);
        assert_eq!(placement(None, &[vec!["192.0.2.1:80".parse().unwrap()]], &[]), Placement::Shared);
    }

    #[test]
    fn processes_are_known_only_if_each_target_has_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listener.local_addr().unwrap();
        let nobody = SocketAddr::new("127.0.0.77".parse().unwrap(), found.port());
        let elsewhere: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let known = |pid: Option<u32>, targets: &[&[SocketAddr]]| {
            roots(pid, &targets.iter().map(|target| target.to_vec()).collect::<Vec<_>>())
        };
        let ours = Some(BTreeSet::from([crate::cost::root_of(std::process::id())]));
        assert_eq!(known(None, &[&[found]]), ours);
        assert_eq!(known(None, &[&[nobody, found]]), ours);
        assert_eq!(known(None, &[&[found], &[found]]), ours);
        assert_eq!(known(None, &[&[found], &[nobody]]), None);
        assert_eq!(known(None, &[&[found], &[elsewhere]]), None);
        assert_eq!(known(None, &[&[found, elsewhere]]), None);
        assert_eq!(known(None, &[&[found], &[]]), None, "a Unix socket");
        assert_eq!(known(None, &[]), None);
        let named = Some(BTreeSet::from([7]));
        assert_eq!(known(Some(7), &[&[nobody]]), named);
        assert_eq!(known(Some(7), &[&[]]), named);
        assert_eq!(known(Some(7), &[&[found], &[nobody]]), None);
        assert_eq!(known(Some(7), &[&[elsewhere]]), None);
    }

    #[test]
    fn this_machine_tells() {
        let look = Look::now().unwrap();
        assert!(look.machine.cores > 0 && look.processes.contains_key(&std::process::id()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!of_targets(None, &[listener.local_addr().unwrap()]).is_empty());
        assert!(of_targets(None, &["192.0.2.1:80".parse().unwrap()]).is_empty());
    }
}

//! What the kernel reports about a thread, this process and the machine.

#![allow(unsafe_code)] // a few system calls without a safe wrapper among our crates

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use weir_report::report::Generator;

/// The monotonic clock in nanoseconds. `Instant` reads the same clock, but its subtraction takes 45 instructions more,
/// and an exchange reads the clock twice.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill. It cannot fail: every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0;
    if failed { 0 } else { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 }
}

/// Processor time of a process, including its ended threads, in nanoseconds.
pub(crate) fn process_cpu_ns(pid: u32) -> Option<u64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock` is a valid clockid_t for the call to fill.
    let found = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } == 0;
    // SAFETY: `time` is a valid timespec for the call to fill.
    let told = found && unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    told.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How long the calling thread was runnable but had no processor, in nanoseconds; 0 if the kernel does not report it.
pub(crate) fn thread_waited_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Reads [`thread_waited_ns`] of the thread that created it. Keeps the file open, because opening it takes most of the
/// time.
pub(crate) struct WaitedClock(Option<fs::File>);

impl WaitedClock {
    pub(crate) fn of_this_thread() -> Self {
        Self(fs::File::open("/proc/thread-self/schedstat").ok())
    }

    pub(crate) fn now(&self) -> u64 {
        let mut text = [0; 64]; // three numbers, of at most 20 digits each
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = std::str::from_utf8(text.get(..read).unwrap_or_default()).unwrap_or_default();
        text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

/// The shortest slice that the kernel accepts.
const SLICE_NS: u64 = 100_000;

/// Lets the calling thread run soon after it wakes, in exchange for a shorter turn. A thread may preempt another that
/// has a longer slice (EEVDF, from Linux 6.12). The thread gets no more time than otherwise, so this needs no
/// privilege; older kernels ignore it.
///
/// It helps a fixed rate on shared cores. Beside a busy loop on the same core, the p99 delay of starts is 31 instead
/// of 143 ms at 5,000/s, and 5.5 instead of 10.6 ms at 1,000/s (bench/results/2026-11-21-starts-of-a-fixed-rate.md).
/// A closed loop would only be interrupted more often.
pub(crate) fn wake_soon() {
    const SIZE: libc::c_uint = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: all zeros is a valid value of this structure of numbers.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `attr` is a structure of the given size for the call to fill; 0 is the calling thread.
    let told = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) } == 0;
    if told && attr.sched_policy == libc::SCHED_OTHER.cast_unsigned() {
        attr.sched_runtime = SLICE_NS;
        // If the call fails, starts are later, and the report says so.
        //
        // SAFETY: `attr` is a structure with its own size, for the call to read.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// Has the kernel kill the process that this command starts if the thread that starts it ends first, as when this
/// process is killed. The process leads a group of its own.
pub(crate) fn ends_with_us(command: &mut Command) {
    let ours = std::process::id();
    let before = move || {
        // SAFETY: sets a number of the calling process.
        let set = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::c_ulong::from(libc::SIGKILL.cast_unsigned()))
        } == 0;
        // SAFETY: asks for a number. If we ended before the call above, nothing would end the new process.
        let parent = unsafe { libc::getppid() };
        if set && parent.cast_unsigned() == ours { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    command.process_group(0);
    // SAFETY: between fork and exec, the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(before) };
}

/// Whether a process of ours has ended. It is not waited for, so its number stays its own.
pub(crate) fn has_ended(pid: u32) -> bool {
    // SAFETY: all zeros is a valid value of this structure of numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid siginfo_t for the call to fill.
    let told = unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, how) } == 0;
    // SAFETY: a call that succeeded has filled the fields of SIGCHLD, or left the zeros.
    told && unsafe { info.si_pid() } != 0
}

/// Kills a process that has not been waited for, and its group if it leads one.
pub(crate) fn kill_group(pid: u32) {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return };
    // SAFETY: sends a signal; the caller has not waited for the process, so the number is still its own.
    unsafe {
        libc::kill(-pid, libc::SIGKILL);
        libc::kill(pid, libc::SIGKILL);
    }
}

/// Largest resident memory of this process, in bytes.
pub(crate) fn rss_bytes_max() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().split(' ').next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// Cores that this process may run on.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Describes the machine and this generator.
pub(crate) fn generator() -> Generator {
    let word = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    Generator {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: format!("{} {}", word("/proc/sys/kernel/ostype"), word("/proc/sys/kernel/osrelease")),
        cpu: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
        cores: cores() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::{WaitedClock, thread_cpu_ns, thread_waited_ns};

    #[test]
    fn a_clock_that_stays_open_reads_the_same() {
        let clock = WaitedClock::of_this_thread();
        let (before, first) = (thread_waited_ns(), clock.now());
        std::thread::yield_now(); // others may run meanwhile, and this thread wait
        let (second, after) = (clock.now(), thread_waited_ns());
        assert!(before <= first && first <= second && second <= after, "{before} {first} {second} {after}");
    }

    #[test]
    fn a_thread_that_is_ready_spends_nothing_more_on_randomness() {
        let fresh = std::thread::spawn(|| {
            weir_wire::random::make_ready();
            let before = thread_cpu_ns();
            let _ = weir_wire::websocket::key();
            thread_cpu_ns() - before
        });
        let spent = fresh.join().unwrap();
        assert!(spent < 5_000_000, "{spent} ns: without it 25 ms and more"); // processor time: independent of load
    }
}

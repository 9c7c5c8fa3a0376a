//! The faults, one after another. Each restores the healthy state at its end.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::{Authority, Certificate, Weir, install, weir_command};

use crate::client::Shared;
use crate::names::NameServer;
use crate::origin::{Mood, Origin};
use crate::process::{self, Signal};

/// One fault.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// Its share of the time.
    pub(crate) weight: u32,
    /// Whether the config is reloaded every second meanwhile.
    pub(crate) with_reloads: bool,
    /// Which results besides 200 a request may have.
    pub(crate) allowed: Allowed,
    /// Whether healthy routes must stay as fast as before.
    pub(crate) spares_others: bool,
    pub(crate) make: fn(&mut Stage<'_>, Instant),
}

/// Which requests may be refused. They still have to be accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// All requests to the faulty endpoints.
    Faulty,
    /// Any request that needs a file descriptor.
    NoDescriptor,
    Nothing,
    /// Requests to the faulty endpoints that must not be sent twice.
    Posts,
}

/// Everything that faults act on.
pub(crate) struct Stage<'a> {
    pub(crate) weir: &'a Weir,
    pub(crate) shared: &'a Shared,
    pub(crate) origins: &'a mut [Origin],
    pub(crate) addresses: &'a [Ipv4Addr],
    pub(crate) names: &'a NameServer,
    pub(crate) authority: &'a Authority,
    pub(crate) certificate: &'a Certificate,
    pub(crate) config: &'a str,
    /// The file of the access log.
    pub(crate) log: String,
    /// The results of the upgrades.
    pub(crate) upgrades: Vec<Upgrade>,
    /// Memory of the serving process at the end of each fault, in KiB.
    pub(crate) memory: Vec<u64>,
}

/// The result of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Upgrade {
    /// The new process serves; KiB of the old process before, and of both together.
    Done { alone: u64, together: u64 },
    /// A broken program was refused.
    Refused,
    /// A good program was refused, or a broken one accepted.
    Wrong,
}

impl Upgrade {
    /// KiB of the old process before, and of both together.
    pub(crate) const fn kib(&self) -> Option<(u64, u64)> {
        match self {
            Self::Done { alone, together } => Some((*alone, *together)),
            Self::Refused | Self::Wrong => None,
        }
    }
}

pub(crate) const FAULTS: [Fault; 14] = [
    Fault {
        name: "none",
        weight: 2,
        with_reloads: false,
        allowed: Allowed::Nothing,
        spares_others: true,
        make: none,
    },
    Fault {
        name: "killed",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Posts,
        spares_others: true,
        make: killed,
    },
    Fault {
        name: "hung",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Posts,
        spares_others: true,
        make: hung,
    },
    Fault {
        name: "reset",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Posts,
        spares_others: true,
        make: reset,
    },
    Fault {
        name: "slow",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Nothing,
        spares_others: true,
        make: slow,
    },
    Fault {
        name: "503",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Posts,
        spares_others: true,
        make: unavailable,
    },
    Fault {
        name: "garbage",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Faulty,
        spares_others: true,
        make: garbage,
    },
    Fault {
        name: "flapping",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Posts,
        spares_others: true,
        make: flapping,
    },
    Fault {
        name: "dns",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Nothing,
        spares_others: true,
        make: dns,
    },
    Fault {
        name: "certificates",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Nothing,
        spares_others: true,
        make: certificates,
    },
    Fault {
        name: "disk full",
        weight: 2,
        with_reloads: true,
        allowed: Allowed::Nothing,
        spares_others: true,
        make: disk_full,
    },
    Fault {
        name: "all together",
        weight: 3,
        with_reloads: true,
        allowed: Allowed::Posts,
        spares_others: true,
        make: together,
    },
    Fault {
        name: "descriptors",
        weight: 2,
        with_reloads: false,
        allowed: Allowed::NoDescriptor,
        spares_others: false,
        make: descriptors,
    },
    Fault {
        name: "upgrades",
        weight: 5,
        with_reloads: false,
        allowed: Allowed::Nothing,
        spares_others: false,
        make: upgrades,
    },
];

/// The origins with faults, all behind one upstream. The others stay healthy.
const FAULTY: std::ops::Range<usize> = 2..5;

/// Duration of one origin's fault.
const SPELL: Duration = Duration::from_millis(900);

fn none(_: &mut Stage<'_>, until: Instant) {
    thread::sleep(until.saturating_duration_since(Instant::now()));
}

/// Applies the fault to one origin after another; each recovers before the next one fails.
fn in_turn(
    stage: &mut Stage<'_>,
    until: Instant,
    mut begin: impl FnMut(&mut Origin),
    mut end: impl FnMut(&mut Origin),
) {
    let mut index = FAULTY.start;
    while Instant::now() < until {
        let origin = &mut stage.origins[index];
        begin(origin);
        thread::sleep(SPELL);
        end(origin);
        // Time for ejected endpoints to return.
        thread::sleep(SPELL);
        index = if index + 1 == FAULTY.end { FAULTY.start } else { index + 1 };
    }
}

fn killed(stage: &mut Stage<'_>, until: Instant) {
    in_turn(stage, until, Origin::kill, Origin::restart);
}

fn hung(stage: &mut Stage<'_>, until: Instant) {
    in_turn(stage, until, |origin| origin.signal(Signal::Stop), |origin| origin.signal(Signal::Continue));
}

fn reset(stage: &mut Stage<'_>, until: Instant) {
    in_turn(stage, until, |origin| origin.behave(Mood::Reset), |origin| origin.behave(Mood::Good));
}

fn slow(stage: &mut Stage<'_>, until: Instant) {
    in_turn(stage, until, |origin| origin.behave(Mood::Slow), |origin| origin.behave(Mood::Good));
}

fn unavailable(stage: &mut Stage<'_>, until: Instant) {
    in_turn(stage, until, |origin| origin.behave(Mood::Unavailable), |origin| origin.behave(Mood::Good));
}

fn garbage(stage: &mut Stage<'_>, until: Instant) {
    in_turn(stage, until, |origin| origin.behave(Mood::Garbage), |origin| origin.behave(Mood::Good));
}

fn flapping(stage: &mut Stage<'_>, until: Instant) {
    while Instant::now() < until {
        let origin = &mut stage.origins[FAULTY.start];
        origin.kill();
        thread::sleep(Duration::from_millis(100));
        origin.restart();
        thread::sleep(Duration::from_millis(100));
    }
}

fn dns(stage: &mut Stage<'_>, until: Instant) {
    for turn in (0..2).cycle() {
        if Instant::now() >= until {
            return;
        }
        stage.names.know(stage.addresses[turn]);
        thread::sleep(Duration::from_millis(700));
    }
}

fn certificates(stage: &mut Stage<'_>, until: Instant) {
    while Instant::now() < until {
        stage.certificate.replace_files_by(&stage.authority.leaf(&["soak.test"]));
        thread::sleep(Duration::from_millis(700));
    }
}

fn disk_full(stage: &mut Stage<'_>, until: Instant) {
    // Every write to /dev/full fails with ENOSPC.
    stage.weir.write_config(&stage.config.replace("{log}", "/dev/full"));
    process::send(stage.weir.serving(), Signal::Reload);
    thread::sleep(until.saturating_duration_since(Instant::now()));
    stage.weir.write_config(&stage.config.replace("{log}", &stage.log));
    process::send(stage.weir.serving(), Signal::Reload);
}

/// As many concurrent faults as the gateway can tolerate. Of the three faulty origins one is dead and one misbehaves,
/// the name resolves to another address, the certificate is replaced, and the log's disk is full. One origin stays
/// healthy, so a GET can be answered.
fn together(stage: &mut Stage<'_>, until: Instant) {
    const MOODS: [Mood; 4] = [Mood::Slow, Mood::Reset, Mood::Unavailable, Mood::Good];
    stage.weir.write_config(&stage.config.replace("{log}", "/dev/full"));
    let mut turn = 0;
    while Instant::now() < until {
        let (dead, odd) = (FAULTY.start + turn % 2, FAULTY.start + (turn + 1) % 2);
        let mood = MOODS[turn % MOODS.len()];
        stage.origins[dead].kill();
        match mood {
            Mood::Good => stage.origins[odd].signal(Signal::Stop),
            mood => stage.origins[odd].behave(mood),
        }
        stage.names.know(stage.addresses[turn % 2]);
        stage.certificate.replace_files_by(&stage.authority.leaf(&["soak.test"]));
        thread::sleep(SPELL);
        stage.origins[dead].restart();
        match mood {
            Mood::Good => stage.origins[odd].signal(Signal::Continue),
            _ => stage.origins[odd].behave(Mood::Good),
        }
        thread::sleep(SPELL);
        turn += 1;
    }
    stage.weir.write_config(&stage.config.replace("{log}", &stage.log));
    process::send(stage.weir.serving(), Signal::Reload);
}

/// Descriptors in use from start to end: listeners, runtimes, logs.
const TAKEN: u64 = 12;

/// Existing connections stay, but no descriptor can be opened. Clients of the route `fresh`, which needs a new
/// upstream connection per request, get an error. New clients wait in the listener's queue.
fn descriptors(stage: &mut Stage<'_>, until: Instant) {
    let pid = stage.weir.serving();
    while Instant::now() < until {
        let before = process::limit_descriptors(pid, TAKEN);
        thread::sleep(SPELL.min(until.saturating_duration_since(Instant::now())));
        process::limit_descriptors(pid, before);
        thread::sleep(SPELL / 2);
    }
}

/// Upgrades under full load: the program file changes each time, and every fourth one is broken.
fn upgrades(stage: &mut Stage<'_>, until: Instant) {
    let pause = stage.shared.control.pause.swap(0, Relaxed);
    let program = stage.weir.dir().join("weir");
    let began = Instant::now();
    let length = until.saturating_duration_since(began);
    let count = u32::try_from(length.as_millis() / APART.as_millis()).unwrap_or(MOST).clamp(LEAST, MOST);
    for times in 0..count {
        let broken = times % 4 == 2;
        match (broken, times % 2) {
            (true, _) => replace(&program, b"#!/bin/sh\nexit 3\n"),
            // The same program with extra bytes appended: it behaves the same but is a different file.
            (false, 1) => {
                let mut bytes = fs::read(weir_command(stage.weir.dir()).get_program()).unwrap();
                bytes.extend_from_slice(format!("{times}").as_bytes());
                replace(&program, &bytes);
            }
            (false, _) => install(&program),
        }
        let (before, answered) = (stage.weir.serving(), stage.shared.control.answered.load(Relaxed));
        let alone = process::memory(before).unwrap_or(0);
        let verdict = stage.weir.upgrade();
        let came = match (broken, verdict) {
            (false, Ok(new)) => {
                let both = [before, new].into_iter().filter_map(process::memory);
                Upgrade::Done { alone, together: both.sum() }
            }
            (true, Err(_)) => Upgrade::Refused,
            _ => Upgrade::Wrong,
        };
        stage.upgrades.push(came);
        // The load continues on the serving process. A late upgrade shortens the wait before the next one.
        let (next, at_last) = (began + length * (times + 1) / count, Instant::now() + SPELL * 10);
        while Instant::now() < next || stage.shared.control.answered.load(Relaxed) < answered + 100 {
            thread::sleep(Duration::from_millis(10));
            if Instant::now() > next.max(at_last) {
                break;
            }
        }
    }
    stage.shared.control.pause.store(pause, Relaxed);
}

/// Number of upgrades in a short run and in a long one, and the shortest time between two.
const LEAST: u32 = 4;
const MOST: u32 = 27; // every fourth is refused, so 20 succeed
const APART: Duration = Duration::from_millis(500);

/// Upgrades that succeed in a long run; the others are refused.
pub(crate) const MOST_DONE: usize = 20;

/// Replaces the program at the path with these bytes.
fn replace(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    let beside = path.with_extension("new");
    fs::write(&beside, bytes).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(beside, path).unwrap();
}

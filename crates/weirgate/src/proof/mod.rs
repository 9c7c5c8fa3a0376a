//! The proof of an import: the old program and Weir, asked the same in a world of their own.
//!
//! ```text
//! weir import --prove, weir prove            (cmd/import.rs, cmd/prove.rs)
//!   └─ prove()          makes the Job: both configs staged, the witnesses          this file, ours.rs
//!        └─ weir __proof-world    new user, mount, network, pid, ipc and uts namespaces    world.rs
//!             └─ weir __proof-play     pid 1 in there: echo, names, the two programs, in turn    play.rs
//!                                      or, for --use-program, the old one reads its config       reading.rs
//! ```
//! The world has no network but loopback, every address and name in it leads to the echo ([`echo`], [`names`]), and
//! all of its files are read-only but a filesystem in memory at [`weir_import::proof::WORKSPACE`]. When pid 1 ends,
//! the kernel ends everything. Where the kernel refuses such a world, nothing is started: NOT PROVED.
//!
//! Many witnesses are shared out among several worlds, which are asked at once ([`parallel`]).
//!
//! What to ask and how to judge the answers is in `weir_import::proof`, without sockets and files.

mod ask;
mod echo;
mod job;
mod names;
mod observer;
mod ours;
mod parallel;
mod play;
mod progress;
mod reading;
mod remote;
mod world;

use self::job::{Found, Job};
pub(crate) use self::ours::Ours;
use self::progress::Progress;
pub(crate) use self::reading::{Reading, read_by_program};
pub(crate) use self::remote::Elsewhere;
use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weir_import::proof::callers::Caller;
use weir_import::proof::patterns::{Patterns, Subject};
use weir_import::proof::program::FOLDERS;
use weir_import::proof::witness::witnesses;
use weir_import::proof::{Accepted, Ask, Program, Report, Stage, Witness};
use weir_import::{Import, Place};

/// The first argument of the process that makes the world.
const WORLD: &str = "__proof-world";
/// The first argument of the process that plays in it.
const PLAY: &str = "__proof-play";

/// Longest a proof may take. 20,000 witnesses take about 20 s.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Largest outcome that is read.
const MAX_OUTCOME: u64 = 1 << 30;

/// What to prove.
pub(crate) struct Proof<'a> {
    /// The old program.
    pub(crate) program: &'a Program,
    /// The old config.
    pub(crate) stage: &'a Stage,
    /// What the import makes of it now: what became of each line, and the config that the importer would write.
    pub(crate) import: &'a Import,
    /// Our config.
    pub(crate) ours: &'a Ours,
    /// The config that the importer would write now, if it can be read.
    pub(crate) imported: Option<&'a Ours>,
    /// Requests on top.
    pub(crate) corpus: Vec<Witness>,
    /// Differences that are accepted.
    pub(crate) accept: &'a [Accepted],
    /// Where the old gateway runs, if not here.
    pub(crate) elsewhere: &'a Elsewhere,
}

/// How a proof ended.
pub(crate) enum Outcome {
    /// It took place, or it is said why not.
    Told(Box<Report>),
    /// The old program refuses its config, at this place.
    Refused(Option<Place>, String),
}

/// Becomes a process of the proof, if the arguments say so.
pub(crate) fn as_part() -> Option<ExitCode> {
    let first = std::env::args_os().nth(1)?;
    if first == WORLD {
        Some(world::run())
    } else if first == PLAY {
        Some(play::run())
    } else {
        None
    }
}

/// Proves an import.
///
/// # Errors
/// If our own side fails: our config cannot be read, or the processes of the proof fail.
pub(crate) fn prove(proof: &Proof<'_>) -> Result<Outcome> {
    let title = proof.program.title;
    let not_proved =
        |why: String| Ok(Outcome::Told(Box::new(Report::not_proved(title, &proof.import.ledger, why))));
    let is_elsewhere = proof.elsewhere.is_used();
    let path = path_of(proof.program).filter(|_| !is_elsewhere);
    if path.is_none() && !is_elsewhere {
        return not_proved(format!(
            "{title} is not on this machine: install it and run weir prove again, or name a gateway that runs \
             elsewhere: --against URL"
        ));
    }
    if let Some((line, why)) = proof.stage.patterns.obstacles.first().filter(|_| !is_elsewhere) {
        return not_proved(format!("{}: `{}`: {why}", line.place, line.text));
    }
    let mut patterns = proof.stage.patterns.clone();
    let mut routes = proof.ours.routes();
    // What was changed by hand in the folder stands in the config that the importer would write now.
    if let Some(imported) = proof.imported {
        routes.extend(imported.routes());
        let (groups, hashed) = imported.groups();
        patterns.hashed.extend(hashed);
        patterns.groups.extend(groups);
    }
    for route in &mut routes {
        if is_elsewhere {
            // A gateway elsewhere has its own passwords.
            route.callers.retain(|(_, caller)| !caller.is_user);
        } else if route.reads_users {
            route.callers.extend(patterns.users.iter().map(|user| (user.clone(), Caller::user(user))));
        }
    }
    if is_elsewhere {
        patterns.users.clear();
    }
    let mut made = witnesses(&patterns, &routes, false);
    let dead = made.list.iter().position(|w| matches!(w.ask.scenario, weir_import::proof::Scenario::Dead(_)));
    let at = dead.unwrap_or(made.list.len());
    made.list.splice(at..at, proof.corpus.iter().cloned());
    let at_limits = witnesses(&patterns, &routes, true);
    made.dropped += at_limits.dropped;
    let mut limits = at_limits.list;
    if is_elsewhere {
        limits.clear();
        made.list
            .retain(|witness| witness.ask.client.is_none() && proof.elsewhere.reaches(&witness.ask.front));
        not_elsewhere(&mut patterns, proof.elsewhere);
    }
    let asks = |list: &[Witness]| list.iter().map(|witness| witness.ask.clone()).collect::<Vec<Ask>>();
    let mut origins = patterns.origins.clone();
    origins.extend(proof.ours.origins());
    origins.sort();
    origins.dedup();
    let progress = Progress::begin(title, made.list.len() + limits.len());
    let old = match is_elsewhere {
        true => match proof.elsewhere.ask(&patterns.origins, &asks(&made.list), TIME_LIMIT) {
            Ok(old) => Some(old),
            Err(why) => return not_proved(why),
        },
        false => None,
    };
    let fronts = patterns.sites.iter().flat_map(|site| site.fronts.clone()).collect();
    let job = Job {
        system: proof.program.system.to_owned(),
        path,
        files: proof.stage.files.iter().cloned().chain(proof.ours.users_files()).collect(),
        old: proof.stage.text.clone(),
        old_limited: proof.stage.limited.clone().filter(|_| !limits.is_empty()),
        ours: proof.ours.staged(false),
        ours_limited: proof.ours.staged(true),
        our_folder: proof.ours.folder().to_owned(),
        origins,
        fronts,
        asks: Vec::new(),
        limit_asks: asks(&limits),
        ..Job::default()
    };
    let mut found = parallel::play(&job, &made.list)?;
    drop(progress);
    if let Some(why) = found.no_world {
        let whom = if is_elsewhere { "Weir" } else { title };
        return not_proved(format!("this kernel cannot create a sandbox for {whom}: {why}"));
    }
    if let Some(old) = old {
        (found.old, found.version) = (old, proof.elsewhere.shown());
    }
    if let Some(said) = found.refused {
        let (place, said) = refused_at(proof.program, proof.stage, &said);
        return Ok(Outcome::Refused(place, said));
    }
    if let Some(why) = found.failure {
        return not_proved(why);
    }
    let observed = made.list.into_iter().zip(found.old.into_iter().zip(found.new));
    let limited = limits.into_iter().zip(found.old_limited.into_iter().zip(found.new_limited));
    let observed: Vec<_> = observed.chain(limited).map(|(witness, (old, new))| (witness, old, new)).collect();
    let route = |ask: &Ask| proof.ours.key_for(ask);
    let mut report =
        Report::new(proof.program, &proof.import.ledger, &patterns, &observed, proof.accept, &route);
    report.program = found.version;
    report.dropped = made.dropped;
    report.variations_left = made.variations_left;
    Ok(Outcome::Told(Box::new(report)))
}

/// What the old program says if it refuses its config, with the place in the source. None also if it cannot be asked
/// here: the proof says why.
///
/// # Errors
/// If the processes of the sandbox fail.
pub(crate) fn refusal(program: &Program, stage: &Stage) -> Result<Option<(Option<Place>, String)>> {
    let Some(path) = path_of(program).filter(|_| stage.patterns.obstacles.is_empty()) else {
        return Ok(None);
    };
    let job = Job {
        system: program.system.to_owned(),
        path: Some(path),
        files: stage.files.clone(),
        old: stage.text.clone(),
        only_checks: true,
        ..Job::default()
    };
    Ok(play_in_a_world(&job)?.refused.map(|said| refused_at(program, stage, &said)))
}

/// The place in the source that a refusal names, and its words.
fn refused_at(program: &Program, stage: &Stage, said: &str) -> (Option<Place>, String) {
    let (line, said) = (program.refusal)(said);
    (line.and_then(|line| stage.places.get(line.checked_sub(1)?)?.clone()), said)
}

/// Notes the lines that a gateway elsewhere is not asked about.
fn not_elsewhere(patterns: &mut Patterns, elsewhere: &Elsewhere) {
    let mut lines = Vec::new();
    for site in &patterns.sites {
        if !site.fronts.iter().any(|front| elsewhere.reaches(front)) {
            let scheme = if site.fronts.iter().all(|front| front.tls) { "https" } else { "http" };
            lines.push((site.line.clone(), format!("no --against {scheme}://… was named")));
        }
        let bursts = site.paths.iter().filter_map(|path| path.burst.as_ref());
        let conditions = site.paths.iter().flat_map(|path| &path.conditions);
        let of_clients = conditions.filter(|condition| condition.of == Subject::Client);
        lines.extend(of_clients.map(|condition| {
            let why = "clients of a gateway elsewhere have the address of this machine";
            (condition.line.clone(), why.to_owned())
        }));
        lines.extend(bursts.map(|(_, line)| {
            let why = "limits count over time, and a gateway elsewhere is not started anew for them";
            (line.clone(), why.to_owned())
        }));
    }
    patterns.unprovable.extend(lines);
}

/// Where a program is: in the places where packages put it.
fn path_of(program: &Program) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(program.binary)).find(|path| path.is_absolute() && path.is_file())
}

/// Runs the job in a world of its own.
fn play_in_a_world(job: &Job) -> Result<Found> {
    let me = std::env::current_exe().context("the path of weir")?;
    let mut command = Command::new(me);
    command.arg(WORLD).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Nothing of the environment is anybody's business in there.
    command.env_clear();
    let mut child = world::spawn_tied(&mut command).context("the process of the proof")?;
    let mut stdin = child.stdin.take().context("a pipe")?;
    let text = serde_json::to_vec(job)?;
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&text); // a child that ended early says why below
    });
    let mut stdout = child.stdout.take().context("a pipe")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.by_ref().take(MAX_OUTCOME).read_to_end(&mut text).map(|_| text)
    });
    let until = Instant::now() + TIME_LIMIT;
    while child.try_wait()?.is_none() {
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            let why = format!("it took longer than {} s", TIME_LIMIT.as_secs());
            return Ok(Found { failure: Some(why), ..Found::default() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = writer.join();
    let text = reader.join().ok().context("the outcome of the proof")??;
    serde_json::from_slice(&text).context("the outcome of the proof")
}

/// The folder of a file, for paths relative to it.
pub(crate) fn folder_of(file: &str) -> PathBuf {
    let path = Path::new(file);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

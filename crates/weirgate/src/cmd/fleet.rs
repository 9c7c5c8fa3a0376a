//! `weir fleet`: publishes a config to many gateways step by step, and shows their state.

mod packed;
mod place;
mod publish;
mod shown;

pub(super) use place::Place;

use super::print;
use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use std::time::SystemTime;
use weir_fleet::plan::{self, Author};
use weir_fleet::pointer::State;
use weir_fleet::{Digest, Pointer};
use weir_gateway::fleet::{Console, Fleet};

#[derive(Args)]
pub(super) struct FleetCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Stop a rollout: nodes that have not taken the bundle yet keep their old one
    Halt(Halt),
    /// Check a folder with a weir.yaml and publish it to the fleet
    Publish(publish::Publish),
    /// Resume a halted rollout
    Resume(Resume),
    /// Return every node to the previous bundle, all at the same time
    Rollback(Rollback),
    /// Show which node runs which bundle, which nodes refused it and why, and the progress of a rollout
    Status(Status),
}

#[derive(Args)]
struct Halt {
    /// Reason, for other operators
    #[arg(short, long, default_value = "by hand")]
    message: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Resume {
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Rollback {
    /// The bundle to return to, by its digest or a prefix of it [default: the previous one]
    bundle: Option<String>,
    /// Reason, for other operators
    #[arg(short, long, default_value = "", hide_default_value = true)]
    message: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Status {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

impl FleetCommand {
    /// The command's own `-c`.
    pub(super) fn config(&mut self) -> &mut super::ConfigArgs {
        match &mut self.command {
            Command::Halt(halt) => &mut halt.place.config,
            Command::Publish(publish) => &mut publish.place.config,
            Command::Resume(resume) => &mut resume.place.config,
            Command::Rollback(rollback) => &mut rollback.place.config,
            Command::Status(status) => &mut status.place.config,
        }
    }

    pub(super) fn run(&self) -> Result<ExitCode> {
        match &self.command {
            Command::Halt(halt) => {
                change(&halt.place, |before, _| Ok((plan::halt(before, &halt.message)?, Vec::new())))
            }
            Command::Publish(publish) => publish.run(),
            Command::Resume(resume) => {
                change(&resume.place, |before, _| Ok((plan::resume(before)?, Vec::new())))
            }
            Command::Rollback(rollback) => change(&rollback.place, |before, _| {
                let to = rollback.bundle.as_deref().map(|text| named(before, text)).transpose()?;
                Ok(plan::roll_back(before, to, author(&rollback.message))?)
            }),
            Command::Status(status) => status.run(),
        }
    }
}

impl Status {
    fn run(&self) -> Result<ExitCode> {
        let console = self.place.console()?;
        let fleet = asked(&console)?;
        let text = if self.json { shown::json(&fleet) } else { shown::page(&console.place(), &fleet) };
        print(&text);
        Ok(ExitCode::SUCCESS)
    }
}

fn asked(console: &Console) -> Result<Fleet> {
    console.fleet().map_err(|e| anyhow!("{}: {e}", console.place()))
}

/// Reads the pointer and writes a new one derived from it, in one transaction conditional on its revision.
fn change(
    place: &Place,
    make: impl Fn(&Pointer, &Fleet) -> Result<(Pointer, Vec<Digest>)>,
) -> Result<ExitCode> {
    let console = place.console()?;
    let fleet = asked(&console)?;
    let before = fleet.pointer.as_ref().ok_or(plan::NotPlanned::NothingThere)?;
    let (pointer, unused) = make(before, &fleet)?;
    // The bundle must exist, or the nodes could not fetch it.
    if pointer.rollout.state != State::Halted {
        console
            .bundle(pointer.to)
            .map_err(|e| anyhow!("{}: {e}; no node could get it, so nothing was written", console.place()))?;
    }
    let written = console.write(&pointer, fleet.revision, None, &unused);
    done(&console, written, &pointer)
}

fn done(console: &Console, written: Result<bool, String>, pointer: &Pointer) -> Result<ExitCode> {
    match written {
        Ok(true) => {
            print(&format!("{}\n", shown::sentence(pointer)));
            Ok(ExitCode::SUCCESS)
        }
        Ok(false) => bail!(
            "somebody else changed the fleet at the same moment, and nothing of yours was written: look at `weir fleet status`, then try again"
        ),
        Err(e) => bail!(
            "{}: {e}; this may or may not have been written: check `weir fleet status` before you retry",
            console.place()
        ),
    }
}

/// Finds a stored bundle by its digest or a prefix of it.
fn named(pointer: &Pointer, text: &str) -> Result<Digest> {
    let kept = pointer.earlier.iter().chain(&pointer.from).chain([&pointer.to]);
    let mut found: Vec<Digest> =
        kept.filter(|digest| digest.to_string().starts_with(text)).copied().collect();
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => bail!("no bundle that is kept begins with {text}; `weir fleet status` lists them"),
        _ => bail!("several bundles begin with {text}: write more of it"),
    }
}

fn author(message: &str) -> Author {
    Author {
        name: std::env::var("USER").unwrap_or_default(),
        message: message.to_owned(),
        time: weir_telemetry::timestamp(SystemTime::now()),
    }
}

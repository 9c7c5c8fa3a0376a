//! `weir import har|openapi|…`: translates what browsers and other load testers write into a plan of `weir load -f`.
//!
//! weir-import translates; here the plan is checked as `weir load --check-file` does, and written.

use super::{COMMAND_LINE, write_file};
use crate::cmd::{Format, print, prove};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_gateway::config::Severity;
use weir_import::plan::{self, Imported, Kind, Source};
use weir_import::source::SourceFile;
use weir_import::{Disk, Unreadable};

/// How often parts are taken out of a plan because `weir load` would refuse them. Without them, others may be wrong.
const ROUNDS: usize = 50;
/// Replaces environment variables while the plan is checked. It has no braces, as a real value has none.
const STAND_IN: &str = "stand-in";

/// Options for importing load plans.
#[derive(Args)]
#[group(id = "plan_options")] // those of a proof are a group named after their type too
#[command(next_help_heading = "Plans: har, openapi, postman, k6, jmx, curl, locust-csv")]
pub(super) struct Options {
    /// HAR: also take requests to this host; `*` takes all; may be repeated
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// HAR: also take static files, such as scripts and images
    #[arg(long = "static")]
    static_files: bool,
    /// HAR: whether gaps of more than 500 ms become pauses
    #[arg(long, value_enum)]
    pauses: Option<Pauses>,
    /// OpenAPI: only operations with this tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// OpenAPI: write a step for each named example of a body
    #[arg(long)]
    examples: bool,
    /// OpenAPI: send operations that write; otherwise they are comments in the plan
    #[arg(long)]
    writes: bool,
    /// Server to load, instead of the one in the source
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// Write the secrets of the source to this file, with mode 0600
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
}

/// What the plan does with gaps between requests.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pauses {
    /// Gaps become pauses
    Keep,
    /// Gaps are left out
    None,
}

/// What the command line says for every kind of import.
pub(super) struct Common<'a> {
    pub(super) files: &'a [String],
    pub(super) output: Option<&'a Path>,
    pub(super) force: bool,
    pub(super) strict: bool,
    pub(super) format: Format,
}

impl Options {
    /// The first of these options that is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let all = [
            ("--host", !self.hosts.is_empty()),
            ("--static", self.static_files),
            ("--pauses", self.pauses.is_some()),
            ("--tag", !self.tags.is_empty()),
            ("--examples", self.examples),
            ("--writes", self.writes),
            ("--target", self.target.is_some()),
            ("--secrets", self.secrets.is_some()),
        ];
        all.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name)
    }

    /// The first given option that does not apply to this source, with the source that it belongs to.
    fn misplaced(&self, kind: &Kind) -> Option<(&'static str, &'static str)> {
        let all = [
            ("--host", "har", !self.hosts.is_empty()),
            ("--static", "har", self.static_files),
            ("--pauses", "har", self.pauses.is_some()),
            ("--tag", "openapi", !self.tags.is_empty()),
            ("--examples", "openapi", self.examples),
            ("--writes", "openapi", self.writes),
        ];
        let found = all.iter().find(|(_, of, is_given)| *is_given && *of != kind.name);
        found.map(|(option, of, _)| (*option, *of))
    }

    /// Imports a source.
    pub(super) fn run(&self, kind: &'static Kind, common: &Common<'_>) -> Result<ExitCode> {
        let wrong = |why: &str| {
            errln!("weir: {why}");
            Ok(ExitCode::from(COMMAND_LINE))
        };
        if let Some((option, of)) = self.misplaced(kind) {
            return wrong(&format!("{option} is an option of `weir import {of}`"));
        }
        let is_line = kind.name == "curl"
            && common.files.first().is_some_and(|word| word == "curl" || word.ends_with("/curl"));
        if !is_line && common.files.len() > 1 {
            return wrong(&format!("weir import {} takes one file", kind.name));
        }
        if let Some(target) = &self.target
            && !matches!(weir_plan::Origin::parse(target), Ok((_, "" | "/")))
        {
            return wrong(&format!("--target {target}: expected a server such as http://127.0.0.1:8080"));
        }
        for output in [common.output, self.secrets.as_deref()].into_iter().flatten() {
            if !common.force && output.exists() {
                return wrong(&format!("{} exists: name another file, or add --force", output.display()));
            }
        }
        let mut imported = match self.import(kind, common.files, is_line) {
            Ok(imported) => imported,
            Err(e) => return Ok(prove::unreadable(&e.to_string(), common.format)),
        };
        let written = match accepted(&mut imported, common.output) {
            Ok(written) => written,
            Err(why) => return Ok(prove::unreadable(&why, common.format)),
        };
        match common.output {
            Some(output) => write_file(output, &written, false)?,
            None => print(&written),
        }
        if let Some(path) = &self.secrets {
            write_file(path, &imported.secrets(), true)?;
        }
        report(&imported, common);
        Ok(ExitCode::from(imported.exit_code(common.strict)))
    }

    fn import(&self, kind: &'static Kind, files: &[String], is_line: bool) -> Result<Imported, Unreadable> {
        let options = plan::Options {
            hosts: self.hosts.clone(),
            static_files: self.static_files,
            no_pauses: self.pauses == Some(Pauses::None),
            tags: self.tags.clone(),
            examples: self.examples,
            writes: self.writes,
            target: self.target.as_deref().map(|target| target.trim_end_matches('/').to_owned()),
        };
        if is_line {
            let disk = Disk::below(Path::new("."))?;
            let file = SourceFile { name: "command line".into(), text: String::new().into() };
            return plan::import(kind, Source { file, words: Some(files) }, &disk, &options);
        }
        let disk = Disk::around(files)?;
        let path = files.first().map_or("", |file| file);
        let file = plan::read(&disk, path)?;
        plan::import(kind, Source { file, words: None }, &disk, &options)
    }
}

/// The text of a plan that `weir load --check-file` accepts: parts that it refuses are taken out, and the ledger says so.
/// The error says why that does not help; then nothing is written.
fn accepted(imported: &mut Imported, output: Option<&Path>) -> Result<String, String> {
    for _ in 0..ROUNDS {
        let written = imported.written();
        let mistakes = check(imported, &written, output)?;
        let Some((path, why)) = mistakes.first() else { return Ok(written) };
        let first = format!("{path}: {why}");
        let mut is_repaired = false;
        let mut last_step = None;
        // From the end, because a step that is taken out moves those behind it. Another mistake of the same step may
        // be gone with it.
        for (path, why) in mistakes.iter().rev() {
            let step = path.rfind("].").map_or(path.as_str(), |end| &path[..=end]);
            if last_step != Some(step) && imported.repair(path, why) {
                is_repaired = true;
                last_step = Some(step);
            }
        }
        if !is_repaired {
            return Err(format!("no plan is written, because `weir load` would refuse it: {first}"));
        }
    }
    Err(format!("no plan is written, because {ROUNDS} repairs did not make it one that `weir load` takes"))
}

/// Reads the plan as `weir load --check-file` does, with stand-ins for variables of the environment. Returns the
/// mistakes that are those of weir import, with their places: files that a plan names may be elsewhere.
fn check(imported: &Imported, written: &str, output: Option<&Path>) -> Result<Vec<(String, String)>, String> {
    let folder = output.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    builder.prefix(".weir-import-").suffix(".yaml");
    // Beside the plan, because it names files relative to itself.
    let made = builder.tempfile_in(folder.unwrap_or(Path::new("."))).or_else(|_| builder.tempfile());
    let file = made.and_then(|file| std::fs::write(file.path(), written).map(|()| file));
    let file = file
        .map_err(|e| format!("the plan cannot be checked, because no temporary file can be written: {e}"))?;
    let mut source = weir_plan::Source::file(file.path());
    for (name, _) in imported.variables() {
        let value = if name == "TARGET" { "http://127.0.0.1:1" } else { STAND_IN };
        source = source.with_variable(name, value);
    }
    Ok(match weir_plan::read(&source, &weir_plan::Disk, &[]) {
        Ok(_) => Vec::new(),
        // Files that the plan names may be on another machine.
        Err(mistakes) => mistakes
            .iter()
            .filter(|found| found.severity == Severity::Error && !found.message.contains("cannot read "))
            .map(|found| (found.path.clone(), found.message.clone()))
            .collect(),
    })
}

fn report(imported: &Imported, common: &Common<'_>) {
    let output = common.output.map(|output| output.display().to_string());
    if common.format == Format::Json {
        let mut report = imported.to_json();
        report["written"] = json!(output);
        let text = format!("{report:#}\n");
        match output {
            Some(_) => print(&text),
            None => errln!("{}", text.trim_end()),
        }
        return;
    }
    let mut text = imported.to_text();
    let variables: Vec<&str> = imported.variables().into_iter().map(|(name, _)| name).collect();
    if !variables.is_empty() {
        text.push_str(&format!("set these in the environment: {}\n", variables.join(", ")));
    }
    match output {
        Some(output) => {
            text.push_str(&format!("written to {output}; next: weir load --check-file -f {output}\n"));
            print(&text);
        }
        // The plan itself is on standard output.
        None => errln!("{}", text.trim_end()),
    }
}

//! Translates what browsers, API clients and other load testers write into plans of `weir load -f`.
//!
//! ```text
//! text ─KIND.import─▶ Plan (ours, not yet text) ─names, vault─▶ write ─▶ one file, its ledger in comments
//!                └─▶ Ledger: every request and setting of the source with its verdict
//! ```
//! The promise is that of [`crate`]: each request and each setting that changes the load is entered in the ledger when
//! it is read, and must be judged. What describes only the recording, such as the timings of a HAR file, is no
//! statement and is not entered.
//!
//! To add a source: a file or folder here with `pub(super) static KIND: Kind`, its line in [`KINDS`], samples with
//! their golden outputs in `plans/NAME/`, and its section of docs/guide/import-plans.md.
//!
//! *Layout.* `model` is the plan and `write` writes it; `names` names steps, `secrets` finds secrets, `vault` hides
//! them, `text` has the syntax of texts. `request` and `bodies` represent recorded requests; `keeps` removes keeps that
//! nothing uses; `repair` takes out what `weir load` would refuse.

pub mod bodies;
mod curl;
mod har;
mod jmx;
mod k6;
pub mod keeps;
mod locust;
pub mod model;
pub mod names;
mod openapi;
mod postman;
mod repair;
pub mod request;
pub mod secrets;
pub mod text;
pub mod vault;
pub mod write;

use crate::ledger::{Counts, Ledger, Verdict};
use crate::report::Words;
pub(crate) use crate::shared::json;
use crate::source::{Loader, Place, SourceFile, Unreadable};
use model::{Plan, SCENARIOS, STEPS};
use vault::{Finder, Vault};

/// Largest source. HAR files of one visit with bodies have tens of megabytes.
pub const MAX_BYTES: u64 = 128 << 20;
/// Reasons that the comments of a plan tell. The report has all.
const COMMENTED: usize = 40;

const WORDS: Words = Words {
    refused: "Refused: decide these yourself",
    changed: "Changed: the plan does these in another way",
    left_out: "Left out: these are not in the plan",
    counted: "statements",
};

/// A source of plans.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in sentences.
    pub title: &'static str,
    /// Reads the source. Whatever it cannot translate is in the ledger; an error means that the source cannot be read.
    pub import: fn(&mut Cx<'_>) -> Result<Plan, Unreadable>,
}

/// Everything that becomes a plan, sorted by name.
pub static KINDS: &[&Kind] =
    &[&curl::KIND, &har::KIND, &jmx::KIND, &k6::KIND, &locust::KIND, &openapi::KIND, &postman::KIND];

/// What a person chose on the command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Hosts that are taken beside the first one of a HAR file; `*` takes all.
    pub hosts: Vec<String>,
    /// Whether static files of a HAR file are taken.
    pub static_files: bool,
    /// Whether pauses are left out.
    pub no_pauses: bool,
    /// Only operations of OpenAPI with one of these tags.
    pub tags: Vec<String>,
    /// Whether each named example of OpenAPI is a step of its own.
    pub examples: bool,
    /// Whether operations of OpenAPI that write are switched on.
    pub writes: bool,
    /// The server, where it is not that of the source.
    pub target: Option<String>,
}

/// What an importer works with.
pub struct Cx<'a> {
    /// The source.
    pub source: Source<'a>,
    /// What a person chose.
    pub options: &'a Options,
    /// What became of each statement.
    pub ledger: Ledger,
    /// The secrets.
    pub vault: Vault,
    /// Files beside the source, such as data sets.
    pub loader: &'a dyn Loader,
}

/// A source.
pub struct Source<'a> {
    /// The file. For words of a command line, a text made of them.
    pub file: SourceFile,
    /// The words of a command line, if the source is one.
    pub words: Option<&'a [String]>,
}

/// The outcome of an import.
pub struct Imported {
    /// What the source is.
    pub kind: &'static Kind,
    /// The plan, complete.
    pub plan: Plan,
    /// What became of each statement.
    pub ledger: Ledger,
    /// The files that were read, as named.
    pub files: Vec<String>,
    secrets: Finder,
}

/// The source with this name on the command line.
#[must_use]
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name).copied()
}

/// Reads a source as text.
///
/// # Errors
/// If it is missing, too large, or not UTF-8 text.
pub fn read(loader: &dyn Loader, path: &str) -> Result<SourceFile, Unreadable> {
    read_at_most(loader, path, MAX_BYTES)
}

fn read_at_most(loader: &dyn Loader, path: &str, most: u64) -> Result<SourceFile, Unreadable> {
    let fail = |message: String| Err(Unreadable::anywhere(format!("{path}: {message}")));
    let bytes = match loader.read(path, most) {
        Ok(bytes) if bytes.len() as u64 > most => {
            return fail(format!("too large: at most {} MiB are read", most >> 20));
        }
        Ok(bytes) => bytes,
        Err(why) => return fail(why),
    };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let line_of = |at: usize| 1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count();
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile { name: path.into(), text: text.into() }),
        Err(e) => fail(format!("line {} is not UTF-8", line_of(e.valid_up_to()))),
    }
}

/// Translates a source.
///
/// # Errors
/// If the source cannot be read: its syntax is broken, or it is something else.
pub fn import(
    kind: &'static Kind,
    source: Source<'_>,
    loader: &dyn Loader,
    options: &Options,
) -> Result<Imported, Unreadable> {
    let name = source.file.name.to_string();
    let mut cx = Cx { source, options, ledger: Ledger::default(), vault: Vault::default(), loader };
    let mut plan = (kind.import)(&mut cx)?;
    let Cx { mut ledger, mut vault, .. } = cx;
    within_limits(&mut plan, &mut ledger, &name);
    let checks = secrets::hide(&mut plan, &mut vault);
    if plan.scenarios.is_empty() {
        return Err(empty(kind, &ledger, &vault.finder()));
    }
    if let Some(target) = &options.target {
        plan.target = Some(model::Target::Known(target.clone()));
    }
    let lost = checks + vault.conceal(&mut plan);
    plan.values.extend(vault.constants());
    names::finish(&mut plan);
    if lost > 0 {
        let piece = ledger.enter(Place::new(&name, 1), "a secret in a place where a plan cannot have a name");
        ledger.refused(
            piece,
            "a check that holds a secret is not in the plan; elsewhere, `***` stands in its place",
            "write that part of the step by hand, with `{{name}}`",
        );
    }
    if vault.is_full() {
        let piece = ledger.enter(Place::new(&name, 1), "secrets beyond the limit of an import");
        let why = "the source has more secrets than an import names; the others share the name more_secrets";
        ledger.refused(piece, why, "cut the source into parts");
    }
    ledger.close(kind.title);
    let secrets = vault.finder();
    ledger.mask(|text| secrets.masked(text));
    Ok(Imported { kind, plan, ledger, files: vec![name], secrets })
}

/// Why a source gives no plan at all.
fn empty(kind: &Kind, ledger: &Ledger, secrets: &Finder) -> Unreadable {
    let first =
        ledger.lines().iter().find(|line| matches!(line.verdict, Verdict::Refused | Verdict::LeftOut));
    let why = match first {
        Some(line) => {
            let why = secrets.masked(&line.why.join("; "));
            format!("no request of it can be taken; the first is {}: {why}", line.place)
        }
        None => "it has no request".to_owned(),
    };
    Unreadable::anywhere(format!("this {} gives no plan: {why}", kind.title))
}

/// Leaves out what is more than a plan may have.
fn within_limits(plan: &mut Plan, ledger: &mut Ledger, name: &str) {
    let mut left: usize = STEPS.saturating_sub(model::count(&plan.setup) + model::count(&plan.teardown));
    let mut cut = 0;
    for scenario in &mut plan.scenarios {
        for list in [&mut scenario.start, &mut scenario.steps, &mut scenario.end] {
            let mut taken = 0;
            for step in &*list {
                let size = 1 + model::count(step.inner());
                if size > left {
                    break;
                }
                left -= size;
                taken += 1;
            }
            cut += list.len() - taken;
            list.truncate(taken);
        }
    }
    if cut > 0 {
        let piece = ledger.enter(Place::new(name, 1), "steps beyond the limit of a plan");
        let why = format!("a plan has at most {STEPS} steps; the last {cut} are not in it");
        ledger.refused(piece, why, "cut the recording into parts");
        prune(plan);
    }
    plan.scenarios.retain(|scenario| scenario.steps.iter().any(|step| !is_off(step)));
    if plan.scenarios.len() > SCENARIOS {
        let piece = ledger.enter(Place::new(name, 1), "scenarios beyond the limit of a plan");
        let why = format!("a plan has at most {SCENARIOS} scenarios, and this one {}", plan.scenarios.len());
        ledger.refused(piece, why, "cut the source into parts");
        plan.scenarios.truncate(SCENARIOS);
    }
}

/// Takes out keeps that no step uses any more.
fn prune(plan: &mut Plan) {
    let mut used = String::new();
    plan.each_request(&mut |request| {
        request.parts_mut(&mut |text| {
            if text.contains("{{") {
                used.push_str(text);
                used.push('\n');
            }
        });
    });
    plan.each_request(&mut |request| {
        request.keep.retain(|keep| used.contains(&text::placeholder(&keep.name)))
    });
}

fn is_off(step: &model::Step) -> bool {
    matches!(&step.does, model::Does::Request(request) if request.is_off)
}

impl Cx<'_> {
    /// A place in the source.
    #[must_use]
    pub fn place(&self, line: u32) -> Place {
        Place::new(&self.source.file.name, line)
    }

    /// Reads a file beside the source, at most 16 MiB.
    ///
    /// # Errors
    /// A sentence for people.
    pub fn beside(&self, path: &str) -> Result<SourceFile, String> {
        let folder = crate::source::folder(&self.source.file.name);
        let path = crate::source::join(folder, path);
        read_at_most(self.loader, &path, crate::source::MAX_FILE_BYTES).map_err(|e| e.message)
    }
}

impl Imported {
    /// The exit code: 1 if something was left out or refused; with `strict`, also if something was changed.
    #[must_use]
    pub fn exit_code(&self, strict: bool) -> u8 {
        self.ledger.exit_code(strict)
    }

    /// The text of the plan, with its ledger in comments at the top.
    #[must_use]
    pub fn written(&self) -> String {
        let mut lines = Vec::new();
        lines.push(format!(
            "From {} ({}) by `weir import {}`.",
            self.kind.title,
            self.files.join(", "),
            self.kind.name
        ));
        let names: Vec<&str> = self.variables().into_iter().map(|(name, _)| name).collect();
        if !names.is_empty() {
            lines.push(format!("Set these in the environment: {}.", names.join(", ")));
        }
        lines.extend(self.plan.comments.iter().cloned());
        lines.push(counted(self.ledger.counts()));
        lines.extend(self.commented());
        let head: String =
            lines.iter().map(|line| format!("{}\n", crate::yaml::comment_text(line))).collect();
        // Texts of the plan are free of secrets by now. A key of JSON or a name of a form may still be one.
        self.secrets.masked(&format!("{head}\n{}", write::to_yaml(&self.plan)))
    }

    /// The ledger for the top of the plan: a line for each reason.
    fn commented(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut more = 0;
        for verdict in [Verdict::Refused, Verdict::LeftOut, Verdict::Changed] {
            let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
            for line in self.ledger.lines().iter().filter(|line| line.verdict == verdict) {
                let why = line.why.join("; ");
                let place = line.place.line.to_string();
                match reasons.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, places)) => places.push(place),
                    None => reasons.push((why, vec![place])),
                }
            }
            for (why, places) in reasons {
                if lines.len() >= COMMENTED {
                    more += 1;
                    continue;
                }
                let shown = places.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
                let rest =
                    if places.len() > 8 { format!(" and {} more", places.len() - 8) } else { String::new() };
                let word = if places.len() > 1 { "lines" } else { "line" };
                lines.push(format!("- {}, {word} {shown}{rest}: {why}", verdict.word()));
            }
        }
        if more > 0 {
            lines.push(format!("- {more} more reasons: run weir import again, with --format json"));
        }
        lines
    }

    /// The variables of the environment that the plan needs.
    #[must_use]
    pub fn variables(&self) -> Vec<(&str, Option<&str>)> {
        write::variables(&self.plan)
    }

    /// A file with the variables that the source has values for, as shells and systemd read it.
    #[must_use]
    pub fn secrets(&self) -> String {
        let mut out =
            String::from("# Variables of an imported plan. Keep it private, and out of version control.\n");
        for (name, value) in self.variables() {
            match value {
                Some(value) => out.push_str(&crate::output::variable_line(name, value)),
                None => out.push_str(&format!("#{name}=\"\"\n")),
            }
        }
        out
    }

    /// The report as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.ledger.to_text(self.kind.title, &WORDS)
    }

    /// The report as JSON. It has every line.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut report = self.ledger.to_json(self.kind.name, &self.files);
        let names: Vec<&str> = self.variables().into_iter().map(|(name, _)| name).collect();
        report["variables"] = serde_json::json!(names);
        report["scenarios"] = serde_json::json!(self.plan.scenarios.len());
        report["steps"] = serde_json::json!(self.plan.steps());
        report
    }
}

fn counted(counts: Counts) -> String {
    format!(
        "{} statements: {} same, {} changed, {} left out, {} refused.",
        counts.total(),
        counts.same,
        counts.changed,
        counts.left_out,
        counts.refused
    )
}

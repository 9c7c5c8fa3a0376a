//! `weir import`: translates the config of another gateway into one of Weir.
//!
//! weir-import translates; here its result is passed through `weir check`, compared with its own tests, and written.
//! `plan` does the same for plans of `weir load`.

mod manifest;
mod plan;
mod readable;

use self::manifest::Manifest;
use super::prove::{self, Told};
use super::{Format, print};
use crate::proof::{Reading, read_by_program};
use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_gateway::config::{Diagnostic, Diagnostics, Loaded, Severity, Source};
use weir_gateway::explain::Arriving;
use weir_gateway::snapshot::Snapshot;
use weir_import::config::Case;
use weir_import::proof::Report;
use weir_import::{Disk, Import as Imported, Loader, Printed, SYSTEMS, System, Written};

/// Most rounds of closing what `weir check` refuses.
const MAX_CLOSINGS: usize = 8;

/// Most tests that are added to those of the importer.
const MAX_ADDED: usize = 200;

/// Exit code for a mistake on the command line.
const COMMAND_LINE: u8 = 2;

/// What `weir import --help` says.
pub(super) const ABOUT: &str = "\
Translate another gateway's config, or a recording or script into a load plan.

A gateway's config becomes a folder of small files. A recording, an API description or the script of another load
tester becomes one plan for `weir load -f`. The report lists every line of the source: translated exactly, changed,
left out, or refused, so that a person must decide.

Exit code: 0 if everything was taken, and proved with `--prove`; 1 if something was left out, refused, different or
not proved; 2 for a mistake on the command line; 3 if the source cannot be read or its own program refuses it.";

#[derive(Args)]
pub(super) struct Import {
    /// Gateway whose config this is, or the kind of source for a load plan
    #[arg(value_name = "KIND", value_parser = kinds())]
    system: String,
    /// Config files; included ones are found. For a load plan, one file; for curl, also a command line: -- curl …
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Folder for the config, new or empty; for a load plan, the file to write [default: standard output]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Write into a folder that is not empty, over the files that an earlier import wrote. Those that this import does
    /// not write are removed, or renamed to NAME.old if they were edited. A file that was edited stays as it is, and
    /// what would replace it is written to NAME.new; then the exit code is 1
    #[arg(long)]
    force: bool,
    /// With --force, also replace files that were edited
    #[arg(long, requires = "force")]
    overwrite_edited: bool,
    /// Write a route for each statement. Otherwise, redirects share a table and regexes become prefixes, where that
    /// changes no routing decision
    #[arg(long)]
    exact: bool,
    /// Exit with 1 if something was changed, too
    #[arg(long)]
    strict: bool,
    /// Let the old program read its own config, in a sandbox: what it includes from elsewhere is found, and what it
    /// refuses is not imported. If it cannot be started, an error says so, and the exit code is 1
    #[arg(long)]
    use_program: bool,
    /// Send the old program and Weir the same requests, and compare the answers: docs/guide/prove.md
    #[arg(long)]
    prove: bool,
    #[command(flatten)]
    proof: prove::Options,
    /// Format of the report
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    plan: plan::Options,
}

/// The names of everything that can be imported.
fn kinds() -> PossibleValuesParser {
    let plans = weir_import::plan::KINDS.iter().map(|kind| kind.name);
    PossibleValuesParser::new(SYSTEMS.iter().map(|system| system.name).chain(plans))
}

/// How the source is read.
struct Read {
    loader: Box<dyn Loader>,
    /// The files that it begins with.
    files: Vec<String>,
    /// Why the old program did not read them, although it was asked to.
    unread: Option<String>,
}

/// What `weir check` says of what was written.
struct Checked {
    diagnostics: Diagnostics,
    /// Mistakes of weir import: errors other than files that are not on this machine.
    mistakes: Vec<String>,
    /// Errors of `weir check` among them: the settings with what it says.
    refused: Vec<(String, String)>,
    /// Files that are not on this machine.
    missing: Vec<String>,
    /// How many tests were asked, if the config could be compiled.
    tests: Option<usize>,
    /// The config as it would run, if it could be compiled.
    snapshot: Option<Snapshot>,
}

impl Import {
    pub(super) fn run(&self) -> Result<ExitCode> {
        if let Some(kind) = weir_import::plan::kind(&self.system) {
            return self.run_plan(kind);
        }
        if let Some(option) = self.plan.given() {
            errln!("weir: {option} applies to load plans, not to {}", self.system);
            return Ok(ExitCode::from(COMMAND_LINE));
        }
        let Some(output) = self.output.as_deref() else {
            errln!("weir: the folder to write to is missing: add -o DIR");
            return Ok(ExitCode::from(COMMAND_LINE));
        };
        self.run_config(output)
    }

    fn run_plan(&self, kind: &'static weir_import::plan::Kind) -> Result<ExitCode> {
        let of_configs = [
            ("--exact", self.exact),
            ("--use-program", self.use_program),
            ("--prove", self.prove),
            ("--against", !self.proof.against.is_empty()),
        ];
        if let Some((option, _)) = of_configs.iter().find(|(_, is_given)| *is_given) {
            errln!("weir: {option} applies to gateway configs, not to {}", kind.name);
            return Ok(ExitCode::from(COMMAND_LINE));
        }
        let common = plan::Common {
            files: &self.files,
            output: self.output.as_deref(),
            force: self.force,
            strict: self.strict,
            format: self.format,
        };
        self.plan.run(kind, &common)
    }

    fn run_config(&self, output: &Path) -> Result<ExitCode> {
        if !self.force && fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_some()) {
            errln!("weir: {} is not empty: name another folder, or add --force", output.display());
            return Ok(ExitCode::from(COMMAND_LINE));
        }
        if !self.prove && !self.proof.against.is_empty() {
            errln!("weir: --against needs --prove");
            return Ok(ExitCode::from(COMMAND_LINE));
        }
        let system = weir_import::system(&self.system).context("the command line knows this system")?;
        let source = match self.source(system) {
            Ok(source) => source?,
            Err(code) => return Ok(code),
        };
        let mut import = match weir_import::import(system, &*source.loader, &source.files) {
            Ok(import) => import,
            Err(e) => return Ok(prove::unreadable(&e.to_string(), self.format)),
        };
        if import.config.listeners.is_empty() {
            self.report_unwritten(&import, &[], "the source has no listener");
            return Ok(ExitCode::from(1));
        }
        let mut written = import.written();
        let mut checked = check(&import, &written)?;
        close_refused(&mut import, &mut written, &mut checked)?;
        if !checked.refused.is_empty() {
            let why = "weir check refuses the imported config";
            self.report_unwritten(&import, &checked.mistakes, why);
            return Ok(ExitCode::from(1));
        }
        add_tests(&mut import, &mut checked);
        written = import.written();
        let exact = if self.exact { None } else { readable::make(&mut import, &mut written, &mut checked)? };
        // Up to here, nothing is written: neither over what is there, nor beside it.
        let mut proof = None;
        if self.prove {
            let prepared = match prove::prepare(system, &*source.loader, &source.files, &self.proof)? {
                Ok(prepared) => prepared,
                Err(told) => return Ok(told.end(self.format)),
            };
            if let Some(told) = prepared.refusal()? {
                return Ok(told.end(self.format));
            }
            proof = Some((prepared, prove::accepted(output)?));
        }
        let old = Manifest::read(output)?;
        let mut kept = BTreeSet::new();
        if !self.overwrite_edited {
            kept = old.edited(output, &written);
            kept.extend(exact.iter().flat_map(|exact| old.edited(output, &exact.written)));
        }
        // What an earlier import wrote is no part of this config, nor of its proof.
        let mut both = beside(&written, &kept);
        both.extend(exact.iter().flat_map(|exact| beside(&exact.written, &kept)));
        let mut stale = old.clear(output, &both)?;
        let told = |written: &[Written]| -> Result<Option<Told>> {
            write_beside(output, written, &kept)?;
            prove::record(system, &self.files, output, &self.proof)?;
            let Some((proof, accept)) = &proof else { return Ok(None) };
            proof.prove(output, self.proof.report.as_deref(), accept).map(Some)
        };
        let mut found = told(&written)?;
        // The readable form stays only where the exact one is not proved better.
        if let (Some(Told::Report(report)), Some(exact)) = (&found, exact)
            && report.decides_otherwise()
        {
            let readable = std::mem::replace(&mut import.config, exact.config);
            let again = told(&exact.written)?;
            if matches!(&again, Some(Told::Report(again)) if again.differ < report.differ) {
                let readable = std::mem::replace(&mut written, exact.written);
                Manifest::of(&beside(&readable, &kept)).clear(output, &beside(&written, &kept))?;
                (found, checked) = (again, exact.checked);
            } else {
                import.config = readable;
                write_beside(output, &written, &kept)?;
                if let (Some(path), Some(Told::Report(report))) = (&self.proof.report, &found) {
                    fs::write(path, report.to_html()).with_context(|| path.display().to_string())?;
                }
            }
        }
        kept.retain(|path| written.iter().any(|file| file.path == *path));
        let all = beside(&written, &kept);
        stale.add(old.clear(output, &all)?);
        stale.kept = kept.into_iter().collect();
        Manifest::of(&all).write(output)?;
        let proof = match found {
            Some(Told::Report(report)) => Some(report),
            Some(told) => return Ok(told.end(self.format)),
            None => None,
        };
        self.report(&import, &checked, proof.as_deref(), &source, (output, &stale));
        let proved = proof.is_none_or(|report| report.is_proved());
        let decided = stale.kept.is_empty();
        let code = if checked.mistakes.is_empty() && proved && decided && source.unread.is_none() {
            import.exit_code(self.strict)
        } else {
            1
        };
        Ok(ExitCode::from(code))
    }

    /// How the files are read. The code with which the command ends, if they are not.
    fn source(&self, system: &'static System) -> Result<Result<Read>, ExitCode> {
        let disk = match Disk::around(&self.files) {
            Ok(disk) => disk,
            Err(e) => return Err(prove::unreadable(&e.to_string(), self.format)),
        };
        let own = |disk, unread| Read { loader: Box::new(disk), files: self.files.clone(), unread };
        if !self.use_program {
            return Ok(Ok(own(disk, None)));
        }
        let [file] = &*self.files else {
            errln!("weir: --use-program takes one file, from which {} finds the others", system.title);
            return Err(ExitCode::from(COMMAND_LINE));
        };
        let Some(program) = weir_import::program(system.name) else {
            errln!("weir: weir does not know how to run {}: leave --use-program out", system.title);
            return Err(ExitCode::from(COMMAND_LINE));
        };
        let read = match read_by_program(program, Path::new(file)) {
            Ok(read) => read,
            Err(e) => return Ok(Err(e)),
        };
        match read {
            Reading::Read(files) if files.is_empty() => Ok(Ok(own(disk, None))),
            Reading::Read(files) => {
                let first = files.first().map(|(path, _)| path.clone()).into_iter().collect();
                Ok(Ok(Read { loader: Box::new(Printed::new(files, disk)), files: first, unread: None }))
            }
            Reading::Refused(said) => {
                let why = format!("{} itself refuses it: {said}", system.title);
                Err(prove::unreadable(&why, self.format))
            }
            Reading::Cannot(why) => Ok(Ok(own(disk, Some(why)))),
        }
    }

    /// Says why nothing is written.
    fn report_unwritten(&self, import: &Imported, mistakes: &[String], why: &str) {
        if self.format == Format::Json {
            let mut report = import.to_json();
            report["mistakes_of_weir_import"] = json!(mistakes);
            report["nothing_written"] = json!(why);
            print(&format!("{report:#}\n"));
            return;
        }
        print(&import.to_text());
        for mistake in mistakes {
            print(&format!("a mistake of weir import, please report it: {mistake}\n"));
        }
        print(&format!("nothing is written: {why}\n"));
    }

    fn report(
        &self,
        import: &Imported,
        checked: &Checked,
        proof: Option<&Report>,
        source: &Read,
        (output, stale): (&Path, &manifest::Cleared),
    ) {
        if self.format == Format::Json {
            let mut report = import.to_json();
            report["check"] = checked.diagnostics.to_json();
            report["missing_files"] = json!(checked.missing);
            report["mistakes_of_weir_import"] = json!(checked.mistakes);
            report["tests"] = json!(checked.tests);
            report["proof"] = json!(proof.map(Report::to_json));
            report["removed"] = json!(stale.removed);
            report["renamed"] = json!(stale.renamed.iter().map(|(path, _)| path).collect::<Vec<_>>());
            report["kept"] = json!(stale.kept);
            if self.use_program {
                let why = source.unread.as_ref();
                report["read_by_program"] = json!({ "done": why.is_none(), "why_not": why });
            }
            print(&format!("{report:#}\n"));
            return;
        }
        print(&import.to_text());
        if let Some(why) = &source.unread {
            let title = import.system.title;
            print(&format!("{title} did not read its config: {why}. Weir's own reader did.\n"));
        }
        if let Some(proof) = proof {
            print(&format!("{}\n", proof.to_text()));
        }
        // Without the slash at the end that a shell completes.
        let output: PathBuf = output.components().collect();
        let output = output.display();
        for path in &stale.removed {
            print(&format!("removed {output}/{path}, which an earlier import wrote\n"));
        }
        for (path, aside) in &stale.renamed {
            print(&format!(
                "renamed {output}/{path} to {aside}: an earlier import wrote it, and it was edited since\n"
            ));
        }
        for path in &stale.kept {
            print(&format!(
                "kept {output}/{path}, which was edited; the new text is in {path}.new. --overwrite-edited replaces it\n"
            ));
        }
        for mistake in &checked.mistakes {
            print(&format!("a mistake of weir import, please report it: {mistake}\n"));
        }
        for missing in &checked.missing {
            print(&format!("not on this machine: {missing}\n"));
        }
        if let Some(tests) = checked.tests.filter(|_| checked.mistakes.is_empty()) {
            print(&format!("weir check: good; {tests} requests take the routes that they must\n"));
        }
        print(&format!("written to {output}: begin with {output}/{}\n", weir_import::output::MAIN));
    }
}

/// Checks the config, and asks it the requests of its tests.
///
/// The files that it names are often on another machine. Then stand-ins take their place in a second check, so that
/// it is complete here too.
fn check(import: &Imported, written: &[Written]) -> Result<Checked> {
    let folder = tempfile::tempdir().context("a folder to check the config in")?;
    write(folder.path(), written)?;
    let found = load(folder.path(), import);
    let missing: Vec<Missing> = found.diagnostics.iter().filter_map(Missing::of).collect();
    let mut complete = None;
    if !missing.is_empty() {
        let standing_in = tempfile::tempdir().context("a folder to check the config in")?;
        write(standing_in.path(), &stand_in(standing_in.path(), written, &missing)?)?;
        complete = Some(load(standing_in.path(), import));
    }
    let listed = found.diagnostics.clone();
    let complete = complete.unwrap_or(found);
    let refused: Vec<(String, String)> = complete
        .diagnostics
        .iter()
        .filter(|found| found.severity == Severity::Error && Missing::of(found).is_none())
        .map(|found| (found.path.clone(), found.message.clone()))
        .collect();
    let mut mistakes: Vec<String> =
        refused.iter().map(|(path, said)| import.masked(&format!("{path}: {said}"))).collect();
    let tests = complete.compiled.as_ref().map(|(_, snapshot)| {
        mistakes.extend(import.config.tests.iter().filter_map(|case| ask(snapshot, case)));
        import.config.tests.len()
    });
    let missing = by_file(&missing);
    let snapshot = complete.compiled.map(|(_, snapshot)| snapshot);
    Ok(Checked { diagnostics: listed, mistakes, refused, missing, tests, snapshot })
}

/// Closes what `weir check` refuses, until it refuses nothing more: each round may uncover further errors.
fn close_refused(import: &mut Imported, written: &mut Vec<Written>, checked: &mut Checked) -> Result<()> {
    if checked.refused.is_empty() {
        return Ok(());
    }
    for _ in 0..MAX_CLOSINGS {
        let refused = std::mem::take(&mut checked.refused);
        if refused.is_empty() {
            break;
        }
        let mut is_closed = false;
        for (path, said) in &refused {
            is_closed |= import.close(path, said);
        }
        *written = import.written();
        *checked = check(import, written)?;
        if !is_closed {
            break;
        }
    }
    // A closed route may match more than the rule it was made for, and take the requests of tests.
    if let Some(snapshot) = &checked.snapshot {
        import.config.tests.retain(|case| ask(snapshot, case).is_none());
        *written = import.written();
        *checked = check(import, written)?;
    }
    Ok(())
}

/// Adds a test for each route that the importer has none for, as far as a request can be made up from its patterns.
fn add_tests(import: &mut Imported, checked: &mut Checked) {
    let Some(snapshot) = &checked.snapshot else { return };
    let tested: BTreeSet<String> = import.config.tests.iter().filter_map(|case| case.route.clone()).collect();
    let routes = snapshot.routes.iter().enumerate().filter(|(_, route)| !tested.contains(&*route.name));
    let made = routes.filter_map(|(index, route)| {
        let request = weir_gateway::explain::request_for(snapshot, index)?;
        let case = Case {
            method: request.method,
            url: request.url,
            headers: request.headers,
            listener: Some(request.listener),
            route: Some(route.name.to_string()),
        };
        ask(snapshot, &case).is_none().then_some(case)
    });
    let made: Vec<Case> = made.take(MAX_ADDED).collect();
    import.config.tests.extend(made);
    checked.tests = Some(import.config.tests.len());
}

/// A file or folder that the config names and this machine lacks.
struct Missing {
    path: String,
    setting: String,
    said: String,
}

impl Missing {
    fn of(found: &Diagnostic) -> Option<Self> {
        let is_missing = matches!(found.code, "file-missing" | "file-unreadable")
            || found.message.contains("(os error 2)")
            || found.message.contains("does not exist")
            // A certificate that the source itself holds, and that is none.
            || found.message.contains("holds no valid");
        let from = found.message.find('/').filter(|_| is_missing && found.severity == Severity::Error)?;
        let path = found.message.get(from..)?.split_whitespace().next()?.to_owned();
        let said = format!("{}: {}", found.path, found.message);
        Some(Self { path, setting: found.path.clone(), said })
    }
}

/// A line for each missing file: the first setting that names it, and the number of the others.
fn by_file(missing: &[Missing]) -> Vec<String> {
    let mut lines: Vec<(&Missing, usize)> = Vec::new();
    for one in missing {
        match lines.iter_mut().find(|(known, _)| known.path == one.path) {
            Some((_, others)) => *others += 1,
            None => lines.push((one, 0)),
        }
    }
    let line = |(missing, others): (&Missing, usize)| match others {
        0 => missing.said.clone(),
        1 => format!("{} (and 1 more setting that names it)", missing.said),
        others => format!("{} (and {others} more settings that name it)", missing.said),
    };
    lines.into_iter().map(line).collect()
}

/// The files of the config with paths to stand-ins, which are made below `folder`.
fn stand_in(folder: &Path, written: &[Written], missing: &[Missing]) -> Result<Vec<Written>> {
    let mut paths: Vec<(&str, PathBuf)> = Vec::new();
    let made =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).context("a stand-in certificate")?;
    for (at, one) in missing.iter().enumerate() {
        if paths.iter().any(|(path, _)| *path == one.path) {
            continue;
        }
        let path = folder.join(format!("stand-in-{at}"));
        let last = one.setting.rsplit('.').next().unwrap_or_default();
        match last {
            "ca" => fs::write(&path, made.cert.pem())?,
            // One file may have both.
            "cert" | "client_cert" | "key" | "client_key" => {
                fs::write(&path, format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem()))?;
            }
            // A file of users must have one.
            "file" if one.setting.ends_with("basic_auth.file") => {
                fs::write(&path, "stand-in:$2y$05$abcdefghijklmnopqrstuuVXkQ1XGcWDYWvnTZOHgmkQlD1vc4Suu\n")?;
            }
            "file" => fs::write(&path, "")?,
            program if program.starts_with("exec") => {
                fs::write(&path, "")?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
            _ => fs::create_dir_all(&path)?,
        }
        paths.push((&one.path, path));
    }
    // The longest first, because one may begin with another.
    paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    Ok(written
        .iter()
        .map(|file| {
            let mut text = file.text.clone();
            for (path, instead) in &paths {
                text = text.replace(path, &instead.display().to_string());
            }
            Written { text, ..file.clone() }
        })
        .collect())
}

/// What loading a config gave.
struct Found {
    diagnostics: Diagnostics,
    compiled: Option<(Loaded, Snapshot)>,
}

fn load(folder: &Path, import: &Imported) -> Found {
    let kinds = weir_gateway::filters::KINDS.iter().map(|kind| kind.name);
    let readers = kinds.filter(|name| name.ends_with("_auth") || ["jwt", "oidc"].contains(name));
    let mut source = Source::file(folder.join(weir_import::output::MAIN)).with_credentials(readers);
    for (name, value) in &import.config.secrets {
        source = source.with_variable(name, value);
    }
    let checked = weir_gateway::check(&source, &[]);
    Found { diagnostics: checked.diagnostics, compiled: checked.compiled }
}

/// The route that takes a request. The error says why no route may.
fn winner(snapshot: &Snapshot, case: &Case) -> Result<Option<String>, String> {
    let arriving = Arriving { listener: case.listener.as_deref(), client: None };
    weir_gateway::explain::winner(snapshot, arriving, &case.method, &case.url, &case.headers)
}

/// Asks which route takes the request of a test. Some if it is not the right one.
fn ask(snapshot: &Snapshot, case: &Case) -> Option<String> {
    let took = winner(snapshot, case).ok().flatten();
    let words = |route: &Option<String>| route.clone().unwrap_or_else(|| "no route".to_owned());
    let (taken, must) = (words(&took), words(&case.route));
    (took != case.route).then(|| format!("{} {} takes {taken}, not {must}", case.method, case.url))
}

/// The files with those that are written beside the `kept` ones.
fn beside(files: &[Written], kept: &BTreeSet<String>) -> Vec<Written> {
    let is_kept = |file: &&Written| kept.contains(&file.path);
    let new = files.iter().filter(is_kept).map(|file| Written { path: new_name(&file.path), ..file.clone() });
    files.iter().cloned().chain(new).collect()
}

fn new_name(path: &str) -> String {
    format!("{path}.new")
}

/// Writes files below a folder, but for those that are `kept`: their new text is written beside them.
fn write_beside(folder: &Path, files: &[Written], kept: &BTreeSet<String>) -> Result<()> {
    for file in files {
        let path = if kept.contains(&file.path) { new_name(&file.path) } else { file.path.clone() };
        write_file(&folder.join(path), &file.text, file.is_secret)?;
    }
    Ok(())
}

/// Writes files below a folder, which is made if it is missing.
pub(super) fn write(folder: &Path, files: &[Written]) -> Result<()> {
    for file in files {
        write_file(&folder.join(&file.path), &file.text, file.is_secret)?;
    }
    Ok(())
}

/// Writes a file; only its owner may read it if it is secret. Its folder is made if it is missing.
fn write_file(path: &Path, text: &str, is_secret: bool) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    let mode = if is_secret { 0o600 } else { 0o666 };
    // Removed first: the mode of a file that exists would stay, and a link would be followed.
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| path.display().to_string());
        }
        _ => {}
    }
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let done = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    done.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_has_one_line() {
        let missing = ["/a", "/b", "/a", "/c", "/c", "/c"].map(|path| Missing {
            path: path.to_owned(),
            setting: String::new(),
            said: format!("{path} is missing"),
        });
        let lines = [
            "/a is missing (and 1 more setting that names it)",
            "/b is missing",
            "/c is missing (and 2 more settings that name it)",
        ];
        assert_eq!(by_file(&missing), lines);
    }
}

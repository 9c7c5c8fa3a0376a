//! `weir import`: translates the config of another gateway into one of Weir.
//!
//! weir-import translates; here its result is passed through `weir check`, compared with its own tests, and written.

use super::{Format, print};
use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_gateway::config::{Diagnostics, Severity, Source};
use weir_gateway::explain::Arriving;
use weir_import::{Disk, Import as Imported, SYSTEMS, Written};

/// Exit code for a mistake on the command line.
const COMMAND_LINE: u8 = 2;
/// Exit code for a source that cannot be read.
const UNREADABLE: u8 = 3;

/// The config is written to a folder, as small files. The report has every line of the source: taken as it is, taken
/// with a difference, left out, or refused, which a person must decide.
///
/// Exit code: 0 if everything was taken, 1 if something was left out or refused, 2 for a mistake on the command line,
/// 3 if the source cannot be read.
#[derive(Args)]
pub(super) struct Import {
    /// What the files were written for
    #[arg(value_parser = PossibleValuesParser::new(SYSTEMS.iter().map(|system| system.name)))]
    system: String,
    /// Its config files; those that they include are found
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Folder to write to: new or empty
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Write into a folder that is not empty, over files of the same names
    #[arg(long)]
    force: bool,
    /// Exit with 1 if something was changed, too
    #[arg(long)]
    strict: bool,
    /// Format of the report
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What `weir check` says of what was written.
struct Checked {
    diagnostics: Diagnostics,
    /// Mistakes of weir import: errors other than files that are not on this machine.
    mistakes: Vec<String>,
    /// Files that are not on this machine.
    missing: Vec<String>,
    /// How many tests were asked, if the config could be compiled.
    tests: Option<usize>,
}

impl Import {
    pub(super) fn run(&self) -> Result<ExitCode> {
        if !self.force && fs::read_dir(&self.output).is_ok_and(|mut entries| entries.next().is_some()) {
            errln!("weir: {} is not empty: name another folder, or add --force", self.output.display());
            return Ok(ExitCode::from(COMMAND_LINE));
        }
        let system = weir_import::system(&self.system).context("the command line knows this system")?;
        let read = Disk::around(&self.files).and_then(|disk| weir_import::import(system, &disk, &self.files));
        let import = match read {
            Ok(import) => import,
            Err(unreadable) => {
                match self.format {
                    Format::Json => {
                        print(&format!("{:#}\n", json!({ "unreadable": unreadable.to_string() })))
                    }
                    Format::Text => errln!("weir: {unreadable}"),
                }
                return Ok(ExitCode::from(UNREADABLE));
            }
        };
        let written = import.written();
        let folder = tempfile::tempdir().context("a folder to check the config in")?;
        write(folder.path(), &written)?;
        let checked = check(folder.path(), &import);
        write(&self.output, &written)?;
        self.report(&import, &checked);
        let code = if checked.mistakes.is_empty() { import.exit_code(self.strict) } else { 1 };
        Ok(ExitCode::from(code))
    }

    fn report(&self, import: &Imported, checked: &Checked) {
        if self.format == Format::Json {
            let mut report = import.to_json();
            report["check"] = checked.diagnostics.to_json();
            report["missing_files"] = json!(checked.missing);
            report["mistakes_of_weir_import"] = json!(checked.mistakes);
            report["tests"] = json!(checked.tests);
            print(&format!("{report:#}\n"));
            return;
        }
        print(&import.to_text());
        let output = self.output.display();
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

/// Checks the config in `folder`, and asks it the requests of its tests.
fn check(folder: &Path, import: &Imported) -> Checked {
    let main = folder.join(weir_import::output::MAIN);
    let kinds = weir_gateway::filters::KINDS.iter().map(|kind| kind.name);
    let readers = kinds.filter(|name| name.ends_with("_auth") || ["jwt", "oidc"].contains(name));
    let mut source = Source::file(main).with_credentials(readers);
    for (name, value) in &import.config.secrets {
        source = source.with_variable(name, value);
    }
    let checked = weir_gateway::check(&source, &[]);
    let (mut mistakes, mut missing) = (Vec::new(), Vec::new());
    for found in checked.diagnostics.iter().filter(|found| found.severity == Severity::Error) {
        let said = format!("{}: {}", found.path, found.message);
        match found.code {
            "file-missing" | "file-unreadable" => missing.push(said),
            _ => mistakes.push(said),
        }
    }
    let tests = checked.compiled.as_ref().map(|(_, snapshot)| {
        for case in &import.config.tests {
            let asked = weir_gateway::explain::explain(
                snapshot,
                Arriving { listener: case.listener.as_deref(), client: None },
                &case.method,
                &case.url,
                &case.headers,
            );
            let took = asked.ok().and_then(|told| told.decision.winner).map(|winner| winner.route);
            if took != case.route {
                let words = |route: &Option<String>| route.clone().unwrap_or_else(|| "no route".to_owned());
                let (took, must) = (words(&took), words(&case.route));
                mistakes.push(format!("{} {} takes {took}, not {must}", case.method, case.url));
            }
        }
        import.config.tests.len()
    });
    Checked { diagnostics: checked.diagnostics, mistakes, missing, tests }
}

/// Writes files below a folder, which is made if it is missing.
fn write(folder: &Path, files: &[Written]) -> Result<()> {
    for file in files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        let mode = if file.is_secret { 0o600 } else { 0o666 };
        // Removed first: the mode of a file that exists would stay, and a link would be followed.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| path.display().to_string());
            }
            _ => {}
        }
        let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let done = opened.and_then(|mut opened| opened.write_all(file.text.as_bytes()));
        done.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

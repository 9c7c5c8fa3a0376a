//! `weir load -f plan.yaml`: reads a plan with scenarios, and checks, rehearses and runs it.

use super::Load;
use clap::Args;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_load::{Options, Plan};
use weir_plan::{Disk, Files, Source};
use weir_report::Mistake;
use weir_report::comparison::baseline::{bytes_digest, text_digest};
use weir_report::units::{counted, size};

/// Endings of files that are plans.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

#[derive(Args)]
pub(super) struct PlanArgs {
    /// Run the scenarios of a plan, in YAML or JSON, in place of one request
    #[arg(short = 'f', long = "file", value_name = "PLAN", help_heading = "Scenarios")]
    file: Option<PathBuf>,
    /// Check the plan, print what it needs, and send nothing
    #[arg(long, help_heading = "Scenarios")]
    check_file: bool,
    /// Change a key of the plan: --set scenarios.browse.rate=50/s; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Scenarios")]
    set: Vec<String>,
    /// Begin the load without running each scenario once before
    #[arg(long, help_heading = "Scenarios")]
    no_dry_run: bool,
}

/// Why there is no run.
pub(super) enum NoRun {
    /// The file is good; there was nothing else to do.
    Checked,
    /// The command line or the file is wrong: what to print.
    Wrong(String),
}

impl Load {
    /// The plan's file: of `-f`, or a lone argument that ends like one and exists.
    pub(super) fn plan_file(&self) -> Option<&Path> {
        let is_plan = |text: &str| {
            let path = Path::new(text);
            let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            ENDINGS.contains(&ending) && path.is_file()
        };
        let lone = self.urls.first().filter(|text| self.urls.len() == 1 && is_plan(text));
        self.plan.file.as_deref().or(lone.map(Path::new))
    }

    /// Options that only a plan has, given without one.
    pub(super) fn without_plan(&self) -> Vec<Mistake> {
        let hint = "is for a plan: -f plan.yaml";
        let given = [
            ("--check-file", self.plan.check_file),
            ("--set", !self.plan.set.is_empty()),
            ("--no-dry-run", self.plan.no_dry_run),
        ];
        given.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| Mistake::new(name, hint)).collect()
    }

    /// Keys of the plan that the command line sets.
    pub(super) fn set_keys(&self) -> Vec<(String, String)> {
        let pairs = self.plan.set.iter().filter_map(|text| text.split_once('='));
        pairs.filter(|(key, _)| !key.is_empty()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    /// Whether each scenario runs once before the load.
    pub(super) const fn is_rehearsed(&self) -> bool {
        !self.plan.no_dry_run
    }

    /// Reads the plan, resolves its servers, and makes a run of it.
    pub(super) fn read_plan(&self, file: &Path, options: &Options) -> Result<Arc<Plan>, NoRun> {
        let mut wrong = Vec::new();
        if self.plan.file.is_some() && !self.urls.is_empty() {
            wrong.push(Mistake::new(
                "URL",
                "the plan says where requests go: leave it out, or use --set target=URL",
            ));
        }
        let set = self.set_keys();
        for text in &self.plan.set {
            if text.split_once('=').is_none_or(|(key, _)| key.is_empty()) {
                wrong.push(Mistake::new(&format!("--set {text}"), "expected KEY=VALUE"));
            }
        }
        let files = Recorded::default();
        let read = weir_plan::read(&Source::file(file), &files, &set);
        let told = |mistakes: Vec<Mistake>| {
            let lines: Vec<String> = mistakes.iter().map(|m| format!("weir load: {m}")).collect();
            NoRun::Wrong(lines.join("\n"))
        };
        let plan = match (read, wrong.is_empty()) {
            (Ok(plan), true) => plan,
            (Ok(_), false) => return Err(told(wrong)),
            (Err(mistakes), true) => return Err(NoRun::Wrong(mistakes.to_string())),
            (Err(mistakes), false) => {
                let NoRun::Wrong(lines) = told(wrong) else { return Err(NoRun::Checked) };
                return Err(NoRun::Wrong(format!("{lines}\n{mistakes}")));
            }
        };
        let mut plan = Plan::of_scenarios(plan, options, !self.plan.no_dry_run).map_err(told)?;
        let written = std::fs::read_to_string(file).unwrap_or_default(); // it was read a moment ago
        let kept = self.plan.set.iter().filter(|text| !text.starts_with("target="));
        let digests = files.digests();
        let parts = std::iter::once(&written).chain(kept).chain(&digests);
        plan.as_run.file_digest = text_digest(&parts.map(String::as_str).collect::<Vec<_>>());
        if self.plan.check_file {
            print_check(file, &plan);
            return Err(NoRun::Checked);
        }
        Ok(Arc::new(plan))
    }
}

/// The file system, which remembers what was read: data sets, bodies and counts are part of a plan's digest.
#[derive(Debug, Default)]
struct Recorded(RefCell<BTreeSet<String>>);

impl Recorded {
    /// A digest of each file's content. A file by another name is the same plan.
    fn digests(self) -> BTreeSet<String> {
        self.0.into_inner()
    }
}

impl Files for Recorded {
    fn read(&self, path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
        let content = Disk.read(path, most)?;
        self.0.borrow_mut().insert(bytes_digest(&content));
        Ok(content)
    }
}

fn print_check(file: &Path, plan: &Plan) {
    let (users, least, most) = plan.users_bytes().unwrap_or_default();
    crate::cmd::print(&format!(
        "{}: good; {} take {} of memory, at most {} with every kept value at its longest; connections and \
         buffers come on top\n",
        file.display(),
        counted(users, "user"),
        size(least as f64),
        size(most as f64),
    ));
    if plan.unchecked_calls() > 0 {
        crate::cmd::print(&format!(
            "{}: the methods and messages of {} are not checked: list the .proto files under `protos`, or the servers \
             are asked when the load begins\n",
            file.display(),
            counted(plan.unchecked_calls(), "gRPC step"),
        ));
    }
}

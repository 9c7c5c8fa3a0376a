//! What all steps are compiled with: the names, the servers, the rows of the report, and the mistakes found so far.

use super::names::Names;
use super::texts::Wrong;
use crate::files::Files;
use crate::limits::STEPS;
use crate::origin::Origin;
use crate::plan::{OnFailure, StepId, StepInfo, StepKind};
use crate::written;
use std::collections::HashMap;
use weir_config::{Diagnostic, Diagnostics, Node, expression};

/// Longest name of a step, in characters.
const NAME_CHARS: usize = 64;

/// Compiles the steps of a plan.
pub(super) struct Compiler<'p> {
    pub(super) file: &'p written::PlanFile,
    pub(super) tree: &'p Node,
    pub(super) files: &'p dyn Files,
    pub(super) found: &'p mut Diagnostics,
    pub(super) names: Names<'p>,
    pub(super) origins: Vec<Origin>,
    pub(super) has_target: bool,
    pub(super) has_wrong_target: bool,
    pub(super) rows: Vec<StepInfo>,
    pub(super) scenario: Option<usize>,
    /// What a failed check of the scenario does.
    pub(super) on_failure: OnFailure,
    /// Names of the steps of the scenario, with their places.
    pub(super) taken: HashMap<String, String>,
    /// All steps so far, those without a row included.
    pub(super) count: usize,
}

impl Compiler<'_> {
    /// Tells a mistake at the place of a setting.
    pub(super) fn wrong(&mut self, path: &str, message: impl Into<String>) {
        self.wrong_with(path, message, None);
    }

    pub(super) fn wrong_with(&mut self, path: &str, message: impl Into<String>, hint: Option<String>) {
        let message: String = message.into();
        let mut wrong = Diagnostic::error("bad-plan", message).on(self.tree, path);
        if let Some(hint) = hint {
            wrong = wrong.hint(hint);
        }
        self.found.push(wrong);
    }

    /// Tells a mistake within a text.
    pub(super) fn wrong_text(&mut self, node: &Node, path: &str, wrong: Wrong) {
        let place = expression::place_within(node, wrong.at, self.found);
        let mut told = Diagnostic::error("bad-plan", wrong.message).concealing(node).at(place);
        path.clone_into(&mut told.path);
        if let Some(hint) = wrong.hint {
            told = told.hint(hint);
        }
        self.found.push(told);
    }

    /// Counts a step. Returns whether there is room for it; tells it once if not.
    pub(super) fn count(&mut self, path: &str) -> bool {
        self.count += 1;
        if self.count == STEPS + 1 {
            self.wrong(path, format!("a plan has at most {STEPS} steps"));
        }
        self.count <= STEPS
    }

    /// Gives a step its row. `None` if its name is wrong.
    pub(super) fn named(&mut self, step: &written::Step, kind: StepKind, path: &str) -> Option<StepId> {
        let Some(name) = step.name.as_deref() else {
            self.wrong(path, "this step needs a `name`: its row in the report and its label in metrics");
            return None;
        };
        let place = format!("{path}.name");
        self.written_out(&place);
        let is_fine = !name.trim().is_empty()
            && name.trim() == name
            && name.chars().count() <= NAME_CHARS
            && !name.chars().any(|c| c.is_control() || c == ':' || c == '{' || c == '}');
        if !is_fine {
            self.wrong(
                &place,
                format!("expected a name of at most {NAME_CHARS} characters, without `:` and braces"),
            );
            return None;
        }
        if name.ends_with("(redirect)") {
            self.wrong(
                &place,
                "names that end in `(redirect)` are those of the requests that redirects cause",
            );
            return None;
        }
        if let Some(before) = self.taken.insert(name.to_owned(), path.to_owned()) {
            self.wrong(
                &place,
                format!("`{name}` is the name of {before} already: each step of a scenario has its own"),
            );
            return None;
        }
        let id = StepId(u16::try_from(self.rows.len()).ok()?);
        let (name, path, part) = (name.into(), path.to_owned(), self.names.part());
        self.rows.push(StepInfo { name, scenario: self.scenario, part, kind, path });
        Some(id)
    }

    /// Refuses a name with `${VAR}` or `${file:PATH}`: such a value may be a secret, and names are shown in reports.
    pub(super) fn written_out(&mut self, place: &str) {
        if self.tree.find(place).is_some_and(|name| !name.outside().is_empty()) {
            let why = "a name is shown in reports and metrics, and a variable may hold a secret: write the name out";
            self.wrong(place, why.to_owned());
        }
    }

    /// The position of a server in the plan's list.
    pub(super) fn origin(&mut self, origin: Origin) -> usize {
        let known = self.origins.iter().position(|known| *known == origin);
        known.unwrap_or_else(|| {
            self.origins.push(origin);
            self.origins.len() - 1
        })
    }
}

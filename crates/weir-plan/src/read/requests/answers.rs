//! What a step checks in its answer, and what it keeps of it.

use super::super::compiler::Compiler;
use super::super::keeps;
use super::super::names::wrong_name;
use super::fits;
use crate::check::Check;
use crate::keep::Keep;
use crate::plan::StepKind;
use crate::written;

impl Compiler<'_> {
    pub(super) fn checks(&mut self, step: &written::Step, kind: StepKind, path: &str) -> Vec<Check> {
        let mut all = Vec::new();
        for (i, text) in step.checks.iter().enumerate() {
            let path = format!("{path}.checks[{i}]");
            match self.check(text, kind) {
                Ok(check) => all.push(check),
                Err(why) => self.wrong(&path, why),
            }
        }
        let has_status = all.iter().any(Check::is_of_status);
        let file = self.file;
        for (i, text) in file.defaults.checks.iter().enumerate() {
            match Check::parse(text) {
                Ok(check) if check.is_of_status() && (has_status || kind == StepKind::WebSocket) => {}
                Ok(check) if !fits(&check, kind) => {}
                Ok(check) => all.push(check),
                Err(why) => self.wrong(&format!("defaults.checks[{i}]"), why),
            }
        }
        all
    }

    pub(super) fn check(&self, text: &str, kind: StepKind) -> Result<Check, String> {
        if text.contains("{{") {
            return Err("a check compares with a fixed text; placeholders have no meaning in it".to_owned());
        }
        let check = Check::parse(text)?;
        if fits(&check, kind) {
            Ok(check)
        } else {
            Err("the answer to this step has no such thing to check".to_owned())
        }
    }

    pub(super) fn keeps(&mut self, step: &written::Step, kind: StepKind, path: &str) -> Vec<Keep> {
        let mut all = Vec::new();
        for (name, text) in &step.keep.0 {
            let path = format!("{path}.keep.{name}");
            if let Some(why) = wrong_name(name) {
                self.wrong(&path, format!("`{name}` {why}"));
                continue;
            }
            if self.file.data.contains(name) {
                self.wrong(&path, format!("`{name}` is a data set; choose another name"));
                continue;
            }
            match keeps::read(text, kind) {
                Ok(read) => {
                    let slot = self.names.keep(name, read.ty, read.is_optional, Some(&path));
                    let filters = read.filters.into();
                    let (name, text) = (name.as_str().into(), text.clone());
                    all.push(Keep {
                        name,
                        text,
                        slot,
                        source: read.source,
                        filters,
                        is_optional: read.is_optional,
                    });
                }
                Err((why, hint)) => {
                    // Declared even so; otherwise each use of the name would be a further mistake.
                    self.names.keep(name, weir_expr::Type::Json, true, None);
                    self.wrong_with(&path, why, hint);
                }
            }
        }
        all
    }
}

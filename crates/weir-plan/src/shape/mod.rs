//! When iterations begin, and how many users there are: the values of `rate:` and `users:`, and of `--shape`.
//!
//! *Layout.* `written` reads parts as words, `read` (here) as a plan's list. `parts` turns them into the lines of a
//! `course`, which answers when start k is and how many users there are. `line` is one formula with the area below it
//! in integers, `poisson` places random starts, `users` reads lines as numbers of users. No clock, no socket.

mod course;
mod line;
mod parts;
mod poisson;
mod users;
mod written;

pub use course::{Course, Level, Part, Spacing, level, value};
pub use parts::{Form, LINES_MOST, LONGEST_NS, Mistake, Piece};
pub use poisson::Path;
pub use written::{FORMS, PARTS_MOST, named, spacing, unit_of, word};

use crate::files::Files;
use std::collections::BTreeMap;
use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use weir_config::{Diagnostic, Diagnostics, Node};
use written::Settings;

/// What a shape counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Iterations per second, of an open model.
    Rate,
    /// Users, of a closed model.
    Users,
}

/// The course of a load over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Always as much, until the run ends: users, or iterations per second.
    Constant(f64),
    /// A list of parts, which ends with the last of them.
    Parts(Arc<Course>),
}

impl Shape {
    /// The most users, or iterations per second, at any time.
    pub fn most(&self) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Parts(course) => course.highest(),
        }
    }
}

/// Reads the value of `rate:` or `users:`, which stands at `path`: a value, or a list of parts. `None` if it is wrong;
/// `found` then says why. Starts are evenly spaced; [`Course::spaced`] changes that.
pub fn read(
    node: &Node,
    path: &str,
    unit: Unit,
    files: &dyn Files,
    found: &mut Diagnostics,
) -> Option<Shape> {
    if node.elements().is_empty() {
        return constant(node, path, unit, found).map(Shape::Constant);
    }
    let mut wrong = |node: &Node, at: &str, message: String| {
        let mut wrong = Diagnostic::error("bad-shape", message).at(node.at.clone());
        at.clone_into(&mut wrong.path);
        found.push(wrong);
    };
    let elements = node.elements();
    if elements.len() > PARTS_MOST {
        wrong(node, path, format!("expected at most {PARTS_MOST} parts; a file or steps are one"));
        return None;
    }
    let mut pieces = Vec::new();
    for (i, element) in elements.iter().enumerate() {
        // Its file is beside that which names it, as those of data sets.
        let folder = element.at.file.parent().unwrap_or(FilePath::new(""));
        match piece(element, unit, &Beside { folder, files }) {
            Ok(piece) => pieces.push(piece),
            Err(why) => wrong(element, &format!("{path}[{i}]"), why),
        }
    }
    if pieces.len() < elements.len() {
        return None;
    }
    let course = match Course::new(&pieces, Spacing::Even, 1) {
        Ok(course) => course,
        Err(mistake) => {
            match mistake.part().and_then(|i| Some((i, elements.get(i)?))) {
                Some((i, element)) => wrong(element, &format!("{path}[{i}]"), mistake.to_string()),
                None => wrong(node, path, mistake.to_string()),
            }
            return None;
        }
    };
    if unit == Unit::Users && !(1..=USERS_MOST).contains(&course.users_most()) {
        wrong(node, path, format!("expected 1 to {USERS_MOST} users at some time"));
        return None;
    }
    Some(Shape::Parts(Arc::new(course)))
}

/// Most users.
const USERS_MOST: u64 = 1_000_000;

/// Highest rate: 10 million per second.
pub const RATE_MOST: f64 = 10e6;

/// Lowest rate: 0.001 per hour, which is one start in six weeks. It is the step of a [`Level`]; a part with less would
/// be a pause.
pub const RATE_LEAST: f64 = 1.0 / 3_600_000.0;

/// Whether starts can be planned at this rate per second.
pub fn is_rate(per_second: f64) -> bool {
    (RATE_LEAST * 0.999..=RATE_MOST).contains(&per_second)
}

/// The files relative to a folder.
struct Beside<'a> {
    folder: &'a FilePath,
    files: &'a dyn Files,
}

impl Files for Beside<'_> {
    fn read(&self, path: &FilePath, most: u64) -> io::Result<Vec<u8>> {
        self.files.read(&self.folder.join(path), most)
    }
}

/// A part of a list: one key that is its word, and `name`.
fn piece(node: &Node, unit: Unit, files: &dyn Files) -> Result<Piece, String> {
    let form = || format!("expected a part such as `hold: {}`", written::example(unit));
    let mut name = None;
    let mut found = None;
    for (key, value) in node.entries() {
        if &*key.text == "name" {
            let text = value.as_text().ok_or("expected a name")?;
            name = Some(written::name(text)?);
        } else if found.replace((&*key.text, value)).is_some() {
            return Err(format!(
                "a part has one of {}: begin another one with `-`",
                written::WORDS.join(", ")
            ));
        }
    }
    let (word, value) = found.ok_or_else(form)?;
    let form = match value.as_text() {
        Some(text) => written::form(word, &written::values(text), unit, files)?,
        None => {
            let mut settings = BTreeMap::new();
            for (key, value) in value.entries() {
                let text = value.as_text().ok_or_else(|| format!("`{}`: expected a value", key.text))?;
                settings.insert(&*key.text, text);
            }
            written::form_of(word, Settings(settings), unit, files)?
        }
    };
    Ok(Piece { name, form })
}

fn constant(node: &Node, path: &str, unit: Unit, found: &mut Diagnostics) -> Option<f64> {
    let expected = match unit {
        Unit::Rate => "a rate from 0.001/h to 10M/s, such as 20/s, 100/m or 1000/h, or a list of parts",
        Unit::Users => "a number of users from 1 to 1000000, or a list of parts",
    };
    let value = node.as_text().and_then(|text| match unit {
        Unit::Rate => weir_report::units::rate(text.trim()),
        Unit::Users => text.parse::<u32>().ok().map(f64::from),
    });
    let value = value.filter(|value| match unit {
        Unit::Rate => is_rate(*value),
        Unit::Users => (1.0..=USERS_MOST as f64).contains(value),
    });
    if value.is_none() {
        let mut wrong = Diagnostic::error("bad-shape", format!("expected {expected}")).at(node.at.clone());
        path.clone_into(&mut wrong.path);
        found.push(wrong);
    }
    value
}

#[cfg(test)]
mod tests;

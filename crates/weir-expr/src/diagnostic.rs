//! What is wrong with an expression: where, what was expected, and what to write instead.

use std::fmt::Write;
use std::ops::Range;

/// One mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the source that it is about. Empty at the end of the source if something is missing there.
    pub range: Range<usize>,
    /// What is wrong and what was expected, in one sentence.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Mistake {
    /// A mistake at these bytes of the source.
    pub fn new(range: Range<usize>, message: impl Into<String>) -> Self {
        Self { range, message: message.into(), hint: None }
    }

    /// The same with what to write instead.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same mistake in a text that holds the expression from byte `offset` on.
    #[must_use]
    pub fn moved(mut self, offset: usize) -> Self {
        self.range = self.range.start + offset..self.range.end + offset;
        self
    }

    /// Line and column of the mistake in `source`, both from 1. Columns count characters.
    pub fn place(&self, source: &str) -> (usize, usize) {
        let before = source.get(..self.range.start).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// The mistake for people: place and message, the line of the source, carets below it, the hint.
    pub fn render(&self, source: &str) -> String {
        let (line, column) = self.place(source);
        let text = source.lines().nth(line - 1).unwrap_or_default();
        let marked = source.get(self.range.clone()).and_then(|text| text.lines().next()).unwrap_or_default();
        let carets = "^".repeat(marked.chars().count().max(1));
        let mut out = format!("{line}:{column}: {}\n  {text}\n", self.message);
        let _ = write!(out, "  {}{carets}", " ".repeat(column - 1));
        if let Some(hint) = &self.hint {
            let _ = write!(out, "\n  {hint}");
        }
        out
    }
}

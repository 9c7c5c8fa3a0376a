//! Tables of cases.

use std::fmt::{Display, Write as _};
use std::panic::{self, AssertUnwindSafe};

/// Runs the check on every row, and fails once with every failed row and its reason, so that one run shows all
/// failures.
#[track_caller]
pub fn table<'a, R: 'a, N: Display>(
    rows: impl IntoIterator<Item = &'a R>,
    name: impl Fn(&R) -> N,
    check: impl Fn(&R),
) {
    let mut failures = String::new();
    let (mut run, mut failed) = (0, 0);
    for row in rows {
        run += 1;
        if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| check(row))) {
            failed += 1;
            let _ = writeln!(failures, "✗ {}\n{}\n", name(row), indent(panic_text(&*panic)));
        }
    }
    assert!(failed == 0, "{failed} of {run} rows failed:\n\n{failures}");
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a text",
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_every_row_that_failed() {
        let run = || table(&[1, 2, 3], |row| format!("row {row}"), |row| assert_eq!(row % 2, 0, "odd"));
        let panic = panic::catch_unwind(run).unwrap_err();
        let text = panic_text(&*panic);
        assert!(text.starts_with("2 of 3 rows failed"), "{text}");
        assert!(text.contains("✗ row 1") && text.contains("✗ row 3"), "{text}");
    }
}

//! Tables of cases.

use std::any::Any;
use std::fmt::{Display, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::thread;

/// Runs the check on every row, and fails once with every failed row and its reason, so that one run shows all
/// failures.
#[track_caller]
pub fn table<'a, R: 'a, N: Display>(
    rows: impl IntoIterator<Item = &'a R>,
    name: impl Fn(&R) -> N,
    check: impl Fn(&R),
) {
    let checked = |row| (name(row), panic::catch_unwind(AssertUnwindSafe(|| check(row))));
    report(rows.into_iter().map(checked));
}

/// As [`table`], with all rows at the same time, each on a thread of its own: for checks that mostly wait.
#[track_caller]
pub fn table_at_once<R: Sync, N: Display>(
    rows: &[R],
    name: impl Fn(&R) -> N,
    check: impl Fn(&R) + Send + Sync,
) {
    let checked: Vec<_> = thread::scope(|scope| {
        let check = &check;
        let running: Vec<_> = rows.iter().map(|row| (name(row), scope.spawn(move || check(row)))).collect();
        running.into_iter().map(|(name, row)| (name, row.join())).collect()
    });
    report(checked.into_iter());
}

#[track_caller]
fn report<N: Display>(rows: impl Iterator<Item = (N, Result<(), Box<dyn Any + Send>>)>) {
    let mut failures = String::new();
    let (mut run, mut failed) = (0, 0);
    for (name, checked) in rows {
        run += 1;
        if let Err(panic) = checked {
            failed += 1;
            let _ = writeln!(failures, "✗ {name}\n{}\n", indent(panic_text(&*panic)));
        }
    }
    assert!(failed == 0, "{failed} of {run} rows failed:\n\n{failures}");
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
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

    type Run = fn(fn(&i32) -> String, fn(&i32));

    #[test]
    fn names_every_row_that_failed() {
        let name = |row: &i32| format!("row {row}");
        let check = |row: &i32| assert_eq!(row % 2, 0, "odd");
        let runs: [Run; 2] = [
            |name, check| table(&[1, 2, 3], name, check),
            |name, check| table_at_once(&[1, 2, 3], name, check),
        ];
        for run in runs {
            let panic = panic::catch_unwind(|| run(name, check)).unwrap_err();
            let text = panic_text(&*panic);
            assert!(text.starts_with("2 of 3 rows failed"), "{text}");
            assert!(text.contains("✗ row 1") && text.contains("✗ row 3"), "{text}");
        }
    }
}

//! Parts of reference pages that are generated from the code.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Held while a page is read and written: tests of one binary may share a page.
static PAGES: Mutex<()> = Mutex::new(());

/// Fails unless `page`, a path from the repository's root, has this text between `<!-- generated: PART -->` and
/// `<!-- end of PART -->`. `WEIR_BLESS=1` writes the text there instead.
#[track_caller]
#[allow(
    unreachable_pub,
    reason = "a test of weir-telemetry, which must not depend on this crate, and the test `tidy` include the file"
)]
pub fn generated(page: &str, part: &str, text: &str) {
    let _alone = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let written = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let (begin, end) = (format!("<!-- generated: {part} -->\n"), format!("<!-- end of {part} -->\n"));
    let parts = written.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let Some((before, (old, after))) = parts else { panic!("{page} has no `{begin}` … `{end}`") };
    let wanted = format!("\n{}\n\n", text.trim());
    if old == wanted {
        return;
    }
    let bless = std::env::var_os("WEIR_BLESS").is_some_and(|bless| !bless.is_empty());
    assert!(bless, "{page}: the part {part} is out of date; run this test with WEIR_BLESS=1");
    std::fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
}

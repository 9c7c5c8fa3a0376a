//! Output on stderr. Its reader may have gone away, as in `2>&1 | head`, and that must change nothing:
//! `eprintln!` would panic, and the exit code would be lost.

/// Writes to stderr without a line end, and ignores errors.
macro_rules! err {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($arg)*); // see the module
    }};
}

/// Writes a line to stderr, and ignores errors.
macro_rules! errln {
    () => { err!("\n") };
    ($text:literal $($arg:tt)*) => { err!("{}\n", format_args!($text $($arg)*)) };
}

//! The only error of this crate: a problem with a log's settings or its file.

use std::error::Error as StdError;
use std::fmt;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A log cannot be set up as configured.
///
/// `Display` names the file or the template and the expected form; `source()` is the operating system's error, if
/// there is one, which `Display` does not repeat.
#[derive(Debug)]
pub struct Error {
    message: String,
    source: Option<std::io::Error>,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(crate) fn io(message: impl Into<String>, source: std::io::Error) -> Self {
        Self { message: message.into(), source: Some(source) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

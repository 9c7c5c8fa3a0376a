//! Prints the errors of all crates, each with its sources.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// An error and its sources, outermost first: `{}: {}`. None of our messages repeats its source.
#[derive(Debug)]
pub struct Chain<'e>(pub &'e (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

/// An error and what it is about, such as a key of the config. Its message is only that; the error is its source.
#[derive(Debug)]
pub struct Context {
    about: Cow<'static, str>,
    source: Box<dyn Error + Send + Sync>,
}

impl Context {
    /// Says what an error is about.
    pub fn new(about: impl Into<Cow<'static, str>>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { about: about.into(), source: source.into() }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about)
    }
}

impl Error for Context {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::DialError;
    use crate::tls::TlsError;
    use std::io;

    #[test]
    fn a_chain_tells_each_error_once() {
        let refused = || io::Error::other("refused");
        let file = TlsError::policy("a.pem cannot be read").because(refused());
        for (error, told) in [
            (&file as &dyn Error, "a.pem cannot be read: refused"),
            (&DialError::Refused(refused()), "refused"),
            (&DialError::Failed(io::Error::other(file.clone())), "a.pem cannot be read: refused"),
            (&DialError::TimedOut, "connecting took too long"),
            (&Context::new("listeners.web", refused()), "listeners.web: refused"),
            (&Context::new("tls", file.clone()), "tls: a.pem cannot be read: refused"),
        ] {
            assert_eq!(Chain(error).to_string(), told);
        }
        assert_eq!(file.to_string(), "a.pem cannot be read");
    }
}

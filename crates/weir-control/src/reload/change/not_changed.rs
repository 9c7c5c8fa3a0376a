//! Why a change is not made.

use super::super::Failed;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use weir_config::Mistakes;
use weir_wire::Context;

/// Why a change was not made. The previous config keeps running, and no file has changed.
#[derive(Clone, Debug)]
pub enum NotChanged {
    /// The gateway drains.
    Draining,
    /// A new process is about to replace this one, with the sockets as they were.
    Upgrading,
    /// The config comes from a source and must be changed there.
    Fleet,
    /// The config names no file that the API may write.
    NoWrites,
    /// The config names no folder for a history.
    NoHistory,
    /// The revision no longer exists.
    NoRevision(u64),
    /// The thing is in a hand-written file, named here.
    Owned(String, String),
    /// The thing does not exist.
    Missing(String),
    /// The thing already exists.
    Exists(String),
    /// The thing is not in the state that the caller expects: its name, and its current digest.
    Stale(String, String),
    /// The config would have mistakes.
    Refused(Mistakes),
    /// Other things need what was to be removed; the mistakes name them.
    Referenced(Mistakes),
    /// It could not be saved, for this reason.
    Unstored(Arc<dyn Error + Send + Sync>),
}

impl fmt::Display for NotChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draining => f.write_str("the gateway is draining and accepts no other config"),
            Self::Upgrading => {
                f.write_str("an upgrade is under way: change the config once the new process serves")
            }
            Self::Fleet => f.write_str(
                "this gateway has its config from a source: change it there, with `weir fleet publish` or `weir fleet rollback`",
            ),
            Self::NoWrites => f.write_str(
                "the config names no file that the API may write: set `admin.writes`, or change the files and reload",
            ),
            Self::NoHistory => f.write_str("the config names no folder for a history: set `admin.state`"),
            Self::NoRevision(number) => {
                write!(f, "there is no revision {number} in the history; `weir history` lists them")
            }
            Self::Owned(thing, place) => write!(
                f,
                "`{thing}` is defined in a hand-written file, at {place}: change it there, or move it here with `weir config adopt`"
            ),
            Self::Missing(thing) => write!(f, "there is no `{thing}`"),
            Self::Exists(thing) => write!(f, "`{thing}` exists already"),
            Self::Stale(thing, _) => write!(f, "{thing} has changed since you read it: read it again"),
            Self::Refused(diagnostics) | Self::Referenced(diagnostics) => {
                f.write_str(diagnostics.for_readers().to_text().trim_end())
            }
            Self::Unstored(_) => f.write_str("nothing has changed, because it could not be written down"),
        }
    }
}

impl Error for NotChanged {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unstored(why) => Some(&**why),
            _ => None,
        }
    }
}

impl NotChanged {
    pub(crate) fn unstored(why: impl Into<Failed>) -> Self {
        Self::Unstored(Arc::from(why.into()))
    }

    /// A revision that cannot be read.
    pub(crate) fn unread(number: u64, why: io::Error) -> Self {
        Self::unstored(Context::new(format!("revision {number}"), why))
    }
}

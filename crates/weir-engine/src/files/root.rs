//! A folder of the config, kept open by each core.

use super::NotFound;
use super::open::{OpenError, Waiting, open_root};
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_filter::filter::{CoreHandle, PerCore};

/// How long a core keeps the root open. Then it opens it again, to notice a folder that replaced it.
const ROOT_FOR: Duration = Duration::from_secs(1);

/// A folder, and its handle on each core.
pub(crate) struct Root {
    path: PathBuf,
    opened: PerCore<OpenRoot>,
}

/// The root as one core has it open, and since when.
#[derive(Default)]
struct OpenRoot(RefCell<Option<(Instant, Arc<OwnedFd>)>>);

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, opened: PerCore::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the folder cannot be opened, if so.
    pub(crate) fn refusal(&self) -> Option<String> {
        let e = open_root(&self.path).err()?;
        Some(format!("the folder {} cannot be opened: {e}", self.path.display()))
    }

    /// Looks in place if no disk access can block; otherwise on a thread that may block.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        core: &CoreHandle,
        find: impl Fn(BorrowedFd<'_>, Waiting) -> Result<T, NotFound> + Send + 'static,
    ) -> Result<T, NotFound> {
        let opened = self.opened.get(core);
        let root = opened.root(Instant::now());
        if let Some(root) = &root {
            match find(root.as_fd(), Waiting::Never) {
                Err(NotFound::NotOpened(OpenError::Waits)) => {}
                found => return found,
            }
        }
        let (path, anew) = (self.path.clone(), root.is_none());
        let work = move || -> Result<_, NotFound> {
            let root = match root {
                Some(root) => root,
                None => Arc::new(open_root(&path).map_err(|_| NotFound::NoRoot)?),
            };
            let found = find(root.as_fd(), Waiting::Fine);
            Ok((root, found))
        };
        let done = core.blocking(work).await;
        // The queue of the threads is full, or the work panicked.
        match done.map_err(|_| NotFound::NotOpened(OpenError::Busy))? {
            Ok((root, found)) => {
                if anew {
                    *opened.0.borrow_mut() = Some((Instant::now(), root));
                }
                found
            }
            Err(lost) => {
                opened.0.take();
                Err(lost)
            }
        }
    }
}

impl OpenRoot {
    /// The root, if it need not be reopened. Only one caller is told to reopen it; until it has, others use the old
    /// one.
    fn root(&self, now: Instant) -> Option<Arc<OwnedFd>> {
        let mut opened = self.0.borrow_mut();
        let (at, root) = opened.as_mut()?;
        if now.saturating_duration_since(*at) < ROOT_FOR {
            return Some(Arc::clone(root));
        }
        *at = now;
        None
    }
}

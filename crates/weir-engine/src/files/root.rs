//! A folder of the config, kept open by each core.

use super::NotFound;
use super::open::{OpenError, Waiting, open_root};
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_filter::filter::{CoreHandle, PerCore};

/// How long a core keeps the root open. Then it opens it again, to notice a folder that replaced it. What was found
/// below the root is valid until then.
const ROOT_FOR: Duration = Duration::from_secs(1);

/// A folder, and its handle on each core.
pub(crate) struct Root {
    path: PathBuf,
    opened: PerCore<OnCore>,
}

/// The root as one core has it open.
#[derive(Default)]
struct OnCore(RefCell<Option<OpenRoot>>);

#[derive(Clone)]
struct OpenRoot {
    at: Instant,
    /// When someone was last told to open it again.
    asked: Instant,
    root: Arc<OwnedFd>,
}

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, opened: PerCore::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the folder cannot be opened, if so.
    pub(crate) fn refusal(&self) -> Option<String> {
        let e = open_root(&self.path, Waiting::Fine).err()?;
        Some(format!("the folder {} cannot be opened: {e}", self.path.display()))
    }

    /// Looks in place if no disk access can block; otherwise on a thread that may block. Also returns until when the
    /// result may be used again.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        core: &CoreHandle,
        now: Instant,
        find: impl Fn(BorrowedFd<'_>, Waiting) -> Result<T, NotFound> + Send + 'static,
    ) -> Result<(T, Instant), NotFound> {
        let opened = self.opened.get(core);
        let root = opened.root(now, &self.path);
        if let Some(open) = &root {
            match find(open.root.as_fd(), Waiting::Never) {
                Err(NotFound::NotOpened(OpenError::Waits)) => {}
                found => return found.map(|found| (found, open.at + ROOT_FOR)),
            }
        }
        let (path, anew) = (self.path.clone(), root.is_none());
        let work = move || -> Result<_, NotFound> {
            let open = match root {
                Some(open) => open,
                None => {
                    let root = open_root(&path, Waiting::Fine).map_err(|_| NotFound::NoRoot)?;
                    OpenRoot { at: now, asked: now, root: Arc::new(root) }
                }
            };
            let found = find(open.root.as_fd(), Waiting::Fine);
            Ok((open, found))
        };
        let done = core.blocking(work).await;
        // The queue of the threads is full, or the work panicked.
        match done.map_err(|_| NotFound::NotOpened(OpenError::Busy))? {
            Ok((open, found)) => {
                let until = open.at + ROOT_FOR;
                if anew {
                    *opened.0.borrow_mut() = Some(open);
                }
                found.map(|found| (found, until))
            }
            Err(lost) => {
                opened.0.take();
                Err(lost)
            }
        }
    }
}

impl OnCore {
    /// The root, opened again in place if it is time and the kernel knows the path; `None` if a thread must open it.
    /// Only one caller is told so; until it has, others use the old one.
    fn root(&self, now: Instant, path: &Path) -> Option<OpenRoot> {
        let mut opened = self.0.borrow_mut();
        if let Some(open) = opened.as_mut() {
            if now.saturating_duration_since(open.asked) < ROOT_FOR {
                return Some(open.clone());
            }
            open.asked = now;
        }
        let root = open_root(path, Waiting::Never).ok()?;
        let open = OpenRoot { at: now, asked: now, root: Arc::new(root) };
        *opened = Some(open.clone());
        Some(open)
    }
}

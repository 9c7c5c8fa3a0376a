//! A system whose config can be imported, and the outcome of an import.

use super::config::Config;
use super::ledger::Ledger;
use super::source::{Loader, SourceTree, Unreadable};

/// A system whose config can be imported.
pub struct System {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in sentences.
    pub title: &'static str,
    /// Its files, for the help text.
    pub files: &'static str,
    /// Reads the files that the command line named and translates them. Whatever it cannot translate is in the
    /// ledger; an error means that the source cannot be read at all.
    pub import: fn(&mut SourceTree<'_>, &mut Ledger) -> Result<Config, Unreadable>,
}

/// The outcome of an import.
pub struct Import {
    /// The system that the source was written for.
    pub system: &'static System,
    /// Our config.
    pub config: Config,
    /// What became of each line of the source.
    pub ledger: Ledger,
    /// The files that were read, as named.
    pub files: Vec<String>,
}

/// Translates `files`, which are paths as the command line named them, read through `loader`.
///
/// # Errors
/// If the source cannot be read: a file is missing, is too large, is not text, or its syntax is broken.
pub fn import(system: &'static System, loader: &dyn Loader, files: &[String]) -> Result<Import, Unreadable> {
    let mut tree = SourceTree::open(loader, files)?;
    let mut ledger = Ledger::default();
    let mut config = (system.import)(&mut tree, &mut ledger)?;
    tree.take_notes().into_iter().for_each(|note| ledger.note(note));
    crate::shared::claims::judge(&mut config, &mut ledger);
    crate::shared::protect::protect(&mut config);
    config.name_secrets();
    ledger.close(system.title);
    ledger.mask(crate::shared::protect::masked(&config, &[]));
    Ok(Import { system, config, ledger, files: tree.names() })
}

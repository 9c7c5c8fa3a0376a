//! The files that a plan names: data sets and bodies. A trait, so that tests and agents can give them from memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Where a plan's files come from.
pub trait Files {
    /// The content of a file.
    ///
    /// # Errors
    /// It cannot be read, or it is longer than `most` bytes.
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > most {
            return Err(io::Error::other(format!("it is longer than {most} bytes")));
        }
        Ok(content)
    }
}

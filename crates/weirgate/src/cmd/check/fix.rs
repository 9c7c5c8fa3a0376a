//! `weir check --fix`: writes the new names of deprecated keys into the files of a config.
//!
//! Each file is replaced in one step, with its mode and owner. A file that changed since it was read is not
//! overwritten. Every order of these steps leaves a config that works, because the old names still do.

use anyhow::{Context as _, Result, bail};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
use tempfile::NamedTempFile;
use weir_gateway::config::fix::{Fix, Fixes, Left};
use weir_report::units::counted;

/// Writes all files, and says for each what became of it.
///
/// # Errors
/// A file cannot be replaced or changed meanwhile. The files before it are written, and named on stderr.
pub(super) fn write(fixes: &Fixes) -> Result<()> {
    for fix in &fixes.files {
        let path = fix.path.display();
        replace(fix).with_context(|| format!("{path} is as it was"))?;
        errln!("{path}: rewrote {}", counted(fix.keys as u64, "deprecated key"));
    }
    Ok(())
}

/// Says which deprecated keys stay.
pub(super) fn tell_left(fixes: &Fixes) {
    for Left { place, what, why } in &fixes.left {
        errln!("{place}: `{}` stays: {why} (its new name is {})", what.key, what.successor);
    }
}

fn replace(fix: &Fix) -> Result<()> {
    let real = std::fs::canonicalize(&fix.path)?;
    let there = std::fs::metadata(&real)?;
    if !there.is_file() {
        bail!("it is not a regular file, which `--fix` could replace");
    }
    let folder = real.parent().unwrap_or(Path::new("/"));
    // Readable by nobody else until it has the mode of the file that it replaces: a config may hold secrets.
    let mut beside = NamedTempFile::with_prefix_in(".weir-", folder)?;
    beside.write_all(fix.after.as_bytes())?;
    let new = beside.as_file();
    let own = new.metadata()?;
    if (own.uid(), own.gid()) != (there.uid(), there.gid()) {
        fchown(new, Some(there.uid()), Some(there.gid()))
            .context("its owner cannot be kept: run this as the owner, or as root")?;
    }
    new.set_permissions(there.permissions())?;
    new.sync_all()?;
    if std::fs::read(&real)? != fix.before.as_bytes() {
        bail!("it changed while it was being checked: run `weir check --fix` again");
    }
    beside.persist(&real)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, read_dir, read_to_string};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;
    use weir_gateway::config::{Source, fix, load};

    const OLD: &str =
        "routes: { a: { filters: [ { ip: { file: b.txt } } ], respond: { status: 204 } } } # kept\n";

    fn fixes(path: &Path) -> Fixes {
        fix::fixes(&load(&Source::file(path)).unwrap().texts)
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_stays_a_link() {
        let dir = TempDir::new().unwrap();
        let (real, link) = (dir.path().join("real.yaml"), dir.path().join("weir.yaml"));
        std::fs::write(&real, OLD).unwrap();
        std::fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        symlink("real.yaml", &link).unwrap();
        write(&fixes(&link)).unwrap();
        assert_eq!(read_to_string(&real).unwrap(), OLD.replace("file:", "deny_file:"));
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
        assert!(fixes(&link).files.is_empty());
    }

    #[test]
    fn a_file_that_changed_meanwhile_stays() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("weir.yaml");
        std::fs::write(&path, OLD).unwrap();
        let fixes = fixes(&path);
        std::fs::write(&path, "watch: false\n").unwrap();
        let told = format!("{:#}", write(&fixes).unwrap_err());
        assert!(told.contains("weir.yaml is as it was: it changed while"), "{told}");
        assert_eq!(read_to_string(&path).unwrap(), "watch: false\n");
        assert_eq!(read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }
}

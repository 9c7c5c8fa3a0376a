//! Lists a folder as a page, for routes with `browse: true`.

use super::path::escape;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use std::fmt::Write;
use std::fs::File;
use std::os::fd::AsFd;

/// Most entries on a page. A longer list is cut, and the page says so.
const ENTRIES: usize = 10_000;

/// One entry.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// Folders first.
    file: bool,
    name: Vec<u8>,
    size: u64,
}

/// The page of an open folder; `path` is the path as the client wrote it. May block on the disk.
pub(super) fn page(folder: &File, path: &[u8], hidden: bool) -> std::io::Result<String> {
    let (entries, more) = entries(folder, hidden)?;
    let title = text(path);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<h1>{title}</h1>\n<table>\n"
    );
    if path != b"/" {
        page.push_str("<tr><td><a href=\"../\">../</a><td>\n");
    }
    for entry in entries {
        let slash = if entry.file { "" } else { "/" };
        page.push_str("<tr><td><a href=\"./");
        escape(&entry.name, &mut page);
        let _ = write!(page, "{slash}\">{}{slash}</a><td>", text(&entry.name));
        if entry.file {
            let _ = write!(page, "{}", entry.size);
        }
        page.push('\n');
    }
    page.push_str("</table>\n");
    if more {
        let _ = writeln!(page, "<p>Only the first {ENTRIES} entries are shown.");
    }
    page.push_str("</html>\n");
    Ok(page)
}

fn entries(folder: &File, hidden: bool) -> std::io::Result<(Vec<Entry>, bool)> {
    // A separate descriptor, because reading moves the folder's position.
    let own = openat(folder, ".", OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
    let mut entries = Vec::new();
    let mut more = false;
    for entry in Dir::new(own)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (!hidden && name.starts_with(b".")) {
            continue;
        }
        // Do not follow a link here: its target could be outside the root. Opening it checks that.
        let Ok(stat) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let file = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => false,
            FileType::RegularFile | FileType::Symlink => true,
            _ => continue,
        };
        if entries.len() == ENTRIES {
            more = true;
            break;
        }
        entries.push(Entry { file, name: name.to_vec(), size: u64::try_from(stat.st_size).unwrap_or(0) });
    }
    entries.sort_unstable();
    Ok((entries, more))
}

/// A name as page text. Nothing in it can end a tag or an attribute.
fn text(name: &[u8]) -> String {
    let mut out = String::new();
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    #[test]
    fn names_are_escaped_and_dots_hidden() {
        let dir = TempDir::new().unwrap();
        for name in
            ["b.txt", ".env", "<img src=x onerror=alert(1)>", "a\"'&", "javascript:alert(1)", "a b?c#d"]
        {
            fs::write(dir.path().join(name), "12345").unwrap();
        }
        fs::create_dir(dir.path().join("z")).unwrap();
        let folder = File::open(dir.path()).unwrap();
        let shown = page(&folder, b"/x<y/", false).unwrap();
        assert!(!shown.contains("<img") && !shown.contains(".env") && !shown.contains("x<y"), "{shown}");
        for expected in [
            "<a href=\"./z/\">z/</a><td>\n",
            "<a href=\"./b.txt\">b.txt</a><td>5\n",
            "<a href=\"./javascript%3Aalert%281%29\">javascript:alert(1)</a>",
            "<a href=\"./a%22%27%26\">a&quot;&#39;&amp;</a>",
            "<a href=\"./a%20b%3Fc%23d\">",
            "<a href=\"../\">",
        ] {
            assert!(shown.contains(expected), "{expected} in {shown}");
        }
        assert!(shown.find("z/").unwrap() < shown.find("b.txt").unwrap(), "folders first: {shown}");
        let all = page(&folder, b"/", true).unwrap();
        assert!(all.contains(".env") && !all.contains("../"), "{all}");
    }
}

//! The user we run as, for messages about files that we cannot read.

use std::os::unix::fs::MetadataExt;

/// The user of this process, by name and number: `weir (uid 999)`.
pub(super) fn ourselves() -> String {
    // The owner of our entry in /proc is our effective user; this needs no `unsafe` call.
    let Ok(uid) = std::fs::metadata("/proc/self").map(|meta| meta.uid()) else {
        return "this user".to_owned();
    };
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    match users.lines().find_map(|line| name_of(line, uid)) {
        Some(name) => format!("{name} (uid {uid})"),
        None => format!("uid {uid}"),
    }
}

/// The name in a line of passwd(5), if the line is that user's.
fn name_of(line: &str, uid: u32) -> Option<&str> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        assert_eq!(name_of("weir:x:999:999:Weir:/var/lib/weir:/bin/false", 999), Some("weir"));
        assert_eq!(name_of("weir:x:999:999::/:", 0), None);
        assert_eq!(name_of("broken", 0), None);
    }
}

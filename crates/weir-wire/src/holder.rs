//! Who else listens on an address: so that a second start can name the first one's pid.

use std::fs;
use std::net::SocketAddr;

/// The pid of a process that listens on `address`, or on the same port of every address. Best effort: `None` when
/// `/proc` does not show it (another user's process, another network namespace).
pub fn of(address: SocketAddr) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening(&table, address.port()))
        .collect();
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let fds = fs::read_dir(process.path().join("fd")).ok()?;
        let holds = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok()).any(|link| {
            let link = link.to_string_lossy();
            link.strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
                .is_some_and(|inode| inodes.iter().any(|i| i == inode))
        });
        holds.then_some(pid)
    })
}

/// Inodes of the sockets in a `/proc/net/tcp` table that listen on `port`.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
            (local.ends_with(&suffix) && *state == LISTEN).then(|| (*inode).to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_ourselves() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(super::of(socket.local_addr().unwrap()), Some(std::process::id()));
    }
}

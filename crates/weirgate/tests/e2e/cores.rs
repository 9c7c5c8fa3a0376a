//! Distribution of connections: a core that accepts hands over to one that has clearly fewer.

use std::collections::BTreeMap;
use std::fs;

use weir_testkit::{Client, Weir, eventually};

/// How many connections are open before one core loses all of its own, and how many open then.
const BEFORE: usize = 64;
const AFTER: usize = 24;

#[test]
fn a_core_with_few_connections_is_given_those_of_another() {
    let weir = Weir::start(
        "workers: 2\nlisteners: { web: { address: 127.0.0.1:0 } }\n\
         routes: { all: { match: { path: \"/*\" }, respond: { status: 200, body: ok } } }",
    );
    let served = || {
        let mut client = weir.client();
        client.get("/").expect_status(200);
        client
    };
    let mut clients: Vec<Client> = (0..BEFORE).map(|_| served()).collect();
    // A connection is watched shortly after its first answer, so descriptors that are read in sequence may differ.
    eventually("all are watched", || watched(&by_core(&weir)) == BEFORE);
    let before = by_core(&weir);
    let most = before.iter().max_by_key(|ports| ports.len()).unwrap().clone();
    clients.retain(|client| !most.contains(&client.local_address().port()));
    eventually("one core has none", || watched(&by_core(&weir)) == clients.len());
    clients.extend((0..AFTER).map(|_| served()));
    eventually("the new ones are watched", || watched(&by_core(&weir)) == clients.len());
    // By the kernel's hash alone, each core would take half of the new ones, and the difference would stay.
    let sizes: Vec<usize> = by_core(&weir).iter().map(Vec::len).collect();
    let least = if sizes.len() < 2 { 0 } else { *sizes.iter().min().unwrap() };
    let difference = sizes.iter().max().unwrap() - least;
    assert!(difference < 16, "{sizes:?} after {before:?}");
}

fn watched(cores: &[Vec<u16>]) -> usize {
    cores.iter().map(Vec::len).sum()
}

/// The client ports that each core serves, read from what its epolls watch.
fn by_core(weir: &Weir) -> Vec<Vec<u16>> {
    let process = format!("/proc/{}", weir.pid());
    let listener = weir.address("web").rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let sockets = fs::read_to_string(format!("{process}/net/tcp")).unwrap();
    let ports: BTreeMap<String, u16> =
        sockets.lines().skip(1).filter_map(|line| port_of(line, listener)).collect();
    let link = |fd: &str| fs::read_link(format!("{process}/fd/{fd}")).ok();
    // A runtime has several descriptors for its epoll, which watch the same.
    let mut cores: Vec<Vec<u16>> = Vec::new();
    for entry in fs::read_dir(format!("{process}/fd")).unwrap() {
        let fd = entry.unwrap().file_name().into_string().unwrap();
        if link(&fd).is_none_or(|to| to.as_os_str() != "anon_inode:[eventpoll]") {
            continue;
        }
        let Ok(watched) = fs::read_to_string(format!("{process}/fdinfo/{fd}")) else { continue };
        let of_line = |line: &str| {
            let fd = line.strip_prefix("tfd:")?.split_whitespace().next()?;
            ports.get(link(fd)?.to_str()?).copied()
        };
        let mut seen: Vec<u16> = watched.lines().filter_map(of_line).collect();
        seen.sort_unstable();
        if !seen.is_empty() && !cores.contains(&seen) {
            cores.push(seen);
        }
    }
    cores
}

/// The socket of an established connection to this port, and its client's port.
fn port_of(line: &str, listener: u16) -> Option<(String, u16)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let inode = words.nth(5)?;
    let is_ours = port(local)? == listener && state == "01";
    is_ours.then(|| Some((format!("socket:[{inode}]"), port(remote)?)))?
}

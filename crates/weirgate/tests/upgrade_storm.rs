//! `make upgrade-storm`: 200 upgrades, on one core and on two, under 128 clients that connect, send a few requests
//! and leave. Every request must be answered, and none late.
//!
//! A fork copies every descriptor, and the copies last until exec, which is slow on a busy disk. Here they last
//! [`COPIES`] ms: a preloaded library makes `posix_spawn` first start, and wait for, a process that only holds them
//! that long.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use weir_origin::{Options, Origin};
use weir_testkit::{Weir, command_for, eventually, install, pause};

/// Upgrades for each number of cores.
const UPGRADES: usize = 100;

const CLIENTS: usize = 128;

/// How long the copied descriptors last, in milliseconds.
const COPIES: u32 = 150;

/// A client's timeout for an answer. No answer here takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client pauses before each request.
const PAUSE: Duration = Duration::from_millis(2);

const LINGER: &str = r"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int spawns(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);

static void linger(void) {
    pid_t beside = fork();
    if (beside == 0) {
        poll(0, 0, COPIES);
        _exit(0);
    }
    if (beside > 0) waitpid(beside, 0, 0);
}

#define SLOW(name) \
    int name(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, \
             char *const arguments[], char *const environment[]) { \
        spawns *real = (spawns *)dlsym(RTLD_NEXT, #name); \
        linger(); \
        return real(pid, path, actions, attributes, arguments, environment); \
    }
SLOW(posix_spawn)
SLOW(posix_spawnp)
";

/// The outcomes of the clients' requests.
#[derive(Default)]
struct Account {
    answered: AtomicU64,
    /// The longest wait for an answer, in microseconds.
    longest: AtomicU64,
    failed: Mutex<Vec<String>>,
    over: AtomicBool,
}

fn build_linger(dir: &Path) {
    std::fs::write(dir.join("linger.c"), LINGER).unwrap();
    let define = format!("-DCOPIES={COPIES}");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", &define, "-o", "linger.so", "linger.c", "-ldl"])
        .current_dir(dir)
        .status();
    assert!(built.unwrap().success());
}

/// Sends requests on its own connections until the end. Odd clients send `close`, so that Weir closes first; even
/// ones leave after three requests.
fn ask(account: &Account, address: &str, number: usize) {
    let path = if number.is_multiple_of(4) { "/own" } else { "/echo" };
    let (times, wish) = if number % 2 == 1 { (1, "close") } else { (3, "keep-alive") };
    let request = format!("GET {path} HTTP/1.1\r\nHost: weir.test\r\nConnection: {wish}\r\n\r\n");
    while !account.over.load(Relaxed) {
        let begun = Instant::now();
        let done = TcpStream::connect(address).map_err(|e| format!("connect: {e}")).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            for _ in 0..times {
                pause(PAUSE); // Weir must wait for the request: only then is the socket in its epoll set
                let since = Instant::now();
                stream.write_all(request.as_bytes()).map_err(|e| format!("write: {e}"))?;
                let stays = answer(&mut stream)?;
                account.answered.fetch_add(1, Relaxed);
                let took = u64::try_from(since.elapsed().as_micros()).unwrap();
                account.longest.fetch_max(took, Relaxed);
                if !stays {
                    break;
                }
            }
            Ok(())
        });
        if let Err(why) = done {
            let text = format!("client {number}, {wish}, after {:?}: {why}", begun.elapsed());
            account.failed.lock().unwrap().push(text);
        }
    }
}

/// Reads one answer; returns whether the connection persists.
fn answer(stream: &mut TcpStream) -> Result<bool, String> {
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&seen).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map(str::parse);
            let length: usize = length.unwrap().unwrap();
            if body.len() >= length {
                return if head.starts_with("http/1.1 200 ") {
                    Ok(!head.contains("connection: close"))
                } else {
                    Err(format!("answered: {text}"))
                };
            }
        }
        match stream.read(&mut piece) {
            Ok(0) => return Err(format!("closed after {} bytes", seen.len())),
            Ok(n) => seen.extend_from_slice(&piece[..n]),
            Err(e) => return Err(format!("after {} bytes: {e}", seen.len())),
        }
    }
}

fn storm(cores: usize) {
    let origin = Origin::start(Options::default()).unwrap();
    let yaml = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nworkers: {cores}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ own: {{ match: {{ path: /own }}, respond: {{ body: hello }} }}, all: {{ match: {{ path: \"/*\" }}, upstream: up }} }}\n",
        origin.address()
    );
    let weir = Weir::start_by(&yaml, |dir| {
        install(&dir.join("weir"));
        build_linger(dir);
        let mut command = command_for(&dir.join("weir"), dir);
        command.args(["run", "-c", "weir.yaml"]).env("LD_PRELOAD", dir.join("linger.so"));
        command
    });
    let (address, account, begun) = (weir.address("web"), Account::default(), Instant::now());
    let mut upgrades = 0;
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (account, address) = (&account, &address);
            scope.spawn(move || ask(account, address, number));
        }
        while upgrades < UPGRADES && account.failed.lock().unwrap().len() < CLIENTS {
            let before = account.answered.load(Relaxed);
            weir.upgrade().unwrap();
            upgrades += 1;
            eventually("the next process answers", || account.answered.load(Relaxed) > before + 500);
        }
        account.over.store(true, Relaxed);
    });
    let (answered, longest) = (account.answered.load(Relaxed), account.longest.load(Relaxed));
    let failed = account.failed.into_inner().unwrap();
    eprintln!(
        "{cores} cores: {upgrades} upgrades in {:.0?}, {answered} requests answered, {} not, the longest wait {} ms",
        begun.elapsed(),
        failed.len(),
        longest / 1000
    );
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed[..failed.len().min(20)].join("\n"));
    assert!(upgrades == UPGRADES);
}

#[test]
fn on_one_core() {
    storm(1);
}

#[test]
fn on_two_cores() {
    storm(2);
}

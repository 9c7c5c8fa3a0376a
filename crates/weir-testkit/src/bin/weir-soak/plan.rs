//! The schedule: a quiet time as the baseline, then one fault after another while the config is reloaded every
//! second, and finally upgrades under full load.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::{Authority, Tls, Weir};

use crate::account::{Account, Ledger};
use crate::client::{self, Control, Route, Shared};
use crate::faults::{FAULTS, Stage};
use crate::names::NameServer;
use crate::origin::Origin;
use crate::process::{self, Signal};

/// The route of each client.
const CLIENTS: [Route; 10] = [
    Route::Direct,
    Route::Steady,
    Route::Steady,
    Route::Faulty,
    Route::Faulty,
    Route::Faulty,
    Route::Fresh,
    Route::Named,
    Route::Secure,
    Route::Local,
];

/// The pause between two requests of a client, except under full load: some thousand requests per second in
/// total.
const PAUSE: Duration = Duration::from_micros(1500);

/// Addresses of the origins: two for the steady routes and the name, three with faults.
const ORIGINS: [Ipv4Addr; 5] = [
    Ipv4Addr::new(127, 0, 1, 1),
    Ipv4Addr::new(127, 0, 1, 2),
    Ipv4Addr::new(127, 0, 1, 3),
    Ipv4Addr::new(127, 0, 1, 4),
    Ipv4Addr::new(127, 0, 1, 5),
];

/// How long a fault lasts before it pauses, and the share of that time that it pauses. Fault and baseline are
/// measured close together, because the load of a machine changes from minute to minute.
const TURN: Duration = Duration::from_secs(8);
const REST: u32 = 3;

/// Runs of at least this length include all upgrades.
const LONG: Duration = Duration::from_secs(600);

/// How long the last exchanges and processes may take to end.
const ENDING: Duration = Duration::from_secs(15);

pub(crate) fn run(length: Duration) -> Account {
    let dir = tempfile::tempdir().unwrap();
    // All origins use the same port, so that the name can resolve to any of them.
    let port = TcpListener::bind((ORIGINS[0], 0)).unwrap().local_addr().unwrap().port();
    let ledger = |i: usize| dir.path().join(format!("ledger-{i}"));
    let start = |i: usize| Origin::start(SocketAddr::from((ORIGINS[i], port)), &ledger(i));
    let mut origins: Vec<Origin> = (0..ORIGINS.len()).map(start).collect();
    let names = NameServer::start(ORIGINS[0]);
    let authority = Authority::new();
    let certificate = authority.leaf(&["soak.test"]);
    let config = config(port, names.port, &certificate.yaml(), dir.path());
    let weir = Weir::start_installed(&config.replace("{log}", &log_file(dir.path())));
    let shared = Shared {
        control: Control {
            over: AtomicBool::new(false),
            fault: AtomicUsize::new(0),
            quiet: AtomicBool::new(true),
            pause: AtomicU32::new(PAUSE.as_micros().try_into().unwrap()),
            answered: AtomicUsize::new(0),
        },
        web: weir.address("web"),
        direct: SocketAddr::from((ORIGINS[1], port)).to_string(),
        secure: weir.address("secure"),
        tls: Tls::new(&authority, "soak.test"),
        asked: CLIENTS.iter().map(|_| Mutex::default()).collect(),
    };
    let mut account = Account::new(&FAULTS);
    account.is_long = length >= LONG;
    let reloads = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = CLIENTS
            .iter()
            .enumerate()
            .map(|(number, route)| {
                let shared = &shared;
                scope.spawn(move || client::run(shared, number, *route))
            })
            .collect();
        let reloader = scope.spawn(|| {
            while !shared.control.over.load(Relaxed) {
                if reloads.load(Relaxed) {
                    process::send(weir.serving(), Signal::Reload);
                }
                thread::sleep(Duration::from_secs(1));
            }
        });
        // The scope waits for the clients, so a plan that panics must stop them too.
        let _over = Over(&shared.control.over);
        let mut stage = Stage {
            weir: &weir,
            shared: &shared,
            origins: &mut origins,
            addresses: &ORIGINS,
            names: &names,
            authority: &authority,
            certificate: &certificate,
            config: &config,
            log: log_file(dir.path()),
            upgrades: Vec::new(),
            memory: Vec::new(),
        };
        let weights: u32 = FAULTS.iter().map(|fault| fault.weight).sum();
        for (number, fault) in FAULTS.iter().enumerate() {
            shared.control.fault.store(number, Relaxed);
            let length = length * fault.weight / weights;
            let turns = if fault.spares_others { (length.as_secs() / TURN.as_secs()).max(1) } else { 1 };
            let turn = length / u32::try_from(turns).unwrap();
            for _ in 0..turns {
                let ends = Instant::now() + turn;
                if fault.spares_others {
                    thread::sleep(turn / REST);
                }
                shared.control.quiet.store(false, Relaxed);
                reloads.store(fault.with_reloads, Relaxed);
                (fault.make)(&mut stage, ends);
                reloads.store(false, Relaxed);
                shared.control.quiet.store(true, Relaxed);
            }
            stage.memory.push(process::memory(weir.serving()).unwrap_or(0));
        }
        account.upgrades = std::mem::take(&mut stage.upgrades);
        account.memory = std::mem::take(&mut stage.memory);
        shared.control.over.store(true, Relaxed);
        for client in clients {
            account.panicked += usize::from(client.join().is_err());
        }
        let _ = reloader.join();
    });
    // A stopped process may still answer its last requests; the ledgers are complete only after that.
    account.left = left_over(&weir);
    let stderr = weir.stderr();
    let count = |message: &str| stderr.lines().filter(|line| line.contains(message)).count();
    (account.reloads, account.refused_reloads) = (count(" reloaded "), count(" reload refused"));
    drop(origins);
    let ledgers: Vec<Ledger> = (0..ORIGINS.len()).map(|i| Ledger::read(&ledger(i))).collect();
    let asked = shared.asked.into_iter().map(|asked| asked.into_inner().unwrap());
    account.settle(asked.collect(), &ledgers);
    account
}

/// Signals the end of the plan to the clients, even after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Number of processes besides the serving one, after the time they have to end.
fn left_over(weir: &Weir) -> usize {
    let others = || {
        let mut all = weir.successors();
        all.push(weir.pid());
        all.retain(|pid| *pid != weir.serving() && process::runs(*pid));
        all.len()
    };
    let until = Instant::now() + ENDING;
    while others() > 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(50));
    }
    others()
}

fn log_file(dir: &Path) -> String {
    dir.join("access.log").display().to_string()
}

fn config(port: u16, names: u16, certificate: &str, dir: &Path) -> String {
    fs::write(dir.join("access.log"), "").unwrap();
    let at = |i: usize| format!("{}:{port}", ORIGINS[i]);
    let (steady, one, two, three) = (at(1), at(2), at(3), at(4));
    format!(
        "workers: 2\n\
         listeners:\n  web: {{ address: 127.0.0.1:0 }}\n  \
         secure: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {certificate} ] }} }}\n\
         dns: {{ servers: [127.0.0.1:{names}], min_ttl: 100ms, max_ttl: 1s }}\n\
         upstreams:\n  \
         steady: {{ endpoints: [ {steady} ] }}\n  \
         fresh: {{ endpoints: [ {steady} ], keepalive: 0s }}\n  \
         named: {{ endpoints: [ \"soak.test:{port}\" ] }}\n  \
         faulty:\n    endpoints: [ {one}, {two}, {three} ]\n    \
         retry: {{ attempts: 3, on: [reset, refused_stream, timeout, 503], per_try: 400ms, budget: 100% }}\n    \
         health: {{ outlier: {{ errors: 5, eject: 500ms, max: 50% }} }}\n\
         routes:\n  \
         steady: {{ match: {{ path: /steady }}, upstream: steady }}\n  \
         fresh: {{ match: {{ path: /fresh }}, upstream: fresh }}\n  \
         secure: {{ match: {{ path: /secure }}, upstream: steady }}\n  \
         named: {{ match: {{ path: /named }}, upstream: named }}\n  \
         faulty: {{ match: {{ path: /faulty }}, upstream: faulty }}\n  \
         local: {{ match: {{ path: /local }}, respond: {{ body: here }} }}\n\
         access_log: {{ output: \"{{log}}\" }}\n\
         shutdown: {{ drain: 5s }}\n"
    )
}

//! Pid 1 of the world of a proof: opens the echo, runs the two programs in turn, and asks both.

use super::echo::{self, Echo};
use super::job::{Found, Job};
use super::observer::{LOOK, Observer};
use super::world::{spawn_tied, tell};
use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_import::proof::patterns::Front;
use weir_import::proof::{Ask, Observation, Program, WORKSPACE};
use weir_wire::tls::ClientTls;

/// Longest wait until a program listens.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Most names in the certificate.
const MAX_NAMES: usize = 2000;
/// Largest file beside our config that is copied, and most of them.
const MAX_COPIED: u64 = 16 << 20;
const MAX_FILES: usize = 4096;

/// Where a program's output goes.
fn log_of(name: &str) -> PathBuf {
    Path::new(WORKSPACE).join(format!("{name}.log"))
}

pub(super) fn run() -> ExitCode {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut text);
    let job: Result<Job, String> = read
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_slice(&text).map_err(|e| e.to_string()));
    let found = job.and_then(|job| play(&job));
    tell(&found.unwrap_or_else(|why| Found { failure: Some(why), ..Found::default() }))
}

fn play(job: &Job) -> Result<Found, String> {
    let names = echo::names(&job.origins);
    let server_tls = certificates(&names)?;
    super::names::serve(names.clone()).map_err(|e| format!("the resolver: {e}"))?;
    let taken: Vec<String> = job.fronts.iter().map(|front| format!("{}:{}", front.ip, front.port)).collect();
    let program = weir_import::program(&job.system);
    if let (Some(config), Some(program), Some(path)) = (&job.reads, program, &job.path) {
        return super::reading::read(program, path, config);
    }
    let folders = program.map_or(&[][..], |program| program.folders);
    for folder in folders.iter().copied().chain([super::ours::NO_FILES]) {
        fs::create_dir_all(Path::new(WORKSPACE).join(folder)).map_err(|e| format!("{folder}: {e}"))?;
    }
    for (name, text) in &job.files {
        work_file(name, text)?;
    }
    let mut stage = Play {
        echo: Echo::open(&job.origins, &names, &taken, server_tls),
        tls: ClientTls::new(None, None, None, false, &[]).map_err(|e| e.to_string())?,
    };
    let mut found = Found::default();
    if let (Some(program), Some(path)) = (program, &job.path) {
        found.version = version(program, path);
        let old = work_file(&format!("old{}", program.suffix), &job.old)?;
        if let Some(said) = refused(program, path, &old)? {
            found.refused = Some(said);
            return Ok(found);
        }
        if job.only_checks {
            return Ok(found);
        }
        found.old = stage.old((program, path), "old", &job.asks)?;
    }
    copy(&job.our_folder, &Path::new(WORKSPACE).join("weir"))?;
    let ours = work_file("weir/proof.json.yaml", &job.ours)?;
    found.new = stage.ours(&ours, &job.asks)?;
    if let (Some(limited), Some(program), Some(path)) = (&job.old_limited, program, &job.path) {
        work_file(&format!("limited{}", program.suffix), limited)?;
        found.old_limited = stage.old((program, path), "limited", &job.limit_asks)?;
        let ours = work_file("weir/limited.json.yaml", &job.ours_limited)?;
        found.new_limited = stage.ours(&ours, &job.limit_asks)?;
    }
    Ok(found)
}

struct Play {
    echo: Echo,
    tls: ClientTls,
}

impl Play {
    /// Runs the old program and asks it.
    fn old(
        &mut self,
        (program, path): (&Program, &Path),
        name: &str,
        asks: &[Ask],
    ) -> Result<Vec<Observation>, String> {
        let mut command = Command::new(path);
        command.args((program.run)(&program.config_path(name)));
        command.envs(program.environment.iter().copied());
        self.ask_all(&mut command, "old", asks)
    }

    /// Runs Weir and asks it.
    fn ours(&mut self, config: &Path, asks: &[Ask]) -> Result<Vec<Observation>, String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("run").arg("-c").arg(config);
        command.env("SSL_CERT_FILE", Path::new(WORKSPACE).join("cert.pem"));
        self.ask_all(&mut command, "weir", asks)
    }

    fn ask_all(
        &mut self,
        command: &mut Command,
        name: &str,
        asks: &[Ask],
    ) -> Result<Vec<Observation>, String> {
        let log = fs::File::create(log_of(name)).map_err(|e| e.to_string())?;
        let errors = log.try_clone().map_err(|e| e.to_string())?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).current_dir(WORKSPACE);
        let child = spawn_tied(command).map_err(|e| format!("{name}: {e}"))?;
        let mut running = Running { child, name: name.to_owned() };
        for front in fronts(asks) {
            running.wait_for(&front)?;
        }
        let mut observations = Vec::with_capacity(asks.len());
        let mut observer = Observer::new(&mut self.echo, &self.tls);
        for ask in asks {
            observations.push(observer.observe(ask));
            if observations.len() % 64 == 0 {
                running.still_there()?;
            }
        }
        running.still_there()?;
        self.echo.set(&weir_import::proof::Scenario::Plain);
        Ok(observations)
    }
}

/// A program that is asked. Dropping it ends it.
struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// Waits until it takes connections.
    fn wait_for(&mut self, front: &Front) -> Result<(), String> {
        let address = format!("{}:{}", front.ip, front.port);
        let address: SocketAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
        let until = Instant::now() + START_LIMIT;
        loop {
            match TcpStream::connect_timeout(&address, START_LIMIT) {
                Ok(_) => return Ok(()),
                // Weir may listen on fewer addresses than the old program: witnesses show it.
                Err(_) if self.name == "weir" && self.has_started() => return Ok(()),
                Err(_) if Instant::now() > until => {
                    return Err(format!("{} does not listen on {address}: {}", self.name, self.said()));
                }
                Err(_) => {}
            }
            self.still_there()?;
            std::thread::sleep(LOOK);
        }
    }

    /// Whether Weir's log says that it runs.
    fn has_started(&self) -> bool {
        fs::read_to_string(log_of(&self.name)).is_ok_and(|log| log.contains("INFO  ready "))
    }

    fn still_there(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(format!("{} ended: {}", self.name, self.said())),
        }
    }

    /// The end of its output.
    fn said(&self) -> String {
        let log = fs::read(log_of(&self.name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its workers too: they would hold its addresses until they notice.
        end_all_others();
    }
}

/// Ends every process of this world but this one, and waits for it: they are the old program's and Weir's.
fn end_all_others() {
    super::world::kill_others();
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::empty()) {}
}

/// The addresses that are asked, without duplicates.
fn fronts(asks: &[Ask]) -> Vec<Front> {
    let mut fronts: Vec<Front> = asks.iter().map(|ask| ask.front.clone()).collect();
    fronts.sort();
    fronts.dedup();
    fronts
}

fn work_file(name: &str, text: &str) -> Result<PathBuf, String> {
    let path = Path::new(WORKSPACE).join(name);
    let folder = path.parent().unwrap_or(&path);
    fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).map_err(|e| format!("{name}: {e}"))?;
    Ok(path)
}

fn version(program: &Program, path: &Path) -> String {
    let mut command = Command::new(path);
    command.args(program.version).envs(program.environment.iter().copied());
    let said = command.stdin(Stdio::null()).output();
    let said = said.map(|out| [out.stdout, out.stderr].concat()).unwrap_or_default();
    program.version_in(&String::from_utf8_lossy(&said)).unwrap_or_else(|| path.display().to_string())
}

/// What the program says if it refuses its config.
fn refused(program: &Program, path: &Path, config: &Path) -> Result<Option<String>, String> {
    let mut command = Command::new(path);
    command.args((program.check)(&config.to_string_lossy()));
    command.envs(program.environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).current_dir(WORKSPACE);
    let child = spawn_tied(&mut command).map_err(|e| format!("{}: {e}", path.display()))?;
    let out = child.wait_with_output().map_err(|e| e.to_string())?;
    Ok((!out.status.success()).then(|| String::from_utf8_lossy(&out.stderr).into_owned()))
}

/// Makes the certificate that everybody in the world shows and trusts.
fn certificates(
    names: &std::collections::BTreeMap<String, std::net::Ipv4Addr>,
) -> Result<Arc<rustls::ServerConfig>, String> {
    let is_name = |name: &&String| {
        name.split('.')
            .all(|label| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
    };
    let mut all: Vec<String> = names.keys().filter(is_name).take(MAX_NAMES).cloned().collect();
    all.push("localhost".to_owned());
    let made = rcgen::generate_simple_self_signed(all).map_err(|e| e.to_string())?;
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    work_file("cert.pem", &cert)?;
    work_file("pair.pem", &format!("{cert}{key}"))?;
    work_file("key.pem", &key)?;
    server_tls(&made)
}

/// How the echo speaks TLS.
pub(super) fn server_tls(
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> Result<Arc<rustls::ServerConfig>, String> {
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .map_err(|e| e.to_string())?;
    Ok(Arc::new(config))
}

/// Copies the files beside our config that it may name. Links and what is too large stay behind.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let mut folders = vec![(from.to_owned(), to.to_owned())];
    let mut copied = 0;
    while let Some((from, to)) = folders.pop() {
        fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
        let Ok(entries) = fs::read_dir(&from) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let target = to.join(entry.file_name());
            if meta.is_dir() {
                folders.push((entry.path(), target));
            } else if meta.is_file() && meta.len() <= MAX_COPIED && copied < MAX_FILES {
                copied += 1;
                let _ = fs::copy(entry.path(), target); // one that cannot be read is missing for Weir too
            }
        }
    }
    Ok(())
}

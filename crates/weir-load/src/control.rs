//! The control socket: commands that change the load during a run, one per line: `rate 500/s`, `pause`, `go`, `stop`;
//! in a plan with several rates `rate SCENARIO 500/s`.
//!
//! Only the owner of the process may connect (mode 0600, created in a folder of mode 0700). Lines and connections are
//! limited, and each command is answered with `ok` and the moment at which it takes effect, or with `error` and the
//! reason.

use crate::pace::{Schedule, Source};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_plan::shape::is_rate;
use weir_report::{Mistake, units};

/// Longest line.
const LINE_MOST: usize = 128;

/// Most connections at a time; a further one ends the oldest.
const CONNECTIONS_MOST: usize = 8;

/// Most changes of a run. Each costs every start a comparison, and the report a line.
const CHANGES_MOST: usize = 1000;

/// How often the socket is polled.
const LOOK: Duration = Duration::from_millis(20);

/// How many names are tried for the folder in which the socket is made.
const FOLDERS_MOST: usize = 16;

/// A socket that is open for commands. The file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: UnixListener,
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Go,
    Pause,
    /// With the scenario that has it, if one is named.
    Rate(Option<String>, f64),
    Stop,
}

/// The state between commands.
#[derive(Debug)]
pub(crate) struct Changes {
    schedule: Schedule,
    /// What `go` returns to.
    paused: Option<Source>,
    made: usize,
}

impl Control {
    /// Opens the socket that `unix:PATH` names.
    ///
    /// # Errors
    /// The text has another form, the path is taken, or no socket can be made there.
    pub(crate) fn open(text: &str) -> Result<Self, Mistake> {
        let bad = |hint: &str| Mistake::new(&format!("--control {text}"), hint);
        let path = text.strip_prefix("unix:").filter(|path| !path.is_empty());
        let path = PathBuf::from(path.ok_or_else(|| bad("expected unix:PATH, such as unix:/tmp/load.sock"))?);
        // It is bound by a shorter path, so that binding does not tell.
        SocketAddr::from_pathname(&path).map_err(|e| bad(&e.to_string()))?;
        make_way(&path).map_err(|why| bad(&why))?;
        // Between bind and chmod, whoever the umask lets could connect: made in a folder that only we may enter.
        let folder = private_folder(&path).map_err(|e| bad(&e.to_string()))?;
        let unready = folder.join("s");
        let open = || {
            let listener = UnixListener::bind(&unready)?;
            std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&unready, &path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let opened: std::io::Result<UnixListener> = open();
        if opened.is_err() {
            let _ = std::fs::remove_file(&unready); // it may not be there
        }
        let _ = std::fs::remove_dir(&folder); // empty now
        opened.map(|listener| Self { path, listener }).map_err(|e| bad(&e.to_string()))
    }

    /// Takes commands until `is_over`. `run` carries one out and returns what to answer.
    pub(crate) fn serve(
        &self,
        is_over: impl Fn() -> bool,
        mut run: impl FnMut(Command) -> Result<String, String>,
    ) {
        let mut clients: Vec<Client> = Vec::new();
        while !is_over() {
            while let Ok((stream, _)) = self.listener.accept() {
                if stream.set_nonblocking(true).is_ok() {
                    if clients.len() >= CONNECTIONS_MOST {
                        clients.remove(0);
                    }
                    clients.push(Client { stream, line: Vec::new() });
                }
            }
            clients.retain_mut(|client| client.serve(&mut run));
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // somebody else removed it
    }
}

/// Makes a folder beside the socket that only the owner may enter.
fn private_folder(socket: &Path) -> std::io::Result<PathBuf> {
    let mut tried = 0;
    loop {
        // Short, because the path of a socket may have 107 bytes only.
        let folder = socket.with_file_name(format!(".{:x}", fastrand::u32(..)));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && tried < FOLDERS_MOST => tried += 1,
            made => return made.map(|()| folder),
        }
    }
}

/// Removes a socket that nobody listens on any more. Anything else at the path is refused.
fn make_way(path: &Path) -> Result<(), String> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e.to_string()),
        Ok(found) if !found.file_type().is_socket() => Err("there is a file already".to_owned()),
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(|e| e.to_string())
            }
            _ => Err("another process listens there".to_owned()),
        },
    }
}

struct Client {
    stream: UnixStream,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl Client {
    /// Reads what is there and answers; `false` when the connection is over.
    fn serve(&mut self, run: &mut impl FnMut(Command) -> Result<String, String>) -> bool {
        let mut buffer = [0; 256];
        loop {
            let n = match self.stream.read(&mut buffer) {
                Ok(0) => {
                    // The last line may lack its newline, as from `printf 'stop' | nc`.
                    let last = std::mem::take(&mut self.line);
                    self.answer(&last, run);
                    return false;
                }
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            for &byte in &buffer[..n] {
                if byte == b'\n' {
                    let line = std::mem::take(&mut self.line);
                    if !self.answer(&line, run) {
                        return false;
                    }
                } else if self.line.len() < LINE_MOST {
                    self.line.push(byte);
                } else {
                    let _ = self.stream.write_all(b"error: the line is longer than 128 bytes\n"); // it may be gone
                    return false;
                }
            }
        }
    }

    fn answer(&mut self, line: &[u8], run: &mut impl FnMut(Command) -> Result<String, String>) -> bool {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if text.is_empty() {
            return true;
        }
        let answer = match Command::parse(text).and_then(&mut *run) {
            Ok(done) => format!("ok: {done}\n"),
            Err(why) => format!("error: {why}\n"),
        };
        self.stream.write_all(answer.as_bytes()).is_ok()
    }
}

impl Command {
    fn parse(text: &str) -> Result<Self, String> {
        let form = "expected `rate 500/s`, `pause`, `go` or `stop`";
        let words: Vec<&str> = text.split_whitespace().collect();
        match &words[..] {
            ["go"] => Ok(Self::Go),
            ["pause"] => Ok(Self::Pause),
            ["stop"] => Ok(Self::Stop),
            ["rate", scenario @ .., rate] => match units::rate(rate) {
                Some(per_second) if is_rate(per_second) => {
                    Ok(Self::Rate((!scenario.is_empty()).then(|| scenario.join(" ")), per_second))
                }
                Some(_) => Err("expected a rate from 0.001/h to 10M/s; `pause` for none".to_owned()),
                None => Err("expected a rate such as 500/s, 300/m; `pause` for none".to_owned()),
            },
            _ => Err(form.to_owned()),
        }
    }

    /// As the report has it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Go => "go".to_owned(),
            Self::Pause => "pause".to_owned(),
            Self::Rate(None, per_second) => format!("rate {per_second}/s"),
            Self::Rate(Some(scenario), per_second) => format!("rate {scenario} {per_second}/s"),
            Self::Stop => "stop".to_owned(),
        }
    }
}

impl Changes {
    pub(crate) const fn new(schedule: Schedule) -> Self {
        Self { schedule, paused: None, made: 0 }
    }

    /// Whether nothing starts until `go` or a rate.
    pub(crate) const fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The schedule after a command other than `stop`, which is effective from a moment on.
    ///
    /// # Errors
    /// The command makes no sense now, or there were too many.
    pub(crate) fn make(&mut self, command: &Command, from_ns: u64) -> Result<Schedule, String> {
        if self.made >= CHANGES_MOST {
            return Err(format!("a run takes at most {CHANGES_MOST} changes; `stop` still works"));
        }
        let source = match command {
            Command::Pause if self.paused.is_some() => return Err("it is paused already: `go`".to_owned()),
            Command::Pause => {
                self.paused = Some(self.schedule.source());
                Source::Nowhere
            }
            Command::Go => self.paused.take().ok_or_else(|| "it is not paused".to_owned())?,
            Command::Rate(_, per_second) => {
                self.paused = None;
                Source::Rate(*per_second)
            }
            Command::Stop => return Err("it does not change the rate".to_owned()),
        };
        self.made += 1;
        self.schedule = self.schedule.changed(from_ns, source);
        Ok(self.schedule.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Rhythm, Way};
    use weir_report::report::Pace;

    #[test]
    fn commands_are_read_and_others_refused() {
        for (text, want) in [
            ("rate 500/s", Some(Command::Rate(None, 500.0))),
            ("rate  30/m ", Some(Command::Rate(None, 0.5))),
            ("rate my shop 5/s", Some(Command::Rate(Some("my shop".to_owned()), 5.0))),
            ("rate 0.001/h", Some(Command::Rate(None, 0.001 / 3600.0))),
            ("rate 1e-7/s", None),
            ("rate 0.0009/h", None),
            ("pause", Some(Command::Pause)),
            ("go", Some(Command::Go)),
            ("stop", Some(Command::Stop)),
            ("stop now", None),
            ("rate", None),
            ("rate 0/s", None),
            ("rate 11M/s", None),
            ("rate -1/s", None),
            ("GO", None),
        ] {
            assert_eq!(Command::parse(text).ok(), want, "{text}");
        }
    }

    #[test]
    fn go_returns_to_what_was_before_the_pause() {
        let Rhythm::Open(plan) = Rhythm::of(&Pace::Rate { per_second: 10.0 }) else { panic!("closed") };
        let mut changes = Changes::new(Schedule::of(plan));
        let second = |s: u64| s * 1_000_000_000;
        assert!(changes.make(&Command::Go, 0).is_err());
        changes.make(&Command::Pause, second(1)).unwrap();
        assert!(changes.make(&Command::Pause, second(2)).is_err());
        let back = changes.make(&Command::Go, second(3)).unwrap();
        assert_eq!(back.at(10, &mut Way::default()), second(3));
        changes.make(&Command::Rate(None, 100.0), second(4)).unwrap();
        changes.make(&Command::Pause, second(5)).unwrap();
        let fast = changes.make(&Command::Go, second(6)).unwrap();
        assert_eq!(fast.source(), Source::Rate(100.0));
    }

    #[test]
    fn nothing_but_the_socket_is_left_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let all = std::fs::read_dir(dir.path()).unwrap();
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let control = Control::open(&format!("unix:{}/c", dir.path().display())).unwrap();
        assert_eq!(names(), ["c"]);
        drop(control);
        // Too long for a socket.
        let long = format!("unix:{}/{}", dir.path().display(), "x".repeat(120));
        assert!(Control::open(&long).is_err());
        assert_eq!(names(), Vec::<String>::new());
    }

    #[test]
    fn a_socket_is_the_owners_and_goes_with_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let text = format!("unix:{}", path.display());
        let control = Control::open(&text).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Control::open(&text).unwrap_err().to_string().contains("another process listens there"));
        drop(control);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap()); // of a process that died
        drop(Control::open(&text).unwrap());
        std::fs::write(&path, "").unwrap();
        assert!(Control::open(&text).unwrap_err().to_string().contains("there is a file already"));
        assert!(Control::open("/tmp/x").unwrap_err().to_string().contains("expected unix:PATH"));
    }
}

//! A pseudo-terminal: what a program shows on a terminal, and how it leaves it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::wire::DEADLINE;

/// A terminal of 100 columns and 30 rows.
#[derive(Debug)]
pub struct Pty {
    /// The program's side; kept open, so that its modes can be asked when the program is gone.
    slave: File,
    /// Whoever sits in front of it.
    master: File,
    shown: Arc<(Mutex<Vec<u8>>, Condvar)>,
}

impl Pty {
    /// Opens one and collects what is written to it.
    pub fn open() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let shown = Arc::new((Mutex::default(), Condvar::new()));
        let collected: Arc<(Mutex<Vec<u8>>, Condvar)> = Arc::clone(&shown);
        let master = File::from(master);
        let mut screen = master.try_clone().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                collected.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..n]);
                collected.1.notify_all();
            }
        });
        Self { slave, master, shown }
    }

    /// Starts a command with its stdout, its stderr or both on this terminal; what is not is collected in a pipe.
    pub fn spawn(&self, command: &mut Command, stdout: bool, stderr: bool) -> io::Result<Child> {
        let side =
            |here: bool| if here { self.slave.try_clone().map(Stdio::from) } else { Ok(Stdio::piped()) };
        command.env("TERM", "xterm-256color").stdout(side(stdout)?).stderr(side(stderr)?).spawn()
    }

    /// This terminal as the stdin of a command.
    pub fn stdin(&self) -> Stdio {
        self.slave.try_clone().unwrap().into()
    }

    /// Types this.
    pub fn type_in(&self, text: &str) {
        (&self.master).write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this was written to the terminal, after `from` bytes; how many there were with it.
    #[track_caller]
    pub fn wait_for(&self, from: usize, text: &str) -> usize {
        let find = |bytes: &[u8]| {
            bytes
                .get(from..)?
                .windows(text.len())
                .position(|w| w == text.as_bytes())
                .map(|at| from + at + text.len())
        };
        let mut found = None;
        let guard = self.shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shown.1.wait_timeout_while(guard, DEADLINE, |bytes| {
            found = find(bytes);
            found.is_none()
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        found.unwrap_or_else(|| panic!("no {text:?} after {from} bytes of:\n{}", self.shown()))
    }

    /// All that was written to it, escape sequences too.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Whether what is typed is echoed: so it is unless a program has turned it off.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

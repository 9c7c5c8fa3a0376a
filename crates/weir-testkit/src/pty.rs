//! A pseudo-terminal: captures a program's output on a terminal, and the state in which it leaves the terminal.

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
    /// The program's side, kept open so that its modes can be read after the program has ended.
    slave: File,
    /// The user's side.
    master: File,
    shown: Arc<(Mutex<Vec<u8>>, Condvar)>,
}

impl Pty {
    /// Opens a terminal and collects its output.
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

    /// Starts a command with stdout, stderr or both on this terminal. The other stream goes to a pipe.
    pub fn spawn(&self, command: &mut Command, stdout: bool, stderr: bool) -> io::Result<Child> {
        let side =
            |here: bool| if here { self.slave.try_clone().map(Stdio::from) } else { Ok(Stdio::piped()) };
        command.env("TERM", "xterm-256color").stdout(side(stdout)?).stderr(side(stderr)?).spawn()
    }

    /// This terminal, as the stdin of a command.
    pub fn stdin(&self) -> Stdio {
        self.slave.try_clone().unwrap().into()
    }

    /// Types a text.
    pub fn type_in(&self, text: &str) {
        (&self.master).write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the text appears after the first `from` bytes; returns the length of the output including it.
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

    /// All output so far, including escape sequences.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Whether the terminal echoes input, which it does unless a program has turned that off.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

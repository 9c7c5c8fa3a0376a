//! Takes and restores the terminal: alternate screen, no cursor, no echo.
//!
//! Keys that send signals still work: Ctrl-C ends the run as it does without the view. Dropping the [`Screen`]
//! restores the terminal, a panic restores it before printing, and code that exits otherwise calls [`give_back`].

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::{Frame, Terminal};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufWriter, Stderr, stderr};
use std::sync::{Mutex, PoisonError};

/// The terminal's settings before we took it; `None` while it is not taken.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal, while taken.
pub(super) struct Screen(Terminal<CrosstermBackend<BufWriter<Stderr>>>);

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        let before = tcgetattr(stderr())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        give_back_before_panics();
        let taken = Self::drawn_on(&quiet);
        if taken.is_err() {
            give_back();
        }
        taken
    }

    fn drawn_on(quiet: &Termios) -> io::Result<Self> {
        tcsetattr(stderr(), OptionalActions::Now, quiet)?;
        execute!(stderr(), EnterAlternateScreen, Clear(ClearType::All), Hide)?;
        Terminal::new(CrosstermBackend::new(BufWriter::new(stderr()))).map(Self)
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) {
        let _ = self.0.draw(draw); // the terminal is gone; the report still comes
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal if it was taken.
pub(in crate::cmd) fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // A failure here has nowhere to be reported.
        let _ = execute!(stderr(), LeaveAlternateScreen, Show);
        let _ = tcsetattr(stderr(), OptionalActions::Now, &before);
    }
}

/// Restores the terminal before a panic prints, because its text would be lost on the alternate screen.
fn give_back_before_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        tell(panic);
    }));
}

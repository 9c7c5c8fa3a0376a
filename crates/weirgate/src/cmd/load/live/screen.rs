//! The terminal, taken and given back: on its other screen, without cursor, and without an echo of what is typed.
//!
//! Keys that make signals still do: Ctrl-C ends the run as it does without the view. The terminal is given back when the [`Screen`] is dropped, before
//! a panic is told, and by whoever ends the program without either ([`give_back`]).

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::{Frame, Terminal};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufWriter, Stderr, stderr};
use std::sync::{Mutex, PoisonError};

/// How the terminal was before it was taken; none while it is not.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal, taken.
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
        let _ = self.0.draw(draw); // it has gone away: the report tells
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Makes the terminal as it was, if it was taken.
pub(in crate::cmd) fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // Nobody can be told where that fails.
        let _ = execute!(stderr(), LeaveAlternateScreen, Show);
        let _ = tcsetattr(stderr(), OptionalActions::Now, &before);
    }
}

/// What a panic says would be lost on the other screen.
fn give_back_before_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        tell(panic);
    }));
}

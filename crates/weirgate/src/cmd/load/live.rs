//! The live view of `weir load`: draws the progress of a run on the terminal.
//!
//! The main thread draws, since it is idle during a run. It draws at most four times a second, from figures that
//! the engine hands over once a second anyway. The view therefore costs the engine nothing. `view` lays out the
//! content, `screen` takes and restores the terminal.

mod screen;
mod view;

pub(in crate::cmd) use screen::give_back;

use screen::Screen;
use std::io::IsTerminal;
use view::View;
use weir_load::{Plan, Progress};

/// The view of one run. Dropping it restores the terminal.
pub(super) struct Live {
    screen: Screen,
    view: View,
}

impl Live {
    /// Takes the terminal, or says why it cannot draw on one.
    pub(super) fn open(plan: &Plan) -> Result<Self, String> {
        if !std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
            return Err("stdout and stderr are not both a terminal".to_owned());
        }
        if std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty()) {
            return Err("the terminal can only write lines (TERM)".to_owned());
        }
        let screen = Screen::take().map_err(|e| format!("the terminal can not be drawn on: {e}"))?;
        Ok(Self { screen, view: View::new(plan.as_run.clone(), plan.warmup()) })
    }

    /// Draws the progress. A terminal that disappears does not end the run.
    pub(super) fn show(&mut self, now: &Progress<'_>) {
        self.view.look(now);
        // A tick is drawn on the next call, which keeps frames to one per call.
        if now.tick.is_none() {
            self.screen.draw(|frame| self.view.draw(frame));
        }
    }
}

//! The live view of `weir load`: how a run goes, drawn on the terminal while it lasts.
//!
//! The main thread draws, which does nothing else while a run lasts: four times a second at most, from figures that the engine hands over once
//! a second anyway. So the engine is as fast as without it. `view` says what is to be seen, `screen` takes the terminal and gives it back.

mod screen;
mod view;

pub(in crate::cmd) use screen::give_back;

use screen::Screen;
use std::io::IsTerminal;
use view::View;
use weir_load::{Plan, Progress};

/// The view of one run. The terminal is as it was when this is gone.
pub(super) struct Live {
    screen: Screen,
    view: View,
}

impl Live {
    /// Takes the terminal; says why not where there is none to draw on.
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

    /// Draws how the run goes. A terminal that has gone away ends no run.
    pub(super) fn show(&mut self, now: &Progress<'_>) {
        self.view.look(now);
        // A tick is drawn at the next look: so there are no more frames than looks.
        if now.tick.is_none() {
            self.screen.draw(|frame| self.view.draw(frame));
        }
    }
}

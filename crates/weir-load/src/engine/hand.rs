//! Carries out the commands of the control socket, on a thread of its own.

use super::shared::{Message, Shared};
use crate::clock::Clock;
use crate::control::{Changes, Command};
use crate::plan::Plan;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use weir_report::report::Change;

/// How long before a change takes effect. All threads must know it by then: they look ten times a second.
const AHEAD_NS: u64 = 250_000_000;

/// The thread. It ends when this is dropped.
pub(super) struct Hand {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hand {
    /// Takes commands, if the plan has a control socket.
    pub(super) fn start(
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        clock: Clock,
        out: mpsc::Sender<Message>,
    ) -> std::io::Result<Option<Self>> {
        let (true, Some(schedule)) = (plan.is_controlled(), shared.course.now()) else { return Ok(None) };
        let over = Arc::new(AtomicBool::new(false));
        let (plan, shared, is_over) = (Arc::clone(plan), Arc::clone(shared), Arc::clone(&over));
        let mut changes = Changes::new((*schedule).clone());
        let work = move || {
            let Some(control) = &plan.control else { return };
            let run = |command: Command| {
                let now = clock.now();
                if command == Command::Stop {
                    let _ = out.send(Message::Stop); // the run has ended meanwhile
                    return Ok("stopping".to_owned());
                }
                let from = now.saturating_add(AHEAD_NS);
                shared.course.replace(changes.make(&command, from)?);
                let at_ns = from.saturating_sub(plan.warmup_ns);
                let _ = out.send(Message::Changed(Change { at_ns, command: command.text() })); // as above
                Ok(format!("{} from {:.3} s on", command.text(), at_ns as f64 / 1e9))
            };
            control.serve(|| is_over.load(Ordering::Relaxed), run);
        };
        let thread = std::thread::Builder::new().name("weir-control".to_owned()).spawn(work)?;
        Ok(Some(Self { over, thread: Some(thread) }))
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there ends only the control
        }
    }
}

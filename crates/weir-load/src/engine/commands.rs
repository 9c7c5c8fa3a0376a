//! Carries out the commands of the control socket, on a thread of its own.

use super::shared::{Course, Message, Shared};
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

/// A rate that commands may change, in the order of [`courses`].
struct Lever {
    /// The scenarios that it drives; none without scenarios.
    scenarios: Vec<String>,
    changes: Changes,
}

impl Hand {
    /// Takes commands, if the plan has a control socket.
    pub(super) fn start(
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        clock: Clock,
        out: mpsc::Sender<Message>,
    ) -> std::io::Result<Option<Self>> {
        if !plan.is_controlled() {
            return Ok(None);
        }
        let over = Arc::new(AtomicBool::new(false));
        let (plan, shared, is_over) = (Arc::clone(plan), Arc::clone(shared), Arc::clone(&over));
        let mut levers = levers(&plan, &shared);
        let work = move || {
            let Some(control) = &plan.control else { return };
            let run = |command: Command| {
                let now = clock.now();
                let stop = shared.stop_at.load(Ordering::Relaxed);
                if now >= stop {
                    return Err("the load is over: only answers are awaited".to_owned());
                }
                if command == Command::Stop {
                    let _ = out.send(Message::Stop); // the run has ended meanwhile
                    return Ok("stopping".to_owned());
                }
                let from = now.saturating_add(AHEAD_NS);
                if from >= stop {
                    return Err("the load ends before this could take effect".to_owned());
                }
                pull(&mut levers, &shared, &command, from)?;
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

/// The starts that commands may change: those of the groups, or of a load without scenarios.
fn courses(shared: &Shared) -> &[Course] {
    if shared.courses.is_empty() { std::slice::from_ref(&shared.course) } else { &shared.courses }
}

fn levers(plan: &Plan, shared: &Shared) -> Vec<Lever> {
    let all = courses(shared).iter().enumerate().filter_map(|(i, course)| {
        let group = plan.journey.as_ref().and_then(|journey| Some((journey, journey.groups.get(i)?)));
        let scenarios = group.map(|(journey, group)| {
            group.scenarios.iter().map(|s| journey.scenario_name(Some(*s))).collect()
        });
        // A plan with a control socket has no loads but rates.
        Some(Lever {
            scenarios: scenarios.unwrap_or_default(),
            changes: Changes::new((*course.now()?).clone()),
        })
    });
    all.collect()
}

/// Carries out a command that is effective from a moment of the run on.
fn pull(levers: &mut [Lever], shared: &Shared, command: &Command, from: u64) -> Result<(), String> {
    let is_meant: Box<dyn Fn(&Lever) -> bool> = match command {
        Command::Rate(Some(name), _) => Box::new(move |lever| lever.scenarios.contains(name)),
        Command::Rate(None, _) if levers.len() > 1 => {
            let names: Vec<&str> = levers.iter().flat_map(|l| &l.scenarios).map(String::as_str).collect();
            return Err(format!("which scenario? `rate NAME 500/s`; the names are {}", names.join(", ")));
        }
        Command::Pause if levers.iter().any(|lever| !lever.changes.is_paused()) => {
            Box::new(|lever| !lever.changes.is_paused())
        }
        Command::Go if levers.iter().any(|lever| lever.changes.is_paused()) => {
            Box::new(|lever| lever.changes.is_paused())
        }
        _ => Box::new(|_| true),
    };
    let mut has_any = false;
    for (lever, course) in levers.iter_mut().zip(courses(shared)).filter(|(lever, _)| is_meant(lever)) {
        has_any = true;
        course.replace(lever.changes.make(command, from.saturating_sub(course.begin))?);
    }
    match command {
        Command::Rate(Some(name), _) if !has_any => Err(format!("there is no scenario `{name}`")),
        _ => Ok(()),
    }
}

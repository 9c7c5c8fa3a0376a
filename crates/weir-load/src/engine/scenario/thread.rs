//! The users of one generator thread.

use super::crew::Crew;
use super::{gate, user};
use crate::clock::NEVER;
use crate::engine::shared::{Message, ThreadEnd, part};
use crate::engine::worker::Worker;
use crate::engine::worker::sampler::{SAMPLE, Sampler};
use crate::os;
use crate::pace::Rhythm;
use crate::scenario::Journey;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use weir_wire::time;
use weir_wire::timer::Timer;

/// The number of a thread's first user among those of all threads, its users, and its slots: those of users first,
/// then those for parallel requests.
pub(crate) fn slots_of(journey: &Journey, threads: usize, index: usize) -> (usize, usize, usize) {
    let (mut first, mut users, mut slots) = (0, 0, 0);
    for group in &journey.groups {
        let (before, mine) = part(group.users, threads, index);
        first += before;
        users += mine;
        slots += mine * group.slots;
    }
    (first, users, slots)
}

/// Runs the users of one thread to their end.
pub(crate) async fn drive(
    worker: Rc<Worker>,
    journey: Arc<Journey>,
    out: &mpsc::Sender<Message>,
) -> std::io::Result<ThreadEnd> {
    let threads = worker.plan.threads;
    let crew = Rc::new(Crew::new(Rc::clone(&worker), &journey, threads, Some(out.clone())));
    let mut is_open = false;
    for (number, group) in journey.groups.iter().enumerate() {
        if matches!(group.rhythm, Rhythm::Open(_)) && crew.gates.get(number).is_some_and(|g| g.users > 0) {
            is_open = true;
            drop(tokio::task::spawn_local(gate::pace(Rc::clone(&crew), number, Timer::new()?)));
        }
    }
    if is_open {
        os::wake_soon();
    }
    let mut users = Vec::new();
    let (_, all_users, _) = slots_of(&journey, threads, worker.index);
    let (mut slot, mut lane) = (0, all_users);
    for (number, (group, gate)) in journey.groups.iter().zip(&crew.gates).enumerate() {
        for i in 0..gate.users {
            let lanes = lane..lane + group.slots - 1;
            lane = lanes.end;
            let user = user::run(Rc::clone(&crew), number, gate.number(i), slot, lanes);
            users.push(tokio::task::spawn_local(user));
            slot += 1;
        }
    }
    let mut sampler = Sampler::new(&worker);
    let mut all = std::pin::pin!(async {
        for user in users {
            if let Err(e) = user.await
                && e.is_panic()
            {
                std::panic::resume_unwind(e.into_panic());
            }
        }
    });
    let mut are_done = false;
    loop {
        let wake = worker.clock.instant(sampler.next);
        let wake = wake.unwrap_or_else(|| Instant::now() + Duration::from_nanos(SAMPLE));
        tokio::select! {
            () = &mut all, if !are_done => are_done = true,
            () = time::sleep_until(wake) => {
                worker.at_work.set(Some(crew.at_work.get()));
                crew.follow_courses();
                sampler.sample(&worker, Some(&crew.tally), out);
            }
        }
        if are_done && is_over(&worker, is_open) {
            break;
        }
    }
    let end = end(&crew, sampler, all_users, out);
    #[cfg(feature = "http3")]
    worker.endpoints.end().await;
    Ok(end)
}

/// Whether the load is over once all users have ended. A fixed rate with a duration still lasts to its end.
fn is_over(worker: &Worker, is_open: bool) -> bool {
    !is_open || worker.stop_at() == NEVER || worker.clock.now() >= worker.stop_at()
}

fn end(crew: &Crew, sampler: Sampler, users: usize, out: &mpsc::Sender<Message>) -> ThreadEnd {
    let worker = &crew.worker;
    let now = worker.clock.now();
    let mut unsent_by_part = vec![0; crew.journey.parts.len()];
    for (gate, group) in crew.gates.iter().zip(&crew.journey.groups) {
        if group.is_closed() {
            continue;
        }
        // Scenarios that made all their iterations, or had no more rows, missed nothing.
        let over = |i: &usize| {
            let scenario = crew.journey.scenarios.get(*i);
            scenario.is_some_and(|s| s.is_over.load(std::sync::atomic::Ordering::Relaxed))
        };
        if group.scenarios.iter().all(over) {
            continue;
        }
        let missed = gate.not_started(worker, now);
        for (i, n) in gate.not_started_by_part(group, worker, now) {
            unsent_by_part.get_mut(i).into_iter().for_each(|all| *all += n);
        }
        // By the order in which they would have been made.
        let mut tally = crew.tally.borrow_mut();
        let turn = group.turn.load(std::sync::atomic::Ordering::Relaxed);
        for k in 0..missed {
            let at = (turn + k) as usize % group.order.len().max(1);
            let scenario = group.order.get(at).map_or(0, |s| *s as usize);
            if let Some(tally) = tally.scenarios.get_mut(scenario) {
                tally.not_started += 1;
            }
        }
    }
    let mut end = sampler.end(worker, Some(&crew.tally), out);
    end.responses_by_client.truncate(users);
    end.unsent_by_part = unsent_by_part;
    end.unsent = crew.tally.borrow().scenarios.iter().map(|s| s.not_started).sum();
    end.journey = Some(Box::new(std::mem::take(&mut *crew.tally.borrow_mut())));
    end
}

//! A thread of the generator: its runtime, and the tasks on it.

use super::client;
use super::preconnect::Ahead;
use super::replay;
use super::scenario;
use super::shared::{Message, Shared, ThreadEnd, part};
use super::worker::sampler::{SAMPLE, Sampler};
use super::worker::{Worker, pace};
use crate::os;
use crate::pace::Rhythm;
use crate::plan::Plan;
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use weir_wire::timer::Timer;
use weir_wire::{Driver, time};

/// Runs one generator thread to its end. Drops `ready` when it can begin.
///
/// A closed loop waits for sockets only, and [`Driver`] wakes its tasks for a third of what the runtime takes: 440
/// instead of 1,290 instructions for each request. The kernel timer of a fixed rate needs the runtime.
pub(super) fn run(
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    index: usize,
    ready: mpsc::Sender<Infallible>,
    out: &mpsc::Sender<Message>,
) -> std::io::Result<ThreadEnd> {
    if !plan.is_closed_throughout() {
        let options = tokio::runtime::LocalOptions::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(EVENTS)
            .build_local(options)?;
        return runtime.block_on(work(plan, shared, index, ready, out.clone()));
    }
    let end = Rc::new(RefCell::new(None));
    let place = Rc::clone(&end);
    let work = work(plan, shared, index, ready, out.clone());
    Driver::new()?.run(async move { *place.borrow_mut() = Some(work.await) })?;
    end.take().unwrap_or_else(|| Err(std::io::ErrorKind::Interrupted.into()))
}

async fn work(
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    index: usize,
    ready: mpsc::Sender<Infallible>,
    out: mpsc::Sender<Message>,
) -> std::io::Result<ThreadEnd> {
    // Clients that share a connection stay in one thread.
    let (threads, streams) = (plan.threads, plan.streams);
    let (first, connections) = part(plan.clients / streams, threads, index);
    let (first, clients) = match &plan.journey {
        None => (first * streams, connections * streams),
        Some(journey) => {
            let (first, _, slots) = scenario::slots_of(journey, threads, index);
            (first, slots)
        }
    };
    if plan.is_websocket() || plan.origins.iter().any(|o| o.tls.is_some()) {
        weir_wire::random::make_ready(); // otherwise its cost would count in the first handshake of each thread
    }
    let ahead = Ahead::open(&plan, &shared, index).await;
    drop(ready);
    let clock = *shared.clock.wait();
    let worker = Rc::new(Worker::new(plan, shared, clock, index, (first, clients), ahead));
    match worker.plan.journey.clone() {
        None => drive(worker, &out).await,
        Some(journey) => scenario::drive(worker, journey, &out).await,
    }
}

/// Tasks that run before the runtime polls sockets and timers again: half of tokio's default, since a due start waits
/// for that many exchanges. Our guess; a smaller value costs more system calls.
const EVENTS: u32 = 32;

async fn drive(worker: Rc<Worker>, out: &mpsc::Sender<Message>) -> std::io::Result<ThreadEnd> {
    if worker.feed.is_some() {
        os::wake_soon();
        let timer = Timer::new()?;
        drop(tokio::task::spawn_local(replay::pace(Rc::clone(&worker), timer)));
    }
    if let Rhythm::Open(_) = worker.plan.rhythm {
        os::wake_soon();
        let timer = Timer::new()?;
        drop(tokio::task::spawn_local(pace(Rc::clone(&worker), timer)));
    }
    let clients: Vec<_> = (0..worker.slots.len())
        .map(|i| tokio::task::spawn_local(client::run(Rc::clone(&worker), i)))
        .collect();
    let mut sampler = Sampler::new(&worker);
    let mut all = std::pin::pin!(async {
        for client in clients {
            if let Err(e) = client.await
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
            () = time::sleep_until(wake) => sampler.sample(&worker, None, out),
        }
        if are_done && worker.is_over() {
            break;
        }
    }
    let end = sampler.end(&worker, None, out);
    #[cfg(feature = "http3")]
    worker.endpoints.end().await;
    Ok(end)
}

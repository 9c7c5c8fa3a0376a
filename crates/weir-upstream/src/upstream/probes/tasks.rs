//! Which endpoints are probed, when, and how many at a time. Runs on the control thread.

use super::ask::{NotPassed, Question};
use super::streak::Streak;
use crate::error::CONNECT_REFUSED;
use crate::upstream::balance::Random;
use crate::upstream::health::Health;
use crate::upstream::spec::{HostPolicy, Upstream};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use weir_telemetry::log;

/// Most concurrent probes. Others wait for their turn, and their interval starts after it.
const AT_ONCE: usize = 64;

/// One probed endpoint.
struct Probed {
    question: Question,
    task: AbortHandle,
}

/// The probed endpoints, by the address of their health, which is unique per endpoint address. Their tasks hold it.
type All = HashMap<usize, Probed>;

/// Probes the endpoints of upstreams that want it until orders end; each order is a new snapshot's upstreams. Runs on
/// a `LocalSet`, because connections do not change threads.
pub async fn probe(mut orders: mpsc::UnboundedReceiver<Vec<Arc<Upstream>>>) {
    let (places, mut all) = (Rc::new(Semaphore::new(AT_ONCE)), All::new());
    let (mut upstreams, mut changes) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => {
                    upstreams = order;
                    changes = upstreams.iter().filter(|u| u.probe.is_some()).map(|u| u.published.watch()).collect();
                }
                None => return,
            },
            () = any(&mut changes) => {}
        }
        settle(&upstreams, &mut all, &places);
    }
}

/// Waits until any upstream's endpoints change.
async fn any(changes: &mut [watch::Receiver<()>]) {
    let mut each: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::with_capacity(changes.len());
    for change in changes {
        each.push(Box::pin(change.changed()));
    }
    poll_fn(|cx| {
        let changed = each.iter_mut().any(|change| change.as_mut().poll(cx).is_ready());
        if changed { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Starts missing probes and ends unwanted ones. Unchanged probes continue.
fn settle(upstreams: &[Arc<Upstream>], all: &mut All, places: &Rc<Semaphore>) {
    let mut before = std::mem::take(all);
    for upstream in upstreams {
        let list = upstream.published.list();
        for endpoint in list.iter() {
            let Some(question) = question(upstream, endpoint) else {
                endpoint.health.forget_probes(Instant::now());
                continue;
            };
            let key = Arc::as_ptr(&endpoint.health) as usize;
            if all.contains_key(&key) {
                continue; // two names for one address
            }
            let same = before.remove(&key).filter(|probed| {
                let is_same = probed.question.is(&question);
                if !is_same {
                    probed.task.abort();
                }
                is_same
            });
            all.insert(key, same.unwrap_or_else(|| begin(Arc::clone(&endpoint.health), question, places)));
        }
    }
    before.into_values().for_each(|gone| gone.task.abort());
}

fn question(upstream: &Upstream, endpoint: &crate::upstream::Endpoint) -> Option<Question> {
    let mut probe = Arc::clone(upstream.probe.as_ref()?);
    if let (HostPolicy::Literal(host), None) = (&upstream.host, &probe.host) {
        Arc::make_mut(&mut probe).host = Some(host.clone());
    }
    let own = probe.tls.as_ref().map(|own| (Some(own.tls.clone()), Arc::clone(&own.key)));
    let (tls, tls_key) = own.unwrap_or_else(|| (upstream.tls.clone(), Arc::clone(&upstream.tls_key)));
    Some(Question {
        probe,
        address: endpoint.address.clone(),
        authority: Arc::clone(&endpoint.authority),
        server_name: Arc::clone(&endpoint.server_name),
        tls,
        tls_key,
        protocol: upstream.protocol,
        way: upstream.way,
        head_bytes: upstream.head_bytes,
    })
}

fn begin(health: Arc<Health>, question: Question, places: &Rc<Semaphore>) -> Probed {
    let work = run(health, question.clone(), Rc::clone(places));
    let task = tokio::task::spawn_local(work).abort_handle();
    Probed { question, task }
}

/// Probes one endpoint until told to stop. The first probe runs immediately.
async fn run(health: Arc<Health>, question: Question, places: Rc<Semaphore>) {
    let mut streak = Streak::default();
    let mut random = Random::new(RandomState::new().hash_one(Arc::as_ptr(&health) as usize));
    loop {
        let Ok(place) = places.acquire().await else { return };
        let asked = question.ask().await;
        drop(place);
        note(&health, &question, &mut streak, asked);
        tokio::time::sleep(jittered(question.probe.interval, &mut random)).await;
    }
}

/// 90 to 110 % of an interval, so that probes that began together drift apart.
fn jittered(interval: Duration, random: &mut Random) -> Duration {
    interval.mul_f64(0.9 + f64::from(random.below(1000)) / 5_000.0)
}

fn note(health: &Health, question: &Question, streak: &mut Streak, asked: Result<(), NotPassed>) {
    let (now, probe) = (Instant::now(), &question.probe);
    let (cause, detail) = match asked {
        Ok(()) => {
            health.connected(now);
            health.probed(true);
            if streak.note(true, health.verdict(), probe) == Some(true) {
                health.probe_passed(now);
            }
            return;
        }
        Err(NotPassed::Failed { cause, detail }) => (cause, detail),
        Err(NotPassed::Refused(detail)) => {
            health.connect_failed(&CONNECT_REFUSED, now); // counts immediately, whoever finds it
            (CONNECT_REFUSED.code, detail)
        }
        Err(NotPassed::Unasked(why)) => {
            static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
            let fields: log::Fields<'_> = &[("endpoint", &question.address), ("error", &why)];
            SEEN.warn(&question.address, "no probe was sent", fields);
            return;
        }
    };
    health.probed(false);
    if streak.note(false, health.verdict(), probe) == Some(false) {
        health.probe_failed(cause, &detail, now);
    }
}

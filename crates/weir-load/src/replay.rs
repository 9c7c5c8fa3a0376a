//! Replays recorded traffic: its requests, at their times or a multiple of their speed.
//!
//! A thread reads the recording while the run goes on, so memory does not depend on its length. It sorts requests
//! within a window, leaves out what is not to be replayed, and hands each request with its planned moment to a
//! generator thread.
//!
//! *Layout.* weir-traffic reads the forms of recordings. `source` opens the file, `rules` says what is replayed,
//! `window` sorts and plans the moments, `render` writes requests, `found` counts. This file feeds the threads;
//! `engine/replay.rs` is their side. `options/replay.rs` makes the plan.

mod budget;
mod found;
mod render;
mod rules;
mod source;
mod window;

pub(crate) use budget::Permit;
pub(crate) use found::Found;

use crate::Mistake;
use budget::Budget;
use found::Why;
use render::Render;
use rules::Rules;
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use weir_traffic::{Form, Reader, Record, Then};
use window::Window;

/// Requests that wait for each thread, so that reading runs ahead.
const WAITING: usize = 1024;

/// Records of a file that are checked before anything is sent.
const CHECKED: u64 = 20_000;

/// When the first request starts: once all threads run. Otherwise it would always be late. Our guess.
const LEAD_NS: u64 = 20_000_000;

/// Masked keys that are reported.
const MASKED_SHOWN: usize = 20;

/// What to replay, and how; as written on the command line.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The recording; `-` is stdin.
    pub log: PathBuf,
    /// Its form. Default: recognized from its first lines.
    pub format: Option<String>,
    /// `2`, `0.5` or `max`. Default 1.
    pub speed: Option<String>,
    /// Longest time between two requests, or `none`; longer ones are cut. Default 10 min.
    pub gap_max: Option<String>,
    /// How often to replay it. Default 1.
    pub loops: Option<u64>,
    /// Only requests of this time and later: RFC 3339.
    pub from: Option<String>,
    /// Only requests before this time.
    pub to: Option<String>,
    /// A part of the requests, `1/10`. Default all.
    pub sample: Option<String>,
    /// Take the sample by client, so that a client's requests stay together.
    pub sample_by_client: bool,
    /// Each client keeps a connection of its own.
    pub connections_by_client: bool,
    /// Methods to replay, or `all`. Default GET, HEAD and OPTIONS.
    pub methods: Option<String>,
    /// Only requests to these hosts. Default all.
    pub hosts: Vec<String>,
    /// Send the recorded Host instead of the target's.
    pub keeps_host: bool,
    /// A file with the body of requests whose body was not recorded.
    pub body_from: Option<PathBuf>,
    /// `KEY=VALUE` for keys of queries that the recording has as `***`.
    pub set: Vec<String>,
    /// Requests may be this far out of order. Default 10 s.
    pub reorder: Option<String>,
}

/// A recording that is ready to be replayed.
#[derive(Debug)]
pub(crate) struct Replay {
    source: Mutex<Option<Source>>,
    form: Form,
    rules: Rules,
    render: Render,
    pub(crate) by_client: bool,
    budget: Arc<Budget>,
    found: Mutex<Found>,
}

/// A request with its planned moment.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Nanoseconds of the run's clock; 0 with `--speed max`.
    pub(crate) at: u64,
    /// Stands for its client.
    pub(crate) client: u64,
    pub(crate) is_head: bool,
    /// Head and body.
    pub(crate) bytes: Vec<u8>,
    pub(crate) head_bytes: usize,
    pub(crate) held: Held,
}

/// What is kept of a request until its response.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) then: Then,
    /// Its route, by its place in [`Found`].
    pub(crate) route: u32,
    /// How long after its planned moment its client took it, in microseconds, at most 71 minutes.
    pub(crate) late_us: u32,
    /// Returns the memory of the request.
    _permit: Permit,
}

fn open(o: &ReplayOptions, mistakes: &mut Vec<Mistake>) -> Option<(Source, Form)> {
    let place = o.log.display().to_string();
    let source =
        Source::open(&o.log).map_err(|e| mistakes.push(Mistake::new(&place, &e.to_string()))).ok()?;
    if o.loops.unwrap_or(1) > 1 && !source.is_file() {
        mistakes.push(Mistake::new("--loop", "stdin can be read once only: give a file"));
    }
    let form = match &o.format {
        Some(name) => Form::named(name).map_err(|why| Mistake::new(&format!("--format {name}"), &why)),
        None => Form::of(source.first()).ok_or_else(|| {
            let hint =
                format!("its first lines have no form that is known: give --format: {}", weir_traffic::FORMS);
            Mistake::new(&place, &hint)
        }),
    };
    match form {
        Ok(form) => Some((source, form)),
        Err(mistake) => {
            mistakes.push(mistake);
            None
        }
    }
}

impl Replay {
    /// Opens what the options name. [`Self::set_head`] completes it.
    pub(crate) fn open(o: &ReplayOptions, mistakes: &mut Vec<Mistake>) -> Option<Self> {
        let rules = Rules::read(o, mistakes);
        let render = Render::new(o).map_err(|mistake| mistakes.push(mistake)).ok();
        let (source, form) = open(o, mistakes)?;
        if !form.has_bodies()
            && o.body_from.is_none()
            && let Some(method) = rules.with_body()
        {
            let hint = format!(
                "a recording of the form {} has no bodies: add --body-from FILE, or leave out {method}",
                form.name()
            );
            mistakes.push(Mistake::new(&format!("--methods {method}"), &hint));
        }
        let found = Found::new(&o.log, form.name()).into();
        let (source, budget, by_client) = (Some(source).into(), Arc::default(), o.connections_by_client);
        Some(Self { source, form, rules, render: render?, by_client, budget, found })
    }

    /// Takes over Host and the other fields of a request to the target, of which those named in `given` take precedence
    /// over recorded ones.
    pub(crate) fn set_head(&mut self, head: &[u8], given: &BTreeSet<String>) {
        self.render.set_base(head, given);
    }

    /// How many times faster than recorded; none for as fast as responses come.
    pub(crate) const fn speed(&self) -> Option<f64> {
        self.rules.speed
    }

    /// Whether requests go as fast as responses come.
    pub(crate) const fn is_max(&self) -> bool {
        self.rules.speed.is_none()
    }

    pub(crate) fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ends from which `threads` take requests, and those for the reader.
    pub(crate) fn feed(threads: usize) -> (Vec<Sender<Entry>>, Vec<Receiver<Entry>>) {
        (0..threads).map(|_| channel(WAITING)).unzip()
    }

    /// Reads the start of a file and reports what would be a mistake for the rest.
    pub(crate) fn check_first(&self, mistakes: &mut Vec<Mistake>) {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(source) = source.as_mut().filter(|source| source.is_file()) else { return };
        let Ok(bytes) = source.again() else { return };
        let mut reader = Reader::new(self.form.clone(), bytes);
        let (mut records, mut usable) = (0, 0_u64);
        let mut found = Found::default();
        let (mut is_whole, mut masked) = (false, BTreeMap::new());
        while records < CHECKED {
            match reader.record() {
                Ok(None) => {
                    is_whole = true;
                    break;
                }
                Err(e) => return mistakes.push(Mistake::new(&self.found().stats.log, &e.to_string())),
                Ok(Some((line, record))) => {
                    records += 1;
                    match record.map_err(Why::from).and_then(|record| self.usable(record)) {
                        Ok(_) => usable += 1,
                        Err(Why::Masked(keys)) => {
                            let room = MASKED_SHOWN.saturating_sub(masked.len());
                            for key in keys.into_iter().take(room) {
                                masked.entry(key).or_insert(line);
                            }
                        }
                        Err(why) => found.leave(&why, line),
                    }
                }
            }
        }
        for (key, line) in &masked {
            let hint =
                format!("line {line} has the key `{key}` as `***`: give its value with --set {key}=VALUE");
            mistakes.push(Mistake::new(&self.found().stats.log, &hint));
        }
        if is_whole && usable == 0 && masked.is_empty() {
            let hint = format!("no request is left to replay: {}", found.told());
            mistakes.push(Mistake::new(&self.found().stats.log, &hint));
        }
    }

    /// A record as a request to send, or as what is known of a response.
    fn usable(&self, record: Record) -> Result<Record, Why> {
        match record {
            Record::Request(mut request) => {
                self.rules.take(&request)?;
                self.render.complete(&mut request)?;
                Ok(Record::Request(request))
            }
            response @ Record::Response(..) => Ok(response),
        }
    }

    /// Reads the recording to its end, or until the threads are gone. Calls `first` once a request is ready, or none
    /// will come.
    pub(crate) fn read(&self, out: &[Sender<Entry>], first: impl FnOnce()) {
        let mut first = Some(first);
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut source) = source.take() else { return };
        let mut window = Window::new(&self.rules);
        for _ in 0..self.rules.loops {
            let Ok(bytes) = source.again() else {
                self.found().leave(&Why::Broken, 0);
                break;
            };
            let mut reader = Reader::new(self.form.clone(), bytes);
            loop {
                let record = match reader.record() {
                    Ok(None) => break,
                    Ok(Some(record)) => record,
                    Err(_) => {
                        self.found().leave(&Why::Broken, 0);
                        break;
                    }
                };
                self.add(record, &mut window);
                while let Some(timed) = window.next() {
                    if !self.send(timed, out, &window) {
                        return;
                    }
                    first.take().into_iter().for_each(|first| first());
                }
            }
            for line in window.settle() {
                self.found().leave(&Why::WrongTime, line);
            }
            while let Some(timed) = window.rest() {
                if !self.send(timed, out, &window) {
                    return;
                }
                first.take().into_iter().for_each(|first| first());
            }
            window.repeat();
        }
        first.take().into_iter().for_each(|first| first());
    }

    fn add(&self, (line, record): (u64, Result<Record, weir_traffic::Unread>), window: &mut Window<'_>) {
        self.found().stats.records += 1;
        match record.map_err(Why::from).and_then(|record| self.usable(record)) {
            Ok(Record::Request(request)) if !window.is_sampled(&request) => {
                self.found().leave(&Why::Sample, line)
            }
            Ok(Record::Request(request)) => {
                let taken = window.take(request, line);
                let mut found = self.found();
                found.stats.out_of_order += u64::from(taken.is_late);
                found.stats.clock_jumps = taken.jumps;
                taken.wrong.iter().for_each(|line| found.leave(&Why::WrongTime, *line));
            }
            Ok(Record::Response(id, then)) => window.answer(&id, then),
            Err(why) => self.found().leave(&why, line),
        }
    }

    /// Hands a request to a thread; `false` if nobody takes requests any more.
    fn send(&self, timed: window::Timed, out: &[Sender<Entry>], window: &Window<'_>) -> bool {
        let window::Timed { at, number, request } = timed;
        let at = if self.is_max() { 0 } else { at.saturating_add(LEAD_NS) };
        let client = rules::hash(&request.client);
        // Other bits than those that a sample by client looks at: else a sample of 1/2 uses one of two threads.
        let index = if self.by_client { client >> 32 } else { number } % out.len() as u64;
        let Some(to) = out.get(index as usize) else { return false };
        let (bytes, head_bytes, masked) = self.render.bytes(&request);
        // Waits while requests that were read ahead take too much memory.
        let Some(permit) = self.budget.take(bytes.len(), || to.is_closed()) else { return false };
        let route = {
            let mut found = self.found();
            found.stats.planned += 1;
            found.stats.gap_ns = window.gap_ns();
            (found.stats.gaps_cut, found.stats.gaps_cut_ns) = window.gaps_cut();
            for name in masked {
                found.mask(name);
            }
            if !self.is_max() {
                *found.planned.entry(at / 1_000_000_000).or_default() += 1;
            }
            found.route(&request)
        };
        let held = Held { then: request.then, route, late_us: 0, _permit: permit };
        let is_head = request.method == "HEAD";
        let entry = Entry { at, client, is_head, bytes, head_bytes, held };
        to.blocking_send(entry).is_ok()
    }
}

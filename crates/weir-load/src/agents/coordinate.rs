//! `weir load --agents`: connects to every agent, carries out what the coordinator of weir-agents decides, and adds up
//! what they report.

use super::serve::build;
use super::wire::{self, CONNECTING, Out, WAITING_MOST};
use super::work::Packed;
use crate::{Interrupt, Plan, Progress, SoFar};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use weir_agents::coordinator::{Action, Event, OnLoss, Seen};
use weir_agents::frame::{self, FROM_AGENT_MOST, Kind, TO_AGENT_MOST};
use weir_agents::message::Stop;
use weir_agents::{Coordinator, Share, Time, bounds, clean};
use weir_report::Mistake;
use weir_report::merge::{AgentPart, merge_agents};
use weir_report::report::{End, Report, Tick, Window};
use weir_wire::tls::ClientTls;

/// How often the caller gets progress.
const LOOK: Duration = Duration::from_millis(250);

/// Agents and how to reach them.
#[derive(Debug)]
pub struct Lead {
    /// `HOST:PORT` of each.
    pub agents: Vec<String>,
    /// Our certificate and their authority; none only on loopback, with a token.
    pub tls: Option<ClientTls>,
    /// Shown to each agent.
    pub token: Option<String>,
    /// What the loss of one means.
    pub on_loss: OnLoss,
}

impl Lead {
    /// Whether each agent has a share of this plan.
    ///
    /// # Errors
    /// There are fewer connections or requests than agents.
    pub fn shares(&self, plan: &Plan) -> Result<(), Vec<Mistake>> {
        let agents = self.agents.len() as u64;
        let counted =
            [("connections", Some(plan.as_run.connections)), ("requests", plan.as_run.stop.requests)];
        let few = counted.iter().filter(|(_, n)| n.is_some_and(|n| n < agents));
        let wrong: Vec<Mistake> = few
            .map(|(what, _)| Mistake::new("--agents", &format!("there are fewer {what} than agents")))
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// Why no load began: each agent that failed, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotBegun(pub Vec<String>);

struct Leading<'a, L> {
    lead: &'a Lead,
    plan: &'a Plan,
    packed: &'a Packed,
    coordinator: Coordinator,
    base: Instant,
    wall: SystemTime,
    out: Vec<Option<mpsc::Sender<Out>>>,
    end: Option<End>,
    so_far: SoFar,
    look: L,
}

/// Runs the load of all agents. `plan` is the whole of it, as this machine reads it.
///
/// # Errors
/// The run did not begin. What agents do afterwards is in the report.
pub fn lead(
    lead: &Lead,
    plan: &Plan,
    packed: &Packed,
    interrupt: &Interrupt,
    look: impl FnMut(&Progress<'_>),
) -> Result<Report, NotBegun> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|e| NotBegun(vec![e.to_string()]))?;
    let (run, by) = (format!("{:016x}", fastrand::u64(..)), whose());
    let of = u32::try_from(lead.agents.len()).unwrap_or(u32::MAX);
    let offers = (0..of).map(|index| packed.offer(&run, &by, Share { index, of }));
    let coordinator = Coordinator::new(Time::ZERO, offers.collect(), lead.on_loss, plan.expected());
    let leading = Leading {
        lead,
        plan,
        packed,
        coordinator,
        base: Instant::now(),
        wall: SystemTime::now(),
        out: lead.agents.iter().map(|_| None).collect(),
        end: None,
        so_far: SoFar::default(),
        look,
    };
    runtime.block_on(leading.run(interrupt))
}

/// Who asks: the name of this machine and the process.
fn whose() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} (pid {})", host.trim(), std::process::id())
}

impl<L: FnMut(&Progress<'_>)> Leading<'_, L> {
    async fn run(mut self, interrupt: &Interrupt) -> Result<Report, NotBegun> {
        let (told, mut inbox) = mpsc::unbounded_channel();
        for (i, address) in self.lead.agents.iter().enumerate() {
            let (out, queue) = mpsc::channel(WAITING_MOST);
            self.out[i] = Some(out);
            let link = Link {
                i,
                address: address.clone(),
                tls: self.lead.tls.clone(),
                token: self.lead.token.clone(),
                told: told.clone(),
            };
            drop(tokio::task::spawn_local(link.converse(queue)));
        }
        let mut next_look = Instant::now();
        while !self.coordinator.is_over() {
            let due = self.base.checked_add(self.coordinator.next()).unwrap_or(next_look);
            tokio::select! {
                Some(event) = inbox.recv() => self.on(event),
                () = tokio::time::sleep_until(due.min(next_look).into()) => self.on(Event::Tick),
            }
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                if interrupt.is_ended() && self.end.is_none() {
                    self.end = Some(End::Interrupted);
                    self.on(Event::Stop(Stop::Leaving));
                }
                let elapsed_ns = self.elapsed_ns();
                (self.look)(&Progress { elapsed_ns, tick: None, so_far: &self.so_far });
            }
        }
        // Goodbyes go out before the sockets close.
        self.out.clear();
        let _ =
            tokio::time::timeout(Duration::from_millis(500), async { while inbox.recv().await.is_some() {} })
                .await;
        self.finish()
    }

    fn elapsed_ns(&self) -> u64 {
        let begun = self.coordinator.start_at().unwrap_or(Time::MAX);
        crate::clock::nanos(self.base.elapsed().saturating_sub(begun))
    }

    fn on(&mut self, event: Event) {
        for action in self.coordinator.on(self.base.elapsed(), event) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(i, message) => match frame::message(&message, TO_AGENT_MOST) {
                Ok(frame) => self.put(i, Out::Frame(frame)),
                Err(why) => self.on(Event::Unreachable(i, why)),
            },
            Action::Files(i) => {
                let packed = self.packed;
                for (_, content) in &packed.files {
                    self.put(i, Out::File(Arc::clone(content)));
                }
            }
            Action::Close(i) => self.put(i, Out::Close),
            Action::Second(tick) => self.second(*tick),
            Action::Over => {}
        }
    }

    fn put(&self, i: usize, out: Out) {
        if let Some(Some(queue)) = self.out.get(i) {
            let _ = queue.try_send(out); // an agent that does not read falls silent, and is lost
        }
    }

    /// A second of all agents is complete: conditions are judged by the sum, once.
    fn second(&mut self, tick: Tick) {
        let total = self.coordinator.total();
        let s = &mut self.so_far;
        s.service.clone_from(&total.service);
        s.response.clone_from(&total.response);
        s.counts.clone_from(&total.counts);
        s.measured_ns = total.measured_ns;
        s.generator_cpu_ns = total.cpu_ns;
        s.checks = checks_of(self.coordinator.agents());
        s.window = Window { length_ns: total.measured_ns, ..Window::default() };
        for agent in self.coordinator.agents() {
            s.window.add(&agent.sum.window);
        }
        let elapsed_ns = self.elapsed_ns();
        (self.look)(&Progress { elapsed_ns, tick: Some(&tick), so_far: &self.so_far });
        if self.end.is_none()
            && let Some(condition) =
                crate::engine::aborts(self.plan, || self.so_far.report(&self.plan.as_run))
        {
            self.end = Some(End::Aborted { condition });
            self.on(Event::Stop(Stop::Gracefully));
        }
    }

    fn finish(self) -> Result<Report, NotBegun> {
        let has_started = self.coordinator.has_started();
        let start_at = self.coordinator.start_at();
        let expected = self.plan.expected();
        let is_set_up = expected.tears_down && self.coordinator.has_set_up();
        let has_missed_teardown = self.coordinator.has_missed_teardown();
        let agents = self.coordinator.into_agents();
        let names = &self.lead.agents;
        if !has_started {
            let mut lines: Vec<String> = Vec::new();
            for (name, agent) in names.iter().zip(&agents) {
                lines.extend(agent.refused.iter().map(|why| format!("agent {name}: {why}")));
            }
            if lines.is_empty() {
                lines.push("interrupted before the load began".to_owned());
            }
            if is_set_up && let (Some(first), Some(seen)) = (names.first(), agents.first()) {
                lines.push(match seen.refused.is_empty() {
                    true => format!("no load began: agent {first}, which ran `setup`, was told to run `teardown`"),
                    false => {
                        format!("no load began: agent {first} ran `setup`; it is not known whether it ran `teardown`")
                    }
                });
            }
            return Err(NotBegun(lines));
        }
        let own = build();
        let like = agents.iter().find_map(|agent| agent.report.as_deref()).cloned();
        let like = like.unwrap_or_else(|| Report {
            schema: weir_report::report::SCHEMA.to_owned(),
            plan: self.plan.as_run.clone(),
            started_unix_ms: unix_ms(self.wall + start_at.unwrap_or_default()),
            warmup_ns: self.plan.warmup_ns,
            ..Report::default()
        });
        let torn_down_by = agents.iter().position(|agent| agent.has_torn_down);
        let torn_down_by = torn_down_by.and_then(|i| names.get(i));
        let uncertain =
            agents.iter().zip(names).find(|(agent, _)| agent.may_tear_down).map(|(_, name)| name.clone());
        let told = |lost: String, name: &String, may_tear_down: bool| match torn_down_by {
            Some(by) if may_tear_down => {
                format!("{lost}; {by} ran `teardown`, and this agent may have run it too")
            }
            Some(by) if by != name => format!("{lost}; {by} ran `teardown`"),
            None if may_tear_down => format!("{lost}; it is not known whether this agent ran `teardown`"),
            None if expected.tears_down => format!("{lost}; `teardown` did not run"),
            _ => lost,
        };
        let first = agents.iter().filter_map(|agent| agent.started).min();
        let parts = names.iter().zip(agents).map(|(name, agent)| {
            let started_ns = agent.started.zip(first).map(|(at, first)| crate::clock::nanos(at - first));
            let mut report = match agent.report {
                Some(report) => *report,
                None => agent.sum.so_far(Some(&like)),
            };
            // Wall clocks of other machines may be wrong by hours: only compared clocks count.
            let begun = agent.started.or(start_at).unwrap_or_default();
            report.started_unix_ms = unix_ms(self.wall + begun + self.plan.warmup());
            AgentPart {
                name: name.clone(),
                generator: agent.hello.generator,
                other_build: agent.hello.build != own,
                started_ns,
                clock_ns: crate::clock::nanos(agent.skew.round_trip()),
                lost: agent.lost.map(|(seconds, why)| (seconds, told(why, name, agent.may_tear_down))),
                mismatch: agent.mismatch,
                report,
            }
        });
        let goes_on = self.lead.on_loss == OnLoss::Continue;
        let parts = parts.collect();
        let mut report = merge_agents(parts, &self.plan.as_run, self.end, goes_on, &self.plan.thresholds);
        if has_missed_teardown {
            let text = uncertain.map_or_else(
                || "teardown: no agent ran it".to_owned(),
                |name| format!("teardown: it is not known whether agent {name} ran it"),
            );
            *report.counts.error_texts.entry(text).or_default() += 1;
        }
        Ok(report)
    }
}

fn checks_of(agents: &[Seen]) -> Vec<weir_report::report::CheckResult> {
    let mut all: Vec<weir_report::report::CheckResult> = Vec::new();
    for agent in agents {
        for check in &agent.sum.checks {
            match all.iter_mut().find(|known| known.check == check.check) {
                Some(known) => {
                    known.passed += check.passed;
                    known.failed += check.failed;
                }
                None => all.push(check.clone()),
            }
        }
    }
    all
}

fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0))
}

/// The connection to one agent.
struct Link {
    i: usize,
    address: String,
    tls: Option<ClientTls>,
    token: Option<String>,
    told: mpsc::UnboundedSender<Event>,
}

impl Link {
    async fn converse(self, queue: mpsc::Receiver<Out>) {
        let connected = tokio::time::timeout(CONNECTING, TcpStream::connect(&self.address)).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => return self.tell(Event::Unreachable(self.i, e.to_string())),
            Err(_) => return self.tell(Event::Unreachable(self.i, "connecting took too long".to_owned())),
        };
        let _ = stream.set_nodelay(true); // pings measure clocks
        match &self.tls {
            None => self.upgrade(stream, queue).await,
            Some(tls) => {
                let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
                let host = host.trim_matches(['[', ']']);
                match tokio::time::timeout(CONNECTING, tls.connect_beside(stream, host)).await {
                    Ok(Ok(stream)) => self.upgrade(stream, queue).await,
                    Ok(Err(e)) => self.tell(Event::Unreachable(self.i, format!("TLS: {e}"))),
                    Err(_) => self.tell(Event::Unreachable(self.i, "TLS took too long".to_owned())),
                }
            }
        }
    }

    async fn upgrade(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, mut queue: mpsc::Receiver<Out>) {
        let asked = wire::ask(&mut stream, &self.address, self.token.as_deref());
        match tokio::time::timeout(CONNECTING, asked).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return self.tell(Event::Unreachable(self.i, explained(&e))),
            Err(_) => return self.tell(Event::Unreachable(self.i, "no answer".to_owned())),
        }
        let (mut reader, mut writer) = tokio::io::split(stream);
        let read = async {
            loop {
                let (kind, bytes) = wire::read_frame(&mut reader, FROM_AGENT_MOST).await?;
                if kind == Kind::Piece {
                    return Err::<(), _>(io::Error::other("agents send no files"));
                }
                match bounds::read(&bytes) {
                    Ok(message) => self.tell(Event::Message(self.i, message)),
                    Err(why) => {
                        self.tell(Event::Malformed(self.i, why.clone()));
                        return Err(io::Error::other(why));
                    }
                }
            }
        };
        let write = wire::write_all(&mut writer, &mut queue, || self.tell(Event::Sending(self.i)));
        let why = tokio::select! {
            read = read => read.err().map_or_else(String::new, |e| explained(&e)),
            write = write => write.err().map_or_else(|| "we closed it".to_owned(), |e| explained(&e)),
        };
        self.tell(Event::Closed(self.i, format!("the connection ended: {why}")));
    }

    fn tell(&self, event: Event) {
        let event = match event {
            Event::Unreachable(i, why) => Event::Unreachable(i, clean::line(&why)),
            Event::Closed(i, why) => Event::Closed(i, clean::line(&why)),
            other => other,
        };
        let _ = self.told.send(event); // the run is over
    }
}

fn explained(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => "the agent closed it".to_owned(),
        _ => e.to_string(),
    }
}

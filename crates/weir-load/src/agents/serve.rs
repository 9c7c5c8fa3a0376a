//! `weir agent`: takes connections, and carries out what the state machine of weir-agents decides.

use super::handshakes::{Place, Strangers};
use super::limits::Limits;
use super::wire::{self, Arriving, CONNECTING, Out, WAITING_MOST};
use super::work::unpack;
use super::{kept, progress};
use crate::clock::nanos;
use crate::engine::{Direction, Interrupt};
use crate::{Plan, os};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc as blocking};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use weir_agents::agent::{Action, Conn, Event};
use weir_agents::frame::{self, FROM_AGENT_MOST, Kind, TO_AGENT_MOST};
use weir_agents::message::{FromAgent, Hello, Offer, PROTOCOL, Stop, ToAgent};
use weir_agents::{Agent, Time, clean};
use weir_report::Report;
use weir_wire::tls::ServerTls;

/// How an agent is reached, and what it permits.
pub struct AgentOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Certificates of both sides; none only on loopback, with a token.
    pub tls: Option<ServerTls>,
    /// A coordinator must show it.
    pub token: Option<String>,
    /// What it permits.
    pub limits: Limits,
    /// Hears one line about what happens.
    pub log: Box<dyn Fn(&str)>,
    /// Hears the address, once it listens.
    pub ready: Box<dyn Fn(SocketAddr)>,
    /// Ends the agent, and a run with it.
    pub end: Interrupt,
}

/// What the tasks and threads of an agent tell its loop.
enum Told {
    /// A request for a run, and where to answer it: with who has the agent, if it is busy.
    Opened(Conn, String, mpsc::Sender<Out>, oneshot::Sender<Option<String>>),
    Event(Event),
    Files(Conn, BTreeMap<String, Vec<u8>>),
    Loaded(Result<(Arc<Plan>, TempDir), Vec<String>>),
}

struct Server {
    agent: Agent,
    limits: Limits,
    base: Instant,
    told: mpsc::UnboundedSender<Told>,
    out: Option<(Conn, mpsc::Sender<Out>)>,
    answers: BTreeMap<Conn, oneshot::Sender<Option<String>>>,
    offer: Option<(Conn, Box<Offer>)>,
    files: Option<BTreeMap<String, Vec<u8>>>,
    plan: Option<Arc<Plan>>,
    /// Holds files of the plan; removed with it.
    folder: Option<TempDir>,
    interrupt: Interrupt,
    permit: Option<blocking::Sender<()>>,
    /// Whether `teardown` is the task of this agent, which the run asks once its load is over.
    tears_down: Arc<AtomicBool>,
    /// Until when the load may go on without another word, counted from its start.
    lease: Arc<AtomicU64>,
    begins: Time,
    /// When a run must be over, whatever its coordinator says.
    until: Option<Instant>,
    log: Box<dyn Fn(&str)>,
}

/// Serves until [`AgentOptions::end`] ends it.
///
/// # Errors
/// It cannot listen.
pub fn serve_agent(options: AgentOptions) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(serve(options))
}

async fn serve(options: AgentOptions) -> io::Result<()> {
    let AgentOptions { listen, tls, token, limits, log, ready, end } = options;
    let hello = Hello { protocol: PROTOCOL, generator: os::generator(), build: build() };
    let listener = TcpListener::bind(listen).await?;
    ready(listener.local_addr()?);
    let (told, mut inbox) = mpsc::unbounded_channel();
    let mut server = Server {
        agent: Agent::new(hello),
        limits,
        base: Instant::now(),
        told: told.clone(),
        out: None,
        answers: BTreeMap::new(),
        offer: None,
        files: None,
        plan: None,
        folder: None,
        interrupt: Interrupt::default(),
        permit: None,
        tears_down: Arc::default(),
        lease: Arc::default(),
        begins: Time::ZERO,
        until: None,
        // What a coordinator says is for nobody's terminal to obey.
        log: Box::new(move |text| log(&clean::line(text))),
    };
    let strangers = Strangers::default();
    let (tls, token): (Option<Arc<ServerTls>>, Option<Arc<str>>) = (tls.map(Arc::new), token.map(Arc::from));
    let mut next: Conn = 0;
    let mut is_leaving = false;
    while !is_leaving || !server.agent.is_free() {
        if end.is_ended() && !is_leaving {
            is_leaving = true;
            server.leave();
            continue;
        }
        let wake = server.base.checked_add(server.agent.next()).map_or_else(
            || Instant::now() + Duration::from_millis(200),
            |at| at.min(Instant::now() + Duration::from_millis(200)),
        );
        tokio::select! {
            accepted = listener.accept(), if !is_leaving => {
                let Ok((stream, peer)) = accepted else { continue };
                next += 1;
                let place = strangers.admit(next, peer.ip());
                let (tls, token, told) = (tls.clone(), token.clone(), told.clone());
                let stranger = Stranger { conn: next, peer, tls, token, told };
                strangers.runs(next, tokio::task::spawn_local(stranger.greet(stream, place)).abort_handle());
            }
            Some(told) = inbox.recv() => server.hear(told),
            () = tokio::time::sleep_until(wake.into()) => server.tick(),
        }
    }
    Ok(())
}

/// Tells builds of Weir apart, which may count differently: the length of the binary and samples of it. All of it
/// would take a debug build seconds.
pub(super) fn build() -> String {
    const SAMPLES: u64 = 128;
    const SAMPLE: usize = 4096;
    let sampled = || -> io::Result<Vec<u8>> {
        let file = std::fs::File::open("/proc/self/exe")?;
        let length = file.metadata()?.len();
        let mut all = length.to_le_bytes().to_vec();
        for i in 0..SAMPLES {
            let mut sample = [0; SAMPLE];
            let read = file.read_at(&mut sample, length / SAMPLES * i)?;
            all.extend_from_slice(sample.get(..read).unwrap_or_default());
        }
        Ok(all)
    };
    Sha256::digest(sampled().unwrap_or_default()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A connection that may become that of a coordinator.
struct Stranger {
    conn: Conn,
    peer: SocketAddr,
    tls: Option<Arc<ServerTls>>,
    token: Option<Arc<str>>,
    told: mpsc::UnboundedSender<Told>,
}

impl Stranger {
    async fn greet(self, stream: TcpStream, place: Place) {
        let _ = stream.set_nodelay(true); // pings measure clocks
        let by = tokio::time::Instant::now() + CONNECTING;
        match self.tls.clone() {
            None => self.upgrade(stream, place, by).await,
            Some(tls) => {
                let accepted = tokio::time::timeout_at(by, tls.accept_beside(stream)).await;
                let Ok(Ok((stream, _))) = accepted else { return };
                self.upgrade(stream, place, by).await;
            }
        }
    }

    /// Takes the request for a run, which must be there at `by`.
    async fn upgrade(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        place: Place,
        by: tokio::time::Instant,
    ) {
        let Ok(Ok(asked)) = tokio::time::timeout_at(by, wire::read_head(&mut stream)).await else {
            return;
        };
        let refusal = if asked.line != "GET /run HTTP/1.1" {
            Some((
                "404 Not Found",
                "this is a weir agent: weir load --agents asks it for GET /run".to_owned(),
            ))
        } else if !self.may_ask(asked.field("authorization")) {
            Some(("401 Unauthorized", "the token is missing or wrong".to_owned()))
        } else if asked.field("upgrade") != Some(wire::PROTOCOL) {
            Some(("426 Upgrade Required", format!("this agent speaks {}", wire::PROTOCOL)))
        } else {
            None
        };
        if let Some((status, text)) = refusal {
            let refused = wire::refuse(&mut stream, status, &text);
            let _ = tokio::time::timeout(CONNECTING, refused).await; // a peer that leaves is not told
            return;
        }
        drop(place); // from here on it is a coordinator
        let who = self.peer.to_string();
        let ((out, queue), (answer, answered)) = (mpsc::channel(WAITING_MOST), oneshot::channel());
        let _ = self.told.send(Told::Opened(self.conn, who, out, answer)); // the loop lives longer
        let taken = match answered.await {
            Ok(None) => tokio::time::timeout(CONNECTING, wire::accept(&mut stream)).await,
            Ok(Some(by)) => {
                let text = format!("this agent is busy with a run of {by}");
                let _ =
                    tokio::time::timeout(CONNECTING, wire::refuse(&mut stream, "409 Conflict", &text)).await;
                return;
            }
            Err(_) => return,
        };
        if matches!(taken, Ok(Ok(()))) {
            self.converse(stream, queue).await;
        }
        let _ = self.told.send(Told::Event(Event::Closed(self.conn))); // as above
    }

    /// Without a token, the certificate is enough.
    fn may_ask(&self, authorization: Option<&str>) -> bool {
        let Some(token) = &self.token else { return self.tls.is_some() };
        let given = authorization.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let (given, token) = (given.as_bytes(), token.as_bytes());
        // Every byte is looked at, so that time tells nothing about the token.
        let differ = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
        differ == 0 && given.len() == token.len() && !token.is_empty()
    }

    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin, mut queue: mpsc::Receiver<Out>) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let read = async {
            let (mut arriving, mut are_there): (Option<Arriving>, bool) = (None, false);
            loop {
                let (kind, bytes) = wire::read_frame(&mut reader, TO_AGENT_MOST).await?;
                match (kind, &mut arriving) {
                    (Kind::Message, _) => {
                        let message: ToAgent = frame::read(&bytes).map_err(io::Error::other)?;
                        if let (ToAgent::Offer(offer), None) = (&message, &arriving) {
                            arriving = Some(Arriving::new(&offer.files).map_err(io::Error::other)?);
                        }
                        self.tell(Event::Message(self.conn, message));
                    }
                    (Kind::Piece, Some(files)) => {
                        files.piece(&bytes).map_err(io::Error::other)?;
                        self.tell(Event::Piece(self.conn));
                    }
                    (Kind::Piece, None) => return Err::<(), _>(io::Error::other("a file without an offer")),
                }
                if let (Some(files), false) = (&mut arriving, are_there)
                    && let Some(files) = files.take().map_err(io::Error::other)?
                {
                    are_there = true;
                    let _ = self.told.send(Told::Files(self.conn, files)); // the loop lives longer
                }
            }
        };
        let write = wire::write_all(&mut writer, &mut queue, || {});
        // Either side's end is the end of the connection.
        tokio::select! {
            _ = read => {}
            _ = write => {}
        }
    }

    fn tell(&self, event: Event) {
        let _ = self.told.send(Told::Event(event)); // the loop lives longer
    }
}

impl Server {
    fn now(&self) -> Time {
        self.base.elapsed()
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Opened(conn, who, out, answer) => {
                self.answers.insert(conn, answer);
                if self.agent.is_free() {
                    self.out = Some((conn, out));
                }
                self.on(Event::Opened(conn, who));
            }
            Told::Event(event) => {
                if matches!(event, Event::Ended(_) | Event::Prepared(_)) {
                    self.until = None;
                }
                self.on(event);
            }
            Told::Files(conn, files) => {
                if self.offer.as_ref().is_some_and(|(of, _)| *of == conn) {
                    self.files = Some(files);
                    self.load();
                }
            }
            Told::Loaded(Ok((plan, folder))) => {
                (self.plan, self.folder) = (Some(plan), Some(folder));
                self.on(Event::Loaded(Ok(())));
            }
            Told::Loaded(Err(why)) => {
                (self.log)(&format!("refused: {}", why.join("; ")));
                self.on(Event::Loaded(Err(why)));
            }
        }
    }

    fn tick(&mut self) {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            (self.log)("the run is longer than --max-duration: it ends now");
            self.until = None;
            self.interrupt.end();
        }
        self.on(Event::Tick);
    }

    /// Ends a run that is on, so that the agent gets free.
    fn leave(&mut self) {
        if !self.agent.is_free() {
            (self.log)("ending: the run ends first");
        }
        self.on(Event::Leave);
    }

    fn on(&mut self, event: Event) {
        let now = self.now();
        for action in self.agent.on(now, event) {
            self.act(action);
        }
        if let Some(lease) = self.agent.lease() {
            self.lease.store(nanos(lease.saturating_sub(self.begins)), Ordering::Relaxed);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Accept(conn) => self.answer(conn, None),
            Action::Busy(conn, by) => self.answer(conn, Some(by)),
            Action::Send(conn, message) => self.send(conn, &message),
            Action::Close(conn) => {
                if let Some((_, out)) = self.out.as_ref().filter(|(of, _)| *of == conn) {
                    let _ = out.try_send(Out::Close); // it has ended by itself
                }
            }
            Action::Load(conn, offer) => {
                (self.log)(&format!(
                    "run {} of {}, part {} of {}",
                    offer.run,
                    offer.by,
                    offer.share.index + 1,
                    offer.share.of
                ));
                self.offer = Some((conn, offer));
                self.interrupt = Interrupt::default();
                self.load();
            }
            Action::Prepare(value) => self.prepare(value),
            Action::Run(at) => self.run(at),
            Action::Stop(Stop::Gracefully) => self.interrupt.halt(),
            Action::Stop(Stop::Leaving) => self.interrupt.end(),
            Action::Stop(Stop::Now) => self.interrupt.cut(),
            Action::Retire => {
                self.tears_down.store(false, Ordering::Relaxed);
                self.permit = None;
            }
            Action::Succeed => self.tears_down.store(true, Ordering::Relaxed),
            Action::Teardown => {
                if let Some(permit) = self.permit.take() {
                    let _ = permit.send(()); // the run has ended
                }
            }
            Action::Forget => {
                (self.log)("free");
                (self.offer, self.files, self.plan, self.folder) = (None, None, None, None);
                (self.permit, self.until, self.out) = (None, None, None);
            }
        }
    }

    fn answer(&mut self, conn: Conn, busy: Option<String>) {
        if let Some(answer) = self.answers.remove(&conn) {
            let _ = answer.send(busy); // the peer has gone
        }
    }

    fn send(&self, conn: Conn, message: &FromAgent) {
        let Some((_, out)) = self.out.as_ref().filter(|(of, _)| *of == conn) else { return };
        let frame = frame::message(message, FROM_AGENT_MOST).or_else(|why| {
            let failed = FromAgent::Failed { why: vec![why], tears_down: false };
            frame::message(&failed, FROM_AGENT_MOST) // a report beyond the limit
        });
        if let Ok(frame) = frame {
            match out.try_send(Out::Frame(frame)) {
                // It does not read: for us, it is gone.
                Err(TrySendError::Full(_)) => {
                    let _ = self.told.send(Told::Event(Event::Closed(conn))); // the loop lives longer
                }
                Ok(()) | Err(TrySendError::Closed(_)) => {} // its end is told
            }
        }
    }

    /// Compiles the plan, once offer and files are there.
    fn load(&mut self) {
        let (Some((_, offer)), true) = (&self.offer, self.files.is_some()) else { return };
        let offer = offer.clone();
        self.on(Event::Compiling);
        let (offer, limits) = (offer, self.limits.clone());
        let files = self.files.take().unwrap_or_default();
        let told = self.told.clone();
        self.spawn("weir-agent-plan", move || {
            let made = TempDir::new().map_err(|e| vec![e.to_string()]).and_then(|folder| {
                let plan = unpack(&offer, &files, &limits, folder.path())?;
                Ok((Arc::new(plan), folder))
            });
            let _ = told.send(Told::Loaded(made)); // the agent has ended
        });
    }

    fn prepare(&mut self, value: Option<serde_json::Value>) {
        let (Some(plan), interrupt, told) = (self.plan.clone(), self.interrupt.clone(), self.told.clone())
        else {
            return;
        };
        self.until = self.limits.max_duration.map(|most| Instant::now() + most);
        self.spawn("weir-agent-setup", move || {
            let prepared = match value {
                Some(value) => kept::take_over(&plan, &value),
                None => plan.prepare(&interrupt).map_err(|e| e.to_string()),
            };
            let prepared = prepared.map(|()| kept::of(&plan));
            drop(plan);
            let _ = told.send(Told::Event(Event::Prepared(prepared))); // the agent has ended
        });
    }

    fn run(&mut self, at: Time) {
        let (Some(plan), interrupt, told) = (self.plan.clone(), self.interrupt.clone(), self.told.clone())
        else {
            return;
        };
        let (permit, permitted) = blocking::channel();
        self.permit = Some(permit);
        let start_at = self.base + at;
        (self.begins, self.lease) = (at, Arc::new(AtomicU64::new(0))); // set as soon as this word is carried out
        let lease = Some(Arc::clone(&self.lease));
        self.until = self.limits.max_duration.map(|most| start_at + most + plan.grace);
        let (base, started) = (self.base, told.clone());
        self.tears_down = Arc::new(AtomicBool::new(plan.share.index == 0));
        let (tears_down, torn_down) = (Arc::clone(&self.tears_down), Arc::<AtomicBool>::default());
        self.spawn("weir-agent-load", move || {
            let direction = Direction {
                start_at: Some(start_at),
                started: Some(Box::new(move |at| {
                    let at = at.saturating_duration_since(base);
                    let _ = started.send(Told::Event(Event::Started(at))); // the agent has ended
                })),
                lease,
                tears_down,
                torn_down: Arc::clone(&torn_down),
                teardown: Some(permitted),
            };
            let mut seconds = progress::Seconds::default();
            let outcome = Plan::run_directed(plan, &interrupt, direction, |now| {
                if let Some(tick) = now.tick {
                    let second = seconds.next(tick, now.so_far);
                    let _ = told.send(Told::Event(Event::Second(Box::new(second)))); // as above
                }
            });
            if torn_down.load(Ordering::Relaxed) {
                let _ = told.send(Told::Event(Event::TornDown)); // as above
            }
            let outcome: Result<Box<Report>, String> = outcome.map(Box::new).map_err(|e| e.to_string());
            let _ = told.send(Told::Event(Event::Ended(outcome))); // as above
        });
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        let told = self.told.clone();
        // A thread that panics must not keep the run, and this agent, for ever.
        let work = move || {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
                let failed = Event::Ended(Err("a thread of the agent panicked".to_owned()));
                let _ = told.send(Told::Event(failed)); // the agent has ended
            }
        };
        if let Err(e) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            let failed = Told::Event(Event::Ended(Err(format!("no thread: {e}"))));
            let _ = self.told.send(failed); // the loop lives longer
        }
    }
}

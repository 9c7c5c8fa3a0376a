//! The thread of a store kept by the fleet. It takes part in the election of the node that keeps the store. It passes
//! questions to that node, or answers them and those of other nodes.
//!
//! ```text
//!   cores ─ questions ─► here ── a node elsewhere keeps it ─► `link` ─ TCP ─► its `office`
//!                          └──── this one does ─────────────► `office` ◄─ TCP ─ other nodes
//! ```
//! `Election` of weir-fleet decides who keeps it and until when; its `Ledger` decides what is granted.

mod link;
mod office;

use self::link::Link;
use self::office::Office;
use super::{Away, Place, Question, Reply, Server, State};
use sha2::{Digest as _, Sha256};
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use weir_config::schema::EtcdSource;
use weir_fleet::limits::Election;
use weir_fleet::limits::election::{Action, Event, Holder};
use weir_fleet::limits::ledger::{Asked, KEY_BYTES, Limit};
use weir_telemetry::log;
use weir_upstream::etcd::fleet::Etcd;
use weir_upstream::fetch::Environment;

/// How long a leaving node keeps answering, so that what it and others give back is counted.
const LAST_WORDS: Duration = Duration::from_millis(30);

/// How long a leaving node waits for etcd to know.
const LEAVING: Duration = Duration::from_millis(400);

/// Arguments before the limits, and arguments of each limit.
const HEAD: usize = 3;
const EACH: usize = 4;

/// A report from the tasks.
enum Message {
    Election(Event),
    /// The node at the other end of this link answers, and says how many gateways there are.
    Met(u64, u32),
    /// The link ended.
    Lost(u64, String),
}

enum Role {
    /// The keeper of the store is unknown.
    Nobody,
    Follows(Link),
    Leads(Office),
}

struct Driver {
    name: String,
    key: String,
    timeout: Duration,
    state: Arc<State>,
    etcd: Rc<Etcd>,
    written: Box<EtcdSource>,
    election: Election,
    secret: String,
    tell: mpsc::UnboundedSender<Message>,
    role: Role,
    listener: Option<TcpListener>,
    began: Instant,
    /// How many links there were: reports from old ones are ignored.
    links: u64,
    /// Whether it is known that somebody keeps the store, or that nobody does. Until then questions wait.
    decided: bool,
    away_since: Option<Instant>,
}

/// Starts the thread; it ends when nobody can ask any more.
pub(super) fn start(
    name: String,
    place: Place,
    state: Arc<State>,
    questions: mpsc::Receiver<Question>,
    leaving: mpsc::UnboundedReceiver<std_mpsc::Sender<()>>,
) {
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _in_runtime = runtime.enter();
            LocalSet::new().block_on(&runtime, serve(name, place, state, questions, leaving));
        }
        Err(e) => log::error("no runtime for a store", &[("store", &name), ("error", &e)]),
    };
    if let Err(e) = std::thread::Builder::new().name("weir-store".to_owned()).spawn(run) {
        log::error("no thread for a store", &[("error", &e)]);
    }
}

async fn serve(
    name: String,
    place: Place,
    state: Arc<State>,
    mut questions: mpsc::Receiver<Question>,
    leaving: mpsc::UnboundedReceiver<std_mpsc::Sender<()>>,
) {
    let (tell, told) = mpsc::unbounded_channel();
    let driver = match &place.server {
        Server::Fleet(Some(etcd)) => {
            Driver::new(name.clone(), etcd.clone(), &place, Arc::clone(&state), tell)
        }
        _ => Err("this gateway is not a node of a fleet: it has no source.etcd".to_owned()),
    };
    match driver {
        Ok(driver) => driver.drive(questions, told, leaving).await,
        Err(error) => {
            state.up.store(false, Relaxed);
            log::warn("store is unreachable", &[("store", &name), ("error", &error)]);
            while let Some(question) = questions.recv().await {
                (question.answer)(Err(Away));
            }
        }
    }
}

impl Driver {
    fn new(
        name: String,
        written: Box<EtcdSource>,
        place: &Place,
        state: Arc<State>,
        tell: mpsc::UnboundedSender<Message>,
    ) -> Result<Self, String> {
        let etcd = Rc::new(Etcd::new(&written, Arc::new(Environment::of_system()))?);
        let mut bytes = [0; 24];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| "there is no randomness")?;
        let secret: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let [a, b, c, d, e, f, g, h, ..] = bytes;
        Ok(Self {
            name,
            key: etcd.keys.limits(&place.prefix),
            timeout: place.timeout,
            state,
            etcd,
            written,
            election: Election::new(secret.clone(), u64::from_be_bytes([h, g, f, e, d, c, b, a])),
            secret,
            tell,
            role: Role::Nobody,
            listener: None,
            began: Instant::now(),
            links: 0,
            decided: false,
            away_since: None,
        })
    }

    fn now(&self) -> weir_fleet::Time {
        self.began.elapsed()
    }

    async fn drive(
        mut self,
        mut questions: mpsc::Receiver<Question>,
        mut told: mpsc::UnboundedReceiver<Message>,
        mut leaving: mpsc::UnboundedReceiver<std_mpsc::Sender<()>>,
    ) {
        self.elects(Event::Tick);
        loop {
            let wait = self.election.next().saturating_sub(self.now());
            tokio::select! {
                biased;
                Some(message) = told.recv() => self.hears(message),
                Some(done) = leaving.recv() => {
                    self.leaves(done, &mut questions).await;
                    return refuse(questions).await;
                }
                question = questions.recv(), if self.decided => match question {
                    Some(question) => self.passes(question),
                    None => return self.ends().await,
                },
                () = tokio::time::sleep(wait) => self.elects(Event::Tick),
            }
        }
    }

    fn hears(&mut self, message: Message) {
        match message {
            Message::Election(event) => {
                let failed = match &event {
                    Event::Read(Err(e)) | Event::Granted(Err(e)) | Event::Claimed(Err(e)) => Some(e.clone()),
                    _ => None,
                };
                self.elects(event);
                if let Some(error) = failed.filter(|_| matches!(self.role, Role::Nobody)) {
                    self.is_away(&error);
                }
            }
            Message::Met(number, gateways) => {
                let Role::Follows(link) = &self.role else { return };
                if link.number == number {
                    let node = link.node.clone();
                    self.state.gateways.store(gateways, Relaxed);
                    self.is_there(&node);
                    self.elects(Event::Met);
                }
            }
            Message::Lost(number, error) => {
                if matches!(&self.role, Role::Follows(link) if link.number == number) {
                    self.role = Role::Nobody;
                    self.is_away(&error);
                    self.elects(Event::Lost);
                }
            }
        }
    }

    fn elects(&mut self, event: Event) {
        for action in self.election.on(self.began.elapsed(), event) {
            self.acts(action);
        }
    }

    fn acts(&mut self, action: Action) {
        let (tell, etcd, key) = (self.tell.clone(), Rc::clone(&self.etcd), self.key.clone());
        let say = move |event| drop(tell.send(Message::Election(event))); // the receiver may have ended
        let holder = |bytes: Option<Vec<u8>>| match bytes {
            None => Ok(None),
            Some(bytes) => {
                Holder::read(&bytes).map(Some).ok_or("what holds the key is not a node".to_owned())
            }
        };
        match action {
            Action::Read => drop(spawn_local(async move {
                say(Event::Read(etcd.read_key(&key).await.and_then(holder)));
            })),
            Action::Grant => drop(spawn_local(async move { say(Event::Granted(etcd.grant().await)) })),
            Action::Claim(lease) => match self.listens() {
                Ok(address) => {
                    let (node, secret) = (etcd.node.clone(), self.secret.clone());
                    let own = Holder { node, address: address.to_string(), secret }.write();
                    drop(spawn_local(async move {
                        say(Event::Claimed(etcd.claim(&key, &own, lease).await.and_then(holder)));
                    }));
                }
                Err(e) => say(Event::Claimed(Err(format!("this node cannot keep the store: {e}")))),
            },
            Action::Keep(lease) => {
                drop(spawn_local(async move { say(Event::Kept(etcd.keep_alive(lease).await)) }));
            }
            Action::Revoke(lease) => drop(spawn_local(async move { drop(etcd.revoke(lease).await) })), // it expires
            Action::Follow(holder) => {
                self.links += 1;
                self.role = Role::Follows(Link::open(self.links, &holder, self.timeout, &self.tell));
            }
            Action::Lead => match self.listener.take() {
                Some(listener) => {
                    let (secret, state) = (self.secret.clone(), Arc::clone(&self.state));
                    self.role = Role::Leads(Office::open(listener, secret, state));
                    log::info("this node now holds the fleet's store", &[("store", &self.name)]);
                    self.is_there(&etcd.node);
                }
                None => self.is_away("there is no listener"), // it was bound before the claim
            },
            Action::Resign => {
                self.role = Role::Nobody;
                self.is_away("etcd does not keep the election alive");
            }
        }
    }

    /// Binds the listener for other nodes before they can learn of it.
    fn listens(&mut self) -> Result<SocketAddr, String> {
        let own = match self.written.address() {
            Some(address) => address,
            None => SocketAddr::new(self.reached_from().map_err(|e| e.to_string())?, 0),
        };
        let socket = std::net::TcpListener::bind(own).map_err(|e| format!("{own}: {e}"))?;
        socket.set_nonblocking(true).map_err(|e| e.to_string())?;
        let listener = TcpListener::from_std(socket).map_err(|e| e.to_string())?;
        let address = listener.local_addr().map_err(|e| e.to_string())?;
        self.listener = Some(listener);
        Ok(address)
    }

    /// The address from which this machine reaches etcd. Nothing is sent.
    fn reached_from(&self) -> std::io::Result<std::net::IpAddr> {
        let server = self.written.servers.first().ok_or(std::io::ErrorKind::NotFound)?;
        let mut last = std::io::ErrorKind::NotFound.into();
        for to in std::net::ToSocketAddrs::to_socket_addrs(&(server.host(), server.port()))? {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            match UdpSocket::bind(any)
                .and_then(|socket| socket.connect(to).and_then(|()| socket.local_addr()))
            {
                Ok(own) => return Ok(own.ip()),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn is_there(&mut self, node: &str) {
        self.decided = true;
        if !self.state.up.swap(true, Relaxed) || self.away_since.is_some() {
            let seconds = self.away_since.take().map_or(0.0, |since| since.elapsed().as_secs_f32());
            let gateways = self.state.gateways.load(Relaxed);
            let fields: [(&str, &dyn std::fmt::Display); 4] =
                [("store", &self.name), ("gateways", &gateways), ("node", &node), ("away_seconds", &seconds)];
            log::info("store is reachable", &fields);
        }
    }

    fn is_away(&mut self, error: &str) {
        self.decided = true;
        self.state.up.store(false, Relaxed);
        if self.away_since.is_none() {
            self.away_since = Some(Instant::now());
            log::warn("store is unreachable", &[("store", &self.name), ("error", &error)]);
        }
    }

    fn passes(&self, question: Question) {
        match &self.role {
            Role::Follows(link) => link.ask(question),
            Role::Leads(office) => {
                let answer = asked(&question).and_then(|asked| office.answer(&asked));
                (question.answer)(answer.map(Reply::Numbers).ok_or(Away));
            }
            Role::Nobody => (question.answer)(Err(Away)),
        }
    }

    /// Keeps answering for a moment, then lets another node take over.
    async fn leaves(mut self, done: std_mpsc::Sender<()>, questions: &mut mpsc::Receiver<Question>) {
        let until = tokio::time::Instant::now() + LAST_WORDS;
        while let Ok(Some(question)) = tokio::time::timeout_at(until, questions.recv()).await {
            self.passes(question);
        }
        self.state.up.store(false, Relaxed);
        self.ends_term().await;
        drop(done);
    }

    /// Nobody asks any more: another node must take over.
    async fn ends(mut self) {
        self.ends_term().await;
    }

    async fn ends_term(&mut self) {
        let role = std::mem::replace(&mut self.role, Role::Nobody);
        if let Role::Leads(office) = &role {
            office.close();
        }
        if let Some(lease) = self.election.lease() {
            let _ = tokio::time::timeout(LEAVING, self.etcd.revoke(lease)).await; // it expires anyway
        }
        drop(role); // connected nodes look for the next keeper
    }
}

async fn refuse(mut questions: mpsc::Receiver<Question>) {
    while let Some(question) = questions.recv().await {
        (question.answer)(Err(Away));
    }
}

/// The question in the ledger's form: its arguments are those of the script in a Redis.
fn asked(question: &Question) -> Option<Asked> {
    let text = |at: usize| str::from_utf8(question.arguments.get(at)?).ok();
    let limits = (HEAD..question.arguments.len()).step_by(EACH).map(|at| {
        (text(at)? == "time").then_some(())?;
        let (requests, micros, burst) = (text(at + 1)?, text(at + 2)?, text(at + 3)?);
        Some(Limit {
            requests: requests.parse().ok()?,
            micros: micros.parse().ok()?,
            burst: burst.parse().ok()?,
        })
    });
    Some(Asked {
        key: match question.key.as_slice() {
            key if key.len() > KEY_BYTES => Sha256::digest(key).to_vec(), // a client may send a long one
            key => key.to_vec(),
        },
        owed: text(0)?.parse().ok()?,
        want: text(1)?.parse().ok()?,
        cost: text(2)?.parse().ok()?,
        limits: limits.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Script;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const PATIENCE: Duration = Duration::from_secs(5);

    fn question(answer: impl FnOnce(Result<Reply, Away>) + Send + 'static) -> Question {
        let arguments = ["0", "5", "1", "time", "100", "1000000", "100"];
        Question {
            script: Script::new("return 1"),
            key: b"weir:routes.a:1".to_vec(),
            arguments: arguments.iter().map(|text| text.as_bytes().to_vec()).collect(),
            answer: Box::new(answer),
        }
    }

    /// Runs this beside an office whose secret is `right`; passes the address of its listener.
    fn beside_office<F: Future<Output = ()>>(run: impl FnOnce(Office, String) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let state = Arc::new(State::default());
            run(Office::open(listener, "right".to_owned(), state), address).await;
        });
    }

    fn link(address: &str, secret: &str) -> (Link, mpsc::UnboundedReceiver<Message>) {
        let (tell, told) = mpsc::unbounded_channel();
        let (address, secret) = (address.to_owned(), secret.to_owned());
        let holder = Holder { node: "b".to_owned(), address, secret };
        (Link::open(1, &holder, PATIENCE, &tell), told)
    }

    #[test]
    fn a_node_asks_until_the_term_ends() {
        beside_office(|office, address| async move {
            let (link, mut told) = link(&address, "right");
            assert!(matches!(told.recv().await, Some(Message::Met(1, 2))), "it and the one that keeps it");
            for _ in 0..3 {
                let (to, answered) = tokio::sync::oneshot::channel();
                link.ask(question(move |answer| drop(to.send(answer))));
                let Ok(Ok(Reply::Numbers(numbers))) = answered.await else { panic!("it is answered") };
                assert_eq!(numbers.len(), 6, "{numbers:?}");
            }
            drop(office);
            while let Some(message) = told.recv().await {
                if let Message::Lost(1, why) = message {
                    assert!(why.contains(&address), "{why}");
                    return;
                }
            }
            panic!("it hears of the end");
        });
    }

    #[test]
    fn who_does_not_know_the_secret_is_hung_up_on() {
        beside_office(|office, address| async move {
            let _open = office;
            let (link, mut told) = link(&address, "wrong");
            let (to, answered) = tokio::sync::oneshot::channel();
            link.ask(question(move |answer| drop(to.send(answer))));
            assert!(matches!(told.recv().await, Some(Message::Lost(1, _))));
            assert_eq!(answered.await, Ok(Err(Away)), "no question is left without an answer");
            // So does a peer that says something else.
            for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 1, 4], &[0xff; 64]] {
                let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
                stream.write_all(said).await.unwrap();
                let mut heard = Vec::new();
                let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
                read.expect("it hangs up").ok(); // or resets
                assert!(heard.len() <= 4 + 17, "{heard:?}");
            }
        });
    }

    #[test]
    fn questions_are_those_of_the_script() {
        let question_of = |arguments: &[&str]| Question {
            arguments: arguments.iter().map(|text| text.as_bytes().to_vec()).collect(),
            ..question(|_| {})
        };
        let read = asked(&question_of(&["-4", "5", "1", "time", "100", "1000000", "50"])).unwrap();
        assert_eq!((read.owed, read.want, read.cost), (-4, 5, 1));
        assert_eq!(read.limits[..], [Limit { requests: 100, micros: 1_000_000, burst: 50 }]);
        let long = |last| Question {
            key: [vec![b'k'; KEY_BYTES], vec![last]].concat(),
            ..question_of(&["0", "1", "1"])
        };
        let keys = [b'a', b'b'].map(|last| asked(&long(last)).unwrap().key);
        assert!(keys[0] != keys[1] && keys[0].len() == 32, "long keys differ too");
        for wrong in [
            &["0", "1", "1", "day", "100", "0", "100"][..],
            &["0", "1", "1", "time", "100"],
            &["0", "1", "x"],
            &[],
        ] {
            assert_eq!(asked(&question_of(wrong)), None, "{wrong:?}");
        }
    }
}

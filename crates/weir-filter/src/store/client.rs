//! The thread of a store: one connection for all concurrent questions, a heartbeat, and what happens without a
//! connection.

use super::{Away, Place, Question, Reply, Script, Server, State};
use redis::aio::ConnectionLike;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, RedisError, ServerErrorKind, TlsCertificates, Value,
};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use weir_telemetry::log;

/// Most concurrent questions.
const UNDER_WAY: usize = 1024;

/// How often this gateway reports that it is alive, and after how long a silent one is forgotten.
const HEARTBEAT: Duration = Duration::from_secs(1);
const FORGOTTEN_MS: u64 = 5_000;

/// Pauses between connects: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How long a connection must last to reset the pauses.
const STEADY: Duration = Duration::from_secs(5);

/// Counts this gateway among the store's users, by the store's clock.
const REGISTER: &str = "\
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[2]))
return { redis.call('ZCARD', KEYS[1]) }";

#[derive(Clone)]
enum Connection {
    Cluster(Box<redis::cluster_async::ClusterConnection>),
    One(redis::aio::MultiplexedConnection),
}

/// Starts the thread; it ends when nobody can ask any more.
pub(super) fn start(name: String, place: Place, state: Arc<State>, questions: mpsc::Receiver<Question>) {
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(&name, &place, &state, questions)),
        Err(e) => log::error("no runtime for a store", &[("store", &name), ("error", &e)]),
    };
    if let Err(e) = std::thread::Builder::new().name("weir-store".to_owned()).spawn(run) {
        log::error("no thread for a store", &[("error", &e)]);
    }
}

/// Connects, answers, and connects again, until nobody asks any more.
async fn serve(name: &str, place: &Place, state: &Arc<State>, mut questions: mpsc::Receiver<Question>) {
    let registration = Registration::new(place);
    let mut pause = PAUSES.0;
    let mut away_since: Option<Instant> = None;
    loop {
        let error = match tokio::time::timeout(connect_time(place), connect(place, &registration)).await {
            Ok(Ok((connection, gateways))) => {
                let seconds = away_since.take().map_or(0.0, |since| since.elapsed().as_secs_f32());
                log::info(
                    "store is reachable",
                    &[("store", &name), ("gateways", &gateways), ("away_seconds", &seconds)],
                );
                state.counted_anew(gateways, Instant::now());
                state.up.store(true, Relaxed);
                let since = Instant::now();
                let Some(error) = answer(connection, place, state, &registration, &mut questions).await
                else {
                    return;
                };
                // A store that comes and goes, such as a cluster missing a node, must not be tried ten times a
                // second.
                if since.elapsed() >= STEADY {
                    pause = PAUSES.0;
                }
                error
            }
            Ok(Err(error)) => error_text(&error),
            Err(_) => "it did not answer in time".to_owned(),
        };
        state.up.store(false, Relaxed);
        if away_since.is_none() {
            away_since = Some(Instant::now());
            log::warn("store is unreachable", &[("store", &name), ("error", &error)]);
        }
        if !refuse_for(pause, &mut questions).await {
            return;
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Refuses questions during a pause. False when nobody can ask any more.
async fn refuse_for(pause: Duration, questions: &mut mpsc::Receiver<Question>) -> bool {
    let over = tokio::time::sleep(pause);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return true,
            question = questions.recv() => match question {
                Some(question) => (question.answer)(Err(Away)),
                None => return false,
            },
        }
    }
}

/// Passes questions on until the connection fails. Returns the error, or `None` when nobody can ask any more.
async fn answer(
    connection: Connection,
    place: &Place,
    state: &Arc<State>,
    registration: &Registration,
    questions: &mut mpsc::Receiver<Question>,
) -> Option<String> {
    let (failed, mut failures) = mpsc::channel::<String>(1);
    let under_way = Arc::new(Semaphore::new(UNDER_WAY));
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            error = failures.recv() => return error,
            _ = beat.tick() => {
                let (connection, question) = (connection.clone(), registration.question(Arc::clone(state)));
                tokio::spawn(pass(connection, question, place.timeout, failed.clone()));
            }
            question = questions.recv() => {
                let question = question?;
                // At the maximum, the next questions wait in the channel, and their callers no longer than they want.
                let Ok(permit) = Arc::clone(&under_way).acquire_owned().await else { return None };
                let passed = pass(connection.clone(), question, place.timeout, failed.clone());
                tokio::spawn(async move {
                    passed.await;
                    drop(permit);
                });
            }
        }
    }
}

/// Asks the server and delivers the answer. An error that shows that the connection is useless ends it for all.
async fn pass(
    mut connection: Connection,
    question: Question,
    timeout: Duration,
    failed: mpsc::Sender<String>,
) {
    let asked = run(&mut connection, &question.script, &question.key, &question.arguments);
    let error = match tokio::time::timeout(timeout, asked).await {
        Ok(Ok(reply)) => return (question.answer)(Ok(reply)),
        Ok(Err(error)) => error_text(&error),
        Err(_) => "it did not answer in time".to_owned(),
    };
    (question.answer)(Err(Away));
    let _ = failed.try_send(error); // one is enough
}

async fn run(
    connection: &mut Connection,
    script: &Script,
    key: &[u8],
    arguments: &[Vec<u8>],
) -> Result<Reply, RedisError> {
    let command = |name: &str, script: &str| {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(key);
        for argument in arguments {
            command.arg(argument.as_slice());
        }
        command
    };
    match connection.query(&command("EVALSHA", script.sha1())).await {
        // The server was flushed or restarted. EVAL stores the script for the next time.
        Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            connection.query(&command("EVAL", &script.text)).await
        }
        answered => answered,
    }
}

impl Connection {
    async fn query(&mut self, command: &redis::Cmd) -> Result<Reply, RedisError> {
        let value: Value = match self {
            Self::One(connection) => connection.req_packed_command(command).await?,
            Self::Cluster(connection) => connection.req_packed_command(command).await?,
        };
        Ok(match value.extract_error()? {
            Value::Nil => Reply::Nothing,
            Value::BulkString(bytes) => Reply::Bytes(bytes),
            numbers => Reply::Numbers(redis::from_redis_value(numbers)?),
        })
    }
}

// === Connecting ===

/// Identifies this gateway among the others.
struct Registration {
    script: Arc<Script>,
    key: Vec<u8>,
    arguments: Vec<Vec<u8>>,
}

impl Registration {
    fn new(place: &Place) -> Self {
        let id = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        Self {
            script: Script::new(REGISTER),
            key: format!("{}:gateways", place.prefix).into_bytes(),
            arguments: vec![id.into_bytes(), FORGOTTEN_MS.to_string().into_bytes()],
        }
    }

    fn question(&self, state: Arc<State>) -> Question {
        Question {
            script: Arc::clone(&self.script),
            key: self.key.clone(),
            arguments: self.arguments.clone(),
            answer: Box::new(move |answer| {
                if let Ok(reply) = answer {
                    state.counted(gateways(&reply), Instant::now());
                }
            }),
        }
    }
}

fn gateways(reply: &Reply) -> u32 {
    let Reply::Numbers(numbers) = reply else { return 1 };
    numbers.first().and_then(|n| u32::try_from(*n).ok()).unwrap_or(1).max(1)
}

/// A connection that has answered once, and how many gateways there are.
async fn connect(place: &Place, registration: &Registration) -> Result<(Connection, u32), RedisError> {
    let Server::Redis { urls, cluster, ca } = &place.server else {
        return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no Redis")));
    };
    let infos: Vec<_> = urls.iter().map(|url| info(url)).collect::<Result<_, _>>()?;
    let certificates = ca.clone().map(|ca| TlsCertificates { client_tls: None, root_cert: Some(ca) });
    let mut connection = if *cluster {
        let mut builder = redis::cluster::ClusterClient::builder(infos)
            .connection_timeout(connect_time(place))
            .response_timeout(place.timeout)
            .retries(3);
        if let Some(certificates) = certificates {
            builder = builder.certs(certificates);
        }
        Connection::Cluster(Box::new(builder.build()?.get_async_connection().await?))
    } else {
        let Some(info) = infos.into_iter().next() else {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no URL")));
        };
        let client = match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates)?,
            None => Client::open(info)?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_time(place)))
            .set_response_timeout(Some(place.timeout));
        Connection::One(client.get_multiplexed_async_connection_with_config(&config).await?)
    };
    let reply =
        run(&mut connection, &registration.script, &registration.key, &registration.arguments).await?;
    Ok((connection, gateways(&reply)))
}

fn connect_time(place: &Place) -> Duration {
    place.timeout.max(Duration::from_secs(1))
}

/// RESP3, in which a server announces that it closes; keep-alive, which reveals a server that is gone.
fn info(url: &str) -> Result<ConnectionInfo, RedisError> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings))
}

/// The text of an error, without the address and the password that it may contain.
fn error_text(error: &RedisError) -> String {
    match error.code() {
        Some(code) => format!("{} ({code})", error.category()),
        None if error.is_timeout() => "it did not answer in time".to_owned(),
        None if error.is_connection_refusal() => "connection refused".to_owned(),
        None if error.is_connection_dropped() => "the connection was closed".to_owned(),
        None => error.category().to_owned(),
    }
}

pub(super) fn check(url: &str, ca: Option<&[u8]>) -> Result<(), String> {
    let known = ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme));
    let info = info(url).map_err(|e| match e.category() {
        _ if !known => "it does not begin with redis:// or rediss://".to_owned(),
        "invalid client config" => "its host, port or database is none".to_owned(),
        category => category.to_owned(),
    })?;
    let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    match ca {
        Some(_) if !tls => Err("only rediss:// speaks TLS".to_owned()),
        Some(ca) => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca.to_vec()) };
            Client::build_with_tls(info, certificates).map(drop).map_err(|e| e.category().to_owned())
        }
        None => Ok(()),
    }
}

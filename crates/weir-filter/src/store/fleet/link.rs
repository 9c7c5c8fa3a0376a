//! A node's connection to the node that keeps the store: carries concurrent questions out and answers back.

use super::{Message, asked};
use crate::store::{Away, Question, Reply};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use weir_fleet::limits::election::Holder;
use weir_fleet::limits::wire::{FRAME_BYTES, Frame, proof};

/// Most concurrent questions; as many more may wait.
const UNDER_WAY: usize = 1024;

/// How often the other side is pinged.
const BEAT: Duration = Duration::from_secs(1);

/// How many bytes are read in one go.
const READ_BYTES: usize = 16 << 10;

/// A connection, or the attempt to make one.
pub(super) struct Link {
    pub(super) number: u64,
    /// The node at its other end.
    pub(super) node: String,
    questions: mpsc::Sender<Question>,
}

struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
    limit: Duration,
}

impl Link {
    /// Connects in a separate task, which reports the result. It ends when the link is dropped.
    pub(super) fn open(
        number: u64,
        holder: &Holder,
        limit: Duration,
        tell: &mpsc::UnboundedSender<Message>,
    ) -> Self {
        let (questions, asked) = mpsc::channel(UNDER_WAY);
        let (holder, node, tell) = (holder.clone(), holder.node.clone(), tell.clone());
        drop(spawn_local(async move {
            let met = |gateways| drop(tell.send(Message::Met(number, gateways))); // the receiver may have ended
            let error = follow(&holder, limit, asked, met).await;
            let _ = tell.send(Message::Lost(number, error)); // as above
        }));
        Self { number, node, questions }
    }

    pub(super) fn ask(&self, question: Question) {
        if let Err(refused) = self.questions.try_send(question) {
            (refused.into_inner().answer)(Err(Away));
        }
    }
}

/// Talks to the holder until the connection ends, and returns why it did. Every question is answered, if only with an
/// error.
async fn follow(
    holder: &Holder,
    limit: Duration,
    mut questions: mpsc::Receiver<Question>,
    met: impl Fn(u32),
) -> String {
    let mut under_way = BTreeMap::new();
    let connect = Wire::open(holder, limit);
    let error = match timeout(limit.max(BEAT), connect).await {
        Ok(Ok((mut wire, gateways))) => {
            met(gateways);
            wire.talk(&mut questions, &mut under_way, met).await.unwrap_or_else(|error| error)
        }
        Ok(Err(error)) => error,
        Err(_) => "it did not answer in time".to_owned(),
    };
    under_way.into_values().for_each(|(question, _): (Question, _)| (question.answer)(Err(Away)));
    questions.close();
    while let Some(question) = questions.recv().await {
        (question.answer)(Err(Away));
    }
    format!("{} at {}: {error}", holder.node, holder.address)
}

impl Wire {
    /// Connects and proves knowledge of the secret. Returns how many gateways there are.
    async fn open(holder: &Holder, limit: Duration) -> Result<(Self, u32), String> {
        let address: std::net::SocketAddr =
            holder.address.parse().map_err(|_| "its address cannot be reached".to_owned())?;
        let stream = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut wire = Self { stream, read: Vec::new(), limit };
        let Frame::Hello(nonce) = wire.next().await? else { return Err("it does not say hello".to_owned()) };
        let mut out = Vec::new();
        Frame::Proof(proof(&holder.secret, &nonce)).write(&mut out);
        wire.send(&out).await?;
        match wire.next().await? {
            Frame::Pong(gateways) => Ok((wire, gateways)),
            _ => Err("it does not know this node".to_owned()),
        }
    }

    /// The next frame, without a time limit.
    async fn next(&mut self) -> Result<Frame, String> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            self.more().await?;
        }
    }

    fn take(&mut self) -> Result<Option<Frame>, String> {
        let mut rest = self.read.as_slice();
        let frame = Frame::take(&mut rest).map_err(|_| "it sends invalid frames".to_owned())?;
        let used = self.read.len() - rest.len();
        self.read.drain(..used);
        Ok(frame)
    }

    /// Reads more. Cancel safe: received bytes are in the buffer or still in the socket.
    async fn more(&mut self) -> Result<(), String> {
        if self.read.len() > FRAME_BYTES + READ_BYTES {
            return Err("it sends invalid frames".to_owned()); // complete frames are taken immediately
        }
        self.read.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.read).await {
            Ok(0) => Err("the connection was closed".to_owned()),
            Ok(_) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        match timeout(self.limit.max(BEAT), self.stream.write_all(bytes)).await {
            Ok(sent) => sent.map_err(|e| e.to_string()),
            Err(_) => Err("it does not read".to_owned()),
        }
    }

    /// Asks and takes answers, until nobody asks any more (an empty reason) or the connection is useless.
    async fn talk(
        &mut self,
        questions: &mut mpsc::Receiver<Question>,
        under_way: &mut BTreeMap<u64, (Question, Instant)>,
        met: impl Fn(u32),
    ) -> Result<String, String> {
        let mut beat = tokio::time::interval_at(Instant::now() + BEAT, BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut id, mut pinged): (u64, Option<Instant>) = (0, None);
        loop {
            while let Some(frame) = self.take()? {
                match frame {
                    Frame::Answer(id, numbers) => {
                        if let Some((question, _)) = under_way.remove(&id) {
                            (question.answer)(numbers.map(Reply::Numbers).ok_or(Away));
                        }
                    }
                    Frame::Pong(gateways) => {
                        pinged = None;
                        met(gateways);
                    }
                    _ => return Err("it sends what a node does not hear".to_owned()),
                }
            }
            // A caller waits at most the store's `timeout`. The connection is given up after a second at the
            // earliest.
            let oldest = under_way.values().next().map(|(_, since)| *since);
            let patience = oldest.into_iter().chain(pinged).min().map(|since| since + self.limit.max(BEAT));
            let mut out = Vec::new();
            tokio::select! {
                read = self.more() => read?,
                question = questions.recv(), if under_way.len() < UNDER_WAY => match question {
                    Some(question) => {
                        take_on(question, &mut id, under_way, &mut out);
                        while under_way.len() < UNDER_WAY && let Ok(question) = questions.try_recv() {
                            take_on(question, &mut id, under_way, &mut out);
                        }
                    }
                    None => return Ok(String::new()),
                },
                _ = beat.tick(), if pinged.is_none() => {
                    Frame::Ping.write(&mut out);
                    pinged = Some(Instant::now());
                }
                () = tokio::time::sleep_until(patience.unwrap_or_else(Instant::now)), if patience.is_some() => {
                    return Err("it did not answer in time".to_owned());
                }
            }
            if !out.is_empty() {
                self.send(&out).await?;
            }
        }
    }
}

fn take_on(
    question: Question,
    id: &mut u64,
    under_way: &mut BTreeMap<u64, (Question, Instant)>,
    out: &mut Vec<u8>,
) {
    let Some(asked) = asked(&question) else { return (question.answer)(Err(Away)) };
    *id += 1;
    Frame::Ask(*id, asked).write(out);
    under_way.insert(*id, (question, Instant::now()));
}

//! An upstream that speaks HTTP/2 and answers automatically.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::message::Message;
use super::peer::{H2, Options};
use crate::{Conn, ServerTls, Upstream};

/// An upstream with cleartext HTTP/2 or TLS. Each connection has its own thread.
#[derive(Debug)]
pub struct H2Origin {
    upstream: Upstream,
    requests: Arc<AtomicUsize>,
}

/// Answers a request, given the connection, the stream, and the received message.
type Answer = dyn Fn(&mut H2<&mut Conn>, u32, Message) + Send + Sync;

impl H2Origin {
    /// Answers each complete request with the closure.
    pub fn new(
        options: Options,
        answer: impl Fn(&mut H2<&mut Conn>, u32, Message) + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let script = script(options, Box::new(answer), requests.clone());
        Self { upstream: Upstream::script(script), requests }
    }

    /// As [`Self::new`], with TLS.
    pub fn tls(
        tls: &ServerTls,
        options: Options,
        answer: impl Fn(&mut H2<&mut Conn>, u32, Message) + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let script = script(options, Box::new(answer), requests.clone());
        Self { upstream: Upstream::script_tls(tls, script), requests }
    }

    /// Answers every request with `200` and this body.
    pub fn fixed(body: &'static str) -> Self {
        Self::answering(move |_| body.into())
    }

    /// Answers every request with `200` and the body that the closure makes.
    pub fn answering(body: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::new(Options::default(), move |peer, stream, request| {
            peer.answer(stream, &[(":status", "200")], body(&request));
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> std::net::SocketAddr {
        self.upstream.address()
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.upstream.connections()
    }

    /// How many complete requests it has received.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Fails if an answer panicked.
    #[track_caller]
    pub fn verify(&self) {
        self.upstream.verify();
    }
}

fn script(
    options: Options,
    answer: Box<Answer>,
    requests: Arc<AtomicUsize>,
) -> impl Fn(&mut Conn) + Send + Sync + 'static {
    move |conn| {
        let mut peer = H2::server(conn, &options);
        while let Some((stream, message)) = peer.next_whole() {
            requests.fetch_add(1, Ordering::Relaxed);
            answer(&mut peer, stream, message);
        }
    }
}

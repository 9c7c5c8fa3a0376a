//! One QUIC connection as tasks use it: its streams, its end, and what the peer has proved.

use crate::keys::Seen;
use crate::session::Told;
use crate::settings::Mark;
use crate::shared::{Lost, News, Owner, Shared};
use crate::stream::{Reader, Writer};
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{Dir, StreamId};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A connection. Clones share it; when the last one and all its streams are dropped, it closes with code 0.
#[derive(Clone)]
pub struct Connection(Rc<Owner>);

impl Connection {
    pub(crate) fn new(shared: Rc<Shared>) -> Self {
        Self(Rc::new(Owner(shared)))
    }

    fn shared(&self) -> &Rc<Shared> {
        &self.0.0
    }

    /// The mark of the [server](crate::Server::marked) that accepted it, which the endpoint may have replaced since.
    pub fn mark(&self) -> Mark {
        self.shared().mark.get()
    }

    /// Whether the handshake is not done. What a client has sent until then may be the replay of another's early data.
    pub fn is_handshaking(&self) -> bool {
        self.shared().proto.borrow().is_handshaking()
    }

    /// Whether requests may be sent before the handshake is done.
    pub fn may_be_early(&self) -> bool {
        self.shared().proto.borrow().has_0rtt()
    }

    /// Waits until the handshake is done.
    pub fn poll_connected(&self, cx: &Context<'_>) -> Poll<Result<(), Lost>> {
        let shared = self.shared();
        if let Some(lost) = shared.lost() {
            return Poll::Ready(Err(lost));
        }
        if !shared.proto.borrow().is_handshaking() {
            return Poll::Ready(Ok(()));
        }
        shared.wait_to_connect(cx);
        Poll::Pending
    }

    /// From now on, one task drives the connection: [`Connection::poll_news`] tells it what happens to streams, and no
    /// other call wakes a task for them. Streams that have arrived before are no news.
    pub fn drive(&self) {
        self.shared().drive();
    }

    /// Waits for the next thing that happens to a stream.
    ///
    /// # Errors
    /// How the connection ended, after everything that happened before.
    pub fn poll_news(&self, cx: &Context<'_>) -> Poll<Result<News, Lost>> {
        self.shared().poll_news(cx)
    }

    /// Frees what only streams that move need.
    pub fn rest(&self) {
        self.shared().rest();
    }

    /// Sends a packet that the peer must acknowledge. A silent peer is then noticed by the idle timeout, and a living one
    /// keeps the connection.
    pub fn ping(&self) {
        self.shared().proto.borrow_mut().ping();
        self.shared().touch();
    }

    /// Waits for the next bidirectional stream that the peer opens.
    pub fn poll_accept(&self, cx: &Context<'_>) -> Poll<Result<(Writer, Reader), Lost>> {
        self.poll_accept_of(cx, Dir::Bi).map_ok(|id| self.both(id))
    }

    /// Waits for the next unidirectional stream that the peer opens.
    pub fn poll_accept_one_way(&self, cx: &Context<'_>) -> Poll<Result<Reader, Lost>> {
        self.poll_accept_of(cx, Dir::Uni).map_ok(|id| Reader::new(Rc::clone(&self.0), id))
    }

    fn poll_accept_of(&self, cx: &Context<'_>, dir: Dir) -> Poll<Result<StreamId, Lost>> {
        let shared = self.shared();
        // Streams that arrived before the end are still handed out, so that no request of a peer that closes early
        // is lost without an answer to it.
        if let Some(id) = shared.proto.borrow_mut().streams().accept(dir) {
            shared.hands_out(id);
            shared.touch(); // accepting grants the peer further streams
            return Poll::Ready(Ok(id));
        }
        if let Some(lost) = shared.lost() {
            return Poll::Ready(Err(lost));
        }
        shared.wait_to_accept(dir, cx);
        Poll::Pending
    }

    /// Opens a bidirectional stream. Waits while the peer allows no more.
    pub fn poll_open(&self, cx: &Context<'_>) -> Poll<Result<(Writer, Reader), Lost>> {
        self.poll_open_of(cx, Dir::Bi).map_ok(|id| self.both(id))
    }

    /// Opens a unidirectional stream. Waits while the peer allows no more.
    pub fn poll_open_one_way(&self, cx: &Context<'_>) -> Poll<Result<Writer, Lost>> {
        self.poll_open_of(cx, Dir::Uni).map_ok(|id| Writer::new(Rc::clone(&self.0), id))
    }

    fn poll_open_of(&self, cx: &Context<'_>, dir: Dir) -> Poll<Result<StreamId, Lost>> {
        let shared = self.shared();
        if let Some(lost) = shared.lost() {
            return Poll::Ready(Err(lost));
        }
        if let Some(id) = shared.proto.borrow_mut().streams().open(dir) {
            return Poll::Ready(Ok(id));
        }
        shared.wait_to_open(dir, cx);
        Poll::Pending
    }

    fn both(&self, id: StreamId) -> (Writer, Reader) {
        (Writer::new(Rc::clone(&self.0), id), Reader::new(Rc::clone(&self.0), id))
    }

    /// Closes the connection: everything under way ends now. The peer gets the application's error code.
    pub fn close(&self, code: u64) {
        self.shared().close(code);
    }

    /// Waits for the end of the connection.
    pub fn poll_lost(&self, cx: &Context<'_>) -> Poll<Lost> {
        let shared = self.shared();
        if let Some(lost) = shared.lost() {
            return Poll::Ready(lost);
        }
        shared.wait_to_end(cx);
        Poll::Pending
    }

    /// The peer's address: the last one that it has proved to receive packets at.
    pub fn peer(&self) -> SocketAddr {
        self.shared().peer()
    }

    /// Our own address that the peer sends to, if the kernel told it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.shared().proto.borrow().local_ip()
    }

    /// The estimated round-trip time.
    pub fn round_trip(&self) -> Duration {
        self.shared().proto.borrow().rtt()
    }

    /// Datagrams that had to be sent again, so far.
    pub fn lost_packets(&self) -> u64 {
        self.shared().lost_packets()
    }

    /// The protocol that the handshake chose (ALPN).
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.handshake()?.protocol
    }

    /// The name that the client asked for (SNI).
    pub fn server_name(&self) -> Option<String> {
        self.handshake()?.server_name
    }

    fn handshake(&self) -> Option<HandshakeData> {
        let proto = self.shared().proto.borrow();
        let data = proto.crypto_session().handshake_data()?;
        match data.downcast::<Told>() {
            Ok(told) => told.data,
            Err(data) => data.downcast::<HandshakeData>().ok().map(|data| *data), // the client's side
        }
    }

    /// The cipher suite of a client's connection, such as `TLS13_AES_256_GCM_SHA384`; empty before the server's first
    /// flight, and on the client's side.
    pub fn cipher(&self) -> &'static str {
        self.shared().seen().map_or("", Seen::suite)
    }

    /// Whether the client had proved its address when it began the handshake, so that the endpoint's
    /// [gate](crate::Endpoint::admit_by) could count it.
    pub fn began_proved(&self) -> bool {
        self.shared().is_proved.get()
    }

    /// The certificates that the peer presented, leaf first.
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let proto = self.shared().proto.borrow();
        proto.crypto_session().peer_identity()?.downcast().ok().map(|chain| *chain)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("handle", &self.shared().handle).finish_non_exhaustive()
    }
}

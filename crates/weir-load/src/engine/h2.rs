//! HTTP/2 and HTTP/3 from the client's side: several clients share a connection, each with its own stream.
//!
//! A client hands its request to the connection and waits. Each connection has one driver task, which writes the
//! requests and reads the responses. After a read it first runs all clients that got their response, so that their
//! next requests leave in one write: a batch of any size costs two system calls.
//!
//! *Layout.* The connection is `transport::wire`. This file holds the state that clients and driver share;
//! `exchange` has the operations on it: sockets, times and counts.

mod exchange;

use crate::transport::failure::Failure;
use crate::transport::h2::counter::Answer;
use crate::transport::h2::request::Rendered;
use crate::transport::wire::Wire;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// A request for a connection.
pub(super) struct Ask<'a> {
    pub(super) target: usize,
    pub(super) intended: u64,
    /// When the client turned to it; 0 if it has waited since.
    pub(super) turned: u64,
    pub(super) head: &'a Rendered,
    /// Its text, if it was rendered for this request.
    pub(super) text: Option<&'a [u8]>,
    /// The buffer with the body, and the body's offset.
    pub(super) body: Option<(&'a Arc<[u8]>, usize)>,
    pub(super) is_head: bool,
}

/// The result of a request that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The target did not process it; it may be sent on another connection.
    Again,
    /// It was not sent: the connection accepts no more.
    Elsewhere,
    /// Its response was complete at this moment.
    Answered(u64),
}

/// A connection.
pub(super) struct Link {
    io: RefCell<Io>,
    exchanges: RefCell<Vec<Exchange>>,
    /// Keys of clients that wait for a free stream, first come, first served.
    queue: RefCell<VecDeque<usize>>,
    /// How many called clients have not begun yet; each has a reserved stream.
    called: Cell<usize>,
    driver: RefCell<Option<Waker>>,
    /// Whether the driver is already scheduled.
    scheduled: Cell<bool>,
    /// Dial times until the first response is counted: blocked, connecting, TLS.
    dialled: Cell<Option<[u64; 3]>>,
    /// The client with key 0.
    first_client: usize,
}

struct Io {
    wire: Wire,
    /// Keys of requests that are not completely written.
    unsent: Vec<usize>,
    answers: Vec<Answer>,
}

#[derive(Clone, Debug, Default)]
struct Exchange {
    target: usize,
    id: u64,
    intended: u64,
    started: u64,
    sent: u64,
    phase: Phase,
}

/// ```text
/// Idle ─► Queued ─► Called ─► Open ─► Done ─► Idle
///   └──────────────────────────►┘
/// ```
#[derive(Clone, Debug, Default)]
enum Phase {
    /// A stream is reserved for it.
    Called,
    Done(Result<Fate, Failure>),
    #[default]
    Idle,
    Open,
    Queued,
}

/// The place of a connection that a set of clients share, open or not, to one origin.
#[derive(Default)]
pub(super) struct Place {
    pub(super) link: RefCell<Option<Rc<Link>>>,
    pub(super) dialling: Cell<bool>,
    /// Failed attempts, and the last failure.
    pub(super) failed: RefCell<(u64, Option<Failure>)>,
    /// Whether the target chose HTTP/1.1: then each client has its own connection.
    pub(super) is_old: Cell<bool>,
}

//! HTTP/2 from the client's side: one connection that several clients share, each with a stream of it.
//!
//! A client hands its request to the connection and waits; one task for each connection, its driver, writes what was handed over and reads
//! what comes. After a read it lets all clients that got their response go first, so that their next requests leave in one write:
//! a batch of any number costs two system calls.
//!
//! *Layout.* The connection as bytes is `transport::h2`. Here is what clients and driver share; `exchange` is what they do with it: sockets, times
//! and counts.

mod exchange;

use crate::transport::failure::Failure;
use crate::transport::h2::connection::Connection;
use crate::transport::h2::counter::Answer;
use crate::transport::h2::request::Rendered;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use weir_wire::Stream;

/// A request for a connection.
pub(super) struct Ask<'a> {
    pub(super) target: usize,
    pub(super) intended: u64,
    /// When the client turned to it; 0 when it has waited since.
    pub(super) turned: u64,
    pub(super) head: &'a Rendered,
    /// Its text, where it was made for the occasion.
    pub(super) text: Option<&'a [u8]>,
    /// What holds the body, and where in it that begins.
    pub(super) body: Option<(&'a Arc<[u8]>, usize)>,
    pub(super) is_head: bool,
}

/// What became of a request that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The target did not look at it: another connection may have it.
    Again,
    /// It was not sent: the connection takes no more.
    Elsewhere,
    /// Its response was complete at this moment.
    Answered(u64),
}

/// A connection.
pub(super) struct Link {
    io: RefCell<Io>,
    exchanges: RefCell<Vec<Exchange>>,
    /// Keys of those that wait for the target to take another stream: first come, first served.
    queue: RefCell<VecDeque<usize>>,
    /// How many were called from there and have not come yet: as many streams are theirs.
    called: Cell<usize>,
    driver: RefCell<Option<Waker>>,
    /// Whether the driver will run anyway.
    scheduled: Cell<bool>,
    /// What dialling took, until the first response on it has been counted: blocked, connecting, TLS.
    dialled: Cell<Option<[u64; 3]>>,
    /// The client with key 0.
    first_client: usize,
}

struct Io {
    stream: Stream,
    connection: Connection,
    /// Keys of requests that are not written as a whole.
    unsent: Vec<usize>,
    answers: Vec<Answer>,
}

#[derive(Clone, Debug, Default)]
struct Exchange {
    target: usize,
    id: u32,
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
    /// A stream is kept for it.
    Called,
    Done(Result<Fate, Failure>),
    #[default]
    Idle,
    Open,
    Queued,
}

/// Where the connection of a set of clients to one origin is, or will be.
#[derive(Default)]
pub(super) struct Place {
    pub(super) link: RefCell<Option<Rc<Link>>>,
    pub(super) dialling: Cell<bool>,
    /// Attempts that failed, and how the last one did.
    pub(super) failed: RefCell<(u64, Option<Failure>)>,
    /// Whether the target chose HTTP/1.1: then each client has a connection of its own.
    pub(super) is_old: Cell<bool>,
}

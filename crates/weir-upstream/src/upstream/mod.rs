//! Upstreams: named groups of endpoints, and how to get a connection to one of them.
//!
//! An [`Upstream`] is a named group as compiled from the config. Discovery publishes its [`Endpoint`]s and may change
//! them at any time. A core notices by a generation number and keeps its pools, keyed by address, across the change
//! and across reloads. A file uses those below it, and nothing here knows a core, a route or an exchange:
//!
//! ```text
//! watch        once a second: what happens without a request
//! probes/      asks endpoints at intervals, on the control thread
//! attempts     of one request: the next endpoint, and whether there is one
//!  bytes       a connection for a client whose bytes are passed on
//!  connect     from the pool, a stream of a shared connection, past the gate, or opened
//!   open       dials, sends the PROXY header, starts TLS and HTTP/2, counts failures
//!    local     the upstream on one core: endpoints, balancer, waiting requests
//!     spec     the upstream as compiled      rotation   endpoints out of rotation, as one core knows them
//!     retry    whether to repeat a failed attempt      budget    how many extra attempts requests pay for
//!     gate     limits that are exact for the process      probe      what probes ask, and when
//!     balance/ chooses an endpoint      discover/  lists the endpoints
//!     slow_start  the share of new endpoints      sticky  the cookie that names an endpoint
//!      cookie  a cookie of a request
//!     resources  what a core lends: pools by key, cells, random numbers
//!      endpoint   an address, shared by all cores; its pool and counts on one core
//!       health    whether it is in rotation, exact for the process
//!        outlier  ejects endpoints that answer badly
//!       latency   how fast it answers, if the balancer asks
//!       pool      idle connections that carry one exchange at a time
//!        owned    those of one client each
//!        shared   connections of HTTP/2
//!         connection

mod attempts;
pub mod balance;
mod budget;
mod bytes;
mod connect;
mod connection;
mod cookie;
pub mod discover;
mod endpoint;
mod excluded;
mod gate;
mod health;
mod latency;
mod local;
mod open;
mod outlier;
mod owned;
mod pool;
mod probe;
mod probes;
mod resources;
mod retry;
mod rotation;
mod shared;
mod slow_start;
mod spec;
mod sticky;
mod watch;

pub use attempts::Attempts;
pub use budget::Budget;
pub use bytes::connect_for_bytes;
pub use connect::{Wanted, connect, pooled};
pub use connection::{Carrier, ConnectError, Connection, Owner};
pub use endpoint::{Active, Endpoint, LocalEndpoint, Place, Published, Standing, complain};
pub use gate::Gate;
pub use health::ByHand;
pub use health::{Healths, Why};
pub use latency::Measurement;
pub use local::LocalUpstream;
pub use outlier::Outlier;
pub use pool::Way;
pub use probe::{Probe, ProbeKind, ProbeTls};
pub use probes::{probe, try_out};
pub use resources::Resources;
pub use retry::{Conditions, Facts, Failed, Hedge, Lost, Race, Retry, kept_body, retry_after};
pub use spec::{ClientGone, HostPolicy, Protocol, Timeouts, Upstream};
pub use sticky::Sticky;
pub use watch::{Watched, watch};

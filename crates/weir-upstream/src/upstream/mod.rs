//! Upstreams: named groups of endpoints, and the way to a connection with one of them.
//!
//! An [`Upstream`] is a named group as compiled from the config. Its [`Endpoint`]s are published by discovery and may
//! change at any time; a core notices by a generation number and keeps its pools, keyed by address, across the change and
//! across reloads. A file uses those below it, and nothing here knows what a core, a route or an exchange is:
//!
//! ```text
//! watch        what happens without a request, once a second
//! probes/      asks endpoints at intervals, on the control thread
//! attempts     of one request: which endpoint is next, and whether there is a next one
//!  connect     from the pool, a stream of a shared connection, past the gate, or opened
//!   open       dials, greets, counts what fails
//!    local     the upstream as one core has it: endpoints, balancer, those who wait
//!     spec     the upstream as compiled      rotation   which endpoints are out, as one core knows it
//!     retry    whether a failed attempt is made again      budget    how many attempts there may be beyond one for each request
//!     gate     limits that are exact for the process      probe      what probes ask, and when
//!     balance/ which endpoint is chosen      discover/  which endpoints there are
//!     slow_start  the share of those that have just come      sticky  the cookie that names an endpoint
//!      cookie  a cookie of a request
//!     resources  what a core lends: pools by key, cells, random numbers
//!      endpoint   an address, shared by all cores; its pool and counts on one core
//!       health    whether it is in rotation, exact for the process
//!        outlier  when an endpoint that answers badly is ejected
//!       latency   how long it takes to answer, where the balancer asks
//!       pool      idle connections that carry one exchange at a time
//!        owned    those of one client each
//!        shared   connections of HTTP/2
//!         connection
//! ```

mod attempts;
pub mod balance;
mod budget;
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

pub use attempts::{Attempts, Race};
pub use budget::Budget;
pub use connect::{Wanted, connect, pooled};
pub use connection::{Carrier, ConnectError, Connection, Owner};
pub use endpoint::{Active, Endpoint, LocalEndpoint, Place, Published, complain};
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
pub use retry::{Conditions, Failed, Hedge, Request, Retry, retry_after};
pub use spec::{ClientGone, HostPolicy, Protocol, Timeouts, Upstream};
pub use sticky::Sticky;
pub use watch::{Watched, watch};

//! The control side of a gateway: start, reload and drain, the running and past configs, and whether a change works
//! well.
//!
//! - [`Builder`] makes a [`Gateway`], [`check()`] finds mistakes in a config, [`mod@explain`] says what it does to a
//!   request.
//! - `reload` swaps snapshots, [`history`] keeps every config that ran, [`fleet`] follows a source of configs.
//!   `trial` decides whether a change made things worse, and `status` reports the gateway's state.
//! - [`shadow`] judges a candidate config on live heads.
//! - [`rehearsal`] turns a runnable config into one that can be measured.
//!
//! Nothing here is on the path of a request.

pub mod explain;
pub mod fleet;
pub mod history;
pub mod rehearsal;

mod crew;
mod gateway;
mod reload;
mod status;
mod trial;

pub use gateway::shadow;
pub use gateway::{Builder, Checked, Gateway, StartError, Touched, check};
pub use reload::change::Change;
pub use reload::rewrite::{ManagedText, Rewrite};
pub use reload::{
    Changed, Consequences, Drained, Edit, Moved, NotChanged, OnlyIf, Owner, Refused, Reloaded, request_file,
};
pub use status::{
    CauseCount, CertificateStatus, ConsumerSourceStatus, DiscoveryStatus, EndpointStatus, InstanceStatus,
    LastError, LeftOutStatus, ListenerStatus, NameStatus, OutOfRotation, ReloadStatus, Status, UnwrittenLog,
    UpstreamStatus,
};
pub use trial::{Terms, TrialStatus};

//! What stands above the cores of a gateway: start, reload and drain, what runs and what ran, and whether a change does well.
//!
//! - [`Builder`] makes a [`Gateway`], [`check()`] tells what is wrong with a config, [`mod@explain`] what it does to a request.
//! - `reload` swaps snapshots; [`history`] keeps every config that ran, [`fleet`] follows a source of configs, `trial` says whether a change made
//!   things worse, and `status` what a gateway says about itself.
//! - [`rehearsal`] makes a config that can be measured of one that can be run.
//!
//! Nothing here is on the path of a request.

pub mod explain;
pub mod fleet;
pub mod history;
pub mod rehearsal;

mod gateway;
mod reload;
mod status;
mod trial;

pub use gateway::{Builder, Checked, Gateway, StartError, Touched, check};
pub use reload::change::Change;
pub use reload::rewrite::{ManagedText, Rewrite};
pub use reload::{
    Changed, Consequences, Drained, Edit, Moved, NotChanged, OnlyIf, Owner, Refused, Reloaded, request_file,
};
pub use status::{
    CauseCount, CertificateStatus, DiscoveryStatus, EndpointStatus, InstanceStatus, LastError, LeftOutStatus,
    ListenerStatus, NameStatus, OutOfRotation, ReloadStatus, Status, UpstreamStatus,
};
pub use trial::{Terms, TrialStatus};

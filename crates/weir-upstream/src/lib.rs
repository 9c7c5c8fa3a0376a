//! Reaching services: upstreams with their endpoints, and a client for services that are not upstreams.
//!
//! - [`upstream`] is a named group of endpoints: it picks the next one and gets a connection to it. It knows no core,
//!   no route and no exchange.
//! - [`discovery`] asks the registries that list endpoints, on the control thread.
//! - [`fetch`] is the control side's HTTP client; [`etcd`] is a client of etcd built on it.
//! - [`talk`] is one request and its answer on an open connection, which all of them share.
//! - [`error`] holds the causes, [`id`] the ids of requests.

pub mod discovery;
pub mod error;
pub mod etcd;
pub mod fetch;
pub mod id;
pub mod talk;
pub mod upstream;

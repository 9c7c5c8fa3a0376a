//! The way to services: upstreams with their endpoints, and the client for those that are no upstream.
//!
//! - [`upstream`] is a named group of endpoints: which one is next, and a connection with it. Knows no core, no route and no exchange.
//! - [`discovery`] asks the registries that list endpoints, on the control thread.
//! - [`fetch`] is the HTTP client of the control side, [`etcd`] a client of etcd made of it.
//! - [`talk`] is one request and its answer over an open connection, which all of them share.
//! - [`error`] holds the causes, [`id`] the ids of requests.

pub mod discovery;
pub mod error;
pub mod etcd;
pub mod fetch;
pub mod id;
pub mod talk;
pub mod upstream;

//! The admin listener: health, metrics, status, reload and drain over HTTP, and the client that `weir status`, `weir reload`
//! and `weir drain` are made of.
//!
//! ```text
//!   weir status ─► client ─► HTTP ─► server ─► guard ─► api ─┬─► Gateway::{status, metrics, reload, drain}
//!                                    (one thread)            ├─► calls ─► config_api, managed_api
//!                                                            └─► console ─► weir-console (for a browser)
//! ```
//!
//! *Layout:* `admin` is the thread and follows the config; `server` one bound address, with its limits; `guard` decides who
//! may ask what, as a pure function; `api` holds what can be asked for; `calls` lists what can be asked about the config, `config_api` does it and
//! `openapi` describes it; `bundle` is the config for other gateways; `audit` says in the log who changed what; `by_hand` reads what is to become of an endpoint, `why` which exchanges are asked about; `answer` makes responses, `console` has the pages for a browser;
//! `managed_api` edits a file as a text; [`client`] is
//! the other side, without a runtime.
//!
//! *Architecture Invariant:* nothing here is on the path of a request through the gateway.

pub mod client;

mod admin;
mod answer;
mod api;
mod audit;
mod bundle;
mod by_hand;
mod calls;
mod config_api;
mod console;
mod guard;
mod maintenance;
mod managed_api;
mod openapi;
mod purge;
mod server;
mod why;

pub use admin::{Admin, Handle, Process, Upgrade};

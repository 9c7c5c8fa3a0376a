//! The admin listener: health, metrics, status, reload and drain over HTTP, and the client behind `weir status`,
//! `weir reload` and `weir drain`.
//!
//! ```text
//!   weir status ─► client ─► HTTP ─► server ─► guard ─► api ─┬─► Gateway::{status, metrics, reload, drain}
//!                                    (one thread)            ├─► calls ─► config_api, managed_api
//!                                                            └─► console ─► weir-console (for a browser)
//! ```
//!
//! *Layout:* `admin` is the thread, and follows the config. `server` is one bound address with its limits. `guard`
//! decides, as a pure function, who may ask what. `api` holds the endpoints. `calls` lists the config calls,
//! `config_api` and `managed_api` (the managed file as text) execute them, `config_request` and `config_answer` are
//! what both share, and `openapi` describes them by the types of `documents` and of the gateway. `bundle` serves the
//! config to other gateways. `audit` logs changes and their authors. `by_hand` parses requests about endpoints, and
//! `why` those about exchanges. `answer` builds responses. `console` has the pages for browsers. [`client`] is the
//! other side, without an async runtime.
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
mod config_answer;
mod config_api;
mod config_request;
mod console;
mod documents;
mod guard;
mod maintenance;
mod managed_api;
mod openapi;
mod purge;
mod server;
mod shadow_api;
mod why;

pub use admin::{Admin, Handle, Process};
pub use api::Upgrade;

//! End-to-end tests: the binary between a scripted client and a scripted upstream.
//!
//! One binary, one module per topic. Every test starts its own gateway on its own ports, so that tests run in
//! parallel. Shared code is below: [`cause`] names the causes in one place, [`support`] has configs for several
//! modules.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

mod cause;
mod support;

mod acme;
mod admin;
mod admin_tls;
mod balance;
mod binary_upgrade;
mod bodies;
mod browsers;
mod buffer;
mod bytes;
mod cache;
mod callers;
mod causes;
mod changes;
mod circuit;
mod cli;
mod compress;
mod concurrency;
mod connect;
mod console;
mod cores;
mod departures;
mod discovery;
mod drain;
mod escapes;
mod examples;
mod expressions;
mod faults;
mod files;
mod filters;
mod fleet;
mod fleet_faults;
mod fleet_limits;
mod fleet_rolling;
mod fleet_rollouts;
mod forwarded;
mod framing;
mod grpc_json;
mod grpc_web;
mod health;
mod http2;
mod jwt;
mod limits;
mod links;
mod load;
mod log_lines;
mod login;
mod maps;
mod mirror;
mod mistakes;
mod mock;
mod names;
mod operators;
mod packages;
mod pages;
mod path_forms;
mod per_client;
mod pool;
mod proxy;
mod real;
mod redirects;
mod reload;
mod replace;
mod retry;
mod sending;
mod service;
mod shared_limits;
mod signature;
mod tell;
mod tightened;
mod timeouts;
mod tls;
mod tracing;
mod upgrade;
mod validate;
mod what_lives;
mod why;
mod workers;

//! Weir from outside: the binary between a scripted client and a scripted upstream.
//!
//! One binary, one room per topic. Every test starts its own gateway on its own ports and stands alone, so that they run
//! side by side. What they share is below: [`cause`] names the causes in one place, [`support`] holds configs that more
//! than one room needs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

mod cause;
mod support;

//X mod admin;
mod balance;
mod bodies;
//X mod causes;
//X mod cli;
//X mod drain;
//X mod filters;
mod forwarded;
mod framing;
mod limits;
mod pool;
mod proxy;
//X mod reload;
//X mod tell;
mod timeouts;
//X mod tls;
mod upgrade;

//! Endpoints that talk to each other over loopback, directly or through a relay that spoils the path.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

mod floods;
mod path;
mod relay;
mod talk;
mod world;

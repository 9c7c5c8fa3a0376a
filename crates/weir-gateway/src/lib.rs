//! The gateway.

pub mod config;
pub mod error;
pub mod filter;
pub mod filters;
pub mod route;

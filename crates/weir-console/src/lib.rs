//! The pages of the web console, as functions from view models to HTML. No gateway, no sockets, no clock.
//!
//! ```text
//!   weir-admin ─► view (what a page shows) ─► overview, routes, upstreams, … ─► frame ─► one String
//! ```
//!
//! # Layout
//!
//! - [`view`] has what pages are made of. Most of it is read from the JSON that the admin API answers with, so the console and the API
//!   cannot disagree.
//! - `html` is the template: literals with `{}`, where every value is escaped by its type. `frame` is what all pages have around them.
//! - A module for each screen: [`overview()`], [`routes()`], [`upstreams()`], one of each ([`route()`], [`upstream()`]), [`failures()`], [`config`], [`history`], [`certificates()`],
//!   [`consumers()`], [`fleet()`], and [`sign_in()`].
//! - `condition` judges an upstream, `chart` draws, `yaml` shows values and differences, `words` says numbers and times.
//! - `assets/` has the style sheet, the mark and the one script, which are compiled in.
//!
//! *Why no template crate:* `html!` is 60 lines, builds in no time, is read as HTML, and does what matters: a value cannot get onto a page
//! unescaped, because only literals and [`Html`] are taken as they are. maud does the same with its own syntax and a procedural macro.
//!
//! *Architecture Invariant:* a page has no inline script, no inline style, and asks nothing of another host. It can be read without the
//! script; what changes something needs it.

#[macro_use]
mod html;

pub mod config;
pub mod history;
pub mod view;

mod certificates;
mod chart;
mod condition;
mod consumers;
mod failures;
mod fleet;
mod frame;
mod overview;
mod routes;
mod sign_in;
mod trend;
mod upstreams;
mod words;
mod yaml;

#[cfg(test)]
mod tests;

pub use certificates::certificates;
pub use consumers::consumers;
pub use failures::{failure, failures};
pub use fleet::fleet;
pub use frame::{Frame, Screen, around, message};
pub use html::{Html, part};
pub use overview::overview;
pub use routes::routes;
pub use sign_in::sign_in;
pub use trend::{route, upstream};
pub use upstreams::upstreams;

/// A file that pages ask for. Its name holds a digest of its content, so that a browser may keep it for good.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its path.
    pub path: &'static str,
    /// Its content type.
    pub media: &'static str,
    /// What stands in it.
    pub content: &'static str,
    /// The digest that pages add to the path, behind `?`.
    pub digest: u64,
}

const fn asset(path: &'static str, media: &'static str, content: &'static str) -> Asset {
    Asset { path, media, content, digest: digest(content.as_bytes()) }
}

pub(crate) const STYLE: Asset =
    asset("/console.css", "text/css; charset=utf-8", include_str!("../assets/console.css"));
pub(crate) const SCRIPT: Asset =
    asset("/console.js", "text/javascript; charset=utf-8", include_str!("../assets/console.js"));
pub(crate) const MARK: Asset = asset("/console.svg", "image/svg+xml", include_str!("../assets/console.svg"));

/// All of them.
pub const ASSETS: &[Asset] = &[STYLE, SCRIPT, MARK];

/// FNV-1a: it tells one version of a file from another, and is no secret.
const fn digest(bytes: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// What every page is sent with: scripts and styles from here alone, no frame, no form to elsewhere, and no text that becomes script.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types weir";

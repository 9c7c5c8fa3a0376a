//! The pages of the web console, as functions from view models to HTML, without gateway, sockets or clock.
//!
//! ```text
//!   weir-admin ─► view (the data of a page) ─► overview, routes, upstreams, … ─► frame ─► one String
//! ```
//!
//! # Layout
//!
//! - [`view`] holds what pages show. Most are the types that the admin API answers with, so the console and the API
//!   cannot disagree.
//! - `html` is the template: literals with `{}`, where the type of each value escapes it. `frame` surrounds every
//!   page.
//! - A module for each screen: [`overview()`], [`routes()`], [`upstreams()`], their detail pages ([`route()`],
//!   [`upstream()`]), [`failures()`], [`config`], [`history`], [`certificates()`], [`consumers()`], [`fleet()`],
//!   [`shadow()`], and [`sign_in()`].
//! - `condition` judges an upstream, `chart` draws, `yaml` shows values and differences, `display` formats numbers
//!   and times.
//! - `assets/` has the style sheet, the logo and the only script, which are compiled in.
//!
//! *Why no template crate:* `html!` is 60 lines, builds in no time, and reads as HTML. It guarantees what
//! matters: no value reaches a page unescaped, because only literals and [`Html`] are inserted unchanged. maud
//! does the same with its own syntax and a procedural macro.
//!
//! *Architecture Invariant:* a page has no inline script and no inline style, and loads nothing from another
//! host. Pages are readable without the script; changes need it.

#[macro_use]
mod html;

pub mod config;
pub mod history;
pub mod view;

mod certificates;
mod chart;
mod condition;
mod consumers;
mod display;
mod failures;
mod fleet;
mod frame;
mod overview;
mod routes;
mod shadow;
mod sign_in;
mod trend;
mod upstreams;
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
pub use shadow::shadow;
pub use sign_in::sign_in;
pub use trend::{route, upstream};
pub use upstreams::upstreams;

/// A file that pages load. Its URL contains a digest of the content, so browsers may cache it forever.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its path.
    pub path: &'static str,
    /// Its content type.
    pub media: &'static str,
    /// The content.
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

/// All assets.
pub const ASSETS: &[Asset] = &[STYLE, SCRIPT, MARK];

/// FNV-1a, which only has to distinguish versions of a file; it protects nothing.
const fn digest(bytes: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// Content security policy of every page: scripts and styles from this host only, no framing, no forms to
/// elsewhere, and no strings turned into script.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types weir";

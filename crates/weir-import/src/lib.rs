//! Translates the config of another gateway into one of Weir: `weir import`.
//!
//! ```text
//! files ─source─▶ SourceTree ─SYSTEM.import─▶ Config (ours, not yet text) ─output─▶ files that a person would write
//!                                 └─▶ Ledger: every line of the source with its verdict ─report─▶ text, JSON
//! ```
//! The crate opens files only in [`source::Disk`]. Everything else is a function of texts, so a test is a text, the
//! config made from it and its ledger. weirgate passes what comes out through `weir check` and writes it to disk.
//!
//! # The promise
//!
//! Nothing is guessed and nothing is passed over in silence. Each statement of the source is entered in the
//! [`Ledger`] when it is *read*, before anybody knows what it means, and must be given a [`Verdict`]:
//!
//! | verdict | meaning |
//! |---|---|
//! | same | Weir does what the line says |
//! | changed | Weir does it in another way; the reason says what differs |
//! | left out | it has no place in Weir and nobody will miss it; the reason says why |
//! | refused | a person must decide; the reason names the nearest thing that Weir has |
//!
//! A statement that nobody judged is refused as not understood ([`Ledger::close`]). So code that forgets a line
//! makes an import complain; it cannot make it lie. A statement may be judged several times, for instance because it
//! is inherited: the verdict that matters most counts, and all reasons are kept.
//!
//! # To add a system
//!
//! 1. A folder `src/NAME/` whose `mod.rs` has `pub static SYSTEM: System`, and the two lines for it in this file.
//! 2. Its reader turns a [`SourceFile`] into its own model. It calls [`Ledger::enter`] once for each statement (for
//!    YAML: each key with a value), and keeps the [`Piece`] that it gets beside the value.
//! 3. Its translation builds a [`Config`] with the types of [`config`] and the helpers of [`shared`], and gives
//!    verdicts as it goes: `ledger.same(piece)`, `ledger.changed(piece, why)`, `ledger.left_out(piece, why)`,
//!    `ledger.refused(piece, why, nearest)`. Where it makes a choice, it leaves a comment ([`yaml::Map::comment`]).
//! 4. Tests: `tests/NAME/*.conf` (any suffix) with their golden outputs, and a table of the system's traps
//!    (`tests/NAME_traps.rs`): for each a source, and the line of the config or the refusal that it must give.
//!    `WEIR_BLESS=1` writes golden outputs.
//! 5. If its program can be run on this machine: a `stage.rs` with `pub(crate) static PROGRAM`, and its line in
//!    `src/stage.rs` ([`proof::Program`]).
//! 6. A page `docs/guide/from-NAME.md`.
//!
//! [`plan`] translates what load testers and browsers write into plans of `weir load -f`, with the same ledger.
//!
//! What a translation may assume about Weir's router: docs/reference/routing.md. [`shared`] lists the helpers.

mod apisix;
mod caddy;
pub mod config;
mod haproxy;
mod ingress_nginx;
mod kong;
pub mod ledger;
mod nginx;
pub mod output;
pub mod plan;
pub mod proof;
pub mod readable;
pub mod redact;
mod refused;
pub mod report;
pub mod shared;
pub mod source;
mod stage;
pub mod system;
mod traefik;
pub mod yaml;

pub use config::Config;
pub use ingress_nginx::asked as ingress_annotations;
pub use ledger::{Ledger, Piece, Verdict};
pub use output::Written;
pub use source::{Disk, Loader, Memory, Place, Printed, SourceFile, SourceTree, Unreadable};
pub use stage::program;
pub use system::{Import, System, import};

/// Everything that can be imported, sorted by name.
pub static SYSTEMS: &[&System] = &[
    &apisix::SYSTEM,
    &caddy::SYSTEM,
    &haproxy::SYSTEM,
    &ingress_nginx::SYSTEM,
    &kong::SYSTEM,
    &nginx::SYSTEM,
    &traefik::SYSTEM,
];

/// The system with this name on the command line.
#[must_use]
pub fn system(name: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name).copied()
}

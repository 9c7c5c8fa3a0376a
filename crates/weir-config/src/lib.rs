//! The config of Weir's gateway: from files and environment to one checked value.
//!
//! ```text
//! text ─parse─▶ Node tree ─load: include, ${VAR}─▶ Node tree ─de::read─▶ schema::Config ─check─▶ Loaded
//!                                     every mistake on the way ─▶ Diagnostics
//! ```
//! `schema` is what an operator may write; `load` is the entry point. weir-engine builds the data plane's snapshot
//! from it.

mod aliases;
pub mod candidate;
pub mod check;
mod conceal;
pub mod consumers;
pub mod csv;
pub mod de;
pub mod delay;
pub mod deprecated;
pub mod diagnostic;
pub mod digest;
pub mod expression;
pub mod fix;
mod foreign;
mod include;
pub mod load;
pub mod managed;
pub mod mask;
mod mistakes;
pub mod node;
pub mod parse;
pub mod path_scope;
pub mod reference;
mod refused;
mod rename;
pub mod schema;
pub mod secrecy;
mod substitute;
pub mod texts;
pub mod units;
pub mod url;
mod yaml_hint;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use load::{Loaded, Source, load, load_instead, read_document, read_tree, variables_of};
pub use mistakes::Mistakes;
pub use node::{Key, Node, Place, Value};
pub use reference::schema;
pub use schema::{Config, Supplied, Supply};
pub use substitute::value_of;
pub use texts::{Overrides, Text, Texts};
pub use weir_expr::spelling;

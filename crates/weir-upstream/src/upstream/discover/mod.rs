//! Where endpoints come from. Addresses in the config need nothing, names are resolved repeatedly, registries list
//! them.

pub mod dns;
pub mod registry;

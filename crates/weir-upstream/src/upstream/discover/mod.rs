//! Where endpoints come from. Addresses in the config need nothing; names are resolved again and again; a registry tells what it lists.

pub mod dns;
pub mod registry;

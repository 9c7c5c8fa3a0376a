//! Where endpoints come from. Addresses in the config need nothing; names are resolved again and again.

pub(crate) mod dns;

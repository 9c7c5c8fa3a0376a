//! The config: from files and environment to one checked value.

//! The built-in origin.

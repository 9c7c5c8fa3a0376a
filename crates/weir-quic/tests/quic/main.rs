//! Endpoints that talk to each other over loopback, directly or through a relay that spoils the path.

mod path;
mod relay;
mod talk;
mod world;

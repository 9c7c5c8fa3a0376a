//! HTTP over sockets, both roles.

//! Addresses and networks, as lists of clients name them.

use ipnet::IpNet;
use std::net::IpAddr;

/// A network in the form that Weir takes: without bits behind the prefix.
///
/// # Errors
/// What is wrong with it.
pub fn network(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    match text.parse::<IpNet>() {
        Ok(network) => Ok(network.trunc().to_string()),
        Err(_) => Err(format!("`{text}` is no address and no network")),
    }
}

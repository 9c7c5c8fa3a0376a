//! Clients' addresses at the edges of networks.

use std::net::Ipv4Addr;

/// The first and the last address of an IPv4 network, and their neighbors outside, as far as a client can have them.
/// Empty for anything else: the proof asks over IPv4.
#[must_use]
pub(crate) fn edges_of_network(network: &str) -> Vec<String> {
    let (address, length) = network.trim_start_matches('!').split_once('/').unwrap_or((network, "32"));
    let (Ok(address), Ok(length @ 0..=32)) = (address.parse::<Ipv4Addr>(), length.parse::<u32>()) else {
        return Vec::new();
    };
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    let first = u32::from(address) & mask;
    let last = first | !mask;
    let mut all = vec![first, last];
    all.extend([first.checked_sub(1), last.checked_add(1)].into_iter().flatten());
    all.dedup();
    all.into_iter().map(Ipv4Addr::from).filter(is_usable).map(|address| address.to_string()).collect()
}

/// Whether a client can have the address: Linux refuses to send from the others.
fn is_usable(address: &Ipv4Addr) -> bool {
    let first = address.octets()[0];
    // What 127.0.0.0/8 calls its network and its broadcast.
    let is_of_loopback = matches!(address.octets(), [127, 0, 0, 0] | [127, 255, 255, 255]);
    first != 0 && first < 224 && !is_of_loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_networks() {
        let cases: &[(&str, &[&str])] = &[
            ("10.0.0.0/8", &["10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"]),
            ("192.168.1.7", &["192.168.1.7", "192.168.1.6", "192.168.1.8"]),
            ("192.168.1.9/24", &["192.168.1.0", "192.168.1.255", "192.168.0.255", "192.168.2.0"]),
            ("0.0.0.0/0", &[]),
            ("223.0.0.0/8", &["223.0.0.0", "223.255.255.255", "222.255.255.255"]),
            ("2001:db8::/32", &[]),
            ("10.0.0.0/33", &[]),
            ("all", &[]),
            ("unix:", &[]),
        ];
        for (network, expected) in cases {
            assert_eq!(edges_of_network(network), *expected, "{network}");
        }
    }
}

//! Listeners of IPv4 and IPv6 at one port. Weir's `[::]:80` takes clients of both, so `weir check` refuses a listener of
//! IPv4 beside it.

/// The port of `[::]:80`.
pub fn any_ipv6_port(address: &str) -> Option<u16> {
    address.strip_prefix("[::]:")?.parse().ok()
}

/// The note on listeners that take both families. `theirs` says which addresses of the source do, too.
pub fn takes_both(theirs: &str) -> String {
    format!(
        "listeners: `[::]:PORT` takes IPv6 and IPv4, as {theirs}; on a machine without IPv6, write `0.0.0.0:PORT`"
    )
}

/// Why a listener of `[::]` is not written. `other` says who serves IPv4 at the port, `clients` whom that affects.
pub fn left_out(other: &str, address: &str, clients: &str) -> String {
    format!("{other}, but Weir's `{address}` serves both: left out, so {clients} cannot connect")
}

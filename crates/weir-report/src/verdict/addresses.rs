//! Whether the load reached all addresses of the target.

use super::{percent, share};
use crate::Report;
use crate::report::AddressUse;
use crate::units::counted;

/// Share of the connections to an address that may fail. A single SYN that was lost is not a dead address.
const FAILED: f64 = 0.01;

/// An address refuses connections while others accept them, so fewer servers than planned carry the load.
///
/// A name often has addresses of both families while its server listens on one of them. An address is not reported if
/// all of its family fail and none of the other family does.
pub(super) fn dead_address(r: &Report) -> Option<String> {
    let failed = |used: &AddressUse| share(used.failed, used.failed + used.opened) > FAILED;
    let is_v6 = |address: &str| address.starts_with('[');
    let all = &r.ledger.addresses;
    let family = |v6: bool| all.iter().filter(move |(address, _)| is_v6(address) == v6);
    let other_carries_all =
        |v6: bool| family(v6).all(|(_, used)| used.opened == 0) && family(!v6).all(|(_, used)| !failed(used));
    let dead: Vec<String> = all
        .iter()
        .filter(|(address, used)| failed(used) && !other_carries_all(is_v6(address)))
        .map(|(address, used)| match used.opened {
            0 => format!("{address} accepted no connection ({} failed)", used.failed),
            _ => format!(
                "{} of {} to {address} failed",
                percent(share(used.failed, used.failed + used.opened)),
                counted(used.failed + used.opened, "connection")
            ),
        })
        .collect();
    let accepts = all.values().any(|used| used.opened > 0);
    (accepts && !dead.is_empty())
        .then(|| format!("{}: the other addresses took its share of the load", dead.join("; ")))
}

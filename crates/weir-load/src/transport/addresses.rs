//! The addresses of an origin: spreads connections over those that accept, and skips the others.
//!
//! A name often has an IPv4 and an IPv6 address while its server listens on only one of them. Each address is counted
//! for the ledger.

use super::failure::{Failure, Wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_report::report::AddressUse;
use weir_wire::dial::{Dialled, dial};
use weir_wire::listen::Address;

/// All addresses of an origin, shared by the threads of a run.
#[derive(Debug)]
pub(crate) struct Addresses(Vec<One>);

#[derive(Debug)]
struct One {
    address: Address,
    opened: AtomicU64,
    failed: AtomicU64,
    /// Whether it is skipped: the last connection to it failed. It is tried again if all others fail too.
    is_down: AtomicBool,
}

impl Addresses {
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        let one = |address| One {
            address,
            opened: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
        };
        Self(addresses.into_iter().map(one).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Address> {
        self.0.iter().map(|one| &one.address)
    }

    /// The results of connections to each address.
    pub(crate) fn used(&self) -> impl Iterator<Item = (String, AddressUse)> {
        self.0.iter().map(|one| {
            let (opened, failed) = (one.opened.load(Ordering::Relaxed), one.failed.load(Ordering::Relaxed));
            (one.address.to_string(), AddressUse { opened, failed })
        })
    }

    /// Opens connection `number` within `timeout`, without TLS. Fails only if no address accepts it.
    pub(crate) async fn dial(&self, number: usize, timeout: Duration) -> Result<Dialled, Failure> {
        let by_tcp = async |address: &Address, rest| dial(address, None, rest).await.map_err(Failure::from);
        self.dial_by(number, timeout, by_tcp).await
    }

    /// The same, with a way to open a connection to an address within a time.
    pub(crate) async fn dial_by<T>(
        &self,
        number: usize,
        timeout: Duration,
        open: impl AsyncFn(&Address, Duration) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        // The failure to report, and whether it only says that this machine lacks the address's family.
        let mut told: Option<(Failure, bool)> = None;
        let order = self.order(number);
        for (i, one) in order.iter().enumerate() {
            let rest = timeout.saturating_sub(begun.elapsed());
            if rest.is_zero() {
                break;
            }
            // An address that drops packets silently must leave time for the others.
            let left = u32::try_from(order.len() - i).unwrap_or(u32::MAX);
            match open(&one.address, rest / left).await {
                Ok(dialled) => {
                    one.is_down.store(false, Ordering::Relaxed);
                    one.opened.fetch_add(1, Ordering::Relaxed);
                    return Ok(dialled);
                }
                Err(now) => {
                    one.note(&now);
                    if let Failure::Descriptors(_) = now {
                        return Err(now); // the others would need one too
                    }
                    // `No free port` for an address that never worked means that the machine lacks its family.
                    let is_family = matches!(now, Failure::Ports(_)) && !one.has_worked();
                    if told.as_ref().is_none_or(|(_, of_family)| *of_family && !is_family) {
                        told = Some((now, is_family));
                    }
                }
            }
        }
        Err(told.map_or(Failure::Timeout(Wait::Connect), |(failure, _)| failure))
    }

    /// The order in which connection `number` tries them: those that accept, starting from its own; then the skipped
    /// ones.
    fn order(&self, number: usize) -> Vec<&One> {
        let (mut order, down): (Vec<_>, Vec<_>) = self.0.iter().partition(|one| !one.is_down());
        if !order.is_empty() {
            let first = number % order.len();
            order.rotate_left(first);
        }
        order.extend(down);
        order
    }
}

impl One {
    fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    fn has_worked(&self) -> bool {
        self.opened.load(Ordering::Relaxed) > 0
    }

    fn note(&self, failure: &Failure) {
        if !matches!(failure, Failure::Descriptors(_) | Failure::Ports(_)) {
            self.failed.fetch_add(1, Ordering::Relaxed); // the failure is this machine's
        }
        // An address that worked before and is only slow, or out of ports, is not dead. Skipping it would shift its
        // load to the others.
        let is_dead = match failure {
            Failure::Timeout(_) | Failure::Ports(_) => !self.has_worked(),
            Failure::Descriptors(_) => false,
            _ => true,
        };
        self.is_down.fetch_or(is_dead, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Addresses {
        Addresses::new((1..=3).map(|n| Address::Tcp(([127, 0, 0, n], 80).into())).collect())
    }

    fn tried(addresses: &Addresses, number: usize) -> Vec<String> {
        addresses.order(number).iter().map(|one| one.address.to_string()).collect()
    }

    #[test]
    fn connections_go_round_those_that_accept_and_end_with_those_that_do_not() {
        let all = three();
        assert_eq!(tried(&all, 1), ["127.0.0.2:80", "127.0.0.3:80", "127.0.0.1:80"]);
        all.0[1].note(&Failure::Connect("refused".to_owned()));
        assert_eq!(tried(&all, 0), ["127.0.0.1:80", "127.0.0.3:80", "127.0.0.2:80"]);
        assert_eq!(tried(&all, 1), ["127.0.0.3:80", "127.0.0.1:80", "127.0.0.2:80"]);
        assert_eq!(all.used().map(|(_, n)| n.failed).sum::<u64>(), 1);
    }

    #[test]
    fn one_that_worked_is_not_dead_for_being_slow() {
        let all = three();
        all.0[0].opened.store(1, Ordering::Relaxed);
        for one in &all.0 {
            one.note(&Failure::Timeout(Wait::Connect));
        }
        assert_eq!(tried(&all, 0), ["127.0.0.1:80", "127.0.0.2:80", "127.0.0.3:80"]);
        assert_eq!(all.0.iter().map(One::is_down).collect::<Vec<_>>(), [false, true, true]);
    }
}

//! Rate limits for signing in: a few attempts per address, and a bounded number for all addresses together.
//!
//! An attempt over the limit is refused before its token is compared, so further attempts give no further
//! guesses. Nobody can lock others out: each address has its own allowance, and an address that signed in
//! recently does not need the shared one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_wire::client_network;

/// Burst per address, and the time until one attempt is restored.
const OF_ONE: Allowance = Allowance { most: 10, each: Duration::from_secs(2) };

/// The same for all addresses together: 5 guesses per second, however many machines take part.
const OF_ALL: Allowance = Allowance { most: 50, each: Duration::from_millis(200) };

/// Most remembered addresses. A further one replaces an address whose allowance is full again, or else any.
const ADDRESSES: usize = 4096;

/// How long an address counts as known after signing in: as long as a session may last.
const KNOWN: Duration = super::session::AGE;

struct Allowance {
    most: u32,
    each: Duration,
}

/// The state of all addresses.
pub(crate) struct Attempts(Mutex<Kept>);

struct Kept {
    all: Debt,
    of: HashMap<IpAddr, Address>,
}

#[derive(Clone, Copy, Default)]
struct Address {
    debt: Debt,
    signed_in: Option<Instant>,
}

/// When the allowance is full again; `None` if it was never used.
#[derive(Clone, Copy, Default)]
struct Debt(Option<Instant>);

// === impl Attempts ===

impl Default for Attempts {
    fn default() -> Self {
        Self(Mutex::new(Kept { all: Debt::default(), of: HashMap::new() }))
    }
}

impl Attempts {
    /// Uses one attempt.
    ///
    /// # Errors
    /// No attempt is left; contains the time until the next one.
    pub(crate) fn begin(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { all, of } = &mut *kept;
        let from = client_network(from);
        if of.len() >= ADDRESSES && !of.contains_key(&from) {
            of.retain(|_, address| address.is_worth_keeping(now));
            let any = of.keys().next().copied().filter(|_| of.len() >= ADDRESSES);
            any.map(|any| of.remove(&any));
        }
        let address = of.entry(from).or_default();
        address.debt.wait(&OF_ONE, now)?;
        if !address.is_known(now) {
            all.wait(&OF_ALL, now)?;
            all.add(&OF_ALL, now);
        }
        address.debt.add(&OF_ONE, now);
        Ok(())
    }

    /// Restores the full allowance of an address that signed in.
    pub(crate) fn succeeded(&self, from: IpAddr, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.of.insert(client_network(from), Address { debt: Debt::default(), signed_in: Some(now) });
    }
}

impl Address {
    fn is_known(&self, now: Instant) -> bool {
        self.signed_in.is_some_and(|at| now.saturating_duration_since(at) < KNOWN)
    }

    fn is_worth_keeping(&self, now: Instant) -> bool {
        self.is_known(now) || self.debt.0.is_some_and(|whole| whole > now)
    }
}

impl Debt {
    /// Time until the next attempt is available.
    fn wait(self, allowance: &Allowance, now: Instant) -> Result<(), Duration> {
        let left = self.0.map_or(Duration::ZERO, |whole| whole.saturating_duration_since(now));
        match (left + allowance.each).saturating_sub(allowance.each * allowance.most) {
            Duration::ZERO => Ok(()),
            wait => Err(wait),
        }
    }

    fn add(&mut self, allowance: &Allowance, now: Instant) {
        self.0 = Some(self.0.map_or(now, |whole| whole.max(now)) + allowance.each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    /// Number of attempts that are accepted within this time.
    fn looked_at(attempts: &Attempts, from: impl Fn(u32) -> IpAddr, start: Instant, seconds: u32) -> u32 {
        const A_SECOND: u32 = 1000;
        let times = (0..seconds * A_SECOND).map(|n| (n, start + Duration::from_secs(1) * n / A_SECOND));
        times.filter(|(n, now)| attempts.begin(from(*n), *now).is_ok()).count() as u32
    }

    #[test]
    fn guesses_are_few_from_one_address_and_from_many() {
        let start = Instant::now();
        let one = looked_at(&Attempts::default(), |_| address(1), start, 60);
        assert!((39..=41).contains(&one), "{one}");
        let many = looked_at(&Attempts::default(), address, start, 60);
        assert!((345..=351).contains(&many), "{many}");
        let prefix: u128 = 0x2001_0db8 << 96;
        let of_one_network = |n: u32| IpAddr::V6(Ipv6Addr::from_bits(prefix | u128::from(n)));
        let six = looked_at(&Attempts::default(), of_one_network, start, 60);
        assert!((39..=41).contains(&six), "{six}");
    }

    #[test]
    fn nobody_is_locked_out_by_others() {
        let (attempts, start) = (Attempts::default(), Instant::now());
        let (operator, stranger) = (address(7), address(8));
        attempts.begin(operator, start).unwrap();
        attempts.succeeded(operator, start);
        looked_at(&attempts, |n| address(100 + n), start, 10);
        let now = start + Duration::from_millis(9_999);
        assert!(attempts.begin(stranger, now).is_err(), "all attempts are taken");
        for _ in 0..OF_ONE.most {
            assert_eq!(attempts.begin(operator, now), Ok(()));
        }
        assert_eq!(attempts.begin(operator, now), Err(OF_ONE.each));
        assert_eq!(attempts.begin(operator, now + OF_ONE.each), Ok(()));
        assert!(attempts.0.lock().unwrap().of.len() <= ADDRESSES);
    }
}

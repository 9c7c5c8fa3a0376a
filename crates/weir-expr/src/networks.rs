//! A set of IP networks. Found by binary search, so a long list is as quick as a short one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks and single addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// First and last address of each range, sorted and apart.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Networks {
    /// Reads `10.0.0.0/8`, `2001:db8::/32` and single addresses. Bits behind the prefix are ignored.
    ///
    /// # Errors
    /// The position of the first text that is no network.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, usize> {
        let mut networks = Self::default();
        for (at, text) in texts.into_iter().enumerate() {
            networks.add(text).ok_or(at)?;
        }
        merge(&mut networks.v4, |last| last.checked_add(1));
        merge(&mut networks.v6, |last| last.checked_add(1));
        Ok(networks)
    }

    fn add(&mut self, text: &str) -> Option<()> {
        match Self::range(text)? {
            (IpAddr::V4(first), IpAddr::V4(last)) => self.v4.push((first.to_bits(), last.to_bits())),
            (IpAddr::V6(first), IpAddr::V6(last)) => self.v6.push((first.to_bits(), last.to_bits())),
            _ => return None,
        }
        Some(())
    }

    /// First and last address of a network, or of a single address, as [`parse`](Self::parse) reads it. IPv4 inside
    /// IPv6 counts as IPv4.
    pub fn range(text: &str) -> Option<(IpAddr, IpAddr)> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                (address, Some(bits.parse::<u32>().ok()?))
            }
            Some(_) => return None,
            None => (text, None),
        };
        match address.parse().ok()? {
            IpAddr::V4(ip) => {
                let rest = 32_u32.checked_sub(bits.unwrap_or(32))?;
                let mask = if rest == 32 { u32::MAX } else { (1 << rest) - 1 };
                let (first, last) = (ip.to_bits() & !mask, ip.to_bits() | mask);
                Some((Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(last).into()))
            }
            IpAddr::V6(ip) => {
                let rest = 128_u32.checked_sub(bits.unwrap_or(128))?;
                let mask = if rest == 128 { u128::MAX } else { (1 << rest) - 1 };
                let [first, last] = [ip.to_bits() & !mask, ip.to_bits() | mask].map(Ipv6Addr::from_bits);
                Some(match (first.to_ipv4_mapped(), last.to_ipv4_mapped()) {
                    (Some(first), Some(last)) => (first.into(), last.into()),
                    _ => (first.into(), last.into()),
                })
            }
        }
    }

    /// The first address of each range, IPv4 before IPv6.
    pub fn firsts(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.v4.iter().map(|(first, _)| Ipv4Addr::from_bits(*first).into());
        v4.chain(self.v6.iter().map(|(first, _)| Ipv6Addr::from_bits(*first).into()))
    }

    /// Whether every address of these lies in `others`.
    pub fn are_within(&self, others: &Self) -> bool {
        covered(&self.v4, &others.v4) && covered(&self.v6, &others.v6)
    }

    /// Whether no address lies in both.
    pub fn are_apart(&self, others: &Self) -> bool {
        apart(&self.v4, &others.v4) && apart(&self.v6, &others.v6)
    }

    /// Whether the address lies in one of them. IPv4 inside IPv6 counts as IPv4.
    pub fn contain(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(ip) => within(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => within(&self.v6, ip.to_bits()),
        }
    }
}

fn within<N: Ord + Copy>(ranges: &[(N, N)], at: N) -> bool {
    let next = ranges.partition_point(|(first, _)| *first <= at);
    next.checked_sub(1).and_then(|before| ranges.get(before)).is_some_and(|(_, last)| at <= *last)
}

/// Whether each range lies in one of `others`, which are joined where they touch.
fn covered<N: Ord + Copy>(ranges: &[(N, N)], others: &[(N, N)]) -> bool {
    let around = |first: N| others.partition_point(|(other, _)| *other <= first).checked_sub(1);
    ranges
        .iter()
        .all(|(first, last)| around(*first).and_then(|at| others.get(at)).is_some_and(|(_, end)| last <= end))
}

fn apart<N: Ord + Copy>(ranges: &[(N, N)], others: &[(N, N)]) -> bool {
    let meets = |(first, last): &(N, N)| {
        let next = others.partition_point(|(_, end)| end < first);
        others.get(next).is_some_and(|(other, _)| other <= last)
    };
    !ranges.iter().any(meets)
}

/// Sorts ranges and joins those that overlap or touch.
fn merge<N: Ord + Copy>(ranges: &mut Vec<(N, N)>, next: impl Fn(N) -> Option<N>) {
    ranges.sort_unstable();
    ranges.dedup_by(|later, earlier| {
        let touches = next(earlier.1).is_none_or(|next| later.0 <= next);
        if touches {
            earlier.1 = earlier.1.max(later.1);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_within_others_or_apart() {
        for (a, b, within, apart) in [
            ("10.1.0.0/16", "10.0.0.0/8", true, false),
            ("10.0.0.0/8", "10.1.0.0/16", false, false),
            ("10.0.0.0/8", "11.0.0.0/8", false, true),
            ("10.0.0.0/7", "10.0.0.0/8 11.0.0.0/8", true, false),
            ("10.0.0.1 2001:db8::1", "10.0.0.0/8", false, false),
            ("10.0.0.1", "2001:db8::/32", false, true),
            ("::ffff:10.0.0.1", "10.0.0.0/8", true, false),
            ("9.255.255.255 12.0.0.0", "10.0.0.0/8", false, true),
        ] {
            let [a, b] = [a, b].map(|texts| Networks::parse(texts.split(' ')).unwrap());
            assert_eq!(
                (a.are_within(&b), a.are_apart(&b), b.are_apart(&a)),
                (within, apart, apart),
                "{a:?} {b:?}"
            );
        }
        let firsts: Vec<_> = Networks::parse(["2001:db8::/32", "10.0.0.0/8"]).unwrap().firsts().collect();
        assert_eq!(firsts, ["10.0.0.0".parse::<IpAddr>().unwrap(), "2001:db8::".parse().unwrap()]);
    }

    #[test]
    fn networks_contain_their_addresses() {
        let networks =
            Networks::parse(["10.0.0.0/8", "192.168.1.7", "2001:db8::/32", "10.1.0.0/16", "11.0.0.0/8"])
                .unwrap();
        assert_eq!(networks.v4.len(), 2, "10/8 and 11/8 are one range: {networks:?}");
        for (address, is_inside) in [
            ("10.0.0.0", true),
            ("11.255.255.255", true),
            ("12.0.0.0", false),
            ("9.255.255.255", false),
            ("192.168.1.7", true),
            ("192.168.1.8", false),
            ("::ffff:10.1.1.1", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
        ] {
            assert_eq!(networks.contain(address.parse().unwrap()), is_inside, "{address}");
        }
        assert!(Networks::parse(["0.0.0.0/0"]).unwrap().contain("255.255.255.255".parse().unwrap()));
        assert!(Networks::parse(["::/0"]).unwrap().contain("::1".parse().unwrap()));
        assert!(!Networks::default().contain("10.0.0.1".parse().unwrap()));
        let mapped = Networks::parse(["::ffff:10.0.0.0/104"]).unwrap();
        assert!(mapped.contain("10.9.9.9".parse().unwrap()) && !mapped.contain("11.0.0.0".parse().unwrap()));
        for wrong in ["10.0.0.0/33", "::/129", "10.0.0", "10.0.0.0/", "10.0.0.0/+8", "host", ""] {
            assert_eq!(Networks::parse([wrong]), Err(0), "{wrong}");
        }
    }
}

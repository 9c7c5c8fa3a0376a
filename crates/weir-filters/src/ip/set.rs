//! A set of networks whose lookup time hardly grows with their number.
//!
//! Networks are sorted, and those inside others are left out. The network that holds an address is then the last that
//! begins at or before it. A trie over their first addresses finds it. A node skips the bits that all its networks
//! share, and has about two slots per network. A lookup in a hundred thousand random networks takes two or three
//! steps.

use ipnet::IpNet;
use std::net::IpAddr;

/// Networks of both families. IPv4-mapped IPv6 counts as IPv4.
pub(super) struct IpSet {
    v4: Prefixes,
    v6: Prefixes,
}

/// Networks of one family, with addresses as numbers.
#[derive(Default)]
struct Prefixes {
    /// First address of each, sorted.
    starts: Vec<u128>,
    /// Number of host bits of each.
    open: Vec<u8>,
    nodes: Vec<Node>,
    slots: Vec<Slot>,
}

/// The networks from `first` up to but not including `end`, distinguished by `width` bits from `shift` on.
struct Node {
    lowest: u128,
    highest: u128,
    first: u32,
    end: u32,
    shift: u8,
    width: u8,
    /// Index of its slots: one per value of those bits, and one more that marks the end of the last.
    slots: u32,
}

/// The networks whose bits have one value begin at `first`. If there are many, another node distinguishes them.
#[derive(Clone, Copy, Default)]
struct Slot {
    first: u32,
    /// 0 for none, because the root is no node's child.
    node: u32,
}

/// Up to this many networks are searched one by one.
const FEW: usize = 8;

/// Widest node, in bits.
const WIDEST: u32 = 16;

impl IpSet {
    pub(super) fn new(networks: &[IpNet]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match (network.network(), network.prefix_len()) {
                (IpAddr::V4(ip), length) => v4.push((u128::from(ip.to_bits()), 32 - length)),
                (IpAddr::V6(ip), length) => match ip.to_ipv4_mapped().filter(|_| length >= 96) {
                    Some(ip) => v4.push((u128::from(ip.to_bits()), 128 - length)),
                    None => v6.push((ip.to_bits(), 128 - length)),
                },
            }
        }
        Self { v4: Prefixes::new(v4), v6: Prefixes::new(v6) }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(ip) => self.v4.contains(u128::from(ip.to_bits())),
            IpAddr::V6(ip) => self.v6.contains(ip.to_bits()),
        }
    }
}

impl Prefixes {
    /// `networks`: the first address and the number of host bits of each.
    fn new(mut networks: Vec<(u128, u8)>) -> Self {
        networks.sort_by_key(|&(start, open)| (start, std::cmp::Reverse(open)));
        let mut prefixes = Self::default();
        for (start, open) in networks {
            let last = prefixes.starts.last().zip(prefixes.open.last());
            if last.is_none_or(|(&before, &wide)| !holds(before, wide, start)) {
                prefixes.starts.push(start);
                prefixes.open.push(open);
            }
        }
        if !prefixes.starts.is_empty() {
            prefixes.add_node(0, prefixes.starts.len());
        }
        prefixes
    }

    /// Adds the node for some networks and the nodes below it; returns its index. Each node shares more bits than its
    /// parent, so there are at most 128 levels.
    fn add_node(&mut self, first: usize, end: usize) -> u32 {
        let (lowest, highest) = (self.starts[first], self.starts[end - 1]);
        let shared = (lowest ^ highest).leading_zeros();
        let wanted = usize::BITS - (2 * (end - first)).leading_zeros();
        let width = wanted.min(WIDEST).min(128 - shared);
        let shift = 128 - shared - width;
        let number = self.nodes.len();
        let slots = self.slots.len();
        let places = 1 << width;
        self.slots.resize(slots + places + 1, Slot { first: end as u32, node: 0 });
        self.nodes.push(Node {
            lowest,
            highest,
            first: first as u32,
            end: end as u32,
            shift: shift as u8,
            width: width as u8,
            slots: slots as u32,
        });
        let mut at = first;
        for place in 0..places {
            let begin = at;
            while at < end && place_of(self.starts[at], shift, width) == place {
                at += 1;
            }
            let node = if at - begin > FEW { self.add_node(begin, at) } else { 0 };
            self.slots[slots + place] = Slot { first: begin as u32, node };
        }
        number as u32
    }

    fn contains(&self, address: u128) -> bool {
        let Some(at) = self.last_until(address) else { return false };
        self.starts.get(at).zip(self.open.get(at)).is_some_and(|(&start, &open)| holds(start, open, address))
    }

    /// The last network that begins at or before this address.
    fn last_until(&self, address: u128) -> Option<usize> {
        let mut node = self.nodes.first()?;
        loop {
            if address < node.lowest {
                return (node.first as usize).checked_sub(1);
            }
            if address >= node.highest {
                return (node.end as usize).checked_sub(1);
            }
            let place = node.slots as usize + place_of(address, node.shift.into(), node.width.into());
            let (slot, next) = (self.slots.get(place)?, self.slots.get(place + 1)?);
            if slot.node == 0 {
                let few = self.starts.get(slot.first as usize..next.first as usize)?;
                let upto = few.iter().take_while(|&&start| start <= address).count();
                return (slot.first as usize + upto).checked_sub(1);
            }
            node = self.nodes.get(slot.node as usize)?;
        }
    }
}

/// The bits by which a node distinguishes its networks.
fn place_of(address: u128, shift: u32, width: u32) -> usize {
    address.checked_shr(shift).map_or(0, |bits| bits as usize & ((1 << width) - 1))
}

/// Whether a network with this first address and number of host bits contains an address.
fn holds(start: u128, open: u8, address: u128) -> bool {
    (start ^ address).checked_shr(open.into()).unwrap_or_default() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn network(random: &mut fastrand::Rng, near: bool) -> IpNet {
        let n = random.u64(..);
        if n & 1 == 0 {
            let bits =
                if near { 0x0a00_0000 | (random.u64(..) as u32 & 0x3ff) } else { random.u64(..) as u32 };
            IpNet::new(Ipv4Addr::from_bits(bits).into(), (n >> 8) as u8 % 33).unwrap().trunc()
        } else {
            let bits = if near { 0x2001_0db8 << 96 | random.u128(..) & 0x3ff } else { random.u128(..) };
            IpNet::new(Ipv6Addr::from_bits(bits).into(), (n >> 8) as u8 % 129).unwrap().trunc()
        }
    }

    #[test]
    fn agrees_with_a_list() {
        for seed in 0..60 {
            let mut random = fastrand::Rng::with_seed(seed);
            let near = seed % 2 == 0;
            // Only a few short prefixes, otherwise every address is inside.
            let long = |net: &IpNet| net.prefix_len() > if near { 20 } else { 6 };
            let count = [0, 1, 2, 9, 40, 500][seed as usize % 6];
            let networks: Vec<IpNet> = (0..count).map(|_| network(&mut random, near)).filter(long).collect();
            let set = IpSet::new(&networks);
            let mut addresses: Vec<IpAddr> = (0..300).map(|_| network(&mut random, near).addr()).collect();
            for net in &networks {
                addresses.extend([net.network(), net.broadcast()]);
                addresses.extend(next(net.broadcast()));
            }
            for address in addresses {
                let expected = networks.iter().any(|net| net.contains(&address));
                assert_eq!(set.contains(address), expected, "seed {seed}: {address} in {networks:?}");
            }
        }
    }

    fn next(address: IpAddr) -> Option<IpAddr> {
        match address {
            IpAddr::V4(ip) => Some(Ipv4Addr::from_bits(ip.to_bits().checked_add(1)?).into()),
            IpAddr::V6(ip) => Some(Ipv6Addr::from_bits(ip.to_bits().checked_add(1)?).into()),
        }
    }

    #[test]
    fn everything_and_nothing() {
        let all = IpSet::new(&["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()]);
        let none = IpSet::new(&[]);
        for address in ["0.0.0.0", "255.255.255.255", "::", "::1", "ffff::", "::ffff:1.2.3.4"] {
            let address = address.parse().unwrap();
            assert!(all.contains(address) && !none.contains(address), "{address}");
        }
    }

    /// Bounds the time: a hundred thousand networks take few steps, however they are distributed.
    #[test]
    fn many_networks_take_few_steps() {
        for shared in [0, 32, 64] {
            let mut random = fastrand::Rng::with_seed(7);
            let networks = (0..100_000).map(|_| (random.u128(..) >> shared, 16)).collect();
            let prefixes = Prefixes::new(networks);
            assert!(prefixes.nodes.len() < 1_000, "{}", prefixes.nodes.len());
            assert!(prefixes.slots.len() < 400_000, "{}", prefixes.slots.len());
        }
    }

    /// Prints a figure of docs/dev/benchmarks.md, which explains how. Meaningful only in a release build on a quiet
    /// machine.
    #[test]
    fn measured_among_100_000_networks() {
        const LOOK_UPS: u32 = 1_000_000;
        let mut random = fastrand::Rng::with_seed(7);
        let (mut networks, mut asked): (Vec<IpNet>, Vec<IpAddr>) = (Vec::new(), Vec::new());
        for n in 0..100_000u32 {
            let v4 = Ipv4Addr::from_bits(random.u64(..) as u32);
            let v6 = Ipv6Addr::from_bits(0x2000 << 112 | random.u128(..) >> 4);
            let network = if n % 2 == 0 { IpNet::new(v4.into(), 24) } else { IpNet::new(v6.into(), 48) };
            networks.push(network.unwrap().trunc());
        }
        for n in 0..4096usize {
            // Half of the addresses are in a network, and both families alternate.
            let near = networks[(random.u64(..) as usize % networks.len()) & !1 | n & 1].network();
            let far = if n & 1 == 0 { IpAddr::V4(Ipv4Addr::from_bits(random.u64(..) as u32)) } else { near };
            asked.push(if n & 2 == 0 { near } else { far });
        }
        let set = IpSet::new(&networks);
        let began = std::time::Instant::now();
        let mut found = 0u32;
        for n in 0..LOOK_UPS {
            found += u32::from(set.contains(std::hint::black_box(asked[n as usize % asked.len()])));
        }
        let each = began.elapsed() / LOOK_UPS;
        println!("ip: {each:?} to look up an address among {} networks ({found} found)", networks.len());
        assert!(found > 0);
    }
}

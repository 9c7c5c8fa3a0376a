//! The share of each namespace in a config that is too long for all of them.
//!
//! A config has at most [`LONGEST`] bytes, which many tenants share. If they ask for more, those that ask for least get
//! all of it, and the rest get equal shares, so nobody's routes keep another's from being served. A namespace above its
//! share keeps its oldest objects.
//!
//! What Weir reads beyond that, a MiB, is for what no share counts: the matches of what is left out, which `room.rs`
//! limits to half of it, and some space.

use crate::objects::{Kind, Name};
use std::collections::BTreeMap;

/// Longest config: what Weir reads, without some space for the operator's own sections.
pub(crate) const LONGEST: usize = weir_config::parse::MAX_BYTES - (1 << 20);

/// An object, when it was made, and the bytes of config that it costs.
#[derive(Clone, Debug)]
pub(crate) struct Cost<'a> {
    pub(crate) owner: &'a (Kind, Name),
    pub(crate) created: &'a str,
    pub(crate) bytes: usize,
}

/// The objects that have to be left out, so that the others fit into so many bytes.
pub(crate) fn beyond<'a>(mut costs: Vec<Cost<'a>>, most: usize) -> Vec<&'a (Kind, Name)> {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for cost in &costs {
        *wanted.entry(&cost.owner.1.namespace).or_default() += cost.bytes;
    }
    let share = share(wanted.into_values().collect(), most);
    costs.sort_by(|a, b| (a.created, a.owner).cmp(&(b.created, b.owner)));
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out = Vec::new();
    for cost in costs {
        let used = used.entry(&cost.owner.1.namespace).or_default();
        match *used + cost.bytes <= share {
            true => *used += cost.bytes,
            false => out.push(cost.owner),
        }
    }
    out
}

/// The most that each may have, so that all together have at most `most`: who wants less leaves the rest to the others.
fn share(mut wanted: Vec<usize>, most: usize) -> usize {
    wanted.sort_unstable();
    let mut left = most;
    for (at, wants) in wanted.iter().enumerate() {
        let equal = left / (wanted.len() - at);
        if *wants > equal {
            return equal;
        }
        left -= wants;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_little_gets_it() {
        for (wanted, most, expected) in [
            (vec![], 10, 10),
            (vec![5, 5], 10, 10),
            (vec![1, 20], 10, 9),
            (vec![20, 1, 20], 11, 5),
            (vec![20, 20], 0, 0),
        ] {
            assert_eq!(share(wanted.clone(), most), expected, "{wanted:?}");
        }
    }

    #[test]
    fn the_oldest_of_the_greatest_namespace_stay() {
        let names: Vec<(Kind, Name)> = ["a", "a", "a", "b"]
            .iter()
            .zip(["1", "2", "3", "1"])
            .map(|(namespace, name)| (Kind::HttpRoute, Name::new(namespace, name)))
            .collect();
        let costs = |bytes: [usize; 4]| {
            let created = ["2026-01-03", "2026-01-01", "2026-01-02", "2026-01-09"];
            let all = names.iter().zip(created).zip(bytes);
            all.map(|((owner, created), bytes)| Cost { owner, created, bytes }).collect::<Vec<_>>()
        };
        assert_eq!(beyond(costs([10, 10, 10, 10]), 40), Vec::<&(Kind, Name)>::new());
        assert_eq!(beyond(costs([10, 10, 10, 10]), 30), [&names[0]]);
        // One that is too long for the share does not cost the shorter ones theirs.
        assert_eq!(beyond(costs([10, 50, 10, 10]), 40), [&names[1]]);
    }
}

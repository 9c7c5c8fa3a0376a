//! SRV records (RFC 2782): targets with ports, priorities and weights.

use crate::{Found, Instance, Listing, host_of, short};

/// One DNS record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Lower priorities are used first.
    pub priority: u16,
    /// Its share among the records of its priority; 0 is the smallest.
    pub weight: u16,
    /// The port.
    pub port: u16,
    /// The name of the host.
    pub target: String,
}

/// The instances of a set of records. Renumbers priorities, because a config allows only 0 to 255.
pub fn listing(records: &[Record]) -> Listing {
    let mut priorities: Vec<u16> = records.iter().map(|record| record.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let rank = |priority: u16| {
        let at = priorities.binary_search(&priority).unwrap_or(0);
        u8::try_from(at).unwrap_or(u8::MAX)
    };
    // "." means that the service is not available. Source: RFC 2782, Target.
    let records = records.iter().filter(|record| record.target != ".");
    let all: Vec<(String, Result<Found, String>)> = records
        .map(|record| {
            let found = host_of(&record.target).map_err(|what| format!("`{}` {what}", short(&record.target)));
            let found = found.and_then(|host| match record.port {
                0 => Err("it has no port".to_owned()),
                port => Ok(Found {
                    instance: Instance {
                        id: String::new(),
                        version: String::new(),
                        host,
                        port,
                        weight: 1,
                        zone: None,
                        priority: rank(record.priority),
                    },
                    weight: Some(u32::from(record.weight.max(1))),
                    since: 0,
                }),
            });
            (format!("{}:{}", short(&record.target), record.port), found)
        })
        .collect();
    Listing::of(all.iter().map(|(id, found)| (id.as_str(), found)), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::seen;

    fn record(priority: u16, weight: u16, port: u16, target: &str) -> Record {
        Record { priority, weight, port, target: target.to_owned() }
    }

    #[test]
    fn records_are_instances() {
        let listing = listing(&[
            record(1000, 0, 9000, "B.test."),
            record(10, 60, 9000, "a.test."),
            record(10, 0, 9001, "a.test."),
            record(10, 1, 0, "c.test."),
            record(10, 1, 1, "*"),
        ]);
        let expected = [("a.test:9000", 60), ("a.test:9001", 1), ("b.test:9000", 1)];
        assert_eq!(seen(&listing), expected.map(|(at, weight)| (at.to_owned(), weight)));
        assert_eq!(listing.instances.iter().map(|i| i.priority).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(listing.unusable, 2);
    }

    #[test]
    fn a_service_that_is_not_there() {
        assert_eq!(listing(&[record(0, 0, 0, ".")]), Listing::default());
    }
}

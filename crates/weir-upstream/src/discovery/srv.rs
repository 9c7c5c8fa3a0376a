//! Asks for SRV records, and again when their time to live is over.

use super::AskContext;
use super::desk::Desk;
use crate::upstream::discover::dns;
use hickory_resolver::proto::rr::RData;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use weir_discover::srv::{Record, listing};

/// Most records read. Some of the unusable ones are reported.
const RECORDS: usize = 4 * weir_discover::INSTANCES;

/// The longest pause after a failed lookup.
const RETRY: Duration = Duration::from_secs(2);

/// Returns only if asking is impossible.
pub(super) async fn follow(name: &str, around: &AskContext, desk: &Desk) -> Result<Infallible, String> {
    let resolver = around.resolver.as_ref().map_err(Clone::clone)?;
    // The name as written, not one in the machine's search domains.
    let name = format!("{}.", name.trim_end_matches('.'));
    loop {
        let wait = match resolver.srv_lookup(name.as_str()).await {
            Ok(found) => {
                let records: Vec<Record> =
                    found.answers().iter().filter_map(|answer| record(&answer.data)).take(RECORDS).collect();
                let ttl = found.valid_until().saturating_duration_since(Instant::now());
                if records.is_empty() {
                    desk.failed("the answer has no SRV record".to_owned()).min(RETRY)
                } else {
                    desk.answered(listing(&records), false);
                    ttl.clamp(around.settings.min_ttl, around.settings.max_ttl)
                }
            }
            Err(e) => desk.failed(dns::words(&e)).min(RETRY),
        };
        tokio::time::sleep(wait).await;
    }
}

fn record(data: &RData) -> Option<Record> {
    match data {
        RData::SRV(srv) => Some(Record {
            priority: srv.priority,
            weight: srv.weight,
            port: srv.port,
            target: srv.target.to_ascii(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::rr::rdata::{A, SRV};

    #[test]
    fn of_an_answer_the_srv_records_count() {
        let target = "a.test.".parse().unwrap();
        let expected = Record { priority: 1, weight: 2, port: 3, target: "a.test.".to_owned() };
        assert_eq!(record(&RData::SRV(SRV::new(1, 2, 3, target))), Some(expected));
        assert_eq!(record(&RData::A(A::new(127, 0, 0, 1))), None);
    }
}

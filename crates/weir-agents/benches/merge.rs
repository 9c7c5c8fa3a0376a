//! What a second of a run of 50 agents costs the coordinator: reading their messages, checking their digests, adding
//! up. Asserts the bound that a coordinator needs to keep up: `cargo bench -p weir-agents`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its figures")]

use std::time::{Duration, Instant};
use weir_agents::credible;
use weir_agents::sum::{self, Sum, Total};
use weir_agents::{FromAgent, Second, bounds, frame};
use weir_report::report::Tick;

const AGENTS: usize = 50;

/// Seconds of each agent.
const SECONDS: u64 = 10;

/// Responses of an agent in a second, over three decades of times: histograms with thousands of buckets.
const RESPONSES: u64 = 20_000;

/// A tenth of a second, so that nine tenths of a core are left for the rest.
const MOST: Duration = Duration::from_millis(100);

fn main() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut frames: Vec<Vec<Vec<u8>>> = Vec::new();
    for _ in 0..AGENTS {
        let (mut of_agent, mut before) = (Vec::new(), sum::NOTHING.to_owned());
        let mut counts = weir_report::report::Counts::default();
        for number in 0..SECONDS {
            let mut second = Second { number, ..Second::default() };
            for _ in 0..RESPONSES {
                let time = 100_000.0 * 1_000f64.powf(random.f64().powi(3));
                second.service.record(time as u64);
                second.response.record(time as u64 + random.u64(..50_000));
            }
            counts.requests += RESPONSES;
            counts.responses += RESPONSES;
            counts.statuses.insert(200, counts.responses);
            second.counts = counts.clone();
            let end_ns = (number + 1) * 1_000_000_000;
            second.tick = Tick { end_ns, requests: RESPONSES, responses: RESPONSES, ..Tick::default() };
            second.digest = sum::digest(&before, &second);
            before.clone_from(&second.digest);
            let frame = frame::message(&FromAgent::Second(Box::new(second)), frame::FROM_AGENT_MOST).unwrap();
            of_agent.push(frame[frame::HEAD_BYTES..].to_vec());
        }
        frames.push(of_agent);
    }
    let (mut sums, mut total) = (vec![Sum::default(); AGENTS], Total::default());
    let mut took = Vec::new();
    for number in 0..SECONDS {
        let begun = Instant::now();
        for (of_agent, sum) in frames.iter().zip(&mut sums) {
            let bytes = &of_agent[usize::try_from(number).unwrap()];
            let FromAgent::Second(second) = bounds::read(bytes).unwrap() else { unreachable!() };
            credible::in_time(&second, Duration::ZERO, Duration::from_secs(number + 1)).unwrap();
            sum.take(*second).iter().for_each(|second| total.add(second));
        }
        let tick = total.complete(number, sums.iter().map(|sum| sum.counts.clone()));
        assert_eq!(tick.response.max, tick.response.max.max(tick.response.p99));
        took.push(begun.elapsed());
    }
    assert_eq!(total.response.count(), AGENTS as u64 * SECONDS * RESPONSES);
    took.sort_unstable();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    let kib = frames[0][0].len() / 1024;
    println!("{AGENTS} agents, {kib} KiB each a second: median {median:?}, worst {worst:?} of {MOST:?}");
    assert!(median < MOST, "the coordinator cannot keep up");
}

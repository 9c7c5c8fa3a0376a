//! `/delay/{ms}`: delays a response by a known distribution, so that measuring tools can be checked against it.
//!
//! Without a seed, the values of a distribution are spread evenly (the additive recurrence of the golden ratio, Weyl
//! 1916). After n requests, each percentile is accurate to about 1/n, where random values would need thousands. A
//! tail is exact: with a share of 1 %, every hundredth request is slow. Each target (path and query) has its own
//! sequence.

use std::io;
use std::time::Duration;

use crate::connection::{Connection, Request};
use crate::fixed::TEXT;
use crate::response::{JSON, misfit, problem, respond};

/// The longest wait, whatever the request says.
const LONGEST_MS: f64 = 60_000.0;

/// The delays of one target.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Delay {
    kind: Kind,
    ms: f64,
    /// The wait of each slow request, and how many of a million are slow.
    tail: Option<(f64, u64)>,
    /// Use random values with this seed instead of evenly spread ones.
    seed: Option<u64>,
}

/// The meaning of `ms` in the distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The mean.
    Exponential,
    /// The whole delay.
    Fixed,
    /// The median; the field is the deviation of the logarithm.
    LogNormal(f64),
    /// The lower bound; the field is the upper one.
    Uniform(f64),
}

/// Waits, then responds.
pub(crate) async fn answer(connection: &mut Connection, request: &Request, ms: &str) -> io::Result<()> {
    let delay = match Delay::parse(ms, |name| request.parameter(name)) {
        Ok(Some(delay)) => delay,
        Ok(None) => {
            misfit(connection, request, &format!("/delay/{ms}: expected milliseconds, such as 250"));
            return Ok(());
        }
        Err(hint) => {
            misfit(connection, request, &hint);
            return Ok(());
        }
    };
    let sequence = if delay.is_fixed() { 0 } else { connection.site().next_of(&request.target) };
    let wait = delay.of(sequence);
    connection.flush().await?;
    if !wait.is_zero() && connection.wait(wait).await.is_err() {
        let text = problem(503, "no descriptor is free for a timer: raise `ulimit -n`");
        respond(connection, request, 503, JSON, &text);
        return Ok(());
    }
    // A fixed length if waits differ: a load tester would report a changing length as an error.
    let text = if delay.is_fixed() { format!("after {} ms\n", delay.ms) } else { "delayed\n".to_owned() };
    respond(connection, request, 200, TEXT, &text);
    Ok(())
}

impl Delay {
    /// Parses the path and the query; `None` if the path has no number; the error names the expected form.
    fn parse<'a>(ms: &str, parameter: impl Fn(&str) -> Option<&'a str>) -> Result<Option<Self>, String> {
        let Some(ms) = number(ms) else { return Ok(None) };
        let read = |name: &str, form: &str| match parameter(name) {
            None => Ok(None),
            Some(text) => number(text).map(Some).ok_or_else(|| format!("{name}={text}: expected {form}")),
        };
        let kind = match parameter("dist") {
            None | Some("fixed") => Kind::Fixed,
            Some("exponential") => Kind::Exponential,
            Some("lognormal") => Kind::LogNormal(
                read("sigma", "the deviation of the logarithm, such as 0.5")?.unwrap_or(0.5).min(5.0),
            ),
            Some("uniform") => {
                let to = read("to", "milliseconds")?.filter(|to| *to >= ms);
                Kind::Uniform(to.ok_or("dist=uniform: expected to=MS, not less than the number in the path")?)
            }
            Some(other) => {
                return Err(format!(
                    "dist={other}: expected fixed, uniform (with to=), exponential (mean) or lognormal (median, with sigma=)"
                ));
            }
        };
        let share = read("share", "a percentage, such as 1 or 0.1")?.unwrap_or(1.0);
        if share > 100.0 {
            return Err(format!("share={share}: expected at most 100 percent"));
        }
        let tail = read("tail", "milliseconds")?.map(|tail| (tail, (share * 10_000.0).round() as u64));
        let seed = match parameter("seed") {
            None => None,
            Some(seed) => Some(seed.parse().map_err(|_| format!("seed={seed}: expected a whole number"))?),
        };
        Ok(Some(Self { kind, ms, tail, seed }))
    }

    /// Whether all responses wait equally long.
    fn is_fixed(&self) -> bool {
        self.kind == Kind::Fixed && self.tail.is_none()
    }

    /// The wait of request number `k` of a target.
    fn of(&self, k: u64) -> Duration {
        let ms = match self.tail {
            Some((tail, share)) if is_slow(k, share) => tail,
            _ => self.quantile(self.place(k)),
        };
        Duration::from_secs_f64(ms.clamp(0.0, LONGEST_MS) / 1e3)
    }

    /// The quantile of a request in the distribution, above 0 and below 1.
    fn place(&self, k: u64) -> f64 {
        let bits = match self.seed {
            None => k.wrapping_add(1).wrapping_mul(GOLDEN),
            Some(seed) => mixed(seed.wrapping_add(k.wrapping_add(1).wrapping_mul(GOLDEN))),
        };
        ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn quantile(&self, place: f64) -> f64 {
        match self.kind {
            Kind::Exponential => -self.ms * (1.0 - place).ln(),
            Kind::Fixed => self.ms,
            Kind::LogNormal(sigma) => self.ms * (sigma * normal_quantile(place)).exp(),
            Kind::Uniform(to) => self.ms + place * (to - self.ms),
        }
    }
}

/// Whether request number `k` is a slow one. `share` in a million are slow, evenly spread.
fn is_slow(k: u64, share: u64) -> bool {
    let so_far = |k: u64| u128::from(k) * u128::from(share) / 1_000_000;
    so_far(k.saturating_add(1)) > so_far(k)
}

/// The golden ratio as a fraction of 2^64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a counter so that it looks random (SplitMix64, Steele, Lea and Flood 2014).
pub(crate) const fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// The quantile of the normal distribution for this probability, found by bisection.
fn normal_quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..48 {
        let middle = (low + high) / 2.0;
        if normal_share(middle) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The probability that a normal variable is below `x` (the series of Marsaglia, "Evaluating the Normal
/// Distribution", 2004).
fn normal_share(x: f64) -> f64 {
    let (mut sum, mut term) = (x, x);
    for n in 1..200 {
        term *= x * x / f64::from(2 * n + 1);
        sum += term;
        if term.abs() <= sum.abs() * 1e-17 {
            break;
        }
    }
    0.5 + sum * (-0.5 * x * x - 0.918_938_533_204_672_8).exp()
}

/// A number that is not negative.
fn number(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(ms: &str, query: &[(&str, &'static str)]) -> Result<Option<Delay>, String> {
        Delay::parse(ms, |name| query.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
    }

    /// The sorted waits of the first `n` requests, in milliseconds.
    fn waits(delay: &Delay, n: u64) -> Vec<f64> {
        let mut all: Vec<f64> = (0..n).map(|k| delay.of(k).as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn a_tail_is_exact() {
        let one = delay("5", &[("tail", "100")]).unwrap().unwrap();
        let slow: Vec<u64> = (0..300).filter(|k| one.of(*k) == Duration::from_millis(100)).collect();
        assert_eq!(slow, [99, 199, 299]);
        let rare = delay("0", &[("tail", "7"), ("share", "0.25")]).unwrap().unwrap();
        assert_eq!(waits(&rare, 4000).iter().filter(|ms| **ms == 7.0).count(), 10);
    }

    #[test]
    fn percentiles_are_those_of_the_distribution() {
        for seed in [None, Some("7")] {
            let with = |dist, name, value| {
                let mut query = vec![("dist", dist), (name, value)];
                query.extend(seed.map(|seed| ("seed", seed)));
                waits(&delay("20", &query).unwrap().unwrap(), 10_000)
            };
            // Even spreading is accurate to some ten-thousandths, random values to some hundredths.
            let within = if seed.is_some() { 0.1 } else { 0.005 };
            let z99 = 2.326_347_87;
            for (name, all, p50, p99) in [
                ("uniform", with("uniform", "to", "40"), 30.0, 39.8),
                ("exponential", with("exponential", "to", "0"), 20.0 * 2_f64.ln(), 20.0 * 100_f64.ln()),
                ("lognormal", with("lognormal", "sigma", "0.5"), 20.0, 20.0 * (0.5_f64 * z99).exp()),
            ] {
                for (at, want) in [(5_000, p50), (9_900, p99)] {
                    let found: f64 = all[at];
                    assert!((found / want - 1.0).abs() < within, "{name} {seed:?}: {found} for {want}");
                }
            }
        }
    }

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        for (x, share) in [(0.0, 0.5), (1.0, 0.841_344_746), (-1.96, 0.024_997_895), (3.0, 0.998_650_102)] {
            assert!((normal_share(x) - share).abs() < 1e-9, "{x}: {}", normal_share(x));
            assert!((normal_quantile(share) - x).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn what_is_no_delay_is_refused() {
        assert_eq!(delay("x", &[]), Ok(None));
        assert_eq!(delay("-1", &[]), Ok(None));
        assert_eq!(delay("1e9", &[]), Ok(None));
        for query in [
            &[("dist", "weibull")][..],
            &[("dist", "uniform")],
            &[("dist", "uniform"), ("to", "1")],
            &[("tail", "x")],
            &[("share", "101")],
            &[("seed", "-")],
        ] {
            assert!(delay("5", query).is_err(), "{query:?}");
        }
        assert_eq!(delay("99999999", &[]).unwrap().unwrap().of(0), Duration::from_secs(60));
    }
}

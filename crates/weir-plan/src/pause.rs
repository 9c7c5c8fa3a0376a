//! How long a user waits between two steps: `2s`, `uniform(1s,3s)`, `exp(2s)`, `normal(2s,500ms)`, `lognormal(2s,0.5)`.

use fastrand::Rng;
use std::f64::consts::TAU;
use std::time::Duration;

/// Longest pause. A distribution's draws beyond it are cut to it.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The time between two steps, or a distribution of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pause {
    /// Exponential with this mean: independent users.
    Exponential(Duration),
    /// Always the same.
    Fixed(Duration),
    /// Log-normal with this median; the second number is the standard deviation of the logarithm.
    LogNormal(Duration, f64),
    /// Normal with this mean and standard deviation; never below zero.
    Normal(Duration, Duration),
    /// Any time between these, equally likely.
    Uniform(Duration, Duration),
}

impl Pause {
    /// Draws a time, from zero to 24 hours.
    pub fn draw(&self, random: &mut Rng) -> Duration {
        let seconds = match *self {
            Self::Fixed(time) => return time,
            Self::Exponential(mean) => -mean.as_secs_f64() * (1.0 - random.f64()).ln(),
            Self::LogNormal(median, sigma) => median.as_secs_f64() * (sigma * normal(random)).exp(),
            Self::Normal(mean, deviation) => mean.as_secs_f64() + deviation.as_secs_f64() * normal(random),
            Self::Uniform(least, most) => {
                least.as_secs_f64() + random.f64() * most.saturating_sub(least).as_secs_f64()
            }
        };
        Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST).min(LONGEST)
    }

    /// Reads a pause as it is written. The error says what was expected.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str =
            "expected a pause: 2s, uniform(1s,3s), exp(2s), normal(2s,500ms) or lognormal(2s,0.5)";
        let text = text.trim();
        let Some((name, rest)) = text.split_once('(') else { return time(text).map(Self::Fixed) };
        let arguments = rest.strip_suffix(')').ok_or(EXPECTED)?;
        let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
        match (name.trim(), &arguments[..]) {
            ("exp", [mean]) => Ok(Self::Exponential(time(mean)?)),
            ("uniform", [least, most]) => {
                let (least, most) = (time(least)?, time(most)?);
                let ordered = least <= most;
                ordered
                    .then_some(Self::Uniform(least, most))
                    .ok_or_else(|| "the shorter time comes first".to_owned())
            }
            ("normal", [mean, deviation]) => Ok(Self::Normal(time(mean)?, time(deviation)?)),
            ("lognormal", [median, sigma]) => {
                let number = sigma.parse::<f64>().ok().filter(|s| (0.0..=5.0).contains(s));
                let sigma = number.ok_or_else(|| format!("`{sigma}` is not a number from 0 to 5"))?;
                Ok(Self::LogNormal(time(median)?, sigma))
            }
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let time: weir_config::units::Duration =
        text.parse().map_err(|wrong: weir_config::units::UnitError| {
            let hint = wrong.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("`{text}` is not {}{hint}", wrong.expected)
        })?;
    if time.0 > LONGEST { Err("a pause is at most 24h".to_owned()) } else { Ok(time.0) }
}

/// A draw of the standard normal distribution (Box and Muller, 1958).
fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (TAU * random.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_read() {
        let s = Duration::from_secs;
        for (text, want) in [
            ("2s", Pause::Fixed(s(2))),
            ("uniform(1s, 3s)", Pause::Uniform(s(1), s(3))),
            ("exp(2s)", Pause::Exponential(s(2))),
            ("normal(2s,500ms)", Pause::Normal(s(2), Duration::from_millis(500))),
            ("lognormal(2s,0.5)", Pause::LogNormal(s(2), 0.5)),
        ] {
            assert_eq!(Pause::parse(text), Ok(want), "{text}");
        }
        for bad in [
            "",
            "2",
            "exp",
            "exp()",
            "exp(2s",
            "uniform(3s,1s)",
            "uniform(1s)",
            "gauss(1s)",
            "25h",
            "lognormal(2s,9)",
        ] {
            assert!(Pause::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn draws_follow_their_distribution() {
        let mut random = Rng::with_seed(7);
        let mut mean_of = |text: &str| {
            let pause = Pause::parse(text).unwrap();
            let draws = 20_000;
            (0..draws).map(|_| pause.draw(&mut random).as_secs_f64()).sum::<f64>() / f64::from(draws)
        };
        for (text, mean) in [
            ("2s", 2.0),
            ("uniform(1s,3s)", 2.0),
            ("exp(2s)", 2.0),
            ("normal(2s,500ms)", 2.0),
            // The mean of a log-normal distribution is median × exp(σ² / 2).
            ("lognormal(2s,0.5)", 2.266),
            ("uniform(0s,0s)", 0.0),
        ] {
            let found = mean_of(text);
            assert!((found - mean).abs() < 0.06, "{text}: {found}");
        }
    }

    #[test]
    fn no_draw_is_negative_or_endless() {
        let mut random = Rng::with_seed(1);
        let (wild, rare) =
            (Pause::parse("normal(1ms,10h)").unwrap(), Pause::parse("lognormal(10h,5)").unwrap());
        for _ in 0..10_000 {
            assert!(wild.draw(&mut random) <= LONGEST && rare.draw(&mut random) <= LONGEST);
        }
    }
}

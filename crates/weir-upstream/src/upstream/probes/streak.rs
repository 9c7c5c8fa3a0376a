//! Decides by probes that fail or pass in a row. Pure.

use crate::upstream::probe::Probe;

/// One endpoint's consecutive probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Streak {
    /// Whether the last probes passed, and how many they were.
    passed: bool,
    length: u32,
}

impl Streak {
    /// Counts a probe. `known` is the previous verdict. Returns the new verdict, if there is one.
    ///
    /// The first probe of an unknown endpoint decides. A gateway that has just started should neither send requests
    /// to a dead endpoint for three intervals nor keep a good one waiting.
    pub(super) fn note(&mut self, passed: bool, known: Option<bool>, probe: &Probe) -> Option<bool> {
        if self.passed != passed {
            *self = Self { passed, length: 0 };
        }
        self.length = self.length.saturating_add(1);
        let needed = match known {
            None => 1,
            Some(_) if passed => probe.healthy,
            Some(_) => probe.unhealthy,
        };
        (self.length >= needed).then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::probe::ProbeKind;
    use std::time::Duration;

    #[test]
    fn thresholds() {
        let (interval, timeout) = (Duration::from_secs(5), Duration::from_secs(1));
        let (host, readyz) = (None, false);
        let probe = Probe {
            kind: ProbeKind::Tcp,
            host,
            tls: None,
            interval,
            timeout,
            healthy: 2,
            unhealthy: 3,
            readyz,
        };
        // Each probe, and the verdict after it: + healthy, - not, the same letter until it changes.
        for (probes, decided) in [
            ("+", "+"),
            ("-", "-"),
            ("+---+", "+++--"),
            ("+--+--", "++++++"),
            ("-+-++", "----+"),
            ("-++", "--+"),
        ] {
            let (mut streak, mut known, mut told) = (Streak::default(), None, String::new());
            for passed in probes.chars().map(|probe| probe == '+') {
                known = streak.note(passed, known, &probe).or(known);
                told.push(known.map_or('?', |known| if known { '+' } else { '-' }));
            }
            assert_eq!(told, decided, "{probes}");
        }
    }
}

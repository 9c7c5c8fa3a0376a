//! Which requests are replayed, and how fast; as the options say.

use super::ReplayOptions;
use super::found::Why;
use crate::Mistake;
use crate::clock::nanos;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use weir_report::units;
use weir_traffic::{Recorded, is_sendable, when};

/// Methods that change nothing (RFC 9110 §9.2.1), without TRACE, which servers refuse.
const SAFE: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Methods whose requests have bodies (RFC 9110 §9.3).
pub(super) const WITH_BODY: [&str; 3] = ["PATCH", "POST", "PUT"];

/// Slowest and fastest replay. Above that, `max` is meant.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

/// Default of `--gap-max`: ten minutes. A recording of a quiet service has longer gaps, and so does one with a wrong
/// time; the report says what was cut.
const GAP_NS: u64 = 600_000_000_000;

/// Default of `--reorder`, and its most: a day.
const REORDER_NS: u64 = 10_000_000_000;
const REORDER_MOST_NS: u64 = 86_400_000_000_000;

/// Most passes through a recording.
const LOOPS_MOST: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Rules {
    /// None for as fast as responses come.
    pub(super) speed: Option<f64>,
    pub(super) gap_most: Option<u64>,
    pub(super) reorder_ns: u64,
    pub(super) loops: u64,
    /// So many of so many.
    pub(super) sample: (u64, u64),
    pub(super) sample_by_client: bool,
    /// None for all.
    methods: Option<Vec<String>>,
    hosts: Vec<String>,
    from: Option<i128>,
    to: Option<i128>,
}

impl Rules {
    pub(super) fn read(o: &ReplayOptions, mistakes: &mut Vec<Mistake>) -> Self {
        let mut wrong = |place: String, hint: &str| mistakes.push(Mistake::new(&place, hint));
        let speed = match o.speed.as_deref() {
            None => Some(1.0),
            Some("max") => None,
            Some(text) => {
                let speed = text.parse().ok().filter(|speed| SPEEDS.contains(speed));
                if speed.is_none() {
                    wrong(format!("--speed {text}"), "expected a factor of 0.001 to 1000000, or max");
                }
                speed.or(Some(1.0))
            }
        };
        let mut duration = |name: &str, text: &Option<String>, hint: &str| {
            let text = text.as_deref()?;
            let ns = units::duration(text).map(nanos);
            if ns.is_none() {
                wrong(format!("{name} {text}"), hint);
            }
            ns
        };
        let is_uncut = o.gap_max.as_deref() == Some("none");
        let gap_max = o.gap_max.clone().filter(|_| !is_uncut);
        let gap_most = duration("--gap-max", &gap_max, "expected a time such as 5s, or none");
        let gap_most = gap_most.or((!is_uncut).then_some(GAP_NS));
        let reorder_ns =
            duration("--reorder", &o.reorder, "expected a time such as 10s").unwrap_or(REORDER_NS);
        if reorder_ns > REORDER_MOST_NS {
            wrong("--reorder".to_owned(), "expected at most 24h");
        }
        if o.gap_max.is_some() && speed.is_none() {
            wrong("--gap-max".to_owned(), "has no effect with --speed max, which has no gaps");
        }
        let mut moment = |name: &str, text: &Option<String>| {
            let text = text.as_deref()?;
            let at = when::rfc3339(text);
            if at.is_none() {
                wrong(format!("{name} {text}"), "expected a time such as 2026-11-24T06:40:00Z");
            }
            at
        };
        let (from, to) = (moment("--from", &o.from), moment("--to", &o.to));
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            wrong("--to".to_owned(), "is not after --from");
        }
        let loops = o.loops.unwrap_or(1);
        if !(1..=LOOPS_MOST).contains(&loops) {
            wrong(format!("--loop {loops}"), "expected 1 to 1000000");
        }
        let sample = o.sample.as_deref().map_or(Some((1, 1)), |text| {
            let (part, of) = text.split_once('/')?;
            let (part, of) = (part.parse().ok()?, of.parse().ok()?);
            (part > 0 && part <= of).then_some((part, of))
        });
        if let (None, Some(text)) = (sample, &o.sample) {
            wrong(format!("--sample {text}"), "expected a part such as 1/10");
        }
        if o.sample_by_client && o.sample.is_none() {
            wrong(
                "--by client".to_owned(),
                "says how a sample is taken: add --sample, such as --sample 1/10",
            );
        }
        let methods = match o.methods.as_deref() {
            None => Some(SAFE.map(str::to_owned).to_vec()),
            Some("all") => None,
            Some(text) => {
                let methods: Vec<String> = text.split(',').map(|m| m.trim().to_owned()).collect();
                for method in methods.iter().filter(|m| !is_method(m) || *m == "CONNECT") {
                    wrong(
                        format!("--methods {method}"),
                        "expected methods in capitals such as GET,POST, without CONNECT; or all",
                    );
                }
                Some(methods)
            }
        };
        let hosts = o.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        let (sample, sample_by_client) = (sample.unwrap_or((1, 1)), o.sample_by_client);
        Self { speed, gap_most, reorder_ns, loops, sample, sample_by_client, methods, hosts, from, to }
    }

    /// The first method that needs bodies, if one is to be replayed.
    pub(super) fn with_body(&self) -> Option<&str> {
        let is_one = |m: &&str| WITH_BODY.contains(m);
        self.methods.as_ref().and_then(|all| all.iter().map(String::as_str).find(is_one))
    }

    /// Whether the request is to be replayed, apart from the sample.
    ///
    /// # Errors
    /// Why it is left out.
    pub(super) fn take(&self, r: &Recorded) -> Result<(), Why> {
        if !is_sendable(r) {
            return Err(Why::NotSendable);
        }
        if self.from.is_some_and(|from| r.at < from) || self.to.is_some_and(|to| r.at >= to) {
            return Err(Why::Time);
        }
        // CONNECT would open a tunnel to wherever the recording says.
        if r.method == "CONNECT" || self.methods.as_ref().is_some_and(|all| !all.contains(&r.method)) {
            return Err(Why::Method(r.method.clone()));
        }
        if !self.hosts.is_empty() {
            let host = r.host.as_deref().unwrap_or_default().to_ascii_lowercase();
            let bare = host.rsplit_once(':').map_or(host.as_str(), |(bare, _)| bare);
            if !self.hosts.iter().any(|known| *known == host || known == bare) {
                return Err(Why::Host);
            }
        }
        Ok(())
    }
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')
}

/// A number for a text that is the same in every run.
pub(super) fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        let (method, target) = ("GET".to_owned(), "/".to_owned());
        Recorded { at: 150, method, target, host: Some("A.example:80".to_owned()), ..Recorded::default() }
    }

    fn rules(change: impl FnOnce(&mut ReplayOptions)) -> Rules {
        let mut options = ReplayOptions::default();
        change(&mut options);
        let mut mistakes = Vec::new();
        let rules = Rules::read(&options, &mut mistakes);
        assert_eq!(mistakes, []);
        rules
    }

    #[test]
    fn what_is_left_out_has_a_reason() {
        let take = |rules: &Rules, change: fn(&mut Recorded)| {
            let mut r = recorded();
            change(&mut r);
            rules.take(&r)
        };
        let all = rules(|_| {});
        assert_eq!(take(&all, |_| {}), Ok(()));
        assert_eq!(take(&all, |r| r.method = "POST".to_owned()), Err(Why::Method("POST".to_owned())));
        assert_eq!(take(&all, |r| r.target = "/a\r\nx: y".to_owned()), Err(Why::NotSendable));
        let any = rules(|o| o.methods = Some("all".to_owned()));
        assert_eq!(take(&any, |r| r.method = "PURGE".to_owned()), Ok(()));
        assert_eq!(take(&any, |r| r.method = "CONNECT".to_owned()), Err(Why::Method("CONNECT".to_owned())));
        let some = rules(|o| {
            o.from = Some("1970-01-01T00:00:00.0000001Z".to_owned());
            o.to = Some("1970-01-01T00:00:00.0000002Z".to_owned());
            o.hosts = vec!["a.EXAMPLE".to_owned()];
        });
        assert_eq!(take(&some, |_| {}), Ok(()));
        assert_eq!(take(&some, |r| r.at = 99), Err(Why::Time));
        assert_eq!(take(&some, |r| r.at = 200), Err(Why::Time));
        assert_eq!(take(&some, |r| r.host = Some("b.example".to_owned())), Err(Why::Host));
        assert_eq!(take(&some, |r| r.host = None), Err(Why::Host));
    }

    #[test]
    fn wrong_options_are_all_told() {
        let text = |t: &str| Some(t.to_owned());
        let options = ReplayOptions {
            speed: text("1e9"),
            methods: text("get,CONNECT"),
            gap_max: text("5"),
            from: text("yesterday"),
            sample: text("2/1"),
            reorder: text("x"),
            loops: Some(0),
            ..ReplayOptions::default()
        };
        let mut mistakes = Vec::new();
        let _ = Rules::read(&options, &mut mistakes);
        let mut told: Vec<&str> = mistakes.iter().map(|m| m.place.as_str()).collect();
        told.sort_unstable();
        let want = [
            "--from yesterday",
            "--gap-max 5",
            "--loop 0",
            "--methods CONNECT",
            "--methods get",
            "--reorder x",
            "--sample 2/1",
            "--speed 1e9",
        ];
        assert_eq!(told, want);
    }
}

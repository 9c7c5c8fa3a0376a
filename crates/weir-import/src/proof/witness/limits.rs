//! Witnesses of limits: bursts that reach them.

use super::super::forms::{host_of, our_samples, path_samples, with};
use super::super::ours::OurRoute;
use super::super::patterns::{Line, Subject};
use super::{Ask, MAX_AT_LIMIT, MAX_AT_LIMITS, Maker, Turn, as_caller};

/// A request at a limit, of a client of its own, so that nobody has used up its share before.
fn at_limit(base: Ask, calls: u32, rate: f64, keys: &[Subject], number: usize) -> Ask {
    let address = |last: usize| format!("127.9.{}.{}", number / 100 % 250 + 1, number % 100 * 2 + last);
    let client = Some(address(1));
    let refill_ms = if rate > 0.0 { (1000.0 / rate).max(1.0) as u64 } else { u64::MAX }; // whole on purpose
    let mut then = Vec::new();
    for key in keys {
        let name = match key {
            Subject::Field(name) => name,
            _ => "cookie",
        };
        let mut fields = base.fields.clone();
        fields.retain(|(known, _)| known != name);
        if let Some(other) = with(&Ask { fields: fields.clone(), ..base.clone() }, key, "weir-other")
            && (other.fields != fields || other.target != base.target)
        {
            let target = (other.target != base.target).then_some(other.target);
            then.push(Turn { client: None, target, fields: other.fields });
        }
    }
    then.push(Turn { client: Some(address(2)), target: None, fields: base.fields.clone() });
    Ask { calls, client, refill_ms, then, ..base }
}

impl Maker<'_> {
    /// Limits: what passes at once, and more; then other callers, who may have limits of their own.
    pub(super) fn bursts(&mut self, ours: &[OurRoute]) {
        let patterns = self.patterns;
        let mut keys: Vec<Subject> = Vec::new();
        for subject in ours.iter().flat_map(|route| &route.limits).flat_map(|limit| &limit.by) {
            if !keys.contains(subject) {
                keys.push(subject.clone());
            }
        }
        keys.truncate(8);
        // Limits are told apart by the number that passes: their rates stand in our config. The lowest counts: where a
        // rate was raised by hand, more pass than that, which is a difference.
        let rate = |passes: u32| {
            let all = ours.iter().flat_map(|route| &route.limits);
            let alike =
                all.clone().filter(|limit| limit.passes.abs_diff(passes) <= 1).map(|limit| limit.rate);
            alike.reduce(f64::min).or_else(|| all.map(|limit| limit.rate).reduce(f64::max)).unwrap_or(0.0)
        };
        let mut total = 0;
        let mut limit = |maker: &mut Self, base: Ask, (passes, rate): (u32, f64), line: &Line, of| {
            let calls = passes.saturating_add(4);
            if calls > MAX_AT_LIMIT || !maker.seen.insert(base.clone()) {
                return;
            }
            // A program may not count a request that lacks what it counts by.
            let bases = keys.iter().filter_map(|key| with(&base, key, "weir-one"));
            for base in std::iter::once(base.clone()).chain(bases.filter(|one| one.client.is_none())) {
                if total + calls > MAX_AT_LIMITS {
                    maker.made.dropped += 1;
                } else {
                    total += calls;
                    let ask = at_limit(base, calls, rate, &keys, maker.made.list.len());
                    maker.add(ask, "requests over the limit", line, of);
                }
            }
        };
        for (at, site) in patterns.sites.iter().enumerate() {
            let (Some(front), host) = (site.fronts.first(), host_of(site)) else { continue };
            for (path_at, path) in site.paths.iter().enumerate() {
                let Some((burst, line)) = &path.burst else { continue };
                let Some(target) = path_samples(path).into_iter().next() else { continue };
                let base = Ask::new(front, host.as_deref(), &target);
                limit(self, base, (*burst, rate(burst + 1)), line, Some((at, path_at)));
            }
        }
        for route in ours {
            let Some(largest) = route.limits.iter().map(|limit| limit.passes).max() else { continue };
            let rate = rate(largest);
            let Some((at, host)) = self.site_of(route) else { continue };
            let Some(front) = self.fronts_of(at, route).into_iter().next() else { continue };
            let path = route.paths.first().map_or("/", String::as_str);
            let Some(target) = our_samples(path).into_iter().next() else { continue };
            let Some((of, line)) = self.pattern_of(at, &target) else { continue };
            let burst = of.and_then(|(site, path)| patterns.sites.get(site)?.paths.get(path)?.burst.as_ref());
            let line = burst.map_or(line, |(_, line)| line.clone());
            let base = Ask::new(&front, host.as_deref(), &target);
            // Behind a guard, only a caller's requests reach the limit.
            if let Some(ask) = route.callers.first().and_then(|(_, caller)| as_caller(&base, caller)) {
                limit(self, ask, (largest, rate), &line, of);
            }
            limit(self, base, (largest, rate), &line, of);
        }
    }
}

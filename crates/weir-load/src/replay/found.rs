//! What reading a recording has found so far.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use weir_report::report::{BROKEN, ReplayStats, UnreadLine};
use weir_report::units::shown;
use weir_traffic::{Recorded, Unread};

/// Most routes that are told apart; all others count as [`OTHER`].
const ROUTES_MOST: usize = 200;

/// Longest name of a route that is shown, in characters.
const NAME_MOST: usize = 200;

/// The name of further routes, whose number is 0.
const OTHER: &str = "(other)";

/// Most methods and other reasons that are told apart: a hostile recording could name any number.
const REASONS_MOST: usize = 50;

/// Unreadable lines that the report names.
const LINES_SHOWN: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) stats: ReplayStats,
    /// Planned requests by the second of the run.
    pub(crate) planned: BTreeMap<u64, u64>,
    routes: HashMap<String, u32>,
    /// Their names by number.
    pub(crate) names: Vec<String>,
}

/// Why a record is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    BodyChanged,
    BodyCut,
    /// The source cannot be read on.
    Broken,
    Host,
    /// The path, or the query as a whole, is `***`.
    Hidden,
    /// The query has these keys as `***`.
    Masked(Vec<String>),
    Method(String),
    NoBody,
    NotSendable,
    Sample,
    Time,
    Unread(Unread),
    /// Its time is far from those of the other records.
    WrongTime,
}

impl From<Unread> for Why {
    fn from(why: Unread) -> Self {
        Self::Unread(why)
    }
}

impl Why {
    /// As [`ReplayStats::left_out`] names it.
    fn name(&self) -> String {
        match self {
            Self::BodyChanged => "body changed by a filter".to_owned(),
            Self::BodyCut => "body cut by the log".to_owned(),
            Self::Broken => BROKEN.to_owned(),
            Self::Host => "host".to_owned(),
            Self::Hidden | Self::Masked(_) => "masked".to_owned(),
            Self::Method(method) => format!("method {method}"),
            Self::NoBody => "no body".to_owned(),
            Self::NotSendable => "not sendable".to_owned(),
            Self::Sample => "sample".to_owned(),
            Self::Time => "time".to_owned(),
            Self::Unread(why) => (*why).to_owned(),
            Self::WrongTime => "wrong time".to_owned(),
        }
    }

    /// Whether the record is defective, and not just unwanted.
    const fn is_defect(&self) -> bool {
        !matches!(self, Self::Host | Self::Method(_) | Self::Sample | Self::Time)
    }
}

impl Found {
    pub(super) fn new(log: &Path, form: &str) -> Self {
        let (log, form) = (log.display().to_string(), form.to_owned());
        let stats = ReplayStats { log, form, ..ReplayStats::default() };
        Self { stats, names: vec![OTHER.to_owned()], ..Self::default() }
    }

    /// Counts a record that is left out.
    pub(super) fn leave(&mut self, why: &Why, line: u64) {
        let (all, mut name) = (&mut self.stats.left_out, why.name());
        if all.len() >= REASONS_MOST && !all.contains_key(&name) {
            "other methods".clone_into(&mut name);
        }
        *all.entry(name.clone()).or_default() += 1;
        if why.is_defect() && self.stats.first_unread.len() < LINES_SHOWN {
            self.stats.first_unread.push(UnreadLine { line, why: name });
        }
    }

    /// Counts a masked field that is left out.
    pub(super) fn mask(&mut self, mut name: String) {
        let all = &mut self.stats.masked_fields;
        if all.len() >= REASONS_MOST && !all.contains_key(&name) {
            OTHER.clone_into(&mut name);
        }
        *all.entry(name).or_default() += 1;
    }

    /// What was left out, as a phrase.
    pub(super) fn told(&self) -> String {
        let all: Vec<String> = self.stats.left_out.iter().map(|(why, n)| format!("{why} {n}")).collect();
        if all.is_empty() { "it is empty".to_owned() } else { format!("left out: {}", all.join(", ")) }
    }

    /// Takes the requests that were planned in the seconds before this moment of the run, or in one of which most is
    /// before it: ticks end a little late.
    pub(crate) fn planned_until(&mut self, end_ns: u64) -> u64 {
        let later = self.planned.split_off(&((end_ns + 500_000_000) / 1_000_000_000));
        std::mem::replace(&mut self.planned, later).values().sum()
    }

    /// The number of the request's route.
    pub(super) fn route(&mut self, request: &Recorded) -> u32 {
        let name = match request.route.is_empty() {
            true => format!("{} {}", request.method, shape(&request.target)),
            false => request.route.clone(),
        };
        // A terminal would obey control characters.
        let name: String = shown(name.as_bytes()).chars().take(NAME_MOST).collect();
        if let Some(number) = self.routes.get(&name) {
            return *number;
        }
        if self.names.len() > ROUTES_MOST {
            return 0;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.routes.insert(name, number);
        number
    }
}

/// Most segments of a path that name a route.
const SEGMENTS: usize = 4;

/// Longest segment that names a route; longer ones are taken for ids.
const SEGMENT_MOST: usize = 24;

/// The path without its query, with numbers and ids as `{}`.
fn shape(target: &str) -> String {
    let path = target.split('?').next().unwrap_or(target);
    let mut out = String::new();
    for (i, segment) in path.split('/').skip(1).enumerate() {
        if i == SEGMENTS {
            out.push_str("/…");
            break;
        }
        let digits = segment.bytes().filter(u8::is_ascii_digit).count();
        let hex = segment.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let is_id = segment.len() > SEGMENT_MOST || (digits > 0 && (hex || digits * 2 > segment.len()));
        out.push('/');
        out.push_str(if is_id { "{}" } else { segment });
    }
    if out.is_empty() { path.to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_grouped_by_their_shape() {
        for (target, want) in [
            ("/", "/"),
            ("/a/b?c=1", "/a/b"),
            ("/orders/17/items", "/orders/{}/items"),
            ("/o/6ba7b810-9dad-11d1-80b4-00c04fd430c8", "/o/{}"),
            ("/v2/a", "/v2/a"),
            ("/a/b/c/d/e/f", "/a/b/c/d/…"),
            ("*", "*"),
        ] {
            assert_eq!(shape(target), want, "{target}");
        }
    }

    #[test]
    fn routes_and_reasons_are_bounded() {
        let mut found = Found::new(Path::new("x"), "weir");
        for i in 0..1000 {
            let name = format!("r{i}x");
            let number = found.route(&Recorded { route: name, ..Recorded::default() });
            assert_eq!(number, if i < ROUTES_MOST as u32 { i + 1 } else { 0 });
            found.leave(&Why::Method(format!("M{i}")), 1);
        }
        assert_eq!(found.stats.left_out.len(), REASONS_MOST + 1);
        assert_eq!(found.stats.left_out.values().sum::<u64>(), 1000);
    }
}

//! The figures that a change on trial is compared with, as a file, because a new process that continues the trial
//! counts from 0.

use super::record::{Figures, Sample};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_telemetry::cell::BUCKETS;

/// The fields are those of [`super::Trial`].
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    pub(crate) number: u64,
    pub(crate) interval: Duration,
    pub(crate) routes: Vec<Arc<str>>,
    pub(crate) before: Vec<Arc<Sample>>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    number: u64,
    interval_ms: u64,
    routes: Vec<String>,
    /// Oldest first.
    before: Vec<BTreeMap<String, WrittenFigures>>,
}

#[derive(Serialize, Deserialize)]
struct WrittenFigures {
    requests: u64,
    failed: u64,
    causes: Vec<(String, u64)>,
    #[serde(default)]
    refused: Vec<(String, u64)>,
    buckets: Vec<u64>,
}

impl Baseline {
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let named =
            |counted: &[(&str, u64)]| counted.iter().map(|(cause, n)| ((*cause).to_owned(), *n)).collect();
        let of = |figures: &Figures| WrittenFigures {
            requests: figures.requests,
            failed: figures.failed,
            causes: named(&figures.causes),
            refused: named(&figures.refused),
            buckets: figures.buckets.to_vec(),
        };
        let sample = |sample: &Arc<Sample>| {
            let known = self.routes.iter().filter_map(|route| sample.routes.get_key_value(route));
            known.map(|(route, figures)| (route.to_string(), of(figures))).collect()
        };
        let written = Written {
            number: self.number,
            interval_ms: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            routes: self.routes.iter().map(ToString::to_string).collect(),
            before: self.before.iter().map(sample).collect(),
        };
        serde_json::to_vec(&written).unwrap_or_default()
    }

    /// Parses it. `known` finds a cause by name; a cause that no longer exists does not count.
    pub(crate) fn from_json(text: &[u8], known: impl Fn(&str) -> Option<&'static str>) -> Option<Self> {
        let written: Written = serde_json::from_slice(text).ok()?;
        let now = Instant::now();
        let counted = |named: &[(String, u64)]| {
            named.iter().filter_map(|(cause, n)| Some((known(cause)?, *n))).collect()
        };
        let of = |figures: WrittenFigures| -> Option<Arc<Figures>> {
            Some(Arc::new(Figures {
                requests: figures.requests,
                failed: figures.failed,
                causes: counted(&figures.causes),
                refused: counted(&figures.refused),
                buckets: <[u64; BUCKETS]>::try_from(figures.buckets).ok()?,
            }))
        };
        let sample = |routes: BTreeMap<String, WrittenFigures>| -> Option<Arc<Sample>> {
            let routes = routes.into_iter().map(|(route, figures)| Some((Arc::from(route), of(figures)?)));
            // The absolute time no longer matters, only the difference between two moments.
            Some(Arc::new(Sample { at: now, routes: routes.collect::<Option<_>>()? }))
        };
        Some(Self {
            number: written.number,
            interval: Duration::from_millis(written.interval_ms).clamp(super::SHORTEST, super::LONGEST),
            routes: written.routes.into_iter().map(Arc::from).collect(),
            before: written.before.into_iter().map(sample).collect::<Option<_>>()?,
        })
    }
}

//! The loads of a plan with the scenarios that each drives, and the names of their parts.

use crate::plan::{Load, Plan, Scenario};
use crate::shape::{Course, Shape};
use std::sync::Arc;
use std::time::Duration;

/// A load with the scenarios that it drives.
#[derive(Clone, Debug)]
pub struct Driven<'p> {
    /// The load.
    pub load: &'p Load,
    /// Their positions in [`Plan::scenarios`]; never empty.
    pub scenarios: Vec<usize>,
    /// When it begins, counted from that of the run: with the first of its scenarios.
    pub start_at: Duration,
    /// The scenario that has it for itself.
    owner: Option<&'p str>,
}

/// A part of a load, as conditions and reports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartName {
    /// Its name; in a plan with several loads, `SCENARIO.NAME` if a scenario has the load for itself. Unique in the
    /// plan, unless a scenario's name contains a dot.
    pub full: String,
    /// Its name in its list.
    pub name: String,
    /// Where it is written, such as `scenarios.browse.rate[1]`.
    pub path: String,
}

impl Load {
    /// Its parts; none of a constant load.
    pub const fn course(&self) -> Option<&Arc<Course>> {
        match self {
            Self::Rate { shape: Shape::Parts(course), .. }
            | Self::Users { shape: Shape::Parts(course), .. } => Some(course),
            Self::Rate { .. } | Self::Users { .. } => None,
        }
    }
}

impl Plan {
    /// Its loads: first the shared one if any scenario uses it, then those of single scenarios.
    pub fn loads(&self) -> Vec<Driven<'_>> {
        loads(self.load.as_ref(), &self.scenarios)
    }

    /// The parts of all its loads, in the order of [`Plan::loads`].
    pub fn parts(&self) -> Vec<PartName> {
        parts(&self.loads())
    }
}

/// The same, of a plan that is being read.
pub(crate) fn loads<'p>(shared: Option<&'p Load>, scenarios: &'p [Scenario]) -> Vec<Driven<'p>> {
    let sharing: Vec<usize> =
        (0..).zip(scenarios).filter(|(_, s)| s.load.is_none()).map(|(i, _)| i).collect();
    let start_at = sharing.iter().filter_map(|i| scenarios.get(*i)).map(|s| s.start_at).min();
    let shared = shared.zip(start_at);
    let shared = shared.map(|(load, start_at)| Driven { load, scenarios: sharing, start_at, owner: None });
    let own = (0..).zip(scenarios).filter_map(|(i, s)| {
        Some(Driven {
            load: s.load.as_ref()?,
            scenarios: vec![i],
            start_at: s.start_at,
            owner: Some(&s.name),
        })
    });
    shared.into_iter().chain(own).collect()
}

/// The parts of loads.
pub(crate) fn parts(loads: &[Driven<'_>]) -> Vec<PartName> {
    let mut all = Vec::new();
    for driven in loads {
        let key = if matches!(driven.load, Load::Rate { .. }) { "rate" } else { "users" };
        let parts = driven.load.course().map_or(&[][..], |course| course.parts());
        all.extend(parts.iter().enumerate().map(|(i, part)| PartName {
            full: match driven.owner {
                Some(scenario) if loads.len() > 1 => format!("{scenario}.{}", part.name),
                _ => part.name.clone(),
            },
            name: part.name.clone(),
            path: match driven.owner {
                Some(scenario) => format!("scenarios.{scenario}.{key}[{i}]"),
                None => format!("{key}[{i}]"),
            },
        }));
    }
    all
}

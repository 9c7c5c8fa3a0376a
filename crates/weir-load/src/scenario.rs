//! Runs plans with scenarios: users that log in, follow steps, keep values, and pause.
//!
//! The users run on the threads of the engine, with its samplers, counts and coordinator. A user is one task that
//! walks through its scenario, in place of a client that repeats a request.
//!
//! *Layout.* This file is the plan as the engine needs it, with what all threads share. `program` flattens steps,
//! `calls` finds the methods of gRPC steps, `data` hands out rows, `masks` hides secrets,
//! `tally` counts by step and scenario, `rows` makes the report's rows of it. The users are in `engine::scenario`.
//! weir-plan reads the plan's file.

pub(crate) mod calls;
pub(crate) mod data;
pub(crate) mod masks;
pub(crate) mod program;
mod rows;
pub(crate) mod tally;

pub(crate) use rows::{add as add_rows, add_plain as add_plain_rows};

use crate::clock;
use crate::pace::{Rhythm, described, mix};
use data::Dealer;
use program::Program;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tally::JourneyTally;
use weir_agents::Share;
use weir_plan::shape::Shape;
use weir_plan::{Connections, Driven, Load, Part, Request, StepId, Value};
use weir_report::report::{Pace, StageUnit, StepKind};

/// The most of the graceful stop that is left for the steps of `end`.
const END_MOST: Duration = Duration::from_secs(5);

/// A plan with scenarios, compiled, with the state that all threads share.
#[derive(Debug)]
pub(crate) struct Journey {
    pub(crate) plan: weir_plan::Plan,
    /// The rows of the report by their numbers: those of the plan's steps, then those of redirects.
    pub(crate) rows: Vec<Row>,
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) groups: Vec<Group>,
    /// Which part of the load this process makes.
    pub(crate) share: Share,
    pub(crate) setup: Program,
    pub(crate) teardown: Program,
    /// By row; set before users run.
    pub(crate) methods: calls::Methods,
    /// What is shown of no request and answer.
    pub(crate) masks: masks::Masks,
    /// The Host of each origin.
    pub(crate) authorities: Vec<String>,
    /// When iterations break off before the graceful stop is over.
    pub(crate) end_reserve: u64,
    /// Hands out rows: for the load, and for the dry run, which uses up only those of sets with `pick: once`.
    dealers: [Dealer; 2],
    /// What the steps of `setup` kept.
    pub(crate) kept: OnceLock<Arc<[Value]>>,
    /// Whether setup and dry run are over.
    pub(crate) prepared: OnceLock<()>,
    pub(crate) is_rehearsed: bool,
    /// Whether an answer of the dry run set a cookie.
    pub(crate) has_cookies: AtomicBool,
    /// The counts of setup and teardown.
    pub(crate) around: Mutex<JourneyTally>,
    /// The parts of all loads, in the order of the groups, as conditions name them.
    pub(crate) parts: Vec<String>,
    /// The different checks of all steps of scenarios, as the report has them.
    pub(crate) checks: Vec<String>,
}

/// A row of the report.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) scenario: Option<usize>,
    pub(crate) name: String,
    pub(crate) part: &'static str,
    pub(crate) kind: StepKind,
    pub(crate) checks: Vec<String>,
    /// Their positions in [`Journey::checks`].
    pub(crate) check_numbers: Vec<usize>,
    pub(crate) keeps: Vec<String>,
    /// The row of its redirects, if it follows any.
    redirects: Option<usize>,
    /// Whether its requests show who a user is.
    has_credentials: bool,
}

/// A compiled scenario.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) start: Program,
    pub(crate) steps: Program,
    pub(crate) end: Program,
    /// Iterations left, if the plan limits them.
    left: Option<AtomicU64>,
    /// Rows of sets with `pick: once` that the dry run sent, and the load therefore does not.
    pub(crate) rehearsed_rows: AtomicU64,
    /// No further iteration begins: all are made, or a data set has no more rows.
    pub(crate) is_over: AtomicBool,
}

/// Scenarios that share users or a rate.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) rhythm: Rhythm,
    pub(crate) as_pace: Pace,
    /// Users of all threads of this process.
    pub(crate) users: usize,
    /// An iteration begins at least this long after the last one of its user.
    pub(crate) pace: Option<Duration>,
    pub(crate) start_at: u64,
    pub(crate) scenarios: Vec<usize>,
    /// Scenarios, each as often as its weight, evenly mixed.
    pub(crate) order: Vec<u32>,
    /// Iterations begun, by all threads.
    pub(crate) turn: AtomicU64,
    /// The number of its first user in the run.
    pub(crate) first_user: u64,
    /// The position of its first part in [`Journey::parts`].
    first_part: usize,
    pub(crate) shares_connections: bool,
    /// Slots of a user: more than one for requests at once.
    pub(crate) slots: usize,
}

/// Why a run could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub(crate) String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl Journey {
    /// Compiles a plan. `grace` is the graceful stop; `is_rehearsed` says whether there is a dry run.
    pub(crate) fn new(plan: weir_plan::Plan, grace: Duration, is_rehearsed: bool, share: Share) -> Self {
        let scenarios: Vec<Scenario> = plan.scenarios.iter().map(|s| Scenario::of(s, share)).collect();
        let (setup, teardown) = (Program::of(&plan.setup), Program::of(&plan.teardown));
        let masks = masks::Masks::of(&plan);
        let mut rows: Vec<Row> = plan
            .steps
            .iter()
            .map(|step| Row {
                scenario: step.scenario,
                name: step.name.to_string(),
                part: match step.part {
                    Part::End => "end",
                    Part::Setup => "setup",
                    Part::Start => "start",
                    Part::Steps => "steps",
                    Part::Teardown => "teardown",
                },
                kind: match step.kind {
                    weir_plan::StepKind::Exec => StepKind::Exec,
                    weir_plan::StepKind::Grpc => StepKind::Grpc,
                    weir_plan::StepKind::Http => StepKind::Http,
                    weir_plan::StepKind::WebSocket => StepKind::WebSocket,
                },
                ..Row::default()
            })
            .collect();
        let programs = scenarios.iter().flat_map(|s| [&s.start, &s.steps, &s.end]).chain([&setup, &teardown]);
        for program in programs {
            program.requests().for_each(|request| Row::fill(&mut rows, request, &masks));
            for exec in program.execs() {
                if let Some(row) = rows.get_mut(usize::from(exec.id.0)) {
                    row.keeps = exec.keeps.iter().map(|k| k.name.to_string()).collect();
                }
            }
        }
        let mut checks: Vec<String> =
            rows.iter().filter(|row| row.scenario.is_some()).flat_map(|row| &row.checks).cloned().collect();
        checks.sort_unstable();
        checks.dedup();
        for row in &mut rows {
            row.check_numbers = row.checks.iter().filter_map(|c| checks.binary_search(c).ok()).collect();
        }
        let groups = groups(&plan, &scenarios, share);
        let parts = plan.parts().into_iter().map(|part| part.full).collect();
        let has_end = scenarios.iter().any(|s| !s.end.is_empty());
        let end_reserve = if has_end { clock::nanos((grace / 4).min(END_MOST)) } else { 0 };
        let sets = plan.shared.data.len();
        let mut this = Self {
            groups,
            share,
            rows,
            scenarios,
            setup,
            teardown,
            masks,
            methods: plan.steps.iter().map(|_| OnceLock::new()).collect(),
            authorities: plan.origins.iter().map(weir_plan::Origin::authority).collect(),
            end_reserve,
            // A dry run takes the first rows, which it does not use up.
            dealers: [Dealer::new(sets, share), Dealer::new(sets, Share::WHOLE)],
            kept: OnceLock::new(),
            prepared: OnceLock::new(),
            is_rehearsed: is_rehearsed && plan.dry_run,
            has_cookies: AtomicBool::new(false),
            around: Mutex::default(),
            parts,
            checks,
            plan,
        };
        this.around = Mutex::new(JourneyTally::new(&this));
        this
    }

    pub(crate) fn scenario_name(&self, scenario: Option<usize>) -> String {
        scenario.and_then(|s| self.plan.scenarios.get(s)).map(|s| s.name.to_string()).unwrap_or_default()
    }

    /// Users of all groups.
    pub(crate) fn users(&self) -> usize {
        self.groups.iter().map(|g| g.users).sum()
    }

    /// The shortest time that a request may take.
    pub(crate) fn shortest_timeout(&self) -> Option<Duration> {
        self.programs().flat_map(Program::requests).map(|r| r.timeout).min()
    }

    /// Every part that has steps.
    fn programs(&self) -> impl Iterator<Item = &Program> {
        let programs = self.scenarios.iter().flat_map(|s| [&s.start, &s.steps, &s.end]);
        programs.chain([&self.setup, &self.teardown])
    }

    /// Whether steps make gRPC calls, whose outcome is not that of their HTTP status.
    pub(crate) fn makes_calls(&self) -> bool {
        self.plan.steps.iter().any(|step| step.kind == weir_plan::StepKind::Grpc)
    }

    pub(crate) fn redirect_row(&self, row: usize) -> usize {
        self.rows.get(row).and_then(|r| r.redirects).unwrap_or(row)
    }

    pub(crate) fn has_credentials(&self, row: usize) -> bool {
        self.rows.get(row).is_some_and(|r| r.has_credentials)
    }

    pub(crate) fn dealer(&self, is_rehearsal: bool) -> &Dealer {
        let [load, rehearsal] = &self.dealers;
        if is_rehearsal { rehearsal } else { load }
    }

    /// What the steps of `setup` kept.
    pub(crate) fn kept(&self) -> Arc<[Value]> {
        self.kept.get().map_or_else(|| Arc::from([]), Arc::clone)
    }
}

impl Row {
    /// Adds what a request checks and keeps to its row, and a row for its redirects.
    fn fill(rows: &mut Vec<Self>, request: &Request, masks: &masks::Masks) {
        let StepId(id) = request.id;
        let (id, next) = (usize::from(id), rows.len());
        let has_authorization = request.headers.iter().any(|(name, _)| name == "authorization");
        let Some(row) = rows.get_mut(id) else { return };
        row.checks = request.checks.iter().map(|c| masks.apply(&c.text)).collect();
        row.keeps = request.keeps.iter().map(|k| k.name.to_string()).collect();
        row.has_credentials = has_authorization || (row.part == "start" && request.body.is_some());
        if request.redirects > 0 {
            row.redirects = Some(next);
            let (name, scenario, part) = (format!("{} (redirect)", row.name), row.scenario, row.part);
            rows.push(Self { name, scenario, part, ..Self::default() });
        }
    }
}

impl Scenario {
    fn of(scenario: &weir_plan::Scenario, share: Share) -> Self {
        Self {
            start: Program::of(&scenario.start),
            steps: Program::of(&scenario.steps),
            end: Program::of(&scenario.end),
            left: scenario.iterations.map(|n| AtomicU64::new(share.part(n))),
            rehearsed_rows: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Takes an iteration; false if there is none left.
    pub(crate) fn take_one(&self) -> bool {
        if self.is_over.load(Ordering::Relaxed) {
            return false;
        }
        let Some(left) = &self.left else { return true };
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if taken.is_err() {
            self.is_over.store(true, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn most_at_once(&self) -> usize {
        [&self.start, &self.steps, &self.end].map(Program::most_at_once).into_iter().max().unwrap_or(1)
    }
}

impl Group {
    /// Whether a user begins its next iteration when the last one has ended.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.rhythm, Rhythm::Closed(_))
    }

    /// The part of its load that this moment of the run belongs to, by its position in [`Journey::parts`].
    pub(crate) fn part_at(&self, at: u64) -> Option<usize> {
        let course = self.rhythm.shape()?;
        Some(self.first_part + course.part_at(at.saturating_sub(self.start_at)))
    }
}

/// Each load with the scenarios that it drives: one for each scenario that has its own, and one for the others.
fn groups(plan: &weir_plan::Plan, compiled: &[Scenario], share: Share) -> Vec<Group> {
    let mut groups = Vec::new();
    let (mut first_user, mut first_part) = (0, 0);
    for Driven { load, scenarios, start_at, .. } in plan.loads() {
        let of = |i: &usize| plan.scenarios.get(*i);
        let weights: Vec<u32> = scenarios.iter().filter_map(of).map(|s| s.weight.max(1)).collect();
        let order = mix(&weights).into_iter().filter_map(|i| scenarios.get(i as usize)).map(|i| *i as u32);
        let (users, pace) = match load {
            Load::Rate { users_max, .. } => (*users_max as usize, None),
            Load::Users { shape, pace } => (shape.most().ceil() as usize, *pace),
        };
        let most = scenarios.iter().filter_map(|i| compiled.get(*i)).map(Scenario::most_at_once).max();
        let as_pace = as_pace(load, clock::nanos(start_at));
        let order: Vec<u32> = order.collect();
        // Agents begin at different places of the round, so that the mix is right in sum from the beginning.
        let turn = u64::from(share.index) * order.len() as u64 / u64::from(share.of);
        groups.push(Group {
            rhythm: match (load.course(), load) {
                (Some(course), Load::Rate { .. }) => Rhythm::shaped(Arc::clone(course), StageUnit::Rate),
                (Some(course), Load::Users { .. }) => Rhythm::shaped(Arc::clone(course), StageUnit::Users),
                (None, _) => Rhythm::of(&as_pace),
            },
            as_pace,
            users: share.part(users.max(1) as u64) as usize,
            pace,
            start_at: clock::nanos(start_at),
            order,
            turn: AtomicU64::new(turn),
            first_user,
            first_part,
            shares_connections: scenarios.iter().filter_map(of).all(|s| s.connections == Connections::Shared),
            slots: most.unwrap_or(1).max(1),
            scenarios,
        });
        first_user += users.max(1) as u64;
        first_part += load.course().map_or(0, |course| course.parts().len());
    }
    groups
}

/// A load that begins at this moment of the run, in the words of the report.
pub(crate) fn as_pace(load: &Load, begin_ns: u64) -> Pace {
    match load {
        Load::Rate { shape: Shape::Parts(course), .. } => described(course, StageUnit::Rate, begin_ns),
        Load::Users { shape: Shape::Parts(course), .. } => described(course, StageUnit::Users, begin_ns),
        Load::Rate { shape: Shape::Constant(per_second), .. } => Pace::Rate { per_second: *per_second },
        Load::Users { .. } => Pace::AsFastAsPossible,
    }
}

//! A plan that is ready to run: everything parsed, every name resolved.

use crate::check::Check;
use crate::condition::Condition;
use crate::cookie::CookieJar;
use crate::keep::Keep;
use crate::limits::VALUE_BYTES;
use crate::origin::Origin;
use crate::pause::Pause;
use crate::scope::{Scope, Shared, Value};
use crate::shape::Shape;
use crate::template::Template;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_config::Node;

/// A plan.
#[derive(Debug)]
pub struct Plan {
    /// Every server that requests go to, that of `target:` first if there is one. A URL that is known only at run
    /// time must lead to one of these.
    pub origins: Vec<Origin>,
    /// Runs once, before the first start.
    pub setup: Vec<Step>,
    /// In the order written; never empty.
    pub scenarios: Vec<Scenario>,
    /// Runs once, after the last user.
    pub teardown: Vec<Step>,
    /// Data sets and values that all users share.
    pub shared: Arc<Shared>,
    /// Every request and `exec` step, in the order written. [`StepId`] is a position in it.
    pub steps: Vec<StepInfo>,
    /// The load of the scenarios that have none of their own; they share its iterations by their weights.
    pub load: Option<Load>,
    /// How long the load lasts, from the end of the warm-up. `None`: as the command line says, or the shape.
    pub duration: Option<Duration>,
    /// How long the load runs before measuring starts.
    pub warmup: Option<Duration>,
    /// How long users may take to finish when the load ends.
    pub graceful_stop: Option<Duration>,
    /// Whether each scenario runs once with one user before any load.
    pub dry_run: bool,
    /// Most bytes of a body that are read for keeps and checks.
    pub body_limit: usize,
    /// Whether HTTP/2 is spoken to `http` and `https` servers.
    pub http2: bool,
    /// Whether HTTP steps use HTTP/3.
    pub http3: bool,
    /// `.proto` files and descriptor sets of gRPC steps. Without any, servers are asked by reflection.
    pub protos: Vec<PathBuf>,
    /// Conditions on the result.
    pub thresholds: Vec<Threshold>,
    /// Slots of what `setup` keeps.
    pub(crate) setup_slots: usize,
    /// Slots of what `teardown` keeps.
    pub(crate) teardown_slots: usize,
    /// The file as a tree, for mistakes that only the engine finds: `Diagnostic::on`.
    pub tree: Node,
}

/// A journey of users.
#[derive(Debug)]
pub struct Scenario {
    /// Its name.
    pub name: Arc<str>,
    /// The share of the iterations of [`Plan::load`]; only without a load of its own.
    pub weight: u32,
    /// Its own load.
    pub load: Option<Load>,
    /// When its load begins, counted from that of the run.
    pub start_at: Duration,
    /// Ends after this many iterations.
    pub iterations: Option<u64>,
    /// Steps of a user before its first iteration.
    pub start: Vec<Step>,
    /// Steps of each iteration; never empty.
    pub steps: Vec<Step>,
    /// Steps of a user after its last iteration.
    pub end: Vec<Step>,
    /// What a failed check does.
    pub on_failure: OnFailure,
    /// Whether a user has connections of its own.
    pub connections: Connections,
    /// How long users keep cookies.
    pub cookies: Cookies,
    /// The data sets that its steps use, and when a user gets a row of each.
    pub data: Vec<DataUse>,
    pub(crate) user_slots: usize,
    pub(crate) iteration_slots: usize,
}

/// How many users or iterations there are.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Open: iterations begin by the shape, whether earlier ones have ended or not.
    Rate {
        /// Iterations per second.
        shape: Shape,
        /// Most users. A start that finds none free does not take place and is counted.
        users_max: u32,
    },
    /// Closed: a user begins its next iteration when the last one has ended.
    Users {
        /// The number of users.
        shape: Shape,
        /// An iteration begins at least this long after the last one of its user has begun.
        pace: Option<Duration>,
    },
}

/// A data set that a scenario uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataUse {
    /// Its position in [`Shared::data`].
    pub set: usize,
    /// When a user gets a row.
    pub draw: Draw,
}

/// When a user gets a row of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// At the start of each iteration.
    Iteration,
    /// Once: `start` or `end` uses the set, or it is `per_user`.
    User,
}

/// What a failed check does to the iteration, beside being counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Ends the iteration.
    End,
    /// Nothing.
    #[default]
    GoOn,
    /// Ends the run.
    Stop,
}

/// How long users keep cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookies {
    /// As in [`Self::User`], but an iteration begins with the cookies that the steps of `start` got, as a new visitor.
    Iteration,
    /// They keep none.
    Off,
    /// As long as they live.
    User,
}

/// Who uses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// One user.
    Own,
    /// Whoever needs one.
    Shared,
}

/// The position of a step in [`Plan::steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub u16);

/// A step that has a row in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepInfo {
    /// Its name, unique within its scenario.
    pub name: Arc<str>,
    /// Its scenario, a position in [`Plan::scenarios`]; `None` for `setup` and `teardown`.
    pub scenario: Option<usize>,
    /// The part of the scenario or plan that has it.
    pub part: Part,
    /// What it does.
    pub kind: StepKind,
    /// Where it is written, such as `scenarios.browse.steps[0]`.
    pub path: String,
}

/// A part of a plan that has steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `end`
    End,
    /// `setup`
    Setup,
    /// `start`
    Start,
    /// `steps`
    Steps,
    /// `teardown`
    Teardown,
}

/// What a step with a row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Asks a program.
    Exec,
    /// Makes a gRPC call.
    Grpc,
    /// Sends an HTTP request.
    Http,
    /// Sends a message over a WebSocket.
    WebSocket,
}

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// Asks a program.
    Exec(Exec),
    /// One of two lists.
    If {
        /// Decides which.
        condition: Condition,
        /// Steps if it holds.
        then: Vec<Self>,
        /// Steps if it does not.
        otherwise: Vec<Self>,
    },
    /// Requests at once, as those of a page; the step ends when all have.
    Parallel {
        /// Most at once.
        most: usize,
        /// The requests.
        steps: Vec<Request>,
    },
    /// Waits.
    Pause(Pause),
    /// A list several times.
    Repeat {
        /// How often.
        count: Repeat,
        /// The steps.
        steps: Vec<Self>,
    },
    /// A request.
    Request(Box<Request>),
}

/// How often a list of steps runs.
#[derive(Clone, Debug)]
pub enum Repeat {
    /// This often.
    Times(u32),
    /// While a condition holds, which is tested before each round.
    While {
        /// The condition.
        condition: Condition,
        /// Most rounds.
        max: u32,
    },
}

/// A request of a step.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its row in the report.
    pub id: StepId,
    /// The method, such as `GET`.
    pub method: String,
    /// Where it goes.
    pub target: Target,
    /// Header fields, names in lower case, without `content-length`, `cookie` and `host` unless they are written.
    pub headers: Vec<(String, Template)>,
    /// The body: of HTTP as sent, of gRPC and WebSocket the message (of gRPC as JSON).
    pub body: Option<Template>,
    /// Conditions that the answer must meet.
    pub checks: Vec<Check>,
    /// What it keeps.
    pub keeps: Vec<Keep>,
    /// How long the answer may take.
    pub timeout: Duration,
    /// Most redirects that are followed.
    pub redirects: u32,
    /// Whether the body of the answer must be kept for checks and keeps.
    pub needs_body: bool,
    /// What a failed check does.
    pub on_failure: OnFailure,
    /// What is spoken.
    pub kind: Kind,
    /// Of a WebSocket step: the message that it waits for.
    pub awaits: Awaits,
    /// Of a WebSocket step: whether it closes the WebSocket afterwards.
    pub closes: bool,
}

/// The message that a WebSocket step waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Awaits {
    /// The first message that passes all of these.
    Message(Vec<Check>),
    /// None.
    Nothing,
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// A URL that is known only at run time: absolute, or relative to `target:`. See [`Plan::origins`].
    Any(Template),
    /// A path at a server of the plan.
    At {
        /// The position of the server in [`Plan::origins`].
        origin: usize,
        /// Path and query.
        path: Template,
    },
}

/// What a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call; the path is `/package.Service/Method`.
    Grpc,
    /// A request.
    Http,
    /// A message over the user's WebSocket at this URL, which is opened first if it is not open. One that a step of
    /// `start` opened stays open as long as the user, any other until the iteration ends.
    WebSocket,
}

/// A program that is asked: it gets a line of JSON and answers with one.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Its row in the report.
    pub id: StepId,
    /// Program and arguments. One process per thread, started once.
    pub command: Vec<String>,
    /// The line that it gets, without its end.
    pub message: Template,
    /// What is kept of the answer.
    pub keeps: Vec<Keep>,
    /// How long the answer may take.
    pub timeout: Duration,
}

/// A condition on the result of a part of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// What it is about.
    pub of: ThresholdOf,
    /// The condition, such as `p99<200ms`.
    pub condition: String,
    /// As written.
    pub text: String,
    /// Where it is written, such as `thresholds[0]`.
    pub path: String,
}

/// What a threshold is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdOf {
    /// A part of a load, by its position in [`Plan::parts`].
    Part(usize),
    /// The whole run.
    Run,
    /// A scenario, by its position in [`Plan::scenarios`].
    Scenario(usize),
    /// A step.
    Step(StepId),
}

impl Plan {
    /// The values that came from variables and files, `${VAR}` and `${file:PATH}`. They may be credentials.
    pub fn outside(&self) -> Vec<&str> {
        fn collect<'n>(node: &'n Node, out: &mut Vec<&'n str>) {
            out.extend(node.outside().iter().map(String::as_str));
            node.elements().iter().for_each(|element| collect(element, out));
            node.entries().iter().for_each(|(_, child)| collect(child, out));
        }
        let mut all = Vec::new();
        collect(&self.tree, &mut all);
        all
    }

    /// A step that has a row.
    pub fn step(&self, id: StepId) -> Option<&StepInfo> {
        self.steps.get(usize::from(id.0))
    }

    /// The values of `setup` while it runs. [`Scope::into_setup`] gives what its steps kept.
    pub fn scope_of_setup(&self) -> Scope {
        Scope::new(&self.shared, vec![Value::Absent; self.setup_slots].into(), 0, 0, 0)
    }

    /// The values of a user of this scenario. `setup` is what the steps of `setup` kept, `user` its number, from 0.
    pub fn scope(&self, scenario: &Scenario, setup: Arc<[Value]>, user: u64) -> Scope {
        Scope::new(&self.shared, setup, scenario.user_slots, scenario.iteration_slots, user)
    }

    /// The values of `teardown`, whose steps may use what `setup` kept.
    pub fn scope_of_teardown(&self, setup: Arc<[Value]>) -> Scope {
        Scope::new(&self.shared, setup, 0, self.teardown_slots, 0)
    }

    /// The position of a server in [`Plan::origins`], if requests may go there.
    pub fn position_of(&self, origin: &Origin) -> Option<usize> {
        // A server that steps also ask by gRPC is several times in the list: connections to it differ.
        let same = self.origins.iter().position(|known| known == origin);
        same.or_else(|| self.origins.iter().position(|known| known.shares_server_with(origin)))
    }

    /// Memory of a user of this scenario, in bytes: what it always takes, and the most, with every kept value at its
    /// longest and a full cookie jar. Connections and buffers come on top.
    pub fn bytes_per_user(&self, scenario: &Scenario) -> (usize, usize) {
        let slots = scenario.user_slots + scenario.iteration_slots;
        let rows = self.shared.data.len() * size_of::<Option<u32>>();
        let least = size_of::<Scope>() + size_of::<CookieJar>() + slots * size_of::<Value>() + rows;
        let jar = match scenario.cookies {
            Cookies::Off => 0,
            Cookies::User => CookieJar::MOST_BYTES,
            // And those that `start` got.
            Cookies::Iteration => 2 * CookieJar::MOST_BYTES,
        };
        (least, least + slots * VALUE_BYTES + jar)
    }
}

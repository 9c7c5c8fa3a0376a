//! Makes a run of a plan with scenarios: its servers resolved, the options of the command line applied to it.

use super::{CONNECTIONS_MOST, Options, Reader, WAIT};
use crate::clock;
use crate::control::Control;
use crate::plan::Plan;
pub(super) use crate::scenario::as_pace;
use crate::scenario::{Journey, calls};
use crate::transport::origin::Origin;
use crate::url::Url;
use std::sync::Arc;
use std::time::Duration;
use weir_plan::shape::{Shape, is_rate};
use weir_plan::{Cookies, Load, Scheme, StepKind};
use weir_report::report::{Pace, PlanAsRun, Protocol, StageUnit, Stop, TargetPlan};
use weir_report::{Mistake, Threshold, units};

/// How long a run lasts that nothing limits.
const LASTS: u64 = 10_000_000_000;

/// Users of a scenario without a load of its own, where the plan has none either.
const USERS: f64 = 1.0;

/// Most users of a rate that is given on the command line, without `-c`.
const USERS_MAX: u32 = 1_000;

impl Plan {
    /// A run of a plan with scenarios. The options that it has in common with a run of one request apply: `-d`,
    /// `--warmup`, `--graceful-stop`, `--threads`, `--threshold`, `--http2`, `--http3`, those of connections, and with
    /// one scenario `--rate` and `-c`. `is_rehearsed` says whether each scenario runs once before the load, unless the
    /// plan says no.
    ///
    /// # Errors
    /// Every mistake that can be found without sending a request.
    pub fn of_scenarios(
        plan: weir_plan::Plan,
        options: &Options,
        is_rehearsed: bool,
    ) -> Result<Self, Vec<Mistake>> {
        // The policy of TLS offers it.
        let options = &Options {
            http2: options.http2 || (plan.http2 && !options.http3),
            http3: options.http3 || (plan.http3 && !options.http2),
            ..options.clone()
        };
        let mut reader = Reader {
            options,
            mistakes: Vec::new(),
            feed_is_missing: false,
            looked_up: Duration::ZERO,
            rules_used: std::collections::HashSet::new(),
        };
        let made = reader.journey(plan, is_rehearsed);
        match made {
            Some(plan) if reader.mistakes.is_empty() => Ok(plan),
            _ => Err(reader.mistakes),
        }
    }

    /// Memory that the users of a plan with scenarios take: always, and at most, in bytes. Connections and buffers come
    /// on top.
    pub fn users_bytes(&self) -> Option<(u64, usize, usize)> {
        let journey = self.journey.as_ref()?;
        let mut all = (0, 0, 0);
        for group in &journey.groups {
            let each = group.scenarios.iter().filter_map(|i| journey.plan.scenarios.get(*i));
            let bytes =
                each.map(|s| journey.plan.bytes_per_user(s)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            all.0 += group.users as u64;
            all.1 += group.users * bytes.0;
            all.2 += group.users * bytes.1;
        }
        Some(all)
    }
}

/// When the last of the loads with parts ends, and whether all loads have parts; none if no load has any.
fn shapes_end(plan: &weir_plan::Plan) -> Option<(u64, bool)> {
    let end = |driven: &weir_plan::Driven<'_>| {
        let course = driven.load.course()?;
        Some(clock::nanos(driven.start_at).saturating_add(course.end_ns()))
    };
    let ends: Vec<Option<u64>> = plan.loads().iter().map(end).collect();
    Some((ends.iter().flatten().copied().max()?, ends.iter().all(Option::is_some)))
}

impl Reader<'_> {
    fn journey(&mut self, mut plan: weir_plan::Plan, is_rehearsed: bool) -> Option<Plan> {
        let o = self.options;
        self.not_of_plans();
        self.loads(&mut plan);
        let time = |this: &mut Self, place: &str, text: &Option<String>, written: Option<Duration>| {
            this.time(place, text.as_deref()).map(Duration::from_nanos).or(written)
        };
        let duration = time(self, "-d", &o.duration, plan.duration).map(clock::nanos);
        let warmup = time(self, "--warmup", &o.warmup, plan.warmup).map_or(0, clock::nanos);
        let grace = time(self, "--graceful-stop", &o.graceful_stop, plan.graceful_stop).unwrap_or(WAIT);
        if duration == Some(0) {
            self.wrong("-d", "expected more than 0");
        }
        let is_counted = plan.scenarios.iter().all(|s| s.iterations.is_some());
        let shapes_end = shapes_end(&plan);
        if let Some((end, all)) = shapes_end {
            if warmup > 0 {
                self.wrong("--warmup", "a load with parts has no warm-up: make it the first part");
            }
            if duration.is_some() && all {
                self.wrong("-d", "the parts of the plan's `rate` or `users` set the duration already");
            } else if duration.is_some_and(|d| d < end) {
                let hint =
                    format!("ends before the parts of the plan, which take {}", units::time(end as f64));
                self.wrong("-d", &hint);
            }
        }
        let stop_ns = duration.or(shapes_end.map(|(end, _)| end)).or((!is_counted).then_some(LASTS));
        let thresholds = self.scoped_thresholds(&plan);
        let abort_on = self.all(&o.abort_on, |t| Threshold::parse("--abort-on", t));
        self.not_of_replay("--abort-on", &abort_on);
        for bad in abort_on.iter().filter(|t| t.scope().is_some()) {
            self.wrong(&format!("--abort-on {}", bad.text), "steps and scenarios are judged at the end only");
        }
        self.fits_http3();
        let (origins, targets) = self.origins(&plan);
        let pid = self.pid(&origins, thresholds.iter().any(Threshold::needs_cost));
        let http = match () {
            () if o.http3 => Protocol::Http3,
            () if o.http2 => Protocol::Http2,
            () => Protocol::Http11,
        };
        let plain = super::plain::options(&plan, o);
        // A plan may have no other rates than those that commands change.
        if o.control.is_some() && plan.loads().iter().any(|driven| matches!(driven.load, Load::Users { .. }))
        {
            self.wrong("--control", "changes rates: the plan has `users`, which commands cannot change");
        }
        let knows_cookies =
            is_rehearsed && plan.dry_run || plan.scenarios.iter().all(|s| s.cookies == Cookies::Off);
        let plain = plain
            .filter(|_| knows_cookies && o.control.is_none())
            .and_then(|options| Plan::new(&options).ok())
            .map(Arc::new);
        let journey = Journey::new(plan, grace, is_rehearsed, o.share);
        for (place, why) in calls::from_files(&journey, &origins) {
            self.wrong(&place, &why);
        }
        let (protocol, also) = protocols(&journey.plan, http);
        let users = journey.users() as u64;
        if users > CONNECTIONS_MOST {
            self.wrong("users", "expected at most 1000000 in all scenarios together");
        }
        let closed: u64 = journey.groups.iter().filter(|g| g.is_closed()).map(|g| g.users as u64).sum();
        self.may_be_open("users", closed.saturating_mul(u64::from(o.share.of)));
        if journey.groups.iter().any(|g| g.users == 0) {
            self.wrong("--agents", "a scenario has fewer users than there are agents");
        }
        let threads = self.within("--threads", o.threads, crate::os::cores() as u64, 1024).min(users.max(1));
        if !self.mistakes.is_empty() {
            return None;
        }
        let timeout = journey.shortest_timeout().unwrap_or(WAIT);
        let rates = journey.groups.iter().filter_map(|g| match g.as_pace {
            Pace::Rate { per_second } => Some(per_second),
            Pace::Shape { of: StageUnit::Rate, ref parts, .. } => {
                Some(parts.iter().map(|part| part.from.max(part.to)).fold(0.0, f64::max))
            }
            _ => None,
        });
        let rate: f64 = rates.sum();
        let pace = match &journey.groups[..] {
            [one] => one.as_pace.clone(),
            _ if rate > 0.0 => Pace::Rate { per_second: rate },
            _ => Pace::AsFastAsPossible,
        };
        let rounds = self.rounds(&pace, None, stop_ns);
        if !self.mistakes.is_empty() {
            return None;
        }
        // Last, because it makes a file.
        let control = match o.control.as_deref().map(Control::open).transpose() {
            Ok(control) => control,
            Err(mistake) => {
                self.mistakes.push(mistake);
                return None;
            }
        };
        let as_run = PlanAsRun {
            name: o.name.clone().unwrap_or_default(),
            targets,
            pace,
            stop: Stop { requests: None, duration_ns: stop_ns },
            connections: users,
            threads,
            streams: 1,
            streams_given: true,
            pipeline: 1,
            keepalive: true,
            unequal_ok: true,
            cached_ok: o.cached,
            tls_resume: o.tls_resume,
            protocol,
            also,
            timeout_ns: clock::nanos(timeout),
            think_ns: 0,
            graceful_stop_ns: clock::nanos(grace),
            rounds,
            file_digest: String::new(),
        };
        Some(Plan {
            as_run,
            origins,
            targets: Vec::new(),
            order: Vec::new(),
            rhythm: crate::pace::Rhythm::of(&Pace::AsFastAsPossible),
            stop_requests: None,
            stop_ns,
            warmup_ns: warmup,
            threads: threads as usize,
            share: o.share,
            clients: users as usize,
            streams: 1,
            pipeline: 1,
            keepalive: true,
            timeout,
            think: Duration::ZERO,
            grace,
            checks: Vec::new(),
            thresholds,
            abort_on,
            dns_ns: clock::nanos(self.looked_up),
            gap_ns: 0,
            pid,
            data: None,
            replay: None,
            journey: Some(Arc::new(journey)),
            control,
            plain,
        })
    }

    /// Options that say what the plan says.
    fn not_of_plans(&mut self) {
        let o = self.options;
        let said = "the plan says that: change it there, or with --set";
        for (name, is_given) in [
            ("-X", o.method.is_some()),
            ("-H", !o.headers.is_empty()),
            ("--data", o.data.is_some() || o.body.is_some()),
            ("-F", !o.forms.is_empty()),
            ("--feed", o.feed.is_some()),
            ("--user", o.user.is_some()),
            ("--bearer", o.bearer.is_some()),
            ("--cookie", !o.cookies.is_empty()),
            ("--metadata", !o.metadata.is_empty()),
            ("--proto", !o.protos.is_empty() || o.protoset.is_some()),
            ("--check", !o.checks.is_empty()),
            ("--shape", o.shape.is_some() || o.spacing.is_some() || o.seed.is_some()),
            ("--think", o.think.is_some()),
            ("--timeout", o.timeout.is_some()),
        ] {
            if is_given {
                self.wrong(name, said);
            }
        }
        for (name, is_given, hint) in [
            ("-n", o.requests.is_some(), "counts requests: set `iterations` of a scenario"),
            ("-m", o.streams.is_some(), "each user of a scenario has its own connection"),
            ("--pipeline", o.pipeline.is_some(), "users of a scenario wait for each response"),
            ("--no-keepalive", o.no_keepalive, "users of a scenario keep their connections"),
            ("--stages", o.stages.is_some(), "set `users` or `rate` of a scenario"),
            ("--raw", o.raw, "a plan has placeholders"),
        ] {
            if is_given {
                self.wrong(name, hint);
            }
        }
    }

    /// The loads of the scenarios, with `--rate` and `-c` applied.
    fn loads(&mut self, plan: &mut weir_plan::Plan) {
        let o = self.options;
        let users = o.connections.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let rate = self.read("--rate", o.rate.as_deref(), units::rate, "a rate such as 50/s or 300/m");
        let several = plan.scenarios.len() > 1;
        for (name, is_given) in [("--rate", rate.is_some()), ("-c", users.is_some())] {
            if is_given && several {
                self.wrong(name, "the plan has several scenarios: use --set scenarios.NAME.rate=50/s");
            }
        }
        if users == Some(0) {
            self.wrong("-c", "expected at least 1");
        }
        if rate.is_some_and(|rate| !is_rate(rate)) {
            self.wrong("--rate", "expected 0.001/h to 10M/s");
        }
        let shared = &mut plan.load;
        let Some(first) = plan.scenarios.first_mut() else { return };
        if !several {
            let load = if first.load.is_some() { &mut first.load } else { shared };
            let users_max = users.unwrap_or(match load {
                Some(Load::Rate { users_max, .. }) => *users_max,
                _ => USERS_MAX,
            });
            *load = match (rate, users, load.take()) {
                (Some(rate), ..) => Some(Load::Rate { shape: Shape::Constant(rate), users_max }),
                (None, Some(_), Some(Load::Rate { shape, .. })) => Some(Load::Rate { shape, users_max }),
                (None, Some(n), load) => {
                    let pace = if let Some(Load::Users { pace, .. }) = load { pace } else { None };
                    Some(Load::Users { shape: Shape::Constant(f64::from(n)), pace })
                }
                (None, None, load) => load,
            };
        }
        if plan.load.is_none() && plan.scenarios.iter().any(|s| s.load.is_none()) {
            plan.load = Some(Load::Users { shape: Shape::Constant(USERS), pace: None });
        }
    }

    /// The plan's conditions and those of the command line; each names scenarios and steps that exist.
    fn scoped_thresholds(&mut self, plan: &weir_plan::Plan) -> Vec<Threshold> {
        let mut all = Vec::new();
        for written in &plan.thresholds {
            match Threshold::parse("", &written.text) {
                Ok(threshold) => all.push(threshold),
                Err(mistake) => self.wrong(&written.path, &mistake.hint),
            }
        }
        for text in &self.options.thresholds {
            match Threshold::parse("--threshold", text) {
                Ok(threshold) => all.push(threshold),
                Err(mistake) => self.mistakes.push(mistake),
            }
        }
        self.not_of_replay("threshold", &all);
        let parts = plan.parts();
        let knows = |name: &str| {
            let of_step = |s: &weir_plan::StepInfo| {
                let scenario = s.scenario.and_then(|i| plan.scenarios.get(i));
                *s.name == *name || scenario.is_some_and(|c| format!("{}.{}", c.name, s.name) == name)
            };
            plan.scenarios.iter().any(|s| *s.name == *name)
                || plan.steps.iter().any(of_step)
                || parts.iter().any(|part| part.full == name)
                || parts.iter().filter(|part| part.name == name).count() == 1
        };
        for threshold in &all {
            if let Some(scope) = threshold.scope().filter(|scope| !knows(scope)) {
                let hint = format!("the plan has no scenario, step or part `{scope}`, or several");
                self.wrong(&format!("threshold {}", threshold.text), &hint);
            }
        }
        all
    }

    /// The servers of the plan.
    fn origins(&mut self, plan: &weir_plan::Plan) -> (Vec<Origin>, Vec<TargetPlan>) {
        let (mut origins, mut targets) = (Vec::new(), Vec::new());
        let (mut policies, mut seen) =
            (Vec::<(&[&[u8]], Option<weir_wire::tls::ClientTls>)>::new(), Vec::new());
        for origin in &plan.origins {
            let text = origin.to_string();
            let url = match Url::parse(&text) {
                Ok(url) => url,
                Err(hint) => {
                    self.wrong(&text, &hint);
                    continue;
                }
            };
            if origin.scheme == Scheme::Http {
                self.url_fits_http3(&text, &url);
            }
            let (proxy, addresses) = match self.proxy(&url) {
                Some((proxy, addresses)) => (Some(proxy), addresses),
                None => (None, self.addresses(&text, &url)),
            };
            // What is offered in the handshake depends on what is spoken.
            let offers: &[&[u8]] = match origin.scheme {
                Scheme::Grpcs | Scheme::Grpc => &[b"h2"],
                Scheme::Https | Scheme::Http if self.options.http2 => &[b"h2", b"http/1.1"],
                _ => &[b"http/1.1"],
            };
            let known = policies.iter().find(|(known, _)| *known == offers).map(|(_, policy)| policy.clone());
            let policy = match known {
                Some(policy) => policy,
                None if url.scheme.is_tls() => {
                    let policy = self.tls_with(offers);
                    policies.push((offers, policy.clone()));
                    policy
                }
                None => None,
            };
            let tls = policy.filter(|_| url.scheme.is_tls()).map(|t| (t, url.host.clone()));
            seen.push((url.scheme, url.host.clone(), url.port));
            let mut target = url.plan();
            "scenarios of".clone_into(&mut target.method);
            target.addresses = addresses.iter().map(ToString::to_string).collect();
            target.proxy = proxy.as_ref().map(|p| p.name.clone());
            targets.push(target);
            origins.push(self.origin(addresses, tls, proxy));
        }
        self.rules_are_used(&seen);
        (origins, targets)
    }
}

/// What most steps speak, and what others speak beside it.
fn protocols(plan: &weir_plan::Plan, http: Protocol) -> (Protocol, Vec<Protocol>) {
    let mut all = Vec::new();
    for (kind, spoken) in [
        (StepKind::Http, http),
        (StepKind::Grpc, Protocol::Http2),
        (StepKind::WebSocket, Protocol::WebSocket),
    ] {
        if plan.steps.iter().any(|step| step.kind == kind) && !all.contains(&spoken) {
            all.push(spoken);
        }
    }
    if all.is_empty() {
        return (http, Vec::new());
    }
    let also = all.split_off(1);
    (all.first().copied().unwrap_or(http), also)
}

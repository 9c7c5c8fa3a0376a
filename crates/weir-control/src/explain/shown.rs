//! The answer of `weir explain` as data and as text.

use super::expressions::ExpressionShown;
use super::policies::PoliciesShown;
use serde::Serialize;
use std::fmt::{self, Write};
use weir_route::Decision;

/// What would happen to a request.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The request as understood: method, host, canonical path, query.
    pub request: Understood,
    /// Which route wins and why the others do not.
    pub decision: Decision,
    /// The winner's filters in the order they run.
    pub filters: Vec<FilterShown>,
    /// Where the winner sends the request.
    pub target: Option<TargetShown>,
    /// The files that the upstream may name, such as `x-accel-redirect: /downloads/ is /srv/private`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files_by_header: Vec<String>,
    /// What gRPC makes of the request, if it is gRPC.
    pub grpc: Option<GrpcShown>,
    /// What happens to the request if it arrives before the handshake is complete, on a listener that accepts it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_data: Option<&'static str>,
}

/// A gRPC call.
#[derive(Clone, Debug, Serialize)]
pub struct GrpcShown {
    /// The service, such as `helloworld.v1.Greeter`.
    pub service: String,
    /// The method, such as `SayHello`.
    pub method: String,
    /// What would make it fail.
    pub problems: Vec<String>,
}

/// A request as the gateway understands it.
#[derive(Clone, Debug, Serialize)]
pub struct Understood {
    /// The method.
    pub method: String,
    /// The host that routes are matched against.
    pub host: String,
    /// The path in canonical form.
    pub path: String,
    /// The query.
    pub query: Option<String>,
    /// The listener it is assumed to arrive on.
    pub listener: String,
    /// Why that listener, if none was named and there are several.
    pub listener_reason: Option<String>,
    /// How a path with several readings is treated.
    pub note: Option<String>,
}

/// A filter with its settings.
#[derive(Clone, Debug, Serialize)]
pub struct FilterShown {
    /// Its name.
    pub name: &'static str,
    /// Its settings with all defaults filled in.
    pub settings: serde_json::Value,
    /// What it does with this request, if it can tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tells: Vec<String>,
    /// What the expressions in its settings come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<ExpressionShown>,
    /// The lists of filters of which it chooses one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<ListShown>,
}

/// A list of filters in the settings of another.
#[derive(Clone, Debug, Serialize)]
pub struct ListShown {
    /// The setting, or the arm of a split.
    pub key: String,
    /// Whether it is the one that runs for this request; nothing if that depends on the caller, or on chance.
    pub runs: Option<bool>,
    /// Of an arm: its share of the requests in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Its filters in the order they run.
    pub filters: Vec<FilterShown>,
}

/// Where a route leads.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetShown {
    /// Files of a folder.
    Files {
        /// The folder.
        root: String,
        /// Index files of a folder.
        index: Vec<String>,
        /// Whether folders are listed.
        browse: bool,
        /// The file that answers for missing files.
        fallback: Option<String>,
        /// The upstreams that answer for missing files.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        missing: Vec<UpstreamShown>,
    },
    /// The answer of a filter that admits no request.
    Filter {
        /// Its name.
        name: &'static str,
    },
    /// Our own answer.
    Respond {
        /// Its status.
        status: u16,
        /// What the expressions in its texts come to.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        expressions: Vec<ExpressionShown>,
    },
    /// One upstream, or several with their shares in percent.
    Upstreams(Vec<UpstreamShown>),
}

/// An upstream and its endpoints.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamShown {
    /// Its name.
    pub name: String,
    /// The arm of the split that leads to it, if that has another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Share of the requests in percent.
    pub share: f64,
    /// The protocol of its endpoints: `http1`, `h2`, `h2c` or `auto`.
    pub protocol: &'static str,
    /// How an endpoint is chosen.
    pub balancer: &'static str,
    /// What `hash` hashes, and the percentage that bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashShown>,
    /// The cookie that brings a client back to its endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky: Option<StickyShown>,
    /// How many seconds an endpoint entering rotation takes to reach its full share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start_seconds: Option<f64>,
    /// The gateway's zone: endpoints in the same zone are used first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its addresses; names resolved at run time as written. With weight, zone and priority if they are set.
    pub endpoints: Vec<String>,
    /// How failed requests and unhealthy endpoints are handled.
    #[serde(flatten)]
    pub policies: PoliciesShown,
}

/// The settings of the balancer `hash`.
#[derive(Clone, Debug, Serialize)]
pub struct HashShown {
    /// What it hashes, such as `header:x-user`.
    pub by: String,
    /// The most running attempts of an endpoint relative to the mean, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounded: Option<f64>,
    /// What its expressions come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<ExpressionShown>,
}

/// The settings of `sticky`, without the key.
#[derive(Clone, Debug, Serialize)]
pub struct StickyShown {
    /// The name of the cookie.
    pub cookie: String,
    /// How many seconds a client keeps it; without it, until its session ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<f64>,
}

impl UpstreamShown {
    /// How an endpoint is chosen, as text.
    fn balancing(&self) -> String {
        let mut words = self.balancer.to_owned();
        if let Some(hash) = &self.hash {
            let _ = write!(words, " by {}", hash.by);
            let _ = hash.bounded.map(|bounded| write!(words, ", bounded by {bounded}%"));
        }
        if let Some(sticky) = &self.sticky {
            let _ = write!(words, ", sticky by cookie {}", sticky.cookie);
            let _ = sticky.ttl_seconds.map(|ttl| write!(words, " for {ttl}s"));
        }
        let _ = self.slow_start_seconds.map(|seconds| write!(words, ", slow start over {seconds}s"));
        let _ = self.zone.as_ref().map(|zone| write!(words, ", from zone {zone}"));
        words
    }
}

impl FilterShown {
    /// Writes its lines, of which the first has its indent already.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = 9 + 4 * depth;
        writeln!(f, "{} {}", self.name, self.settings)?;
        self.tells.iter().try_for_each(|told| writeln!(f, "{:indent$}  {told}", ""))?;
        self.expressions.iter().try_for_each(|one| writeln!(f, "{:indent$}  {one}", ""))?;
        for list in &self.lists {
            let runs = match (list.runs, list.share) {
                (_, Some(share)) => format!(" ({share}%)"),
                (Some(true), None) => String::new(),
                (Some(false), None) => " (not for this request)".to_owned(),
                (None, None) => " (depends on the caller)".to_owned(),
            };
            writeln!(f, "{:indent$}  {}{runs}", "", list.key)?;
            for filter in &list.filters {
                write!(f, "{:indent$}    ", "")?;
                filter.write(f, depth + 1)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.request;
        let query = r.query.as_ref().map(|q| format!("?{q}")).unwrap_or_default();
        writeln!(f, "request  {} {}{query} on host {}, listener {}", r.method, r.path, r.host, r.listener)?;
        if let Some(why) = &r.listener_reason {
            writeln!(f, "         listener {}: {why}", r.listener)?;
        }
        r.note.iter().try_for_each(|note| writeln!(f, "         {note}"))?;
        if let Some(grpc) = &self.grpc {
            writeln!(f, "gRPC     service {}, method {}", grpc.service, grpc.method)?;
            grpc.problems.iter().try_for_each(|problem| writeln!(f, "         {problem}"))?;
        }
        write!(f, "{}", self.decision)?;
        if self.decision.winner.is_none() {
            return writeln!(f, "answer   404 no_route");
        }
        for (i, filter) in self.filters.iter().enumerate() {
            write!(f, "{:8} ", if i == 0 { "filters" } else { "" })?;
            filter.write(f, 0)?;
        }
        match &self.target {
            Some(TargetShown::Files { root, index, browse, fallback, missing }) => {
                write!(f, "files    {root}")?;
                let _ = (!index.is_empty()).then(|| write!(f, ", index {}", index.join(", ")));
                let _ = fallback.as_ref().map(|fallback| write!(f, ", fallback {fallback}"));
                writeln!(f, "{}", if *browse { ", folders listed" } else { "" })?;
                write_upstreams(f, "missing", missing)
            }
            Some(TargetShown::Filter { name }) => writeln!(f, "answer   by the filter {name}"),
            Some(TargetShown::Respond { status, expressions }) => {
                writeln!(f, "respond  {status}")?;
                expressions.iter().try_for_each(|one| writeln!(f, "{:9}{one}", ""))
            }
            Some(TargetShown::Upstreams(upstreams)) => write_upstreams(f, "upstream", upstreams),
            None => Ok(()),
        }?;
        self.files_by_header.iter().try_for_each(|named| writeln!(f, "file     {named}"))?;
        self.early_data.iter().try_for_each(|early| writeln!(f, "0-RTT    {early}"))
    }
}

fn write_upstreams(f: &mut fmt::Formatter<'_>, label: &str, upstreams: &[UpstreamShown]) -> fmt::Result {
    upstreams.iter().try_for_each(|u| {
        let share = if u.share < 100.0 { format!(" ({}%)", u.share) } else { String::new() };
        let protocol = if u.protocol == "http1" { String::new() } else { format!(", {}", u.protocol) };
        let endpoints = u.endpoints.join(", ");
        let arm = u.arm.as_ref().map(|arm| format!(" as {arm}")).unwrap_or_default();
        writeln!(f, "{label:8} {}{arm}{share}, {}{protocol}: {endpoints}", u.name, u.balancing())?;
        let hashed = u.hash.iter().flat_map(|hash| &hash.expressions);
        hashed.into_iter().try_for_each(|one| writeln!(f, "{:9}{one}", ""))?;
        write!(f, "{}", u.policies)
    })
}

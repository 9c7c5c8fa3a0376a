//! `weir why`: explains the outcome of a request that a running Weir served, as text; `--format json` prints the
//! answer unchanged.
//!
//! As in `weir status`, the text is generated from the answer's JSON and not from its type: a Weir of another
//! version may report more or less.

use super::{AdminArgs, Format, print, unanswered};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;
use weir_admin::client::{self, WhyQuery};

/// Polling interval of `--follow`.
const PACE: Duration = Duration::from_millis(500);

/// Most exchanges that `--follow` shows per poll.
const AT_ONCE: usize = 100;

#[derive(Args)]
pub(super) struct Why {
    /// Id of the request: from the answer's `request_id`, from `x-request-id`, or from the access log
    #[arg(conflicts_with_all = ["last", "follow"])]
    id: Option<String>,
    /// The last request that failed or was slow (the default without an id)
    #[arg(long)]
    last: bool,
    /// Keep running and show each further request as it happens
    #[arg(long)]
    follow: bool,
    /// Only requests with this cause, such as connect_refused
    #[arg(long, value_name = "CAUSE")]
    cause: Option<String>,
    /// Only requests of this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Only requests of this kind: failed, slow, or sampled at random
    #[arg(long, value_name = "KIND", value_parser = ["failed", "slow", "sampled"])]
    kind: Option<String>,
    /// Show this many of the latest requests
    #[arg(short = 'n', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    number: u8,
    /// Output format: text for people, JSON for machines (with --follow, one document per line)
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

impl Why {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let ask = |after: &str, limit: usize| -> Result<client::Answer> {
            let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
            let (id, cause, route, kind) =
                (text(&self.id), text(&self.cause), text(&self.route), text(&self.kind));
            let which = WhyQuery { id: &id, cause: &cause, route: &route, kind: &kind, after, limit };
            client::why(place.at(), place.token.as_deref(), &which).map_err(|e| unanswered(&e))
        };
        let answer = ask("", self.number.into())?;
        if !answer.is_success() {
            bail!("{}", answer.explanation());
        }
        let told = answer.json();
        let found = elements(&told["found"]);
        if !self.follow {
            return Ok(self.show_once(&answer.body, &told, found));
        }
        self.show_each(found);
        let mut cursor = told["cursor"].as_str().unwrap_or_default().to_owned();
        loop {
            std::thread::sleep(PACE);
            let answer = ask(&cursor, AT_ONCE)?;
            if !answer.is_success() {
                bail!("{}", answer.explanation());
            }
            let told = answer.json();
            self.show_each(elements(&told["found"]));
            if let Some(next) = told["cursor"].as_str() {
                next.clone_into(&mut cursor);
            }
        }
    }

    fn show_once(&self, body: &str, told: &Value, found: &[Value]) -> ExitCode {
        match self.format {
            Format::Json => print(body),
            Format::Text if found.is_empty() => print(&nothing(told)),
            Format::Text => self.show_each(found),
        }
        ExitCode::from(u8::from(found.is_empty()))
    }

    /// Oldest first, so that the latest is printed last, right above the prompt.
    fn show_each(&self, found: &[Value]) {
        for (at, one) in found.iter().rev().enumerate() {
            match self.format {
                Format::Json => print(&format!("{one}\n")),
                Format::Text => {
                    let apart = if at > 0 || self.follow { "\n" } else { "" };
                    print(&format!("{apart}{}", page(one)));
                }
            }
        }
    }
}

fn nothing(told: &Value) -> String {
    if told["on"] == false {
        return "nothing is kept: limits.autopsy is 0B\n".to_owned();
    }
    let since = match told["since"].as_str() {
        Some(since) => format!("failed ones are kept since {}", plain(since)),
        None => "none has failed since the start".to_owned(),
    };
    format!(
        "no such request is kept ({since}); one in {} of the successful requests is kept: --kind sampled\n",
        told["sample"]
    )
}

/// One request: the request line, the explanation, the timeline, the config key.
fn page(one: &Value) -> String {
    let mut out = String::new();
    let request = &one["request"];
    let status = match one["status"].as_u64() {
        None | Some(0) => "no answer".to_owned(),
        Some(status) => status.to_string(),
    };
    let cause = text(&one["cause"]["code"]);
    let cause = if cause.is_empty() { text(&one["kind"]) } else { cause };
    let asked = format!("{} {}{}", text(&request["method"]), text(&request["host"]), text(&request["path"]));
    let _ = writeln!(out, "{status} {cause}  {}", asked.trim()); // a String takes all
    let id = text(&one["id"]);
    let id = if id.is_empty() { String::new() } else { format!("  id {id}") };
    let _ = writeln!(out, "{}  took {}{id}", text(&one["at"]), time(&one["total_us"]));
    let _ = writeln!(out, "\n  {}\n", text(&one["sentence"]));
    for moment in elements(&one["timeline"]) {
        let took = match moment["took_us"].as_u64() {
            Some(_) => format!("  [{}]", time(&moment["took_us"])),
            None => String::new(),
        };
        let _ = writeln!(out, "  {:>10}  {}{took}", time(&moment["at_us"]), text(&moment["what"]));
    }
    for (title, list) in [("query", &request["query"]), ("fields", &request["fields"])] {
        let list: Vec<String> = elements(list).iter().map(text).collect();
        if !list.is_empty() {
            let _ = writeln!(out, "\n  {title} (name:bytes): {}", list.join(" "));
        }
    }
    for near in elements(&one["route"]["near"]) {
        let _ = writeln!(out, "  near: route `{}`, but {}", text(&near["route"]), text(&near["why"]));
    }
    let _ = writeln!(out, "\n  {}", change(one));
    if one["config_changed"] == true {
        let _ = writeln!(
            out,
            "  The config has changed since: this request used revision {}.",
            text(&one["revision"])
        );
    }
    out
}

/// The suggested change.
fn change(one: &Value) -> String {
    let key = &one["key"];
    let change = text(&one["cause"]["change"]);
    if key.is_null() {
        return match change.is_empty() {
            true => "Nothing to change.".to_owned(),
            false => format!("To change: {change}"),
        };
    }
    let mut told = format!("To change: {}", text(&key["key"]));
    if let Some(value) = key["value"].as_str() {
        let _ = write!(told, " = {}", plain(value));
    }
    if let Some(at) = key["at"].as_str() {
        let _ = write!(told, "  at {}", plain(at));
    }
    if let Some(note) = key["note"].as_str() {
        let _ = write!(told, "  ({})", plain(note));
    }
    if !change.is_empty() {
        let _ = write!(told, "\n  In general: {change}");
    }
    told
}

fn time(us: &Value) -> String {
    match us.as_u64().unwrap_or(0) {
        us @ 0..1_000 => format!("{us} µs"),
        us @ 1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        us => format!("{:.2} s", us as f64 / 1e6),
    }
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text without terminal control characters, since strangers wrote much of it.
fn text(value: &Value) -> String {
    plain(value.as_str().unwrap_or_default())
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_for_a_tired_person() {
        let one = json!({
            "id": "abc", "kind": "failed", "at": "2026-03-01T12:00:00.000Z", "status": 502, "total_us": 1500,
            "sentence": "Nothing listens there.\u{1b}[2J", "cause": { "code": "connect_refused", "change": "upstreams.*.endpoints" },
            "request": { "method": "GET", "host": "h", "path": "/a", "query": ["page:1"], "fields": ["host:1"] },
            "timeline": [ { "at_us": 0, "what": "HTTP/1.1" }, { "at_us": 200, "took_us": 1200, "what": "attempt" } ],
            "route": { "near": [] },
            "key": { "key": "upstreams.up.endpoints", "at": "weir.yaml:2", "value": null, "note": null }
        });
        let expected = "\
502 connect_refused  GET h/a
2026-03-01T12:00:00.000Z  took 1.5 ms  id abc

  Nothing listens there.[2J

        0 µs  HTTP/1.1
      200 µs  attempt  [1.2 ms]

  query (name:bytes): page:1

  fields (name:bytes): host:1

  To change: upstreams.up.endpoints  at weir.yaml:2
  In general: upstreams.*.endpoints
";
        assert_eq!(page(&one), expected);
    }

    #[test]
    fn what_is_missing_is_left_out() {
        assert!(page(&json!({})).starts_with("no answer   \n"), "{}", page(&json!({})));
        assert!(nothing(&json!({ "on": false })).contains("limits.autopsy"));
    }
}

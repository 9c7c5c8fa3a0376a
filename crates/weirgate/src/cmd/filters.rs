//! `weir filters`: lists the filters that a route can use, and their settings.

use super::{Format, print};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;
use weir_gateway::config::deprecated::DEPRECATED;
use weir_gateway::config::reference::add_deprecated;
use weir_gateway::filter::FilterKind;
use weir_gateway::filters::KINDS;

#[derive(Args)]
pub(super) struct Filters {
    /// Show this filter with its settings
    name: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Filters {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let Some(name) = &self.name else {
            match self.format {
                Format::Json => {
                    let all: Vec<Value> = KINDS.iter().map(|k| describe(k)).collect();
                    print(&format!("{:#}\n", Value::from(all)));
                }
                Format::Text => {
                    let width = KINDS.iter().map(|k| k.name.len()).max().unwrap_or_default();
                    let mut text = String::new();
                    for kind in KINDS {
                        let _ = writeln!(text, "{:width$}  {}", kind.name, summary(kind)); // into a String
                    }
                    print(&text);
                }
            }
            return Ok(ExitCode::SUCCESS);
        };
        let Some(kind) = KINDS.iter().find(|k| k.name == name) else {
            let all: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
            bail!("there is no filter `{name}`; expected one of: {}", all.join(", "));
        };
        match self.format {
            Format::Json => print(&format!("{:#}\n", describe(kind))),
            Format::Text => print(&manual(kind)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(kind: &FilterKind) -> Value {
    let causes: Vec<Value> = kind
        .causes
        .iter()
        .map(|c| serde_json::json!({ "code": c.code, "status": c.status, "meaning": c.meaning }))
        .collect();
    serde_json::json!({ "name": kind.name, "schema": schema(kind), "causes": causes })
}

/// The schema of its settings, deprecated ones included.
fn schema(kind: &FilterKind) -> Value {
    let mut schema = (kind.schema)().to_value();
    add_deprecated(DEPRECATED, &format!("filter.{}", kind.name), &mut schema);
    schema
}

fn description(kind: &FilterKind) -> String {
    let schema = (kind.schema)();
    schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The first sentence of the description, on one line.
fn summary(kind: &FilterKind) -> String {
    let description = description(kind);
    let paragraph = description.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    match paragraph.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => paragraph,
    }
}

fn manual(kind: &FilterKind) -> String {
    let schema = schema(kind);
    let mut text = format!("{}\n\n{}\n", kind.name, description(kind));
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        text.push_str("\nSettings:\n");
        for (name, field) in fields {
            let about = field.get("description").and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(text, "  {name}\n      {}", about.replace('\n', "\n      ")); // into a String
        }
    }
    if !kind.causes.is_empty() {
        text.push_str("\nCauses:\n");
        for cause in kind.causes {
            let _ = writeln!(text, "  {} {}  {}", cause.status, cause.code, cause.meaning); // into a String
        }
    }
    text
}

//! Statistics of Locust (`--csv`): each request becomes a scenario of one step, weighted by how often it was sent.

use super::model::{Plan, Request, Scenario, Target};
use super::{Cx, Kind, text};
use crate::source::Unreadable;
use crate::yaml::Map;

pub(super) static KIND: Kind = Kind { name: "locust-csv", title: "Locust CSV file", import };

/// Largest weight of a scenario, as weir-plan has it.
const WEIGHT: u64 = 1_000_000;

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let file = cx.source.file.clone();
    let rows = rows(&file.text).map_err(|(line, why)| Unreadable::at(&cx.place(line), why))?;
    let mut rows = rows.into_iter();
    let header = rows.next().map(|(_, cells)| cells).unwrap_or_default();
    let column = |names: &[&str]| {
        header.iter().position(|cell| names.iter().any(|name| cell.eq_ignore_ascii_case(name)))
    };
    let (Some(kind), Some(name), Some(count)) =
        (column(&["Type", "Method"]), column(&["Name"]), column(&["Request Count", "# requests"]))
    else {
        let why = "no statistics of Locust: expected the columns Type, Name and Request Count, as in PREFIX_stats.csv";
        return Err(Unreadable::at(&cx.place(1), why));
    };
    let rate = column(&["Requests/s"]);
    let mut plan = Plan { target: Some(Target::Unknown), ..Plan::default() };
    let (mut total, mut counts): (Option<f64>, Vec<u64>) = (None, Vec::new());
    for (line, cells) in rows {
        let cell = |at: usize| cells.get(at).map_or("", |cell| cell.trim());
        let (method, path) = (cell(kind).to_ascii_uppercase(), cell(name).to_owned());
        if path == "Aggregated" || path == "Total" || method.is_empty() && path.is_empty() {
            total = rate.and_then(|at| cell(at).parse().ok());
            continue;
        }
        let bare = path.split(['?', '#']).next().unwrap_or_default().to_owned();
        let piece = cx.ledger.enter(cx.place(line), &format!("{method} {bare}"));
        let Some(times) = cell(count).parse::<u64>().ok() else {
            cx.ledger.refused(piece, "its count of requests is no number", "correct the source");
            continue;
        };
        if times == 0 {
            cx.ledger.left_out(piece, "it was never sent");
            continue;
        }
        if !["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].contains(&&*method) {
            cx.ledger.refused(piece, "it is no request of HTTP", "a step with `grpc:`, `ws:` or `exec:`");
            continue;
        }
        if !path.starts_with('/') && text::split_url(&path).is_none() {
            cx.ledger.refused(
                piece,
                "its name is a label and no path, so what was sent is not known",
                "a step with its URL",
            );
            continue;
        }
        let url = match text::split_url(&path) {
            Some((server, rest)) => format!("{server}{}", text::url_literal(&rest)),
            None => text::url_literal(&path),
        };
        let url = cx.vault.hidden_within("query_secret", &url).unwrap_or(url);
        if path.contains(['[', '<', '{']) {
            cx.ledger
                .changed(piece, "its name looks like a pattern: put a value or a placeholder in its place");
        } else if matches!(&*method, "POST" | "PUT" | "PATCH") {
            cx.ledger.changed(piece, "statistics have no bodies: it is sent without one");
        } else {
            cx.ledger.same(piece);
        }
        let mut request = Request::new(method, url);
        request.checks = vec!["status=2xx,3xx".to_owned()];
        counts.push(times);
        plan.scenarios.push(Scenario {
            name: format!("{} {}", request.method, bare),
            steps: vec![request.step(piece)],
            ..Scenario::default()
        });
    }
    // Shares stay as they are; only numbers beyond the limit of a weight are made smaller.
    let most = counts.iter().copied().max().unwrap_or(1);
    let divisor = most.div_ceil(WEIGHT).max(1);
    for (scenario, count) in plan.scenarios.iter_mut().zip(counts) {
        scenario.more = Map::new().with("weight", i64::try_from((count / divisor).max(1)).unwrap_or(1));
    }
    super::har::hoist(&mut plan);
    match total.filter(|total| total.is_finite() && *total > 0.0) {
        Some(total) => {
            plan.comments.push("The rate is that of all requests in the statistics.".to_owned());
            plan.more.set("rate", format!("{}/s", (total * 100.0).round().max(1.0) / 100.0));
        }
        None => plan.more.set("users", 1_i64),
    }
    Ok(plan)
}

/// The line of a row, and its cells.
type Row = (u32, Vec<String>);

/// The rows of a CSV file (RFC 4180), each with its line. The error has the line.
fn rows(text: &str) -> Result<Vec<Row>, (u32, String)> {
    const ROWS: usize = 100_000;
    let mut all = Vec::new();
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let (mut line, mut begins) = (1, 1);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if quoted => quoted = false,
            '"' if cell.is_empty() => quoted = true,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                cells.push(std::mem::take(&mut cell).trim_end_matches('\r').to_owned());
                line += 1;
                let row = std::mem::take(&mut cells);
                if row.iter().any(|cell| !cell.is_empty()) {
                    all.push((begins, row));
                }
                begins = line;
                if all.len() > ROWS {
                    return Err((line, format!("more than {ROWS} rows")));
                }
            }
            c => {
                line += u32::from(c == '\n');
                cell.push(c);
            }
        }
    }
    if quoted {
        return Err((begins, "a quote is not closed".to_owned()));
    }
    if !cell.is_empty() || !cells.is_empty() {
        cells.push(cell);
        all.push((begins, cells));
    }
    Ok(all)
}

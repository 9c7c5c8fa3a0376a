//! The report: the result of each fault, and the verdict.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use crate::account::{Account, Beside};
use crate::faults::Upgrade;

/// `DATE-COMMIT-soak.md`, like the names of other results.
pub(crate) fn file_name() -> String {
    format!("{}-{}-soak.md", said("date", &["-u", "+%F"]), said("git", &["rev-parse", "--short", "HEAD"]))
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

pub(crate) fn text(account: &Account, length: Duration) -> String {
    let mut out = format!(
        "# All faults at once\n\n{} s on {} cores, {}.\n\n\
         Each request has an id, which the client and the origin write down. `refused` counts what was not answered with 200: POSTs that an origin may have seen \
         are never sent again, so a fault in the middle of one is told.\n\n\
         A fault rests for a third of its time, turn by turn. `steady` is a route whose origin has no fault: p99 while the fault is on, while it rests, and the first over the \
         second; `direct` is the same for its origin asked without the gateway, so what both have is the machine's.\n\n\
         Memory is that of the process itself. Pages of the program's file do not count: the kernel can drop and read them again.\n\n\
         | fault | requests | answered | refused | steady p50, ms | steady p99, ms: on, at rest, × | direct p99, ms: on, at rest, × | KiB at the end |\n\
         |---|---:|---:|---|---:|---:|---:|---:|\n",
        length.as_secs(),
        std::thread::available_parallelism().map_or(0, |n| n.get()),
        said("uname", &["-srm"]),
    );
    let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1000.0);
    let beside = |times: &Beside| {
        let (on, rest) = (times.fault.1, times.rest.1);
        if on.is_zero() || rest.is_zero() {
            return ms(on.max(rest)); // the quiet time, or a fault that never pauses
        }
        format!("{}, {}, {:.2}", ms(on), ms(rest), times.ratio())
    };
    for (row, memory) in account.rows.iter().zip(&account.memory) {
        let refused: Vec<String> = row.refused.iter().map(|(why, n)| format!("{n} × {why}")).collect();
        let refused = if refused.is_empty() { "-".to_owned() } else { refused.join("; ") };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {refused} | {} | {} | {} | {memory} |",
            row.fault,
            row.requests,
            row.answered,
            ms(row.steady.fault.0),
            beside(&row.steady),
            beside(&row.direct),
        );
    }
    let requests: usize = account.rows.iter().map(|row| row.requests).sum();
    let _ = write!(
        out,
        "\n- {requests} requests, every one accounted for by its id: {} answers to none that an origin got, {} at an origin that no client sent.\n\
         - {} POSTs reached an origin twice. {} GETs did, by retries.\n\
         - {} reloads, {} refused.\n",
        account.invented,
        account.unknown,
        account.doubled,
        account.repeated,
        account.reloads,
        account.refused_reloads,
    );
    let done = account.upgrades.iter().filter(|upgrade| matches!(upgrade, Upgrade::Done { .. })).count();
    let refused = account.upgrades.iter().filter(|upgrade| **upgrade == Upgrade::Refused).count();
    let _ = writeln!(out, "- {done} upgrades under full load, {refused} refused for a broken program.");
    if let Some(pair) = account.pair() {
        let _ = writeln!(
            out,
            "- Both processes of an upgrade together took at most {pair:.2} times the memory that one takes at most."
        );
    }
    let pairs = account.upgrades.iter().filter_map(Upgrade::kib);
    let pairs: Vec<String> = pairs.map(|(alone, together)| format!("{alone} → {together}")).collect();
    let _ =
        writeln!(out, "- KiB of one process before an upgrade, and of both after it: {}.", pairs.join(", "));
    let (before, after) = account.growth();
    let _ = writeln!(out, "- Memory: {before} KiB after the quiet time, {after} KiB after the last fault.");
    if let Some(row) = account.lateness() {
        let _ = writeln!(
            out,
            "- p99 of requests without a fault grew most, beyond what the machine did, during `{}`: {:.2} times that of its rests, where without the gateway it was {:.2} \
             times; the first over the second is {:.2}. The aim is 1.2.",
            row.fault,
            row.steady.ratio(),
            row.direct.ratio(),
            row.excess(),
        );
    }
    match account.wrong() {
        wrong if wrong.is_empty() => out.push_str("\n**Nothing was lost, doubled or invented.**\n"),
        wrong => {
            out.push_str("\n**Wrong:**\n\n");
            for line in wrong {
                let _ = writeln!(out, "- {line}");
            }
        }
    }
    out
}

//! `gitlab`: a code quality report of GitLab, which shows failures in the merge request
//! (`artifacts: reports: codequality`).

use super::cases::{Kind, Outcome, cases, clean, title};
use super::format::Format;
use crate::report::{Grade, Report};
use serde_json::json;
use sha2::{Digest as _, Sha256};

pub(super) static FORMAT: Format = Format {
    name: "gitlab",
    about: "a code quality report of GitLab: an entry for each failure, shown in the merge request",
    differs: "",
    print,
};

/// GitLab wants a file for each entry. A load has none, so all entries name the file that runs it.
const PATH: &str = ".gitlab-ci.yml";

fn print(r: &Report) -> String {
    let run = title(r);
    let entry = |case: super::cases::Case| {
        let severity = match (&case.outcome, case.kind) {
            (Outcome::Error(_), _) => "critical",
            (Outcome::Failed(_), _) => "major",
            (Outcome::Noted(_), Kind::Verdict) if r.verdict.grade == Grade::Suspect => "minor",
            _ => return None,
        };
        let kind = case.kind.name();
        // The same failure of the next run has the same fingerprint, so GitLab knows that it is not new.
        let parts = [run.as_str(), kind, case.name.as_str()].map(|part| format!("{}:{part}", part.len()));
        let fingerprint = Sha256::digest(parts.concat());
        Some(json!({
            "description": clean(&format!("{run}: {}: {}", case.name, case.outcome.text())),
            "check_name": format!("weir/{kind}"),
            "fingerprint": crate::comparison::baseline::hex(&fingerprint),
            "severity": severity,
            "location": { "path": PATH, "lines": { "begin": 1 } },
        }))
    };
    let all: Vec<_> = cases(r).into_iter().filter_map(entry).collect();
    format!("{}\n", json!(all))
}

#[cfg(test)]
mod tests {
    use super::super::cases::testing;
    use super::*;

    #[test]
    fn failures_are_entries_with_a_stable_fingerprint() {
        let all: serde_json::Value = serde_json::from_str(&print(&testing::report())).unwrap();
        let all = all.as_array().unwrap();
        let severities: Vec<&str> = all.iter().map(|e| e["severity"].as_str().unwrap()).collect();
        assert_eq!(severities, ["critical", "major", "major", "major", "major"]);
        let prints: std::collections::BTreeSet<_> = all.iter().map(|e| e["fingerprint"].as_str()).collect();
        assert_eq!(prints.len(), 5, "each has its own");
        let mut later = testing::report();
        later.thresholds[0].measured = Some(3e9);
        let again: serde_json::Value = serde_json::from_str(&print(&later)).unwrap();
        assert_eq!(again[2]["fingerprint"], all[2]["fingerprint"]);
        assert_ne!(again[2]["description"], all[2]["description"]);
        assert_eq!(print(&Report::default()), "[]\n");
    }
}

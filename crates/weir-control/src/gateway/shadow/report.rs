//! What a shadow has found, as counted by its judge and as told to people and programs.

use super::compare::Change;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;
use weir_engine::shadow::Seen;

/// Most kinds of changed decisions told one by one; the others are counted together.
const ROWS: usize = 64;

/// Most examples of each.
const EXAMPLES: usize = 5;

/// Above this share of unexplained exchanges a report is not to be believed.
const UNEXPLAINED: f64 = 0.01;

/// What the judge counts. Bounded: [`ROWS`] rows of [`EXAMPLES`] examples.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) judged: u64,
    pub(super) changed: u64,
    pub(super) unexplained: u64,
    pub(super) not_judged: u64,
    /// Changed decisions of kinds beyond the first [`ROWS`].
    more: u64,
    changes: Vec<ChangedDecision>,
    misfits: Vec<Unexplained>,
}

/// Decisions that change in one way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangedDecision {
    /// What is decided now.
    pub before: String,
    /// What the candidate decides.
    pub after: String,
    /// The first setting that differs.
    pub key: String,
    /// Whether the filter that differs was not run, so that only its settings were compared.
    pub estimate: bool,
    /// How many requests.
    pub count: u64,
    /// Their share of the judged requests, from 0 to 1.
    pub share: f64,
    /// Up to five of them.
    pub examples: Vec<Example>,
}

/// Requests whose live outcome is not what the judge finds for the running config.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Unexplained {
    /// What differs.
    pub why: &'static str,
    /// What the judge finds for the running config.
    pub decision: String,
    /// How many requests.
    pub count: u64,
    /// Up to five of them.
    pub examples: Vec<Example>,
}

/// A request, without any value that may be secret.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Example {
    /// Its id, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The method.
    pub method: String,
    /// The host.
    pub host: String,
    /// The path; keys in it are hidden.
    pub path: String,
    /// The names of its query parameters.
    pub query: Vec<String>,
    /// The names of its header fields.
    pub fields: Vec<String>,
    /// The status of the live answer.
    pub status: u16,
}

/// What a shadow has found so far.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Shadow")]
pub struct ShadowReport {
    /// Identifies the shadow in further calls.
    pub id: String,
    /// `running` or `ended`.
    pub state: &'static str,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Who started it.
    pub holder: String,
    /// When.
    pub since: String,
    /// For how long it runs at most, in seconds.
    pub for_seconds: f64,
    /// How long it has run, in seconds.
    pub ran_seconds: f64,
    /// The sampled share of requests, from 0 to 1.
    pub sample: f64,
    /// Requests that ended while it ran.
    pub seen: u64,
    /// Those of them that were sampled.
    pub sampled: u64,
    /// The sampled ones that were dropped, because the judge is limited to 1 % of a core.
    pub dropped: u64,
    /// Those that no config decides about: refused heads, and exchanges that ended before their route was found.
    pub not_judged: u64,
    /// Those whose live outcome is not what the judge finds for the running config. They are not among the judged.
    pub unexplained: u64,
    /// Requests whose decisions were compared.
    pub judged: u64,
    /// Those that the candidate decides otherwise.
    pub changed: u64,
    /// The same as a share of the judged, from 0 to 1.
    pub share: f64,
    /// The largest share that is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_change: Option<f64>,
    /// How many requests a conclusion needs.
    pub min_judged: u64,
    /// `within`, `over`, `inconclusive` or `unbelievable`.
    pub verdict: &'static str,
    /// The verdict in a sentence.
    pub sentence: String,
    /// Processor time of the judge, in milliseconds.
    pub cpu_ms: f64,
    /// The changed decisions, the most frequent first.
    pub changes: Vec<ChangedDecision>,
    /// Changed decisions of further kinds.
    pub more: u64,
    /// The unexplained requests, by what differs.
    pub misfits: Vec<Unexplained>,
    /// Settings that differ and that no decision about a request shows.
    pub not_shown: Vec<String>,
    /// All of it, for people.
    pub text: String,
}

impl Tally {
    pub(super) fn change(&mut self, change: Change, seen: &Seen) {
        self.changed += 1;
        let is_it = |row: &&mut ChangedDecision| {
            row.key == change.key && row.before == change.before && row.after == change.after
        };
        if let Some(row) = self.changes.iter_mut().find(is_it) {
            row.count += 1;
            add(&mut row.examples, seen);
        } else if self.changes.len() < ROWS {
            let Change { before, after, key, estimate } = change;
            let examples = vec![Example::of(seen)];
            self.changes.push(ChangedDecision {
                before,
                after,
                key,
                estimate,
                count: 1,
                share: 0.0,
                examples,
            });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn misfit(&mut self, why: &'static str, decision: String, seen: &Seen) {
        self.unexplained += 1;
        if let Some(row) = self.misfits.iter_mut().find(|row| row.why == why && row.decision == decision) {
            row.count += 1;
            add(&mut row.examples, seen);
        } else if self.misfits.len() < ROWS {
            self.misfits.push(Unexplained { why, decision, count: 1, examples: vec![Example::of(seen)] });
        }
    }

    /// Fills in what was counted, the verdict and the text.
    pub(super) fn tell(&self, mut report: ShadowReport) -> ShadowReport {
        (report.judged, report.changed) = (self.judged, self.changed);
        (report.unexplained, report.not_judged, report.more) = (self.unexplained, self.not_judged, self.more);
        report.share = share(self.changed, self.judged);
        report.changes.clone_from(&self.changes);
        report.changes.iter_mut().for_each(|row| row.share = share(row.count, self.judged));
        report.changes.sort_by_key(|row| std::cmp::Reverse(row.count));
        report.misfits.clone_from(&self.misfits);
        (report.verdict, report.sentence) = verdict(&report);
        report.text = report.to_text();
        report
    }
}

fn add(examples: &mut Vec<Example>, seen: &Seen) {
    if examples.len() < EXAMPLES {
        examples.push(Example::of(seen));
    }
}

fn share(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn verdict(report: &ShadowReport) -> (&'static str, String) {
    let ShadowReport { judged, changed, unexplained, min_judged, .. } = *report;
    if judged < min_judged {
        let of = format!("only {judged} requests were judged, and a conclusion needs {min_judged}");
        return ("inconclusive", format!("INCONCLUSIVE: {of}"));
    }
    let odd = share(unexplained, judged + unexplained);
    if odd > UNEXPLAINED {
        let of =
            format!("{unexplained} requests ({}) ended differently than the judge computed", percent(odd));
        return ("unbelievable", format!("UNRELIABLE: {of} for the running config"));
    }
    let told = match changed {
        0 => format!("NO CHANGE: both configs decide all {judged} judged requests alike"),
        _ => format!(
            "CHANGE: the candidate decides {changed} of {judged} judged requests differently ({})",
            percent(report.share)
        ),
    };
    match report.max_change {
        Some(most) if report.share > most => ("over", format!("{told}, more than {}", percent(most))),
        Some(most) => ("within", format!("{told}, at most {} are accepted", percent(most))),
        None => ("within", told),
    }
}

impl ShadowReport {
    /// For people.
    fn to_text(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out); // a String takes everything
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let ended = self.ended.as_deref().map_or_else(String::new, |why| format!("; {why}"));
        writeln!(
            out,
            "shadow   {} {:.0} s, {} of the requests sampled{ended}",
            self.state,
            self.ran_seconds,
            percent(self.sample)
        )?;
        writeln!(
            out,
            "requests {} seen, {} sampled, {} judged, {} dropped, {} not judged, {} unexplained",
            self.seen, self.sampled, self.judged, self.dropped, self.not_judged, self.unexplained
        )?;
        for row in &self.changes {
            writeln!(out, "\n{} requests ({}): {}", row.count, percent(row.share), row.key)?;
            writeln!(out, "  now      {}", row.before)?;
            writeln!(out, "  then     {}", row.after)?;
            if row.estimate {
                writeln!(out, "  estimate the filter was not run: only its settings are compared")?;
            }
            row.examples.iter().try_for_each(|example| example.write(out))?;
        }
        if self.more > 0 {
            writeln!(out, "\n{} requests in further ways", self.more)?;
        }
        for row in &self.misfits {
            writeln!(out, "\n{} requests unexplained: {}", row.count, row.why)?;
            writeln!(out, "  judged   {}", row.decision)?;
            row.examples.iter().try_for_each(|example| example.write(out))?;
        }
        if !self.not_shown.is_empty() {
            writeln!(out, "\nnot shown by requests: {}", self.not_shown.join(", "))?;
        }
        writeln!(out, "\nverdict  {}", self.sentence)
    }
}

impl Example {
    fn of(seen: &Seen) -> Self {
        let Seen { id, method, host, path, query, fields, status } = seen.clone();
        Self { id, method, host, path, query, fields, status }
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Self { method, host, path, status, .. } = self;
        write!(out, "  example  {status} {method} {host}{path}")?;
        if !self.query.is_empty() {
            write!(out, " ?{}", self.query.join("&"))?;
        }
        if !self.fields.is_empty() {
            write!(out, " [{}]", self.fields.join(", "))?;
        }
        if !self.id.is_empty() {
            write!(out, " id {}", self.id)?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(min_judged: u64, max_change: Option<f64>) -> ShadowReport {
        ShadowReport {
            id: "1".to_owned(),
            state: "ended",
            ended: None,
            holder: "local".to_owned(),
            since: String::new(),
            for_seconds: 1.0,
            ran_seconds: 1.0,
            sample: 1.0,
            seen: 0,
            sampled: 0,
            dropped: 0,
            not_judged: 0,
            unexplained: 0,
            judged: 0,
            changed: 0,
            share: 0.0,
            max_change,
            min_judged,
            verdict: "",
            sentence: String::new(),
            cpu_ms: 0.0,
            changes: Vec::new(),
            more: 0,
            misfits: Vec::new(),
            not_shown: Vec::new(),
            text: String::new(),
        }
    }

    fn change(key: &str) -> Change {
        Change { before: "a".to_owned(), after: "b".to_owned(), key: key.to_owned(), estimate: false }
    }

    #[test]
    fn verdicts() {
        for (judged, changed, unexplained, max_change, expected) in [
            (99, 0, 0, None, "inconclusive"),
            (100, 100, 0, None, "within"),
            (1000, 1, 0, Some(0.001), "within"),
            (1000, 2, 0, Some(0.001), "over"),
            (1000, 0, 11, Some(0.5), "unbelievable"),
            (1000, 0, 10, Some(0.0), "within"),
            (1000, 1, 0, Some(0.0), "over"),
        ] {
            let tally = Tally { judged, changed, unexplained, ..Tally::default() };
            let told = tally.tell(report(100, max_change));
            assert_eq!(told.verdict, expected, "{}", told.sentence);
        }
    }

    #[test]
    fn rows_and_examples_are_bounded() {
        let mut tally = Tally { judged: 1000, ..Tally::default() };
        let seen = Seen::default();
        for n in 0..ROWS + 9 {
            for _ in 0..EXAMPLES + 3 {
                tally.change(change(&format!("routes.{n}")), &seen);
            }
        }
        let told = tally.tell(report(1, None));
        assert_eq!((told.changes.len(), told.more), (ROWS, 9 * (EXAMPLES as u64 + 3)));
        assert!(told.changes.iter().all(|row| row.examples.len() == EXAMPLES && row.count == 8));
        assert_eq!(told.changed, (ROWS as u64 + 9) * 8);
    }
}

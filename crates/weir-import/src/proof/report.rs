//! What a proof found, per line of the source.

use super::compare::{
    AMBIGUOUS, AMBIGUOUS_CAUSE, Difference, FORWARDING, NEUTRAL, Observation, compare, uncertain,
};
use super::patterns::{Effect, Line, PathPattern, Patterns, Setting};
use super::program::Program;
use super::witness::{Ask, Witness};
use crate::ledger::{Ledger, Verdict};
use crate::source::Place;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lines without a difference that the text lists; `--format json` and the page have all.
const SAME_SHOWN: usize = 200;

/// How to accept what Weir tells upstreams about clients.
pub(super) const ACCEPT_ONCE: &str = "It is one decision for the whole config. Accept it in proof.yaml: \
                                      - { difference: forwarding-fields, why: Weir says who asks, and believes no client }";

/// At how many lines a difference must be to be told once for all.
const EVERYWHERE: usize = 4;

/// A difference that the operator accepts: an element of `accept` in proof.yaml.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// Its name in the report, such as `status` or `upstream field x-forwarded-for`. A `*` at the end stands for
    /// any rest.
    pub difference: String,
    /// Only where the witness takes this route of ours. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Only at this line of the source, by its text. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Only for requests of this kind, as the report names it in parentheses, such as `with dot segments`. A `*` at
    /// the end stands for any rest. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// Why it is accepted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The outcome of a proof.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The system in sentences.
    pub title: String,
    /// Its program with version, if it ran.
    pub program: String,
    /// The lines of the source, in order.
    pub rows: Vec<Row>,
    /// How many witnesses were asked.
    pub asked: usize,
    /// How many more there would have been.
    pub dropped: usize,
    /// How many more variations of values and regular expressions there would have been.
    pub variations_left: usize,
    /// Witnesses without a difference.
    pub same: usize,
    /// Witnesses with a difference that is not accepted.
    pub differ: usize,
    /// Witnesses with accepted differences only.
    pub accepted: usize,
    /// Witnesses with [`FORWARDING`] that is not accepted, and the smallest one: told once, not at each line.
    pub forwarding: Option<(usize, Shown)>,
    /// Entries of `accept` that nothing needed.
    pub unused: Vec<Accepted>,
    /// Why nothing was proved, if so.
    pub not_proved: Option<String>,
}

/// A line of the source.
#[derive(Clone, Debug)]
pub struct Row {
    /// The line.
    pub line: Line,
    /// Witnesses without a difference that passed it.
    pub same: usize,
    /// Witnesses whose difference it causes.
    pub differs: usize,
    /// The smallest witness of each difference, by name.
    pub shown: Vec<Shown>,
    /// Why it is not in the config, if so.
    pub left_out: Option<String>,
    /// Why no witness can judge it, if so.
    pub unprovable: Option<String>,
}

/// A difference with its smallest witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The witness.
    pub ask: Ask,
    /// What is special about it.
    pub about: String,
    /// The difference.
    pub difference: Difference,
    /// The key of our config that answers it.
    pub ours: Option<String>,
    /// Whether proof.yaml accepts it.
    pub is_accepted: bool,
}

impl Report {
    /// A proof that could not take place.
    #[must_use]
    pub fn not_proved(title: &str, ledger: &Ledger, why: impl Into<String>) -> Self {
        let rows = Rows::new(ledger).rows;
        Self { title: title.to_owned(), rows, not_proved: Some(why.into()), ..Self::default() }
    }

    /// The table of what was observed: for each witness the old program and Weir. `route` names the key of our config
    /// that takes a request.
    #[must_use]
    pub fn new(
        program: &Program,
        ledger: &Ledger,
        patterns: &Patterns,
        observed: &[(Witness, Observation, Observation)],
        accept: &[Accepted],
        route: &dyn Fn(&Ask) -> Option<String>,
    ) -> Self {
        let title = program.title.to_owned();
        let mut report = Self { title, asked: observed.len(), ..Self::default() };
        let mut rows = Rows::new(ledger);
        for (line, why) in &patterns.unprovable {
            let row = rows.of(line);
            row.unprovable = Some(why.clone());
        }
        let mut used = vec![false; accept.len()];
        for (witness, old, new) in observed {
            let found = compare(&witness.ask, old, new, &patterns.groups, program.own_pages);
            let refilled = uncertain(&witness.ask, old, new);
            if refilled > 0 {
                let why = format!(
                    "it let up to {refilled} more pass while {} requests were sent: only larger differences would show",
                    witness.ask.calls
                );
                rows.of(&witness.line).unprovable = Some(why);
            }
            let path = witness.of.and_then(|(site, path)| patterns.sites.get(site)?.paths.get(path));
            if found.is_empty() {
                report.same += 1;
                rows.of(&witness.line).same += 1;
                // Only what stands at the witness's own line was surely passed.
                let settings = path.filter(|path| path.line == witness.line).map(|path| &path.settings);
                let mut counted: Vec<&Place> = vec![&witness.line.place];
                for setting in settings.into_iter().flatten() {
                    if !counted.contains(&&setting.line.place) {
                        counted.push(&setting.line.place);
                        rows.of(&setting.line).same += 1;
                    }
                }
                continue;
            }
            // Only a few of many witnesses are shown, and looking a route up is not cheap.
            let looked_up = OnceCell::new();
            let ours = || looked_up.get_or_init(|| route(&witness.ask)).as_deref();
            let mut is_open = false;
            let mut blamed: Vec<&Line> = Vec::new();
            let (forwarding, found): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|difference| difference.name == FORWARDING);
            if found.is_empty() {
                rows.of(&witness.line).same += 1;
            }
            for difference in forwarding {
                let takes = |entry: &Accepted| entry.takes(&difference, &ours, &witness.line, &witness.about);
                if let Some(used) = accept.iter().position(takes).and_then(|at| used.get_mut(at)) {
                    *used = true;
                    continue;
                }
                is_open = true;
                let count = report.forwarding.as_ref().map_or(0, |(count, _)| *count) + 1;
                let kept = report.forwarding.take().map(|(_, shown)| shown);
                let smallest = kept.filter(|kept| kept.ask.weight() <= witness.ask.weight());
                let shown = || Shown::new(witness, difference, ours(), false);
                report.forwarding = Some((count, smallest.unwrap_or_else(shown)));
            }
            for mut difference in found {
                if difference.name == "status" && difference.new == "400" {
                    let is_ambiguous = ours().is_some_and(|why| why.starts_with(AMBIGUOUS_CAUSE));
                    if is_ambiguous {
                        difference.name = AMBIGUOUS.to_owned();
                    }
                }
                let status = |seen: &Observation| seen.answers.last().map_or(0, |answer| answer.status);
                let statuses = (status(old), status(new));
                let causes = |setting: &&Setting| setting.causes(&difference.effect, statuses);
                // What an upstream saw and answered belongs to the pattern that sent it there, which may not be the
                // one that the witness was made for. A limit and a condition have lines of their own.
                let is_own = path.is_some_and(|path| path.line == witness.line);
                let line = match &difference.effect {
                    Effect::Redirect | Effect::Status(_) | Effect::Who if !is_own => &witness.line,
                    Effect::Redirect | Effect::Status(_) | Effect::Who => {
                        let cause = path.and_then(|path| path.settings.iter().find(causes));
                        cause.map_or(&witness.line, |setting| &setting.line)
                    }
                    _ => {
                        let answered = patterns.who_answered(witness.of, old).or(path);
                        let cause = answered.and_then(|path| path.settings.iter().find(causes));
                        cause.map_or(&witness.line, |setting| &setting.line)
                    }
                };
                let takes = |entry: &Accepted| entry.takes(&difference, &ours, line, &witness.about);
                let entry = accept.iter().position(takes);
                if let Some(used) = entry.and_then(|at| used.get_mut(at)) {
                    *used = true;
                }
                let is_accepted = entry.is_some();
                is_open |= !is_accepted;
                if !is_accepted && !blamed.contains(&line) {
                    blamed.push(line);
                    rows.of(line).differs += 1;
                }
                let row = rows.of(line);
                if row.wants(&witness.ask, &difference, is_accepted) {
                    row.keep(Shown::new(witness, difference, ours(), is_accepted));
                }
            }
            *if is_open { &mut report.differ } else { &mut report.accepted } += 1;
        }
        report.rows = rows.rows;
        report.unused =
            accept.iter().zip(used).filter(|(_, used)| !used).map(|(entry, _)| entry.clone()).collect();
        report
    }

    /// Whether everything that was asked is the same or accepted.
    #[must_use]
    pub const fn is_proved(&self) -> bool {
        self.not_proved.is_none() && self.differ == 0 && self.dropped == 0
    }

    /// Whether a difference decides who passes or where a request goes.
    #[must_use]
    pub fn decides_otherwise(&self) -> bool {
        self.rows.iter().any(|row| row.rank() == 0)
    }

    /// The last line of the text.
    #[must_use]
    pub fn summary(&self) -> String {
        if let Some(why) = &self.not_proved {
            return format!("NOT PROVED: {why}");
        }
        let lines = self.rows.iter().filter(|row| row.differs > 0).count();
        let mut text =
            format!("{} requests asked of {} and of Weir: {} the same", self.asked, self.program, self.same);
        if self.accepted > 0 {
            let _ = write!(text, ", {} with accepted differences", self.accepted);
        }
        if self.differ > 0 {
            let word = if lines == 1 { "line" } else { "lines" };
            let place = if lines > 0 { format!(", at {lines} {word}") } else { String::new() };
            let _ = write!(text, ", {} differ{place}", self.differ);
            if let Some((count, _)) = &self.forwarding {
                let _ = write!(text, " ({count} by {FORWARDING})");
            }
        }
        if self.dropped > 0 {
            let _ = write!(text, "; {} more were not asked: split the source", self.dropped);
        }
        if self.variations_left > 0 {
            let _ = write!(text, "; {} further variations of values were left out", self.variations_left);
        }
        text
    }

    /// The report as text. Lines that decide who passes or where a request goes come first: what upstreams learn
    /// differs at many lines and would hide them.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let everywhere = self.everywhere();
        let same = self.rows.iter().filter(|row| row.word() == "SAME").count();
        let (first, rest): (Vec<&Row>, Vec<&Row>) = self.rows.iter().partition(|row| row.rank() == 0);
        first.iter().for_each(|row| self.row(row, &everywhere, &mut text));
        if !first.is_empty() && (self.forwarding.is_some() || !everywhere.is_empty()) {
            text.push('\n');
        }
        if let Some((count, shown)) = &self.forwarding {
            let _ = writeln!(
                text,
                "Upstreams learn other things about the client: {FORWARDING}, {count} requests"
            );
            self.difference(shown, &mut text);
            let _ = writeln!(text, "    {ACCEPT_ONCE}\n");
        }
        if !everywhere.is_empty() {
            text.push_str("At many lines\n");
            for (lines, shown) in everywhere.values() {
                let _ = writeln!(text, "  {} differs at {lines} lines; one request:", shown.difference.name);
                self.difference(shown, &mut text);
            }
            text.push('\n');
        }
        for row in rest {
            let word = row.word();
            if !word.is_empty() && (word != "SAME" || same <= SAME_SHOWN) {
                self.row(row, &everywhere, &mut text);
            }
        }
        if same > SAME_SHOWN {
            let _ = writeln!(text, "SAME           {same} lines: --format json and --report have all");
        }
        for entry in &self.unused {
            let _ = writeln!(text, "proof.yaml accepts `{}`, but it does not occur", entry.difference);
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    /// A line of the source with its differences, but for those that are told once for all.
    fn row(&self, row: &Row, everywhere: &BTreeMap<&str, (usize, &Shown)>, text: &mut String) {
        let word = row.word();
        let count = match word {
            "SAME" => format!(" {}", row.same),
            "DIFFERS" => format!(" {}", row.differs),
            _ => String::new(),
        };
        let head = format!("{word}{count}");
        let _ = writeln!(text, "{head:<14} {}: {}", row.line.place, row.line.text);
        if let Some(why) = row.reason() {
            let _ = writeln!(text, "    {why}");
        }
        let is_news = |shown: &&Shown| !everywhere.contains_key(&*shown.difference.name);
        for shown in row.by_rank().filter(|shown| !shown.is_accepted).filter(is_news) {
            let _ = writeln!(text, "    {}", shown.difference.name);
            self.difference(shown, text);
        }
    }

    /// Differences at many lines, which would hide the others: how many lines, and the smallest witness.
    fn everywhere(&self) -> BTreeMap<&str, (usize, &Shown)> {
        let mut all: BTreeMap<&str, (usize, &Shown)> = BTreeMap::new();
        for shown in self.rows.iter().flat_map(|row| &row.shown).filter(|shown| !shown.is_accepted) {
            let (lines, smallest) = all.entry(&shown.difference.name).or_insert((0, shown));
            *lines += 1;
            if shown.ask.weight() < smallest.ask.weight() {
                *smallest = shown;
            }
        }
        // Only fields are added for every request; statuses and answers are news at each line.
        all.retain(|name, (lines, _)| {
            *lines >= EVERYWHERE && (name.contains(" field ") || *name == AMBIGUOUS)
        });
        all
    }

    fn difference(&self, shown: &Shown, text: &mut String) {
        let width = self.title.len().max("in Weir".len()) + 1;
        let mut line = |name: &str, value: &str| {
            let name = format!("{name}:");
            let _ = writeln!(text, "      {name:<width$} {}", one_line(value));
        };
        line("asked", &format!("{} ({})", shown.ask.shown(), shown.about));
        line(&self.title, &shown.difference.old);
        line("Weir", &shown.difference.new);
        if let Some(ours) = &shown.ours {
            line("in Weir", ours);
        }
    }

    /// The report as JSON. It has every line.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let shown = |shown: &Shown| {
            json!({
                "difference": shown.difference.name,
                "witness": shown.ask.shown(),
                "request": shown.ask,
                "about": shown.about,
                "old": shown.difference.old,
                "weir": shown.difference.new,
                "key": shown.ours,
                "accepted": shown.is_accepted,
            })
        };
        let row = |row: &Row| {
            json!({
                "file": &*row.line.place.file,
                "line": row.line.place.line,
                "text": row.line.text,
                "verdict": row.word().to_ascii_lowercase().replace(' ', "_"),
                "same": row.same,
                "differs": row.differs,
                "why": row.reason(),
                "differences": row.shown.iter().map(shown).collect::<Vec<_>>(),
            })
        };
        json!({
            "proved": self.is_proved(),
            "not_proved": self.not_proved,
            "program": self.program,
            "asked": self.asked,
            "same": self.same,
            "differ": self.differ,
            "accepted": self.accepted,
            "not_asked": self.dropped,
            "variations_left_out": self.variations_left,
            "forwarding_fields": self.forwarding.as_ref().map(|(count, one)| {
                let mut one = shown(one);
                one["requests"] = json!(count);
                one
            }),
            "unused_accept": self.unused,
            "summary": self.summary(),
            "lines": self.rows.iter().filter(|row| !row.word().is_empty()).map(row).collect::<Vec<_>>(),
            "neutral": NEUTRAL.iter().map(|(side, name, why)| json!({
                "side": format!("{side:?}").to_ascii_lowercase(), "field": name, "why": why,
            })).collect::<Vec<_>>(),
        })
    }
}

impl Patterns {
    /// The pattern that sent a request to where the old program says that it went: of the same site, the one that the
    /// witness was made for first.
    fn who_answered(&self, of: Option<(usize, usize)>, old: &Observation) -> Option<&PathPattern> {
        let (site, path) = of?;
        let who = &old.answers.first()?.seen.last()?.who;
        let paths = &self.sites.get(site)?.paths;
        let sends = |path: &&PathPattern| path.endpoints.contains(who);
        paths.get(path).filter(sends).or_else(|| paths.iter().find(sends))
    }
}

impl Row {
    /// Its verdict: the word in the report, or nothing if no witness passed the line.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.differs > 0 {
            "DIFFERS"
        } else if self.left_out.is_some() {
            "LEFT OUT"
        } else if self.unprovable.is_some() {
            "NOT PROVABLE"
        } else if self.shown.iter().any(|shown| shown.is_accepted) {
            "ACCEPTED"
        } else if self.same > 0 {
            "SAME"
        } else {
            ""
        }
    }

    /// Why it is left out or not provable.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self.word() {
            "LEFT OUT" => self.left_out.as_deref(),
            "NOT PROVABLE" => self.unprovable.as_deref(),
            _ => None,
        }
    }

    /// How much the differences that are not accepted matter: [`Difference::rank`] of the first; the greatest number if
    /// there is none.
    pub(super) fn rank(&self) -> u8 {
        let open = self.shown.iter().filter(|shown| !shown.is_accepted);
        open.map(|shown| shown.difference.rank()).min().unwrap_or(u8::MAX)
    }

    /// Its differences, those that matter most first.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = &Shown> {
        let mut all: Vec<&Shown> = self.shown.iter().collect();
        all.sort_by_key(|shown| shown.difference.rank());
        all.into_iter()
    }

    /// Whether no smaller witness of this difference is kept.
    fn wants(&self, ask: &Ask, difference: &Difference, is_accepted: bool) -> bool {
        let same = |known: &&Shown| known.is_of(difference, is_accepted);
        self.shown.iter().find(same).is_none_or(|known| ask.weight() < known.ask.weight())
    }

    /// Keeps the smallest witness of each difference.
    fn keep(&mut self, shown: Shown) {
        match self.shown.iter_mut().find(|known| known.is_of(&shown.difference, shown.is_accepted)) {
            Some(known) => *known = shown,
            None => self.shown.push(shown),
        }
    }
}

impl Shown {
    fn new(witness: &Witness, difference: Difference, ours: Option<&str>, is_accepted: bool) -> Self {
        let (ask, about) = (witness.ask.clone(), witness.about.clone());
        Self { ask, about, difference, ours: ours.map(str::to_owned), is_accepted }
    }

    fn is_of(&self, difference: &Difference, is_accepted: bool) -> bool {
        self.difference.name == difference.name && self.is_accepted == is_accepted
    }
}

impl Accepted {
    /// Whether it accepts this difference. `ours` is the key of our config that takes the request, with its place.
    fn takes<'a>(
        &self,
        difference: &Difference,
        ours: &dyn Fn() -> Option<&'a str>,
        line: &Line,
        about: &str,
    ) -> bool {
        let fits = |pattern: &str, text: &str| match pattern.strip_suffix('*') {
            Some(start) => text.starts_with(start),
            None => text == pattern,
        };
        fits(&self.difference, &difference.name)
            && self.asked.as_deref().is_none_or(|asked| fits(asked, about))
            && self.line.as_deref().is_none_or(|wanted| wanted == line.text)
            && self.route.as_deref().is_none_or(|wanted| {
                let key = ours().map(|key| key.split(" (").next().unwrap_or(key));
                key.is_some_and(|key| key.strip_prefix("routes.") == Some(wanted) || key == wanted)
            })
    }
}

/// Rows by their place.
struct Rows {
    rows: Vec<Row>,
    index: BTreeMap<(Place, String), usize>,
}

impl Rows {
    /// Those of the ledger first.
    fn new(ledger: &Ledger) -> Self {
        let mut rows = Self { rows: Vec::new(), index: BTreeMap::new() };
        for line in ledger.lines() {
            let row = rows.of(&Line { place: line.place.clone(), text: line.text.clone() });
            if matches!(line.verdict, Verdict::LeftOut | Verdict::Refused) {
                let why =
                    line.why.iter().chain(&line.nearest).map(|why| &**why).collect::<Vec<_>>().join("; ");
                row.left_out = Some(why);
            }
        }
        rows
    }

    fn of(&mut self, line: &Line) -> &mut Row {
        let name = line.text.split_whitespace().next().unwrap_or_default().to_owned();
        let at = *self.index.entry((line.place.clone(), name)).or_insert_with(|| {
            self.rows.push(Row {
                line: line.clone(),
                same: 0,
                differs: 0,
                shown: Vec::new(),
                left_out: None,
                unprovable: None,
            });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }
}

fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: u32, effect: Effect, name: &str) -> Row {
        let difference =
            Difference { name: name.to_owned(), effect, old: "a".to_owned(), new: "b".to_owned() };
        let front = super::super::patterns::Front { ip: "127.0.0.1".to_owned(), port: 80, tls: false };
        let shown = Shown {
            ask: Ask::new(&front, None, "/"),
            about: String::new(),
            difference,
            ours: None,
            is_accepted: false,
        };
        let line = Line { place: Place::new("a.conf", line), text: format!("statement {line}") };
        Row { line, same: 0, differs: 1, shown: vec![shown], left_out: None, unprovable: None }
    }

    #[test]
    fn who_passes_and_where_a_request_goes_comes_first() {
        let field = || Effect::UpstreamField("x-forwarded-for".to_owned());
        let fields = (1..=9).map(|line| row(line, field(), "upstream field x-scheme"));
        let mut rows: Vec<Row> = fields.collect();
        rows.push(row(10, Effect::Body, "body"));
        rows.push(row(11, Effect::Redirect, "redirect"));
        rows.push(row(12, Effect::Status(Vec::new()), "status"));
        let forwarding = row(1, field(), FORWARDING).shown.pop().map(|shown| (9, shown));
        let report = Report { title: "X".to_owned(), rows, forwarding, differ: 12, ..Report::default() };
        let text = report.to_text();
        let order =
            ["statement 11", "statement 12", FORWARDING, "At many lines", "statement 1\n", "statement 10"];
        let places: Vec<usize> = order.iter().map(|part| text.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
        let page = report.to_html();
        let order = ["statement 11", "statement 12", "statement 1<", "statement 10", "What upstreams learn"];
        let places: Vec<usize> = order.iter().map(|part| page.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{page}");
    }
}

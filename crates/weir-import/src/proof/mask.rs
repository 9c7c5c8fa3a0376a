//! Takes secrets out of the report of a proof: requests are made from values of both configs, and answers repeat them.

use super::report::{Report, Shown};
use super::witness::Turn;
use crate::redact::{HIDDEN, hidden, is_secret_name, statement};

impl Report {
    /// Hides secrets in every text of the report, and so in all of its formats: those that `known` replaces, and the
    /// values of fields, cookies and parameters whose names say so. A request that had a secret then differs from the
    /// one that was sent.
    pub fn mask(&mut self, known: &dyn Fn(&str) -> String) {
        let text = |text: &mut String| *text = hidden(&known(text));
        self.not_proved.iter_mut().for_each(text);
        for row in &mut self.rows {
            row.line.text = statement(&known(&row.line.text));
            row.left_out.iter_mut().chain(&mut row.unprovable).for_each(text);
            row.shown.iter_mut().for_each(|shown| shown.mask(known));
        }
        if let Some((_, shown)) = &mut self.forwarding {
            shown.mask(known);
        }
        for entry in &mut self.unused {
            entry.line.iter_mut().for_each(text);
        }
    }
}

impl Shown {
    fn mask(&mut self, known: &dyn Fn(&str) -> String) {
        let text = |text: &mut String| *text = hidden(&known(text));
        let fields = |fields: &mut Vec<(String, String)>| {
            for (name, value) in fields {
                *value = if is_secret_name(name) { HIDDEN.to_owned() } else { hidden(&known(value)) };
            }
        };
        let ask = &mut self.ask;
        text(&mut ask.target);
        ask.host.iter_mut().for_each(text);
        fields(&mut ask.fields);
        for Turn { target, fields: of_turn, .. } in &mut ask.then {
            target.iter_mut().for_each(text);
            fields(of_turn);
        }
        self.ours.iter_mut().for_each(text);
        let difference = &mut self.difference;
        let of_field = difference.name.split_once(" field ").is_some_and(|(_, name)| is_secret_name(name));
        for value in [&mut difference.old, &mut difference.new] {
            // That the field is missing is no secret.
            let is_absent = value == super::compare::ABSENT;
            if of_field && !is_absent {
                HIDDEN.clone_into(value);
            } else {
                text(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare::Difference;
    use super::super::patterns::{Effect, Front, Line};
    use super::super::report::Row;
    use super::*;
    use crate::source::Place;

    #[test]
    fn no_output_shows_a_secret() {
        let front = Front { ip: "127.0.0.1".to_owned(), port: 80, tls: false };
        let mut ask = super::super::Ask::new(&front, Some("a.example"), "/x?token=q-token&a=1");
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        ask.fields = vec![field("x-api-key", "q-key"), field("x-tenant", "q-known")];
        ask.then =
            vec![Turn { client: None, target: None, fields: vec![field("cookie", "session=q-cookie; a=1")] }];
        let effect = || Effect::UpstreamField("authorization".to_owned());
        let shown = |name: &str, old: &str, new: &str| {
            let (old, new) = (old.to_owned(), new.to_owned());
            let difference = Difference { name: name.to_owned(), effect: effect(), old, new };
            let about = "a condition".to_owned();
            Shown { ask: ask.clone(), about, difference, ours: None, is_accepted: false }
        };
        let row = |text: &str, shown: Shown| {
            let line = Line { place: Place::new("a.conf", 1), text: text.to_owned() };
            Row { line, same: 0, differs: 1, shown: vec![shown], left_out: None, unprovable: None }
        };
        let mut report = Report {
            title: "X".to_owned(),
            rows: vec![
                row(
                    "proxy_set_header Authorization \"Basic q-line\"",
                    shown("upstream field authorization", "q-old", "none"),
                ),
                row("return 302 /y", shown("redirect", "http://a/y?secret=q-place", "http://a/q-known/z")),
            ],
            forwarding: Some((1, shown("forwarding-fields", "x-real-ip: q-known", "none"))),
            differ: 2,
            ..Report::default()
        };
        report.mask(&|text| text.replace("q-known", HIDDEN));
        for out in [report.to_text(), report.to_html(), report.to_json().to_string()] {
            assert!(!out.contains("q-"), "{out}");
            assert!(out.contains("a=1") && out.contains("none") && out.contains("x-tenant"), "{out}");
        }
    }
}

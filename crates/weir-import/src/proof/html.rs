//! The report as one page that needs nothing else.

use super::compare::{FORWARDING, NEUTRAL};
use super::report::{ACCEPT_ONCE, Report, Row, Shown};
use std::fmt::Write;

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1c2024;background:#fff}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3rem .6rem;\
border-top:1px solid #ddd}code{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}\
.DIFFERS,.NOT-PROVED{color:#b00020;font-weight:600}.SAME{color:#17723a}.LEFT-OUT,.NOT-PROVABLE{color:#8a5a00}\
dl{margin:.4rem 0;padding:.4rem .6rem;background:#f5f6f7;display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem}\
dd{margin:0}@media(prefers-color-scheme:dark){body{color:#e6e8ea;background:#16181b}td,th{border-color:#33373c}\
dl{background:#212529}.DIFFERS,.NOT-PROVED{color:#ff7a85}.SAME{color:#66c38a}.LEFT-OUT,.NOT-PROVABLE{color:#e0b050}}";

impl Report {
    /// The report as one HTML page. It loads nothing, runs nothing, and everything from configs is escaped.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut page = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        page.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">");
        page.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
        let _ = write!(
            page,
            "<title>From {} to Weir: proof</title><style>{STYLE}</style></head><body>",
            escape(&self.title)
        );
        let _ = write!(page, "<h1>From {} to Weir</h1>", escape(&self.title));
        let class = if self.not_proved.is_some() {
            "NOT-PROVED"
        } else if self.is_proved() {
            "SAME"
        } else {
            "DIFFERS"
        };
        let _ = write!(page, "<p class=\"{class}\">{}</p>", escape(&self.summary()));
        for entry in &self.unused {
            let name = escape(&entry.difference);
            let _ = write!(page, "<p>proof.yaml accepts <code>{name}</code>, but it does not occur.</p>");
        }
        page.push_str("<table><thead><tr><th>Verdict<th>Line<th>Statement</tr></thead><tbody>\n");
        // Lines that decide who passes or where a request goes come first.
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| !row.word().is_empty()).collect();
        rows.sort_by_key(|row| row.rank() > 0);
        rows.iter().for_each(|row| self.html_row(row, &mut page));
        page.push_str("</tbody></table>");
        if let Some((count, shown)) = &self.forwarding {
            let _ = write!(
                page,
                "<h2>What upstreams learn about the client</h2><p class=\"DIFFERS\">{FORWARDING}: "
            );
            let _ = write!(page, "{count} requests. {}</p>", escape(ACCEPT_ONCE));
            self.shown(shown, &mut page);
        }
        page.push_str("<h2>Not compared</h2><p>These fields differ between any two programs.</p><table>");
        for (side, name, why) in NEUTRAL {
            let side = format!("{side:?}").to_ascii_lowercase();
            let _ = write!(page, "<tr><td>{side}<td><code>{name}</code><td>{}</tr>", escape(why));
        }
        page.push_str("</table></body></html>\n");
        page
    }

    fn html_row(&self, row: &Row, page: &mut String) {
        let word = row.word();
        let count = match word {
            "SAME" => format!(" {}", row.same),
            "DIFFERS" => format!(" {}", row.differs),
            _ => String::new(),
        };
        let class = word.replace(' ', "-");
        let place = escape(&row.line.place.to_string());
        let text = escape(&row.line.text);
        let _ = write!(page, "<tr><td class=\"{class}\">{word}{count}<td>{place}<td><code>{text}</code>");
        if let Some(why) = row.reason() {
            let _ = write!(page, "<p>{}</p>", escape(why));
        }
        for shown in row.by_rank() {
            self.shown(shown, page);
        }
        page.push_str("</tr>\n");
    }

    fn shown(&self, shown: &Shown, page: &mut String) {
        let accepted = if shown.is_accepted { " (accepted)" } else { "" };
        let mut pairs = vec![
            ("difference", format!("{}{accepted}", shown.difference.name)),
            ("request", format!("{}: {}", shown.about, shown.ask.shown())),
            (self.title.as_str(), shown.difference.old.clone()),
            ("Weir", shown.difference.new.clone()),
        ];
        if let Some(ours) = &shown.ours {
            pairs.push(("in Weir", ours.clone()));
        }
        page.push_str("<dl>");
        for (name, value) in pairs {
            let _ = write!(page, "<dt>{}<dd><code>{}</code>", escape(name), escape(&value));
        }
        page.push_str("</dl>");
    }
}

/// Text as HTML, in elements and attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

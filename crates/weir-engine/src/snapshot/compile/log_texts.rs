//! The texts of the access log that have expressions, and the bodies that it records.

use super::Compiler;
use weir_config::Diagnostic;
use weir_config::schema::{AccessFormat, LogText, Output};
use weir_filter::template::{LogTexts, Malformed, Names, Redacted, Template};
use weir_route::variables::Vocabulary;

/// Header fields that carry credentials.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];

impl Compiler<'_> {
    /// Warns of each `log_body` whose bodies no line of the access log has.
    pub(super) fn unlogged_bodies(&mut self) {
        let config = self.config;
        let log = &config.access_log;
        if log.format == AccessFormat::Replay && log.output != Output::Off {
            return;
        }
        for filter in config.all_filters().filter(|f| f.name == "log_body") {
            let message = "no line of the access log has request bodies";
            let told = Diagnostic::warning("unused", message).on(self.tree, &filter.path);
            self.found.push(told.hint("write `access_log: { format: replay }`, or leave out the filter"));
        }
    }

    /// Compiles them in the order in which the format numbers them.
    pub(super) fn log_texts(&mut self, vocabulary: &Vocabulary) -> Option<Box<LogTexts>> {
        let log = &self.config.access_log;
        let redacted = Redacted::of(log.redact.0.iter().map(|(field, _)| field.as_str()));
        let names = Names::of_log(vocabulary, &redacted);
        let mut texts = Vec::new();
        let written = log.texts();
        let count = written.len();
        for LogText { path, value, text, at } in written {
            let parsed = Template::parse(text, &names)
                .map_err(|e| Malformed { offset: e.offset.map(|offset| offset + at), ..e });
            let Some(template) = self.compiled(&path, (value, text.starts_with("= ")), parsed) else {
                continue;
            };
            if let Some(var) = template.vars().next() {
                let message =
                    format!("a field of the log has expressions, and no placeholders such as {var:?}");
                self.error(&path, "bad-placeholder", message, Some("write {= request.path }".into()));
                continue;
            }
            let fields: Vec<String> = template.guarded().map(|name| name.as_str().to_owned()).collect();
            if let Some(name) = fields.iter().find(|name| CREDENTIALS.contains(&name.as_str())) {
                let message =
                    format!("this reads `{name}`, which carries credentials, for every line of the log");
                let told = Diagnostic::warning("logs-credential", message).on(self.tree, &path);
                self.found.push(
                    told.hint("log what tells callers apart instead: consumer.name, or sha256 of a part"),
                );
            }
            texts.push(template);
        }
        (count > 0 && texts.len() == count).then(|| Box::new(LogTexts::new(texts)))
    }
}

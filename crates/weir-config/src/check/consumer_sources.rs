//! Checks of `consumer_sources`. What a source holds is checked when it is read.

use super::Checker;

/// Most sources.
const MOST: usize = 16;

impl Checker<'_> {
    pub(super) fn consumer_sources(&mut self) {
        let config = self.config;
        if config.consumer_sources.len() > MOST {
            let message = format!("there are more than {MOST} sources of consumers");
            self.error("consumer_sources", "out-of-range", message);
        }
        for (name, source) in config.consumer_sources.iter() {
            let path = format!("consumer_sources.{name}");
            match ["file", "http"].map(|key| self.is_written(&format!("{path}.{key}"))) {
                [true, true] => {
                    self.error(&path, "bad-value", "there are two sources; expected one of file and http");
                }
                [false, false] => {
                    let hint = "write { file: consumers.yaml } or { http: { url: \"https://..\" } }";
                    let message = "no source is named; expected one of file and http";
                    self.error_hint(&path, "missing-key", message, hint);
                }
                _ => {}
            }
            if let Some(file) = &source.file {
                self.must_be_file(&format!("{path}.file"), &file.0);
            }
            let Some(http) = &source.http else { continue };
            let path = format!("{path}.http");
            if http.url.is_none() && !self.is_written(&format!("{path}.url")) {
                let hint = "write url: \"https://accounts.internal/consumers.json\"";
                self.error_hint(&path, "missing-key", "`url` is missing", hint);
            }
            if let Some(ca) = &http.ca {
                self.must_be_file(&format!("{path}.ca"), &ca.0);
            }
            self.must_last(&format!("{path}.every"), http.every);
            self.must_last(&format!("{path}.timeout"), http.timeout);
            if let Some(url) = http.url.as_ref().filter(|url| !url.is_safe()) {
                let message = format!("who is on the way to {} can add consumers", url.origin());
                self.warn(&format!("{path}.url"), "clear-text", message, "use https");
            }
        }
    }
}

//! The sources of consumers. One that runs already is not read again: it follows its file or URL by itself.

use super::Compiler;
use std::fmt::Write as _;
use std::sync::Arc;
use weir_config::schema::{ConsumerSource, HttpConsumers, Secret};
use weir_filter::directory::{Directory, Fetched, Origin, Rules, Source};
use weir_filter::filter::Consumers;
use weir_upstream::fetch::Trust;

impl Compiler<'_> {
    /// The consumers of all sources; `None` if there is none.
    pub(super) fn directory(&mut self, consumers: &Consumers) -> Option<Arc<Directory>> {
        let config = self.config;
        if config.consumer_sources.is_empty() {
            return None;
        }
        let plans = config.plans.names().map(str::to_owned);
        let rules = Rules::new(consumers, plans, self.kinds, config.watch);
        let sources = config.consumer_sources.iter();
        let sources: Vec<Arc<Source>> =
            sources.filter_map(|(name, written)| self.consumer_source(name, written, &rules)).collect();
        let mut misfits = Vec::new();
        let directory =
            Directory::new(sources, rules, |source, misfit| misfits.push((source.name().to_owned(), misfit)));
        for (source, misfit) in misfits {
            let message = format!("{}: {}", misfit.path, misfit.message);
            let path = format!("consumer_sources.{source}");
            self.error(&path, misfit.code, message, Some(misfit.hint.into()));
        }
        Some(Arc::new(directory))
    }

    fn consumer_source(
        &mut self,
        name: &str,
        written: &ConsumerSource,
        rules: &Rules,
    ) -> Option<Arc<Source>> {
        let path = format!("consumer_sources.{name}");
        let mut key = format!("\0consumers\0{name}\0");
        let origin = match (&written.file, &written.http) {
            (Some(file), None) => {
                let _ = write!(key, "{}", file.0.display()); // writing to a text cannot fail
                Origin::File(file.0.clone())
            }
            (None, Some(http)) => Origin::Http(Box::new(self.fetched(&path, http, &mut key)?)),
            _ => return None, // reported
        };
        let source = self.carry.kept.keep_tended(key, || Source::new(name, origin, self.kinds));
        let is_missing = |d: &weir_config::Diagnostic| d.path == format!("{path}.file");
        if !source.runs() && !self.found.iter().any(is_missing) {
            source.begin(rules, self.found);
        }
        Some(source)
    }

    fn fetched(&mut self, path: &str, http: &HttpConsumers, key: &mut String) -> Option<Fetched> {
        let mut trust = Trust::default();
        if let Some(ca) = &http.ca {
            self.files.push(ca.0.clone());
            match Trust::file(&ca.0) {
                Ok(read) => trust = read,
                Err(why) => {
                    self.error_once(&format!("{path}.http.ca"), "bad-certificate", why);
                    return None;
                }
            }
        }
        let token = http.token.as_ref().map(Secret::reveal);
        let _ = write!(key, "{http:?}\0{token:?}\0{trust:?}"); // writing to a text cannot fail
        Some(Fetched {
            url: http.url.clone()?,
            trust,
            every: http.every.get(),
            timeout: http.timeout.get(),
            stale: http.stale.map(|stale| stale.get()),
            token: token.map(str::to_owned),
            cache: http.cache.as_ref().map(|file| file.0.clone()),
        })
    }
}

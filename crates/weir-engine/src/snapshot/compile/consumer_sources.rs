//! The sources of consumers. One that runs already is not read again: it follows its file or URL by itself.

use super::Compiler;
use std::sync::Arc;
use weir_config::schema::{ConsumerSource, HttpConsumers};
use weir_filter::directory::{Asking, Directory, Origin, Rules, Source};
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
        let sources: Vec<_> =
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

    /// The source, and how its web server is asked. It is known by its name and its file or URL, so that another
    /// setting does not drop its consumers, and a server's consumers are never taken for another's.
    fn consumer_source(
        &mut self,
        name: &str,
        written: &ConsumerSource,
        rules: &Rules,
    ) -> Option<(Arc<Source>, Option<Arc<Asking>>)> {
        let path = format!("consumer_sources.{name}");
        let (origin, asking, place) = match (&written.file, &written.http) {
            (Some(file), None) => (Origin::File(file.0.clone()), None, file.0.display().to_string()),
            (None, Some(http)) => {
                let asking = self.asking(&path, http)?;
                let url = http.url.clone()?;
                let place = url.to_string();
                (Origin::Http(url), Some(Arc::new(asking)), place)
            }
            _ => return None, // reported
        };
        let key = format!("\0consumers\0{name}\0{}\0{place}", if asking.is_some() { "http" } else { "file" });
        let source = self.carry.kept.keep_tended(key, || Source::new(name, origin, self.kinds));
        let is_missing = |d: &weir_config::Diagnostic| d.path == format!("{path}.file");
        if !source.runs() && !self.found.iter().any(is_missing) {
            source.begin(rules, asking.as_deref(), self.found);
        }
        Some((source, asking))
    }

    fn asking(&mut self, path: &str, http: &HttpConsumers) -> Option<Asking> {
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
        Some(Asking {
            trust,
            every: http.every.get(),
            timeout: http.timeout.get(),
            stale: http.stale.map(|stale| stale.get()),
            token: http.token.as_ref().map(|token| token.reveal().to_owned()),
            cache: http.cache.as_ref().map(|file| file.0.clone()),
        })
    }
}

//! The settings that describe a service's API: where its descriptors come from, how JSON is written, and which limits
//! apply.

use super::source::{Described, Loaded, Reflected, Source};
use crate::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use weir_filter::config::spelling::nearest_name;
use weir_transcode::{Api, Choice, DEPTH_MOST, JsonOptions, Limits, Requests, RuleError, sources};

/// Longest `.proto` file.
const PROTO_BYTES: usize = 4 * 1024 * 1024;

/// Most refused rules that are listed one by one, because a service may describe thousands.
pub(crate) const REFUSED_SHOWN: usize = 20;

/// What to do about a rule that is not served.
const fn refused_hint(requests: Requests) -> &'static str {
    match requests {
        Requests::Bound => "the rule that came last takes its requests; give one of the two another path",
        Requests::Refused => {
            "its requests are answered 501 grpc_rule_refused, all other rules are served; correct the rule, or name the services that \
             count: services: [ NAME ]"
        }
        Requests::Unknown => {
            "no request leads to it, all other rules are served; correct its path, or name the services that count: services: [ NAME ]"
        }
    }
}

/// Largest value that the message limit may have.
const MESSAGE_MOST: u64 = 64 * 1024 * 1024;

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident: $default:ident $other:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum $name {
            #[default]
            $default,
            $other,
        }
    )*};
}

choices! {
    /// Writes enums as names or numbers.
    Enums: Names Numbers;
    /// Writes 64-bit integers as text or numbers.
    Int64: Text Numbers;
    /// Writes field names in camel case or as in the proto.
    Names: Camel Proto;
    /// What happens to unknown fields.
    Unknown: Refuse Ignore;
}

/// Limits on messages.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    /// Longest message, as JSON and as Protocol Buffers, after decompression. Default `4MiB`.
    message: Option<ByteSize>,
    /// Nesting of messages, lists and objects, 1 to 100. Default 100.
    depth: Option<u16>,
    /// Nesting of `Any` within `Any`. Default 8.
    any: Option<u16>,
    /// Values in one message. Default 200000.
    values: Option<u32>,
}

impl LimitSettings {
    /// The limits; mistakes go to `build`.
    pub(crate) fn limits(&self, build: &mut Build<'_>) -> Limits {
        let usual = Limits::default();
        if let Some(message) = self.message
            && !(1..=MESSAGE_MOST).contains(&message.get())
        {
            build.refuse("limits.message", "expected 1B to 64MiB", None);
        }
        if let Some(depth) = self.depth
            && !(1..=DEPTH_MOST).contains(&usize::from(depth))
        {
            build.refuse("limits.depth", format!("expected 1 to {DEPTH_MOST}"), None);
        }
        Limits {
            message: self.message.map_or(usual.message, ByteSize::as_usize),
            depth: self.depth.map_or(usual.depth, usize::from),
            any: self.any.map_or(usual.any, usize::from),
            values: self.values.map_or(usual.values, |values| values as usize),
        }
    }
}

/// The settings that say where the API of a service comes from.
pub(crate) struct Offer<'s> {
    pub(crate) proto: &'s [FilePath],
    pub(crate) include: &'s [FilePath],
    pub(crate) descriptors: Option<&'s FilePath>,
    pub(crate) reflection: bool,
    pub(crate) upstream: Option<&'s str>,
    pub(crate) refresh: Option<Duration>,
    pub(crate) choice: Choice,
    pub(crate) options: JsonOptions,
    pub(crate) limits: Limits,
}

impl Offer<'_> {
    /// Refuses settings that contradict each other. Returns whether there is any source.
    pub(crate) fn check(&self, build: &mut Build<'_>) -> bool {
        let sources = [!self.proto.is_empty(), self.descriptors.is_some(), self.reflection];
        let given = sources.iter().filter(|given| **given).count();
        if given > 1 {
            build.refuse(
                "",
                "proto, descriptors and reflection exclude one another",
                Some("keep one".into()),
            );
        }
        for (field, given) in [("upstream", self.upstream.is_some()), ("refresh", self.refresh.is_some())] {
            if given && !self.reflection {
                build.refuse(field, "says nothing without reflection", Some("leave it out".into()));
            }
        }
        if !self.include.is_empty() && self.proto.is_empty() {
            build.refuse("include", "says nothing without proto", Some("leave it out".into()));
        }
        if self.refresh.is_some_and(|refresh| refresh.get() < std::time::Duration::from_secs(1)) {
            build.refuse("refresh", "is shorter than 1s", Some("write refresh: 1m".into()));
        }
        given > 0
    }

    /// The source; `None` if mistakes were refused. `described`: the API gets an OpenAPI description.
    pub(crate) fn source(self, build: &mut Build<'_>, described: Option<Described>) -> Option<Source> {
        if !self.reflection {
            let api = self.read(build)?;
            return Some(Source::Fixed(Arc::new(Loaded::new(api, described.as_ref()))));
        }
        let upstream = self.asked(build)?;
        let refresh = self.refresh.map_or(std::time::Duration::from_secs(60), Duration::get);
        let Self { choice, options, limits, .. } = self;
        let make = || Reflected::new(upstream, refresh, choice, options, limits, described);
        Some(Source::Reflected(build.keep("reflection", make)))
    }

    /// The upstream to ask for its descriptors.
    fn asked(&self, build: &mut Build<'_>) -> Option<String> {
        if let Some(name) = self.upstream {
            if build.upstreams.iter().any(|known| known == name) {
                return Some(name.to_owned());
            }
            let near = nearest_name(name, build.upstreams.iter().map(String::as_str));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            build.refuse("upstream", format!("there is no upstream `{name}`"), hint.map(Into::into));
            return None;
        }
        let targets = build.targets;
        match targets {
            [one] => Some(one.clone()),
            [] => {
                let hint = "write upstream: NAME".to_owned();
                build.refuse("reflection", "no route says which upstream to ask here", Some(hint.into()));
                None
            }
            [first, ..] => {
                let hint = format!("write upstream: {first}");
                build.refuse(
                    "reflection",
                    "the route leads to several upstreams; one of them is asked",
                    Some(hint.into()),
                );
                None
            }
        }
    }

    fn read(&self, build: &mut Build<'_>) -> Option<Api> {
        let (field, pool) = match self.descriptors {
            Some(file) => {
                let read = build.read_file(file, sources::SET_BYTES);
                ("descriptors", read.and_then(|bytes| sources::from_set(&bytes)))
            }
            None => ("proto", self.compile(build)),
        };
        let pool = pool.map_err(|wrong| build.refuse(field, wrong, None)).ok()?;
        match Api::new(&pool, &self.choice, self.options, self.limits) {
            Ok(api) if api.bindings() == 0 && !api.refused().is_empty() => {
                for refused in api.refused().iter().take(REFUSED_SHOWN) {
                    build.refuse(field, refused.to_string(), None);
                }
                None
            }
            Ok(api) if api.bindings() == 0 && !self.choice.without_rules => {
                let message =
                    "none of its methods has a rule of google.api.http, so that nothing can be called";
                build.refuse(field, message, Some("write unannotated: true".into()));
                None
            }
            Ok(api) => {
                let refused = api.refused();
                for rule in refused.iter().take(REFUSED_SHOWN) {
                    let message = format!("this rule is not served: {rule}");
                    build.warn(field, "grpc-rule", message, Some(refused_hint(rule.requests).into()));
                }
                if let Some(more) = refused.len().checked_sub(REFUSED_SHOWN).filter(|more| *more > 0) {
                    let message = format!("{more} more rules are not served");
                    build.warn(field, "grpc-rule", message, Some(refused_hint(Requests::Refused).into()));
                }
                Some(api)
            }
            Err(wrong) => {
                for RuleError { place, message, .. } in wrong {
                    let field = if place.is_empty() { "services" } else { field };
                    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
                    build.refuse(field, format!("{place}{message}"), None);
                }
                None
            }
        }
    }

    fn compile(&self, build: &mut Build<'_>) -> Result<weir_transcode::Pool, String> {
        for file in self.proto {
            build.read_file(file, PROTO_BYTES)?; // this call also watches the file
        }
        let paths = |all: &[FilePath]| all.iter().map(|path| path.0.clone()).collect::<Vec<PathBuf>>();
        let (files, mut folders) = (paths(self.proto), paths(self.include));
        let pool = sources::from_files(&files, &folders)?;
        folders.extend(files.iter().filter_map(|file| Some(file.parent()?.to_owned())));
        for name in pool.files().map(|file| file.name().to_owned()) {
            // Imported files are watched too. Built-in files are in no folder.
            if let Some(path) = folders.iter().map(|folder| folder.join(&name)).find(|path| path.is_file()) {
                let _ = build.read_file(&FilePath(path), PROTO_BYTES); // it was read a moment ago
            }
        }
        Ok(pool)
    }
}

//! Answers of routes without an upstream: their own, or those of their filters.

use super::Compiler;
use super::filters::is_public;
use crate::snapshot::{Fixed, Instance, Mock, Mocked, Target};
use std::cell::Cell;
use std::sync::Arc;
use weir_config::check::{TARGETS, is_for_target};
use weir_config::delay::Delay;
use weir_config::expression::{refusal, refusal_in_text};
use weir_config::schema::{Pairs, Respond, Route};
use weir_config::{Node, Severity};
use weir_filter::explained::WithExpressions;
use weir_filter::filter::Hooks;
use weir_filter::template::{Escape, Malformed, Names, Template, sources};
use weir_h1::FieldName;
use weir_route::variables::Vocabulary;

/// What the texts of a route's answer may name: the captures of its path, and variables. The last is set if they read the
/// request's body.
type Known<'a> = (&'a [String], &'a Vocabulary, &'a Cell<bool>);

/// One answer as written.
struct Written<'a> {
    /// Where it is written.
    path: String,
    status: u16,
    body: &'a str,
    headers: &'a Pairs,
    delay: Option<Delay>,
}

impl Compiler<'_> {
    pub(super) fn answer(
        &mut self,
        route: &str,
        written: &Respond,
        (captures, vocabulary): (&[String], &Vocabulary),
    ) -> Option<Fixed> {
        let reads_body = Cell::new(false);
        let known: Known<'_> = (captures, vocabulary, &reads_body);
        let path = format!("routes.{route}.respond");
        self.expressions.clear();
        let mixed = written.mix.iter().enumerate().map(|(at, mixed)| Written {
            path: format!("{path}.mix[{at}]"),
            status: mixed.status,
            body: &mixed.body,
            headers: &mixed.headers,
            delay: mixed.delay.or(written.delay),
        });
        let mixed: Vec<_> = mixed.map(|mixed| self.mocked(&mixed, known)).collect();
        let Respond { status, body, headers, delay, .. } = written;
        let usual = Written { path, status: *status, body, headers, delay: *delay };
        let usual = self.mocked(&usual, known)?;
        let mixed = mixed.into_iter().collect::<Option<Vec<_>>>()?;
        let begin = format!("routes.{route}.");
        let mut expressions = std::mem::take(&mut self.expressions);
        for text in &mut expressions {
            text.key = text.key.strip_prefix(&begin).unwrap_or(&text.key).to_owned();
        }
        if let Some(plain) = usual.plain().filter(|_| mixed.is_empty()) {
            return Some(plain);
        }
        let shares = written.mix.iter().scan(0.0, |upto, mixed| {
            *upto += mixed.share.ratio();
            Some(*upto)
        });
        let status = usual.status;
        let mock = Mock { usual, mix: shares.zip(mixed).collect(), reads_body: reads_body.get() };
        Some(Fixed {
            status,
            headers: Vec::new(),
            body: Default::default(),
            mock: Some(Box::new(mock)),
            expressions: expressions.into(),
        })
    }

    fn mocked(&mut self, written: &Written<'_>, known: Known<'_>) -> Option<Mocked> {
        let before = self.found.errors();
        let path = &written.path;
        let mut headers = Vec::new();
        let mut media = None;
        for (name, value) in &written.headers.0 {
            let at = format!("{path}.headers.{name}");
            if name.eq_ignore_ascii_case("content-type") {
                media = Some(value.as_str());
            }
            let fine = value.bytes().all(|b| b == b'\t' || (b >= 0x20 && b != 0x7f));
            match FieldName::new(name) {
                Ok(name) if fine => headers.extend(self.page(&at, value, known).map(|value| (name, value))),
                Ok(_) => self.error_once(&at, "bad-header", "the value holds a control character"),
                Err(e) => self.error_once(&at, "bad-header", e.to_string()),
            }
        }
        let body = self.page(&format!("{path}.body"), written.body, known);
        if media.is_none() && !written.body.is_empty() {
            let text = self.page(path, "text/plain; charset=utf-8", known)?;
            headers.push((FieldName::new("content-type").ok()?, text));
        }
        let (status, delay) = (written.status, written.delay.filter(|delay| !delay.is_none()));
        let mocked = Mocked {
            status,
            headers,
            body: body?,
            escape: Escape::of_media(media.unwrap_or_default()),
            delay,
        };
        (self.found.errors() == before).then_some(mocked)
    }

    /// The target of a route without `upstream`, `respond` and `files`: one of its filters must answer every request.
    pub(super) fn answered_by_filters(
        &mut self,
        name: &str,
        written: &Route,
        chain: &[u32],
        made: &[Arc<Instance>],
    ) -> Option<Target> {
        let path = format!("routes.{name}");
        if self.is_target_refused(&path) {
            return None;
        }
        let has = |hooks| {
            let mut chain = chain.iter().filter_map(|&index| made.get(index as usize));
            chain.any(|filter| filter.hooks.has(hooks))
        };
        if has(Hooks::ANSWERS) || (has(Hooks::ANSWERS_PLAIN) && self.is_plain_only(written)) {
            return Some(Target::Filters);
        }
        let mut message = "the route has no `upstream`, `respond` or `files`".to_owned();
        if !chain.is_empty() {
            message.push_str(", and none of its filters answers every request");
        }
        let hint = if has(Hooks::ANSWERS_PLAIN) && !self.config.trusted_proxies.is_empty() {
            "a trusted proxy may say that a request came over TLS, which `https: true` lets go on: add an `upstream`"
        } else if has(Hooks::ANSWERS_PLAIN) {
            "requests over TLS go on: write `match: { listeners: [ … ] }` with those without TLS, or add an `upstream`"
        } else {
            "add `upstream: NAME`, `respond: { status: 200 }` or `files: { root: ./public }`"
        };
        self.error(&path, "no-answer", message, Some(hint.into()));
        None
    }

    /// Whether the route has a target that was rejected, under its own or a mistyped key: that error is enough.
    fn is_target_refused(&self, path: &str) -> bool {
        let keys = self.tree.find(path).map_or(&[][..], Node::entries);
        keys.iter().any(|(key, node)| {
            let is_target = TARGETS.contains(&&*key.text) && node.is_set();
            let refused = |at: &str| {
                let below =
                    |d: &str| d.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
                self.found.iter().any(|d| d.severity == Severity::Error && below(&d.path))
            };
            (is_target || is_for_target(&key.text)) && refused(&format!("{path}.{}", key.text))
        })
    }

    /// Whether every request of the route comes without TLS, and no trusted proxy may say otherwise.
    fn is_plain_only(&self, route: &Route) -> bool {
        let only = &route.matches.listeners;
        let mut listeners = self.config.listeners.iter();
        self.config.trusted_proxies.is_empty()
            && listeners.all(|(name, listener)| {
                listener.tls.is_none() || (!only.is_empty() && !only.iter().any(|one| one == name))
            })
    }

    fn page(
        &mut self,
        path: &str,
        text: &str,
        (captures, vocabulary, reads_body): Known<'_>,
    ) -> Option<Template> {
        let names = Names::new(Some(captures), vocabulary).with_body(reads_body);
        let parsed = Template::parse_page(text, &names).map_err(|(_, e)| e);
        self.compiled(path, (text, false), parsed)
    }

    /// Compiles a text with placeholders that stands at `path`.
    pub(super) fn text(&mut self, path: &str, text: &str, names: &Names<'_>) -> Option<Template> {
        let parsed = Template::parse(text, names);
        self.compiled(path, (text, text.starts_with("= ")), parsed)
    }

    /// The text, or a report of its mistake. `is_whole`: all of it is an expression.
    pub(super) fn compiled(
        &mut self,
        path: &str,
        (text, is_whole): (&str, bool),
        parsed: Result<Template, Malformed>,
    ) -> Option<Template> {
        if !self.is_as_written(path, (text, is_whole), parsed.is_ok()) {
            return None;
        }
        let e = match parsed {
            Ok(template) => return Some(template),
            Err(e) => e,
        };
        match e.offset {
            Some(offset) => self.expression_mistake(path, offset, e.message.into(), e.hint.map(Into::into)),
            None => self.error(path, "bad-placeholder", e.message, e.hint.map(Into::into)),
        }
        None
    }

    /// Whether the expressions of a text at `path` are those that stand in the file. If not, reports it.
    fn is_as_written(&mut self, path: &str, (text, is_whole): (&str, bool), is_sound: bool) -> bool {
        if !is_whole && !text.contains("{=") {
            return true;
        }
        let key = path.rsplit('.').next().unwrap_or(path);
        let Some(node) = self.tree.find(path) else { return true };
        let refused = if is_whole {
            refusal(node, key, self.found, |_| is_sound)
        } else {
            refusal_in_text(node, key, self.found, is_sound, sources)
        };
        let Some(mut refused) = refused else {
            self.expressions.push(WithExpressions {
                key: path.to_owned(),
                text: text.to_owned(),
                is_condition: false,
                is_public: is_public(node),
            });
            return true;
        };
        path.clone_into(&mut refused.path);
        self.found.push(refused);
        false
    }
}

impl Mocked {
    /// The answer, if it is always the same.
    fn plain(&self) -> Option<Fixed> {
        if self.delay.is_some() {
            return None;
        }
        let body = self.body.literal()?.to_vec().into();
        let headers =
            self.headers.iter().map(|(name, value)| Some((name.clone(), value.literal()?.to_vec())));
        let headers = headers.collect::<Option<_>>()?;
        Some(Fixed { status: self.status, headers, body, mock: None, expressions: Box::default() })
    }
}

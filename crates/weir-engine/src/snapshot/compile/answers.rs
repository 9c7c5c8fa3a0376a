//! Answers of routes that have no upstream.

use super::Compiler;
use crate::config::delay::Delay;
use crate::config::schema::{Pairs, Respond};
use crate::snapshot::{Fixed, Mock, Mocked};
use crate::template::{Escape, Template};
use weir_h1::FieldName;

/// One answer as written.
struct Written<'a> {
    /// Where it stands.
    path: String,
    status: u16,
    body: &'a str,
    headers: &'a Pairs,
    delay: Option<Delay>,
}

impl Compiler<'_> {
    pub(super) fn answer(&mut self, route: &str, written: &Respond, captures: &[String]) -> Option<Fixed> {
        let path = format!("routes.{route}.respond");
        let mixed = written.mix.iter().enumerate().map(|(at, mixed)| Written {
            path: format!("{path}.mix[{at}]"),
            status: mixed.status,
            body: &mixed.body,
            headers: &mixed.headers,
            delay: mixed.delay.or(written.delay),
        });
        let mixed: Vec<_> = mixed.map(|mixed| self.mocked(&mixed, captures)).collect();
        let Respond { status, body, headers, delay, .. } = written;
        let usual = Written { path, status: *status, body, headers, delay: *delay };
        let usual = self.mocked(&usual, captures)?;
        let mixed = mixed.into_iter().collect::<Option<Vec<_>>>()?;
        if let Some(plain) = usual.plain().filter(|_| mixed.is_empty()) {
            return Some(plain);
        }
        let shares = written.mix.iter().scan(0.0, |upto, mixed| {
            *upto += mixed.share.ratio();
            Some(*upto)
        });
        let status = usual.status;
        let mock = Mock { usual, mix: shares.zip(mixed).collect() };
        Some(Fixed { status, headers: Vec::new(), body: Default::default(), mock: Some(Box::new(mock)) })
    }

    fn mocked(&mut self, written: &Written<'_>, captures: &[String]) -> Option<Mocked> {
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
                Ok(name) if fine => {
                    headers.extend(self.page(&at, value, captures).map(|value| (name, value)))
                }
                Ok(_) => self.error_once(&at, "bad-header", "the value holds a control character"),
                Err(e) => self.error_once(&at, "bad-header", e.to_string()),
            }
        }
        let body = self.page(&format!("{path}.body"), written.body, captures);
        if media.is_none() && !written.body.is_empty() {
            let text = self.page(path, "text/plain; charset=utf-8", &[])?;
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

    fn page(&mut self, path: &str, text: &str, captures: &[String]) -> Option<Template> {
        match Template::parse_page(text, captures) {
            Ok(template) => Some(template),
            Err((_, e)) => {
                self.error(path, "bad-placeholder", e.message, e.hint);
                None
            }
        }
    }
}

impl Mocked {
    /// The same where it is always the same.
    fn plain(&self) -> Option<Fixed> {
        if self.delay.is_some() {
            return None;
        }
        let body = self.body.literal()?.to_vec().into();
        let headers =
            self.headers.iter().map(|(name, value)| Some((name.clone(), value.literal()?.to_vec())));
        Some(Fixed { status: self.status, headers: headers.collect::<Option<_>>()?, body, mock: None })
    }
}

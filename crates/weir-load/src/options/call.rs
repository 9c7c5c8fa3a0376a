//! gRPC calls from options: the method, the metadata, and the messages that the data describe.

use super::Reader;
use crate::schema::{Call, Schema, Server, Source};
use crate::template::{Data, Template, Values};
use crate::transport::origin::Origin;
use crate::url::Url;
use std::sync::Arc;
use std::time::Duration;
use weir_h1::FieldName;
use weir_report::report::CallPlan;

/// Most rows of a feed whose message is checked before the run. A later row that does not fit fails its request.
const TRIED_MOST: usize = 100_000;

/// Longest wait for a schema. Not `--timeout`, which is part of the test.
const SCHEMA_WAIT: Duration = Duration::from_secs(10);

/// What all calls of a run have in common.
pub(super) struct Calls {
    schema: Schema,
    /// The fields of gRPC, and the metadata.
    pub(super) fields: Vec<(String, String)>,
}

impl Reader<'_> {
    /// Whether any target speaks gRPC.
    pub(super) fn speaks_grpc(&self) -> bool {
        self.options.urls.iter().any(|url| Url::parse(url).is_ok_and(|u| u.scheme.is_grpc()))
    }

    /// What the calls share; `None` without gRPC targets, or if the options have a mistake.
    pub(super) fn calls(&mut self) -> Option<Calls> {
        let o = self.options;
        let of_grpc = [
            ("--metadata", !o.metadata.is_empty()),
            ("--proto", !o.protos.is_empty()),
            ("--import-path", !o.import_paths.is_empty()),
            ("--protoset", o.protoset.is_some()),
            ("--check grpc=…", o.checks.iter().any(|c| c.starts_with("grpc="))),
        ];
        if !self.speaks_grpc() {
            for (place, _) in of_grpc.iter().filter(|(_, given)| *given) {
                self.wrong(place, "is for gRPC: the target is grpc://host:port/package.Service/Method");
            }
            return None;
        }
        if o.urls.iter().any(|url| Url::parse(url).is_ok_and(|u| !u.scheme.is_grpc())) {
            self.wrong(
                "URL",
                "gRPC and HTTP cannot be mixed in one run: their statuses mean different things",
            );
        }
        if o.method.is_some() {
            self.wrong("-X", "a call of gRPC is always a POST");
        }
        if !o.forms.is_empty() {
            self.wrong("-F", "a call of gRPC takes messages: give them as JSON with --data");
        }
        if !o.import_paths.is_empty() && o.protos.is_empty() {
            self.wrong("--import-path", "is for --proto");
        }
        let source = match &o.protoset {
            Some(_) if !o.protos.is_empty() => {
                self.wrong("--protoset", "--proto defines the methods already: use only one of them");
                return None;
            }
            Some(file) => Source::Set(file.clone()),
            None if o.protos.is_empty() => Source::Reflection,
            None => Source::Files(o.protos.clone(), o.import_paths.clone()),
        };
        let fields = self.metadata();
        match Schema::new(source) {
            Ok(schema) => Some(Calls { schema, fields }),
            Err((place, hint)) => {
                self.wrong(&place, &hint);
                None
            }
        }
    }

    /// The fields of a call, including metadata. Keys are lower case on the wire, values of `-bin` keys base64.
    fn metadata(&mut self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for text in &self.options.metadata {
            let place = format!("--metadata {text:?}");
            let Some((name, value)) = text.split_once(':') else {
                self.wrong(&place, "expected `key: value`");
                continue;
            };
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            if FieldName::new(&name).is_err() {
                self.wrong(&place, "this is not a key: expected letters, digits, `-`, `_` and `.`");
            } else if name.starts_with("grpc-") || name == "content-type" || name == "te" {
                self.wrong(&place, "this key is gRPC's own");
            } else if name.ends_with("-bin") && !is_base64(value) && !value.contains("{{") {
                self.wrong(&place, "the value of a `-bin` key is bytes: write them in base64");
            } else if !value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
                self.wrong(&place, "a value is printable ASCII; for anything else there are `-bin` keys");
            } else {
                fields.push((name, value.to_owned()));
            }
        }
        fields
    }

    /// The method of a target.
    pub(super) fn call(
        &mut self,
        place: &str,
        url: &Url,
        origin: &Origin,
        fields: &[(String, String)],
        calls: &mut Calls,
    ) -> Option<Arc<Call>> {
        if origin.addresses.is_empty() {
            return None; // its name was not found, which is already reported
        }
        let server = Server {
            origin,
            scheme: url.scheme.on_the_wire(),
            authority: &url.authority,
            fields,
            timeout: SCHEMA_WAIT,
        };
        match calls.schema.call(&url.path, &server) {
            Ok(call) => Some(Arc::new(call)),
            Err(hint) => {
                self.wrong(place, &hint);
                None
            }
        }
    }

    /// The framed messages of a call; if calls differ, of the first. Checks each row of the data.
    pub(super) fn messages(
        &mut self,
        call: &Call,
        json: &[u8],
        template: Option<&Template>,
        data: Option<&Arc<Data>>,
    ) -> (Vec<u8>, CallPlan) {
        let mut framed = Vec::new();
        let made = match template {
            None => call.frame(json, &mut framed),
            Some(template) => self.tried(template, data, call, &mut framed),
        };
        let messages = made.unwrap_or_else(|hint| {
            self.wrong("--data", &hint);
            0
        });
        let plan =
            CallPlan { kind: call.kind(), messages: messages as u64, schema: call.schema().to_owned() };
        (framed, plan)
    }

    /// Renders a request from each row, and keeps the messages of the first.
    fn tried(
        &self,
        template: &Template,
        data: Option<&Arc<Data>>,
        call: &Call,
        framed: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let rows = data.map_or(1, |d| d.len()).min(TRIED_MOST);
        let mut out = Vec::new();
        for row in 0..rows {
            out.clear();
            let mut values = Values::new(row as u64, 1, data.cloned());
            let (_, body) = template.render(&mut values, &mut out).map_err(|why| {
                if rows == 1 { why } else { format!("with row {} of the feed: {why}", row + 1) }
            })?;
            if row == 0 {
                let at = out.len().saturating_sub(usize::try_from(body).unwrap_or(0));
                framed.extend_from_slice(out.get(at..).unwrap_or_default());
            }
        }
        let mut count = crate::grpc::Messages::default();
        let _ = count.feed(framed); // we never compress
        debug_assert!(count.is_whole(), "{}", call.path());
        Ok(usize::try_from(count.count).unwrap_or(usize::MAX))
    }
}

/// Whether the text is base64 (RFC 4648 §4), with or without padding.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    digits.bytes().all(fine)
        && digits.len() % 4 != 1
        && (padding == 0 || (padding < 3 && text.len().is_multiple_of(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_known() {
        for (text, want) in [
            ("", true),
            ("AQI=", true),
            ("AQI", true),
            ("AQ==", true),
            ("A", false),
            ("AQI==", false),
            ("A Q", false),
            ("====", false),
        ] {
            assert_eq!(is_base64(text), want, "{text}");
        }
    }
}

//! Checks of `tracing`.

use super::{Checker, is_field_value, is_token};
use crate::schema::{OtlpProtocol, Parents};

/// What we write ourselves into each request.
const OURS: [&str; 7] =
    ["connection", "content-length", "content-type", "host", "te", "transfer-encoding", "user-agent"];

impl Checker<'_> {
    pub(super) fn tracing(&mut self) {
        let Some(tracing) = &self.config.tracing else { return };
        match &tracing.otlp {
            None if !self.is_written("tracing.otlp") => {
                let hint = "write otlp: http://127.0.0.1:4318";
                self.error_hint("tracing", "missing-key", "no collector is named: `otlp` is missing", hint);
            }
            Some(url) => {
                if tracing.spoken() == OtlpProtocol::Grpc && url.target() != "/" {
                    let message = format!("`{url}` has a path; a gRPC service is found by its name alone");
                    self.error_hint(
                        "tracing.otlp",
                        "bad-value",
                        message,
                        "leave the path out, or say protocol: http",
                    );
                }
                if !url.is_safe() && !tracing.headers.0.is_empty() {
                    let message = format!("fields for the collector go to {} in clear text", url.origin());
                    self.warn(
                        "tracing.otlp",
                        "clear-text",
                        message,
                        "use https, or a collector on this machine",
                    );
                }
            }
            None => {}
        }
        if tracing.service.trim().is_empty() {
            self.error("tracing.service", "bad-value", "the name of the service is empty");
        }
        self.must_last("tracing.timeout", tracing.timeout);
        self.collector_fields();
        if let Some(ca) = &tracing.ca {
            self.must_be_file("tracing.ca", &ca.0);
        }
        if tracing.parents == Parents::Trusted && self.config.trusted_proxies.is_empty() {
            let hint =
                "name the networks of your own load balancers under trusted_proxies, or say parents: never";
            self.warn(
                "tracing.parents",
                "trusts-nobody",
                "nobody is trusted: every exchange begins a trace",
                hint,
            );
        }
    }

    fn collector_fields(&mut self) {
        let Some(tracing) = &self.config.tracing else { return };
        for (name, value) in &tracing.headers.0 {
            let path = format!("tracing.headers.{name}");
            if !is_token(name) {
                self.error(&path, "bad-header", format!("`{name}` is no name of a header field"));
            } else if OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
                self.error(&path, "bad-header", format!("`{name}` is written by the gateway itself"));
            }
            if !is_field_value(value) {
                self.error(&path, "bad-header", "the value holds what a header field may not");
            } else if name.eq_ignore_ascii_case("authorization")
                && self.find(&path).is_some_and(|node| !node.substituted)
            {
                let hint = "write ${OTLP_TOKEN} or ${file:PATH}";
                self.warn(&path, "literal-credential", "the credential stands readable in this file", hint);
            }
        }
    }
}

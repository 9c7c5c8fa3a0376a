//! `weir explain`: which route a request takes, and why.

use super::{ConfigArgs, Format, print};
use anyhow::{Result, anyhow};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Explain {
    /// Method, such as GET; not needed before a grpc:// URL
    method: String,
    /// URL or path
    url: Option<String>,
    /// A header field, `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "K: V")]
    headers: Vec<String>,
    /// The listener on which the request comes in [default: the first]
    #[arg(long)]
    listener: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

impl Explain {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let headers: Result<Vec<(String, String)>> = self
            .headers
            .iter()
            .map(|h| {
                let (name, value) =
                    h.split_once(':').ok_or_else(|| anyhow!("`{h}`: expected `name: value`"))?;
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            })
            .collect();
        if self.url.is_none() && !self.method.starts_with("grpc") {
            return Err(anyhow!("`{}`: expected a method and a URL, or a grpc:// URL", self.method));
        }
        let checked = weir_gateway::check(&self.config.source(), &[]);
        let Some((_, snapshot)) = &checked.compiled else {
            eprint!("{}", checked.diagnostics.to_text());
            return Ok(ExitCode::from(1));
        };
        let listener = self.listener.as_deref();
        let (method, url) = match &self.url {
            Some(url) => (self.method.as_str(), url),
            // gRPC has one method only.
            None => ("POST", &self.method),
        };
        match weir_gateway::explain::explain(snapshot, listener, method, url, &headers?) {
            Ok(told) => {
                match self.format {
                    Format::Json => print(&format!("{:#}\n", serde_json::to_value(&told)?)),
                    Format::Text => print(&told.to_string()),
                }
                Ok(ExitCode::from(u8::from(told.decision.winner.is_none())))
            }
            Err(refused) => {
                match self.format {
                    Format::Json => print(&format!("{:#}\n", serde_json::json!({ "refused": refused }))),
                    Format::Text => print(&format!("refused  {refused}\n")),
                }
                Ok(ExitCode::from(1))
            }
        }
    }
}

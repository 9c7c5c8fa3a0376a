//! `weir explain`: which route a request takes, and why.

use super::{AdminArgs, ConfigArgs, Format, print, unanswered};
use anyhow::{Result, anyhow};
use clap::Args;
use serde_json::Value;
use std::net::IpAddr;
use std::process::ExitCode;
use weir_gateway::explain::{Arriving, Explanation, TargetShown};

#[derive(Args)]
pub(super) struct Explain {
    /// Method, such as GET; not needed before a grpc:// URL
    method: String,
    /// URL or path
    url: Option<String>,
    /// A header field, `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "K: V")]
    headers: Vec<String>,
    /// Listener that receives the request [default: the one that a client of the URL reaches]
    #[arg(long)]
    listener: Option<String>,
    /// The client's address, for `match.clients` and `client.ip` [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    client: Option<IpAddr>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Address of the admin listener of a running Weir, to ask for the state of the endpoints
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Token of that admin listener [default: the variable ADMIN_TOKEN, else the config's]
    #[arg(long, value_name = "TOKEN", requires = "admin")]
    token: Option<String>,
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
            err!("{}", checked.diagnostics.to_text());
            return Ok(ExitCode::from(1));
        };
        let arriving = Arriving { listener: self.listener.as_deref(), client: self.client };
        let (method, url) = match &self.url {
            Some(url) => (self.method.as_str(), url),
            // gRPC always uses POST.
            None => ("POST", &self.method),
        };
        match weir_gateway::explain::explain(snapshot, arriving, method, url, &headers?) {
            Ok(told) => {
                let live = self.live(&told)?;
                match self.format {
                    Format::Json => {
                        let mut document = serde_json::to_value(&told)?;
                        if let Some(live) = live {
                            document["live"] = live;
                        }
                        print(&format!("{document:#}\n"));
                    }
                    Format::Text => {
                        print(&format!("{told}{}", live.as_ref().map_or_else(String::new, words)))
                    }
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
    /// The state of the upstreams that the request may go to, if `--admin` names a running Weir.
    fn live(&self, told: &Explanation) -> Result<Option<Value>> {
        let (Some(address), Some(TargetShown::Upstreams(upstreams))) = (&self.admin, &told.target) else {
            return Ok(None);
        };
        let (admin, token) = (Some(address.clone()), self.token.clone());
        let place =
            AdminArgs { admin, token, cacert: None, cert: None, key: None, config: self.config.clone() }
                .place()?;
        let answer =
            weir_admin::client::status(place.at(), place.token.as_deref()).map_err(|e| unanswered(&e))?;
        if !answer.is_success() {
            return Err(anyhow!("{}", answer.explanation()));
        }
        let status = answer.json();
        let of = |name: &String| (name.clone(), status["upstreams"][name].clone());
        Ok(Some(Value::Object(upstreams.iter().map(|upstream| of(&upstream.name)).collect())))
    }
}

/// The state of the upstreams as text, a line per endpoint.
fn words(live: &Value) -> String {
    let mut text = String::new();
    for (name, upstream) in live.as_object().into_iter().flatten() {
        let Some(endpoints) = upstream["endpoints"].as_array() else {
            text.push_str(&format!("live     the running Weir has no upstream {name}\n"));
            continue;
        };
        if upstream["panic"] == true {
            text.push_str(&format!(
                "live     {name}: too few endpoints in rotation, unwell ones are used too\n"
            ));
        }
        for endpoint in endpoints {
            let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let reasons = endpoint["reasons"].as_array().map_or(&[][..], Vec::as_slice).iter().map(|why| {
                let detail = why["detail"].as_str().map_or_else(String::new, |detail| format!(": {detail}"));
                let until = why["until"].as_str().map_or_else(String::new, |until| format!(" until {until}"));
                let (reason, cause, since) = (said(&why["reason"]), said(&why["cause"]), said(&why["since"]));
                format!("{reason} ({cause}{detail}) since {since}{until}")
            });
            let reasons: Vec<String> = reasons.collect();
            let state = match (said(&endpoint["state"]), reasons.is_empty()) {
                (state, true) => state,
                (state, false) if state == "to_be_tried" => format!("to be tried: {}", reasons.join(", ")),
                (_, false) => reasons.join(", "),
            };
            text.push_str(&format!("live     {name} {}: {state}\n", said(&endpoint["address"])));
        }
    }
    text
}

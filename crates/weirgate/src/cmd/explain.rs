//! `weir explain`: which route a request takes, and why.

use super::{AdminArgs, AdminPlace, ConfigArgs, Format, print, unanswered};
use anyhow::{Result, anyhow};
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use weir_admin::client::{self, Call};
use weir_gateway::explain::{Arriving, Explanation, TargetShown};

#[derive(Args)]
#[command(group(ArgGroup::new("asked").args(["running", "admin"]).multiple(true)))]
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
    /// Explain by the config that a running Weir has, whatever the files say
    #[arg(long)]
    running: bool,
    /// Address of the admin listener of a running Weir, to ask for the state of the endpoints [default with --running:
    /// the config's, else 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Token of that admin listener [default: the variable ADMIN_TOKEN, else the config's]
    #[arg(long, value_name = "TOKEN", requires = "asked")]
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
        if self.running {
            return self.ask(&headers?);
        }
        let checked = weir_gateway::check(&self.config.source(), &[]);
        let Some((_, snapshot)) = &checked.compiled else {
            err!("{}", checked.diagnostics.to_text());
            return Ok(ExitCode::from(1));
        };
        let arriving = Arriving { listener: self.listener.as_deref(), client: self.client };
        let (method, url) = self.line();
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

    /// The method and the URL.
    fn line(&self) -> (&str, &str) {
        match &self.url {
            Some(url) => (&self.method, url),
            // gRPC always uses POST.
            None => ("POST", &self.method),
        }
    }

    /// Asks a running Weir.
    fn ask(&self, headers: &[(String, String)]) -> Result<ExitCode> {
        let (method, url) = self.line();
        let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in headers {
            fields.entry(name).or_default().push(value);
        }
        let question = json!({
            "method": method, "url": url, "headers": fields, "listener": self.listener, "client": self.client,
            "text": self.format == Format::Text,
        });
        let question = question.to_string();
        let call = Call {
            line: "POST /api/v1/config:explain",
            media: "application/json",
            body: question.as_bytes(),
            ..Call::default()
        };
        let place = self.place()?;
        let answer = client::ask(place.at(), place.token.as_deref(), call).map_err(|e| unanswered(&e))?;
        let mut document = answer.json();
        if !answer.is_success() {
            return Err(anyhow!("{}", answer.explanation()));
        }
        let names = document["target"]["upstreams"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|upstream| upstream["name"].as_str()).collect();
        let live = if names.is_empty() { None } else { Some(state(&place, &names)?) };
        let has_winner = !document["decision"]["winner"].is_null();
        match self.format {
            Format::Json => {
                if let Some(live) = live {
                    document["live"] = live;
                }
                print(&format!("{document:#}\n"));
            }
            Format::Text => {
                let text = document["text"].as_str().ok_or_else(|| {
                    anyhow!(
                        "the running Weir is older than this program: use --format json, or its own program"
                    )
                })?;
                print(&format!("{text}{}", live.as_ref().map_or_else(String::new, words)));
            }
        }
        Ok(ExitCode::from(u8::from(!has_winner)))
    }

    fn place(&self) -> Result<AdminPlace> {
        let (admin, token) = (self.admin.clone(), self.token.clone());
        AdminArgs { admin, token, cacert: None, cert: None, key: None, config: self.config.clone() }.place()
    }

    /// The state of the upstreams that the request may go to, if `--admin` names a running Weir.
    fn live(&self, told: &Explanation) -> Result<Option<Value>> {
        let (Some(_), Some(TargetShown::Upstreams(upstreams))) = (&self.admin, &told.target) else {
            return Ok(None);
        };
        let names: Vec<&str> = upstreams.iter().map(|upstream| &*upstream.name).collect();
        state(&self.place()?, &names).map(Some)
    }
}

/// The state of upstreams in a running Weir.
fn state(place: &AdminPlace, names: &[&str]) -> Result<Value> {
    let answer = client::status(place.at(), place.token.as_deref()).map_err(|e| unanswered(&e))?;
    if !answer.is_success() {
        return Err(anyhow!("{}", answer.explanation()));
    }
    let status = answer.json();
    let of = |name: &&str| ((*name).to_owned(), status["upstreams"][*name].clone());
    Ok(Value::Object(names.iter().map(of).collect()))
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

//! `weir load --agents`: the options that say who generates the load, and the run by agents.

use super::Load;
use crate::cmd::agent::read_token;
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;
use weir_load::Options;
use weir_load::agents::{AGENTS_MOST, Lead, OnLoss, Packed, PlanFile};
use weir_report::Mistake;
use weir_wire::Chain;
use weir_wire::tls::ClientTls;

#[derive(Args)]
pub(super) struct AgentArgs {
    /// Generate the load on these agents (`weir agent`), HOST:PORT each; --cert, --key and --ca are then for the agents
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', help_heading = "Agents")]
    agents: Vec<String>,
    /// CA certificate that signed the agents' certificates
    #[arg(long, value_name = "FILE", requires = "agents", help_heading = "Agents")]
    ca: Option<PathBuf>,
    /// Instead of certificates, for agents on loopback: a file with their token
    #[arg(long, value_name = "FILE", requires = "agents", help_heading = "Agents")]
    token_file: Option<PathBuf>,
    /// What to do if an agent is lost during the run [default: abort]
    #[arg(long, value_enum, value_name = "WHAT", requires = "agents", help_heading = "Agents")]
    on_agent_loss: Option<Loss>,
}

/// What to do if an agent is lost.
#[derive(Clone, Copy, ValueEnum)]
enum Loss {
    /// Stop the others; the result is INVALID
    Abort,
    /// Let the others go on; the result is SUSPECT
    Continue,
}

impl AgentArgs {
    /// Whether agents generate the load.
    pub(super) fn are_given(&self) -> bool {
        !self.agents.is_empty()
    }

    /// How to reach the agents. Takes the certificate out of the options: it is not for the target.
    pub(super) fn lead(&self, options: &mut Options) -> Result<Lead, Vec<Mistake>> {
        let mut wrong = Vec::new();
        let mut mistake = |place: &str, hint: &str| wrong.push(Mistake::new(place, hint));
        let (cert, key) = (options.cert.take(), options.key.take());
        options.is_elsewhere = true;
        if self.agents.len() > AGENTS_MOST {
            mistake("--agents", &format!("expected at most {AGENTS_MOST}"));
        }
        for (i, agent) in self.agents.iter().enumerate() {
            let port = agent
                .rsplit_once(':')
                .and_then(|(host, port)| if host.is_empty() { None } else { port.parse::<u16>().ok() });
            if port.is_none() {
                mistake(&format!("--agents {agent}"), "expected HOST:PORT, such as 10.0.0.7:7400");
            }
            if self.agents.iter().take(i).any(|earlier| earlier == agent) {
                mistake(&format!("--agents {agent}"), "is there twice");
            }
        }
        let token = match self.token_file.as_deref().map(read_token).transpose() {
            Ok(token) => token,
            Err(why) => {
                mistake("--token-file", &why);
                None
            }
        };
        let is_loopback = |agent: &String| {
            let host = agent.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        let tls = match (&cert, &key, &self.ca) {
            (Some(cert), Some(key), Some(ca)) => {
                let made = ClientTls::new(Some(ca), Some((cert, key)), None, true, &[]);
                made.map_err(|e| mistake("--cert", &Chain(&e).to_string())).ok()
            }
            (None, None, None) if token.is_some() && self.agents.iter().all(is_loopback) => None,
            (None, None, None) if self.token_file.is_some() => {
                mistake("--token-file", "is for agents on loopback; others need --cert, --key and --ca");
                None
            }
            _ => {
                let hint = "agents require a client certificate: give --cert, --key and --ca (on loopback, --token-file)";
                mistake("--agents", hint);
                None
            }
        };
        let on_loss = match self.on_agent_loss {
            None | Some(Loss::Abort) => OnLoss::Abort,
            Some(Loss::Continue) => OnLoss::Continue,
        };
        let lead = Lead { agents: self.agents.clone(), tls, token, on_loss };
        if wrong.is_empty() { Ok(lead) } else { Err(wrong) }
    }
}

impl Load {
    /// Who generates the load, and what they need for it; none without agents.
    pub(super) fn agents(&self, options: &mut Options) -> Result<Option<(Lead, Packed)>, Vec<Mistake>> {
        if !self.agents.are_given() {
            return Ok(None);
        }
        let lead = self.agents.lead(options);
        let set = self.set_keys();
        let file =
            self.plan_file().map(|path| PlanFile { path, set: &set, is_rehearsed: self.is_rehearsed() });
        let sent = match &file {
            Some(_) => Options { urls: Vec::new(), ..options.clone() },
            None => options.clone(),
        };
        match (lead, Packed::new(&sent, file)) {
            (Ok(lead), Ok(packed)) => Ok(Some((lead, packed))),
            (lead, packed) => Err([lead.err(), packed.err()].into_iter().flatten().flatten().collect()),
        }
    }
}

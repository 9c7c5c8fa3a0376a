//! Follows a service in Consul with blocking queries, which return when the answer changes.

use super::desk::Desk;
use super::{AskContext, PAUSE};
use crate::fetch::{FetchRequest, Trust, Url, fetch};
use std::convert::Infallible;
use weir_config::schema::ConsulDiscovery;
use weir_discover::Choice;
use weir_discover::consul::{ANSWER_BYTES, Service, WAIT};
use weir_h1::FieldName;

/// Returns only if asking is impossible.
pub(super) async fn follow(
    written: &ConsulDiscovery,
    choice: Choice,
    around: &AskContext,
    desk: &Desk,
) -> Result<Infallible, String> {
    let trust = Trust::given(&written.ca, &written.client_cert, &written.client_key)?;
    let tag = written.tag.as_deref();
    let mut service = Service::new(&written.service, tag, written.datacenter.as_deref(), choice);
    let mut servers = written.servers.iter().cycle();
    let mut server = servers.next().ok_or("no server is named")?;
    loop {
        match once(server, &trust, written, &mut service, around, desk).await {
            Ok(()) => tokio::time::sleep(PAUSE).await,
            Err(why) => {
                service.failed();
                let wait = desk.failed(format!("{}: {why}", server.origin()));
                server = servers.next().unwrap_or(server);
                tokio::time::sleep(wait).await;
            }
        }
    }
}

async fn once(
    server: &Url,
    trust: &Trust,
    written: &ConsulDiscovery,
    service: &mut Service,
    around: &AskContext,
    desk: &Desk,
) -> Result<(), String> {
    let mut request = FetchRequest::get(server.with_target(&service.target()), ANSWER_BYTES, WAIT);
    request.trust = trust.clone();
    if let Some(token) = &written.token
        && let Ok(name) = FieldName::new("x-consul-token")
    {
        request.headers.push((name, token.reveal().as_bytes().to_vec()));
    }
    let answer = tokio::time::timeout(WAIT, fetch(&request, &around.environment)).await;
    let answer =
        answer.map_err(|_| "no answer in time".to_owned())?.map_err(|e| weir_wire::Chain(&e).to_string())?;
    if answer.status != 200 {
        let said: String = String::from_utf8_lossy(&answer.body).chars().take(200).collect();
        return Err(format!("Consul answers {}: {}", answer.status, said.trim()));
    }
    let index = answer.headers.iter().find(|(name, _)| name.as_str().eq_ignore_ascii_case("x-consul-index"));
    let answer = service.answered(index.map(|(_, value)| value.as_slice()), &answer.body)?;
    desk.answered(answer.listing, answer.went_back);
    Ok(())
}

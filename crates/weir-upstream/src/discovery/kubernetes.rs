//! Follows the EndpointSlices of a Service in Kubernetes: lists them, and then watches what changes.

use super::desk::Desk;
use super::{AskContext, PAUSE};
use crate::fetch::{FetchRequest, Following, Lines, Trust, Url, fetch, token_in};
use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_config::schema::{FilePath, KubernetesDiscovery};
use weir_discover::Applied;
use weir_discover::kubernetes::{ANSWER_BYTES, LINE_BYTES, Table};
use weir_h1::FieldName;
use weir_wire::Chain;

/// Timeout of the list, and of the head of the watch.
const WAIT: Duration = Duration::from_secs(10);

/// How long the watch may be silent before the slices are listed again: a server behind a broken connection does not
/// report itself. It sends a bookmark about once a minute.
const SILENCE: Duration = Duration::from_secs(150);

/// A watch that lasted at least this long did not fail when it ended.
const LASTED: Duration = Duration::from_secs(1);

/// When to retry a request that the token does not permit. Without the verb `watch`, we list this often.
const REFUSED: Duration = Duration::from_secs(5);

/// Most characters of the server's own words in an error.
const SAID: usize = 200;

/// The folder where Kubernetes puts a pod's token and the cluster's authority.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why the API server gave no endpoints.
struct Trouble {
    why: String,
    /// Wait at least this long.
    wait: Duration,
}

/// Returns only if asking is impossible.
pub(super) async fn follow(
    written: &KubernetesDiscovery,
    around: &AskContext,
    desk: &Desk,
) -> Result<Infallible, String> {
    let mut table = Table::new(&written.namespace, &written.service, written.port.as_deref());
    let mut servers = written.servers.iter().cycle();
    let mut server = servers.next().ok_or("no server is named")?;
    loop {
        match once(server, written, &mut table, around, desk).await {
            Ok(()) => tokio::time::sleep(PAUSE).await,
            Err(Trouble { why, wait }) => {
                let wait = wait.max(desk.failed(format!("{}: {why}", server.origin())));
                server = servers.next().unwrap_or(server);
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// Lists the slices unless we know from where to watch, and watches until the watch ends.
async fn once(
    server: &Url,
    written: &KubernetesDiscovery,
    table: &mut Table,
    around: &AskContext,
    desk: &Desk,
) -> Result<(), Trouble> {
    let target = match table.watch() {
        Some(target) => target,
        None => {
            let body = list(server, written, table, around).await?;
            let went_back = table.load(&body)?;
            desk.answered(table.listing(), went_back);
            table.watch().ok_or_else(|| "the list has no version".to_owned())?
        }
    };
    let request = request(server, written, &target, LINE_BYTES)?;
    let opened = Instant::now();
    let mut watch = open(&request, around).await.inspect_err(|refused| {
        // A failed connection says nothing about the version.
        if refused.is_answer {
            table.forget_version();
        }
    })?;
    desk.answered(table.listing(), false);
    loop {
        let applied = match tokio::time::timeout(SILENCE, watch.next()).await {
            Ok(Ok(Some(line))) => table.apply(line),
            Ok(Ok(None)) if opened.elapsed() < LASTED => {
                return Err("the watch ended at once".to_owned().into());
            }
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(e)) => return Err(Chain(&e).to_string().into()),
            Err(_) => {
                table.forget_version();
                return Ok(());
            }
        };
        match applied {
            Applied::Changed => desk.answered(table.listing(), false),
            Applied::Same => {}
            // A watch that never lasts counts as refused, even if lists succeed.
            Applied::Reread(why) if opened.elapsed() < LASTED => return Err(why.into()),
            // Compaction loses nothing: everything is listed again.
            Applied::Reread(_) => return Ok(()),
        }
    }
}

async fn list(
    server: &Url,
    written: &KubernetesDiscovery,
    table: &Table,
    around: &AskContext,
) -> Result<Vec<u8>, Trouble> {
    let request = request(server, written, &table.list(), ANSWER_BYTES)?;
    let answer = tokio::time::timeout(WAIT, fetch(&request, &around.environment)).await;
    let answer = answer.map_err(|_| no_answer())?.map_err(|e| Chain(&e).to_string())?;
    match answer.status {
        200 => Ok(answer.body.to_vec()),
        status => Err(refused("list", status, &answer.body)),
    }
}

/// Why a watch could not be opened.
struct NotOpened {
    trouble: Trouble,
    /// Whether the server answered.
    is_answer: bool,
}

async fn open(request: &FetchRequest, around: &AskContext) -> Result<Lines, NotOpened> {
    let away = |why: String| NotOpened { trouble: why.into(), is_answer: false };
    let opened = tokio::time::timeout(WAIT, Following::open(request, &around.environment)).await;
    let mut opened = opened.map_err(|_| away(no_answer()))?.map_err(|e| away(Chain(&e).to_string()))?;
    if opened.status == 200 {
        return Ok(Lines::new(opened, LINE_BYTES));
    }
    let body = tokio::time::timeout(WAIT, opened.piece()).await.ok().and_then(Result::ok).flatten();
    let trouble = refused("watch", opened.status, &body.unwrap_or_default());
    Err(NotOpened { trouble, is_answer: true })
}

fn no_answer() -> String {
    "no answer in time".to_owned()
}

/// An answer that is no success, with what to do about it.
fn refused(verb: &str, status: u16, body: &[u8]) -> Trouble {
    let said: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(SAID).collect();
    let (hint, wait) = match status {
        401 => ("; the token is not valid", Duration::ZERO),
        403 => ("; the token needs list and watch of endpointslices.discovery.k8s.io", REFUSED),
        _ => ("", Duration::ZERO),
    };
    Trouble { why: format!("the API server answers {status} to a {verb}: {said}{hint}"), wait }
}

/// A request with the token, which a pod's volume replaces about once an hour, and the authorities as they are now.
fn request(
    server: &Url,
    written: &KubernetesDiscovery,
    target: &str,
    limit: usize,
) -> Result<FetchRequest, String> {
    let file = |given: &Option<FilePath>, name: &str| {
        given.as_ref().map_or_else(|| Path::new(ACCOUNT).join(name), |file| file.0.clone())
    };
    let token = token_in(&file(&written.token_file, "token"))?;
    let mut request = FetchRequest::get(server.with_target(target), limit, WAIT);
    if server.is_tls() {
        request.trust = Trust::file(&file(&written.ca, "ca.crt"))?;
    }
    for (name, value) in
        [("accept", "application/json".to_owned()), ("authorization", format!("Bearer {token}"))]
    {
        if let Ok(name) = FieldName::new(name) {
            request.headers.push((name, value.into_bytes()));
        }
    }
    Ok(request)
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self { why, wait: Duration::ZERO }
    }
}

impl From<NotOpened> for Trouble {
    fn from(refused: NotOpened) -> Self {
        refused.trouble
    }
}

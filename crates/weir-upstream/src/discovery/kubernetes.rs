//! Follows the EndpointSlices of a Service in Kubernetes: lists them, and then watches what changes. `Attempts` of
//! weir-discover decides what follows when a request fails or a watch ends.

use super::desk::Desk;
use super::{AskContext, PAUSE};
use crate::fetch::{FetchRequest, Following, Lines, Trust, Url, fetch, token_in};
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_config::schema::{FilePath, KubernetesDiscovery};
use weir_discover::Applied;
use weir_discover::kubernetes::{ANSWER_BYTES, Attempts, End, GONE, LINE_BYTES, Next, Table};
use weir_h1::FieldName;
use weir_wire::Chain;

/// Timeout of the list, and of the head of the watch.
const WAIT: Duration = Duration::from_secs(10);

/// How long the watch may be silent before the slices are listed again: a server behind a broken connection does not
/// report itself. It sends a bookmark about once a minute.
const SILENCE: Duration = Duration::from_secs(150);

/// When to retry a request that the token does not permit. Without the verb `watch`, we list this often.
const REFUSED: Duration = Duration::from_secs(5);

/// Most characters of the server's own words in an error.
const SAID: usize = 200;

/// The folder where Kubernetes puts a pod's token and the cluster's authority.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns only if asking is impossible.
pub(super) async fn follow(
    written: &KubernetesDiscovery,
    around: &AskContext,
    desk: &Desk,
) -> Result<Infallible, String> {
    let mut table = Table::new(&written.namespace, &written.service, written.port.as_deref());
    let seed = RandomState::new().hash_one(&written.service);
    let mut attempts = Attempts::new(written.servers.len(), seed);
    loop {
        let server = written.servers.get(attempts.server()).ok_or("no server is named")?;
        let (end, lasted) = attempt(server, written, &mut table, around, desk).await;
        let wait = match attempts.ended(&mut table, end, lasted) {
            Next::Again => PAUSE,
            Next::Failed(why, wait) => wait.max(desk.failed(format!("{}: {why}", server.origin()))),
        };
        tokio::time::sleep(wait).await;
    }
}

/// Lists the slices unless we know from where to watch, and watches. Returns how that ended, and how long the watch was
/// open.
async fn attempt(
    server: &Url,
    written: &KubernetesDiscovery,
    table: &mut Table,
    around: &AskContext,
    desk: &Desk,
) -> (End, Duration) {
    let mut watch = match begin(server, written, table, around, desk).await {
        Ok(watch) => watch,
        Err(end) => return (end, Duration::ZERO),
    };
    let opened = Instant::now();
    desk.answered(table.listing(), false);
    let end = loop {
        let applied = match tokio::time::timeout(SILENCE, watch.next()).await {
            Ok(Ok(Some(line))) => table.apply(line),
            Ok(Ok(None)) => break End::Ended,
            Ok(Err(e)) => break failed(Chain(&e).to_string()),
            Err(_) => break End::Silent,
        };
        match applied {
            Applied::Changed => desk.answered(table.listing(), false),
            Applied::Expired(why) => break End::Expired(why),
            Applied::Reread(why) => break End::Reread(why),
            Applied::Same => {}
        }
    };
    (end, opened.elapsed())
}

/// Lists the slices unless we know from where to watch, and opens the watch.
async fn begin(
    server: &Url,
    written: &KubernetesDiscovery,
    table: &mut Table,
    around: &AskContext,
    desk: &Desk,
) -> Result<Lines, End> {
    let target = match table.watch() {
        Some(target) => target,
        None => {
            let body = list(server, written, table, around).await?;
            let went_back = table.load(&body).map_err(failed)?;
            desk.answered(table.listing(), went_back);
            table.watch().ok_or_else(|| failed("the list has no version".to_owned()))?
        }
    };
    open(&request(server, written, &target, LINE_BYTES).map_err(failed)?, around).await
}

async fn list(
    server: &Url,
    written: &KubernetesDiscovery,
    table: &Table,
    around: &AskContext,
) -> Result<Vec<u8>, End> {
    let request = request(server, written, &table.list(), ANSWER_BYTES).map_err(failed)?;
    let answer = tokio::time::timeout(WAIT, fetch(&request, &around.environment)).await;
    let answer = answer.map_err(|_| failed(no_answer()))?.map_err(|e| failed(Chain(&e).to_string()))?;
    match answer.status {
        200 => Ok(answer.body.to_vec()),
        status => {
            let (why, wait) = refused("list", status, &answer.body);
            Err(End::Failed(why, wait))
        }
    }
}

async fn open(request: &FetchRequest, around: &AskContext) -> Result<Lines, End> {
    let opened = tokio::time::timeout(WAIT, Following::open(request, &around.environment)).await;
    let mut opened = opened.map_err(|_| failed(no_answer()))?.map_err(|e| failed(Chain(&e).to_string()))?;
    if opened.status == 200 {
        return Ok(Lines::new(opened, LINE_BYTES));
    }
    let body = tokio::time::timeout(WAIT, opened.piece()).await.ok().and_then(Result::ok).flatten();
    let (why, wait) = refused("watch", opened.status, &body.unwrap_or_default());
    Err(if opened.status == GONE { End::Expired(why) } else { End::Refused(why, wait) })
}

/// A failure after which the next attempt need not wait longer than usual.
fn failed(why: String) -> End {
    End::Failed(why, Duration::ZERO)
}

fn no_answer() -> String {
    "no answer in time".to_owned()
}

/// Why an answer is no success, with what to do about it, and how long to wait at least.
fn refused(verb: &str, status: u16, body: &[u8]) -> (String, Duration) {
    let said: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(SAID).collect();
    let (hint, wait) = match status {
        401 => ("; the token is not valid", Duration::ZERO),
        403 => ("; the token needs list and watch of endpointslices.discovery.k8s.io", REFUSED),
        _ => ("", Duration::ZERO),
    };
    (format!("the API server answers {status} to a {verb}: {said}{hint}"), wait)
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

//! Follows the keys of a service in etcd.

use super::desk::Desk;
use super::{AskContext, PAUSE};
use crate::etcd::Client;
use crate::fetch::Trust;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};
use weir_config::schema::{EtcdDiscovery, EtcdFormat};
use weir_discover::etcd::{ANSWER_BYTES, Format, Table};
use weir_discover::{Applied, Choice};

/// How long a watch may be silent before everything is read again: a partitioned server does not report itself.
const SILENCE: Duration = Duration::from_secs(30);

/// A watch that lasted at least this long did not fail when it ended.
const LASTED: Duration = Duration::from_secs(1);

/// Returns only if asking is impossible.
pub(super) async fn follow(
    written: &EtcdDiscovery,
    choice: Choice,
    around: &AskContext,
    desk: &Desk,
) -> Result<Infallible, String> {
    let trust = Trust::given(&written.ca, &written.client_cert, &written.client_key)?;
    let password = written.password.as_ref().map(|secret| secret.reveal().to_owned());
    let login = written.user.clone().zip(password);
    // Gateways start with different members.
    let start = RandomState::new().hash_one(&written.key);
    let client =
        Client::new(&written.servers, start, trust, login, std::sync::Arc::clone(&around.environment))?;
    let format = match written.format {
        Some(EtcdFormat::GoZero) => Format::GoZero,
        Some(EtcdFormat::Kratos) | None => Format::Kratos,
    };
    let mut table = Table::new(&written.key, format, choice);
    loop {
        match once(&client, &mut table, desk).await {
            Ok(()) => tokio::time::sleep(PAUSE).await,
            Err(why) => tokio::time::sleep(desk.failed(why)).await,
        }
    }
}

/// Reads everything and watches until it must be read again. Fails with the reason.
async fn once(client: &Client, table: &mut Table, desk: &Desk) -> Result<(), String> {
    let body = client.ask(&table.read(), ANSWER_BYTES).await?;
    let went_back = table.load(&body)?;
    desk.answered(table.listing(), went_back);
    let opened = Instant::now();
    let mut watch = client.watch(&table.watch(), ANSWER_BYTES).await?;
    loop {
        let applied = match tokio::time::timeout(SILENCE, watch.line()).await {
            Ok(line) => table.apply(line?),
            Err(_) => return Ok(()),
        };
        match applied {
            Applied::Changed => desk.answered(table.listing(), false),
            Applied::Same => {}
            // A watch that never lasts counts as refused, even if reads succeed.
            Applied::Expired(why) | Applied::Reread(why) if opened.elapsed() < LASTED => return Err(why),
            // Compaction loses nothing: everything is read again.
            Applied::Expired(_) | Applied::Reread(_) => return Ok(()),
        }
    }
}

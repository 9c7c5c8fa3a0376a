//! The account at a certificate authority (RFC 8555 §7.3): loaded from the storage, or registered once for all nodes.

use crate::failure::{Failure, Kind};
use crate::jws::{AccountKey, Signer};
use crate::lock::{self, Owner, Seen};
use crate::session::Session;
use crate::storage::{self, Storage};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};
use weir_wire::base64::{decode_url, encode_url};

/// How long another node may take to register.
const REGISTERING: Duration = Duration::from_secs(90);

/// How often we check whether it has.
const ASK: Duration = Duration::from_millis(200);

/// An account that can sign requests.
pub(crate) struct Account {
    pub(crate) key: AccountKey,
    pub(crate) url: String,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct Kept {
    directory: String,
    /// PKCS#8, base64 for URLs.
    key: String,
    /// `None` until the authority has answered.
    url: Option<String>,
    email: Option<String>,
}

impl Account {
    pub(crate) const fn signer(&self) -> Signer<'_> {
        Signer::Account(&self.key, self.url.as_str())
    }

    /// Opens the account in the storage. Registers one if there is none, and updates it if the email has changed.
    pub(crate) async fn open(
        session: &Session<'_>,
        storage: &Storage,
        owner: &Owner,
    ) -> Result<Self, Failure> {
        if let Some(known) = Self::known(session, storage)? {
            return Ok(known);
        }
        let path = storage.account().with_extension("lock");
        let (mut seen, began) = (Seen::default(), Instant::now());
        let _lock = loop {
            let taken = lock::take(&path, owner, &mut seen, Instant::now());
            if let Some(lock) = taken.map_err(|e| Failure::storage(&path, &e))? {
                break lock;
            }
            if began.elapsed() > REGISTERING {
                return Err(Failure::new(
                    Kind::Lock,
                    "another node is registering the account, and does not end",
                ));
            }
            tokio::time::sleep(ASK).await;
        };
        match Self::known(session, storage)? {
            Some(known) => Ok(known), // another node was faster
            None => Self::register(session, storage).await,
        }
    }

    /// Handles an account that its authority no longer knows: it will be registered again with the same key.
    pub(crate) fn forget(session: &Session<'_>, storage: &Storage) -> Result<(), Failure> {
        let Some(mut kept) = kept(session, storage)? else { return Ok(()) };
        kept.url = None;
        storage::write_json(&storage.account(), &kept)
    }

    fn known(session: &Session<'_>, storage: &Storage) -> Result<Option<Self>, Failure> {
        let Some(kept) = kept(session, storage)? else { return Ok(None) };
        let same = kept.email == session.settings().email;
        let Some(url) = kept.url.clone().filter(|_| same) else { return Ok(None) };
        Ok(Some(Self { key: kept.key()?, url }))
    }

    async fn register(session: &Session<'_>, storage: &Storage) -> Result<Self, Failure> {
        let settings = session.settings();
        let before = kept(session, storage)?;
        let contact: Vec<String> = settings.email.iter().map(|email| format!("mailto:{email}")).collect();
        if let Some(before) = &before
            && let Some(url) = &before.url
        {
            // Only the email differs.
            let account = Self { key: before.key()?, url: url.clone() };
            session.post(account.signer(), url, Some(&json!({ "contact": contact }))).await?;
            account.keep(storage, session)?;
            return Ok(account);
        }
        if session.directory.meta.external_account_required && settings.external.is_none() {
            return Err(Failure::new(
                Kind::Account,
                "the certificate authority takes only accounts that it knows; write external_account with its key_id and secret",
            ));
        }
        let key = match &before {
            Some(before) => before.key()?,
            None => AccountKey::generate()?,
        };
        // Store the key first: without its key, an account is useless.
        Kept { directory: settings.directory.clone(), key: encode_url(key.pkcs8()), url: None, email: None }
            .write(storage)?;
        let url = session.directory.new_account.clone();
        let mut payload = json!({ "termsOfServiceAgreed": true, "contact": contact });
        if let Some(external) = &settings.external {
            payload["externalAccountBinding"] =
                Signer::Key(&key).bind(&external.key_id, &external.key, &url)?;
        }
        let made = session.post(Signer::Key(&key), &url, Some(&payload)).await;
        let made = made.map_err(|refused| match refused.failure {
            failure if failure.kind == Kind::Refused => Failure { kind: Kind::Account, ..failure },
            failure => failure,
        })?;
        let url = made.location.filter(|url| crate::message::may_ask(url));
        let url = url.ok_or_else(|| Failure::bad_answer("the certificate authority names no account"))?;
        let account = Self { key, url };
        account.keep(storage, session)?;
        Ok(account)
    }

    fn keep(&self, storage: &Storage, session: &Session<'_>) -> Result<(), Failure> {
        let settings = session.settings();
        Kept {
            directory: settings.directory.clone(),
            key: encode_url(self.key.pkcs8()),
            url: Some(self.url.clone()),
            email: settings.email.clone(),
        }
        .write(storage)
    }
}

impl Kept {
    fn key(&self) -> Result<AccountKey, Failure> {
        AccountKey::from_pkcs8(&decode_url(self.key.as_bytes()).unwrap_or_default())
    }

    fn write(&self, storage: &Storage) -> Result<(), Failure> {
        storage::write_json(&storage.account(), self)
    }
}

/// The stored account for this directory.
fn kept(session: &Session<'_>, storage: &Storage) -> Result<Option<Kept>, Failure> {
    let kept: Option<Kept> = storage::read_json(&storage.account())?;
    Ok(kept.filter(|kept| kept.directory == session.settings().directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.1 reads and writes exactly these fields.
    #[test]
    fn the_stored_account_has_the_form_of_0_1() {
        let stored = json!({
            "directory": "https://ca.test/dir", "key": "AAEC", "url": "https://ca.test/acct/1", "email": "ops@a.test"
        });
        let read: Kept = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    }
}

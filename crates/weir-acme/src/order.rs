//! One order (RFC 8555 §7.4), new or resumed from an earlier process: proven, finalized, downloaded.
//!
//! ```text
//!               ┌── pending ──► prove ──┐
//!    order.json │                       ▼
//!    or new ────┼────────────────── ready ──► finalize ──► processing ──► valid ──► the chain
//!               │
//!               └── invalid, or unknown to the authority: forgotten, and the next attempt starts over
//! ```
//! The URL and the key are stored before anything else happens, so that a restart continues this order.

use crate::account::Account;
use crate::failure::{Failure, Kind};
use crate::message::{Authorization, Challenge as Offered, Order, Status, is_token};
use crate::name::Name;
use crate::publish::{Published, Stage};
use crate::session::{Good, Refusal, Session};
use crate::storage::{self, Storage};
use crate::{Clock, Spec, certificate_of};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use weir_wire::base64::encode_url;
use weir_wire::tls::Certificate;

/// How long an order may take.
const ORDER: Duration = Duration::from_secs(15 * 60);

/// The waits between two polls of an authority that names none.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// The longest wait between two polls that we accept.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// Most authorizations of an order that we process: our orders have one.
const AUTHORIZATIONS: usize = 4;

/// An issued certificate, with the text to store: the key, then the chain.
pub(crate) struct Issued {
    pub(crate) certificate: Certificate,
    pub(crate) pem: String,
}

/// The stored form of an order.
#[derive(Serialize, Deserialize)]
struct Kept {
    url: String,
    account: String,
    profile: Option<String>,
    /// PEM.
    key: String,
}

/// The context of an order.
pub(crate) struct Ordering<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) node: &'a str,
    pub(crate) clock: &'a Clock,
    pub(crate) spec: &'a Spec,
    pub(crate) storage: &'a Storage,
    pub(crate) session: &'a Session<'a>,
    pub(crate) account: &'a Account,
}

impl Ordering<'_> {
    /// Orders a certificate. `replaces` is the authority's identifier of its predecessor.
    pub(crate) async fn run(&self, replaces: Option<&str>) -> Result<Issued, Failure> {
        let late =
            || Failure::new(Kind::Away, "the certificate authority did not finish the order in 15 minutes");
        tokio::time::timeout(ORDER, self.finish(replaces)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn finish(&self, replaces: Option<&str>) -> Result<Issued, Failure> {
        let (kept, mut order) = match self.taken_up().await? {
            Some(found) => found,
            None => self.begin(replaces).await?,
        };
        let mut looks = 0;
        let mut proven = false;
        loop {
            let wait = match order.status {
                Status::Pending if !proven => {
                    for url in order.authorizations.iter().take(AUTHORIZATIONS) {
                        self.prove(url).await.inspect_err(|failure| self.forget_where_over(failure))?;
                    }
                    proven = true;
                    None
                }
                Status::Ready => {
                    let finalized = self.finalize(&order, &kept).await;
                    let (next, wait) = finalized.inspect_err(|failure| self.forget_where_over(failure))?;
                    order = next;
                    if matches!(order.status, Status::Valid | Status::Invalid) {
                        continue;
                    }
                    wait
                }
                Status::Valid => return self.fetch(&order, &kept).await,
                Status::Pending | Status::Processing => None,
                Status::Deactivated | Status::Expired | Status::Invalid | Status::Revoked => {
                    self.forget();
                    let why =
                        order.error.as_ref().map_or_else(|| "no reason was given".to_owned(), |e| e.text());
                    return Err(Failure::new(Kind::Refused, format!("the order failed: {why}")));
                }
            };
            // After the proof it is usually ready.
            if looks > 0 || order.status != Status::Pending {
                pause(wait, looks).await;
            }
            looks += 1;
            order = self.ask(&kept.url).await?.read()?;
        }
    }

    /// Resumes the stored order, if the authority still knows it and it can still succeed.
    async fn taken_up(&self) -> Result<Option<(Kept, Order)>, Failure> {
        let path = self.storage.order(&self.spec.name);
        let kept: Option<Kept> = storage::read_json(&path).unwrap_or_default(); // if it is unreadable, start over
        let ours = |kept: &Kept| kept.account == self.account.url && kept.profile == self.spec.profile;
        let Some(kept) = kept.filter(ours) else { return Ok(None) };
        let order = match self.session.post(self.account.signer(), &kept.url, None).await {
            Ok(good) => good.read::<Order>().ok(),
            Err(Refusal { failure, .. }) if failure.kind == Kind::Refused => None,
            Err(refused) => return Err(refused.into()),
        };
        let alive = |order: &Order| {
            matches!(order.status, Status::Pending | Status::Processing | Status::Ready | Status::Valid)
        };
        match order.filter(alive) {
            Some(order) => {
                let name = self.spec.name.to_string();
                weir_telemetry::log::info(
                    "certificate order resumed",
                    &[("name", &name), ("order", &kept.url)],
                );
                Ok(Some((kept, order)))
            }
            None => {
                self.forget();
                Ok(None)
            }
        }
    }

    async fn begin(&self, replaces: Option<&str>) -> Result<(Kept, Order), Failure> {
        let Spec { name, profile, .. } = self.spec;
        self.knows_profile()?;
        let (kind, value) = name.identifier();
        let mut payload = json!({ "identifiers": [{ "type": kind, "value": value }] });
        if let Some(profile) = profile {
            payload["profile"] = profile.as_str().into();
        }
        let url = &self.session.directory.new_order;
        let made = match replaces.filter(|_| self.session.directory.renewal_info.is_some()) {
            None => self.session.post(self.account.signer(), url, Some(&payload)).await,
            Some(replaces) => {
                let mut first = payload.clone();
                first["replaces"] = replaces.into();
                match self.session.post(self.account.signer(), url, Some(&first)).await {
                    // It may have been replaced already (RFC 9773 §5), or the authority does not know it.
                    Err(Refusal { failure, .. }) if failure.kind == Kind::Refused => {
                        self.session.post(self.account.signer(), url, Some(&payload)).await
                    }
                    made => made,
                }
            }
        };
        let made = made.map_err(|refused| self.account_lost(refused))?;
        let order: Order = made.read()?;
        let url = made.location.filter(|url| crate::message::may_ask(url));
        let url = url.ok_or_else(|| Failure::bad_answer("the certificate authority names no order"))?;
        let key = KeyPair::generate();
        let key = key.map_err(|e| Failure::new(Kind::SelfCheck, format!("no key could be made: {e}")))?;
        let kept = Kept {
            url,
            account: self.account.url.clone(),
            profile: profile.clone(),
            key: key.serialize_pem(),
        };
        storage::write_json(&self.storage.order(name), &kept)?;
        Ok((kept, order))
    }

    fn knows_profile(&self) -> Result<(), Failure> {
        let profiles = &self.session.directory.meta.profiles;
        match &self.spec.profile {
            Some(wanted) if !profiles.contains_key(wanted) => {
                let known: Vec<&str> = profiles.keys().map(String::as_str).take(20).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let text = format!("the certificate authority has no profile `{wanted}`; it has: {known}");
                Err(Failure::new(Kind::Refused, crate::failure::one_line(&text)))
            }
            _ => Ok(()),
        }
    }

    /// If the authority forgot the account, the next attempt registers it again.
    fn account_lost(&self, refused: Refusal) -> Failure {
        if refused.problem.as_ref().is_some_and(|problem| problem.is("accountDoesNotExist")) {
            if let Err(failure) = Account::forget(self.session, self.storage) {
                return failure;
            }
            // No need to wait: the next attempt registers the account.
            return Failure { kind: Kind::Away, ..refused.failure };
        }
        refused.failure
    }

    /// Proves control over the name of an authorization.
    async fn prove(&self, url: &str) -> Result<(), Failure> {
        let authorization: Authorization = self.ask(url).await?.read()?;
        match authorization.status {
            Status::Valid => return Ok(()),
            Status::Pending => {}
            _ => return Err(refused_proof(&authorization)),
        }
        let wanted = self.spec.challenge.name();
        let found = authorization.challenges.iter().find(|offered| offered.kind == wanted);
        let Some((offered, token)) = found.and_then(|offered| Some((offered, offered.token.as_deref()?)))
        else {
            let kinds: Vec<&str> =
                authorization.challenges.iter().map(|offered| offered.kind.as_str()).collect();
            let text =
                format!("the certificate authority does not offer {wanted} here, but {}", kinds.join(", "));
            return Err(Failure::new(Kind::Refused, crate::failure::one_line(&text)));
        };
        if !is_token(token) {
            return Err(Failure::bad_answer("the certificate authority's token is none"));
        }
        let Self { stage, node, .. } = self;
        let what = (&self.spec.name, &self.spec.challenge);
        let authorized = self.account.key.authorize(token);
        let now = (self.clock)();
        let _shown = Published::show(stage, self.storage, node, what, token, authorized, now).await?;
        self.session
            .post(self.account.signer(), &offered.url, Some(&Value::Object(Default::default())))
            .await?;
        let mut looks = 0;
        let mut wait = None;
        loop {
            pause(wait, looks).await;
            looks += 1;
            let good = self.ask(url).await?;
            let authorization: Authorization = good.read()?;
            match authorization.status {
                Status::Valid => return Ok(()),
                Status::Pending | Status::Processing => wait = good.retry_after,
                _ => return Err(refused_proof(&authorization)),
            }
        }
    }

    async fn finalize(&self, order: &Order, kept: &Kept) -> Result<(Order, Option<u64>), Failure> {
        let url = order.finalize.as_deref();
        let url = url.ok_or_else(|| Failure::bad_answer("the order has no URL to finalize it"))?;
        let payload = json!({ "csr": encode_url(&request(&self.spec.name, &kept.key)?) });
        let good = self.session.post(self.account.signer(), url, Some(&payload)).await?;
        Ok((good.read()?, good.retry_after))
    }

    async fn fetch(&self, order: &Order, kept: &Kept) -> Result<Issued, Failure> {
        let url = order.certificate.as_deref();
        let url = url.ok_or_else(|| Failure::bad_answer("the order is done and names no certificate"))?;
        let chain = String::from_utf8(self.ask(url).await?.body);
        let chain = chain.map_err(|_| Failure::bad_answer("the certificate is not PEM"))?;
        let pem = format!("{}\n{}", kept.key.trim_end(), chain);
        let checked = checked(&self.spec.name, &pem, (self.clock)());
        let certificate = checked.map_err(|why| {
            self.forget(); // otherwise we would download it again and again
            Failure::new(Kind::SelfCheck, format!("the certificate that was issued is of no use: {why}"))
        })?;
        Ok(Issued { certificate, pem })
    }

    async fn ask(&self, url: &str) -> Result<Good, Failure> {
        self.session
            .post(self.account.signer(), url, None)
            .await
            .map_err(|refused| self.account_lost(refused))
    }

    /// Makes the next attempt start over.
    fn forget(&self) {
        storage::remove(&self.storage.order(&self.spec.name));
    }

    /// Forgets the order after failures from which it cannot recover.
    fn forget_where_over(&self, failure: &Failure) {
        if matches!(failure.kind, Kind::Challenge | Kind::Refused) {
            self.forget();
        }
    }
}

/// Why an authority did not find a proof.
fn refused_proof(authorization: &Authorization) -> Failure {
    let error = authorization.challenges.iter().find_map(|offered: &Offered| offered.error.as_ref());
    let why = error.map_or_else(|| "no reason was given".to_owned(), |error| error.text());
    Failure::new(Kind::Challenge, format!("the certificate authority did not find the proof: {why}"))
}

/// A certificate signing request (RFC 2986), in DER.
fn request(name: &Name, key: &str) -> Result<Vec<u8>, Failure> {
    let unmade = |e: rcgen::Error| Failure::new(Kind::SelfCheck, format!("the request was not made: {e}"));
    let key = KeyPair::from_pem(key).map_err(unmade)?;
    let mut params = CertificateParams::new([name.to_string()]).map_err(unmade)?;
    params.distinguished_name = DistinguishedName::new(); // only subject alternative names
    let request = params.serialize_request(&key).map_err(unmade)?;
    Ok(request.der().to_vec())
}

/// Parses a certificate, and checks that clients would accept it for this name now.
fn checked(name: &Name, pem: &str, now: i64) -> Result<Certificate, String> {
    /// By how much this machine's clock may be behind.
    const CLOCK_SKEW: i64 = 5 * 60;
    let certificate = certificate_of(pem)?;
    if !certificate.is_for(&name.to_string()) {
        return Err(format!("it is not for {name}"));
    }
    let validity = certificate.validity().ok_or("its dates cannot be read")?;
    if now > validity.not_after {
        return Err("it has expired already".to_owned());
    }
    if now < validity.not_before - CLOCK_SKEW {
        return Err("it is not valid yet".to_owned());
    }
    Ok(certificate)
}

/// Waits before the next poll.
async fn pause(asked: Option<u64>, looks: usize) {
    let usual = LOOKS.get(looks).or(LOOKS.last()).copied().unwrap_or(LONGEST_LOOK);
    let wait = asked.map_or(usual, |seconds| Duration::from_secs(seconds).clamp(LOOKS[0], LONGEST_LOOK));
    tokio::time::sleep(wait).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.1 reads and writes exactly these fields.
    #[test]
    fn the_stored_order_has_the_form_of_0_1() {
        let stored = serde_json::json!({
            "url": "https://ca.test/order/1", "account": "https://ca.test/acct/1", "profile": null, "key": "PEM"
        });
        let read: Kept = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    }

    #[test]
    fn a_certificate_is_checked_before_it_is_shown() {
        let made = |name: &str| {
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(2025, 1, 1);
            params.not_after = rcgen::date_time_ymd(2025, 3, 1);
            let key = KeyPair::generate().unwrap();
            key.serialize_pem() + &params.self_signed(&key).unwrap().pem()
        };
        let name: Name = "a.test".parse().unwrap();
        let (begin, end) = (1_735_689_600, 1_740_787_200);
        let why = |pem: &str, now| checked(&name, pem, now).map(|_| ()).unwrap_err();
        assert!(checked(&name, &made("a.test"), begin).is_ok());
        assert!(checked(&name, &made("a.test"), begin - 200).is_ok());
        assert_eq!(why(&made("a.test"), begin - 400), "it is not valid yet");
        assert_eq!(why(&made("a.test"), end + 1), "it has expired already");
        assert_eq!(why(&made("b.test"), begin), "it is not for a.test");
        assert!(why("-----BEGIN CERTIFICATE-----", begin).contains("in memory"));
    }
}

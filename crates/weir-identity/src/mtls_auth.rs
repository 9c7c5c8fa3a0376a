//! `mtls_auth`: identifies the consumer by the client's TLS certificate.

use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named, Nobody, listed};
use std::collections::HashMap;
use std::sync::Arc;
use weir_filter::directory::{CredentialIndex, Directory, Intake, Refused};
use weir_wire::base64;
use weir_wire::tls::PeerCertificate;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<MtlsAuthSettings>("mtls_auth")
    .with_causes(&[&CERTIFICATE_MISSING, &CERTIFICATE_UNKNOWN, &CONSUMER_ADDRESS, &CONSUMERS_UNAVAILABLE])
    .with_index::<Certificates>()
    .judged_by_head();

static CERTIFICATE_MISSING: Cause = Cause {
    code: "certificate_missing",
    status: 401,
    meaning: "The client sent no certificate.",
    change: "the client must send one; listeners.*.tls.client_auth requests it",
    no_credentials: true,
    ..Cause::USUAL
};

static CERTIFICATE_UNKNOWN: Cause = Cause {
    code: "certificate_unknown",
    status: 403,
    meaning: "The client's certificate belongs to no consumer, or to more than one.",
    change: "consumers.*.mtls_auth: the access log has subject, names and fingerprint",
    ..Cause::USUAL
};

/// Identifies the consumer by the certificate that the client presented in the TLS handshake.
///
/// The listener's `client_auth` asks for the certificate and names the authority that must have signed it.
/// `consumers.*.mtls_auth` lists what identifies a consumer: an alternative name (`dns:shop.internal`, `email:`,
/// `uri:`, `ip:`), the whole subject in RFC 4514 form (`subject:CN=shop,O=Example`), or the certificate itself
/// (`sha256:` and 64 digits). The certificate takes precedence over names, and names over the subject.
///
/// `Client-Cert` and `Client-Cert-Chain` (RFC 9440) from the client are always removed, so clients cannot forge them.
///
/// ```yaml
/// - mtls_auth: {}
/// - mtls_auth: { forward: true, optional: true }
/// ```
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct MtlsAuthSettings {
    /// Whether the upstream gets the certificate as `Client-Cert` (RFC 9440). Default false.
    forward: bool,
    /// Header that carries the consumer's name to the upstream. A header of this name from the client is removed.
    /// Default none.
    consumer_header: Option<HeaderName>,
    /// Lets clients without a certificate pass, unnamed. An unknown certificate is still refused. Default false.
    optional: bool,
}

struct MtlsAuth {
    settings: MtlsAuthSettings,
    /// Consumers by what identifies them, such as `dns:shop.internal`.
    known: HashMap<String, usize, foldhash::fast::RandomState>,
    directory: Option<Arc<Directory>>,
    client_cert: HeaderName,
    client_cert_chain: HeaderName,
}

/// What certificates say, of the consumers of a source.
struct Certificates(HashMap<Box<str>, u32, foldhash::fast::RandomState>);

impl CredentialIndex for Certificates {
    fn read(intake: &mut Intake<'_>) -> Self {
        let mut known: HashMap<Box<str>, u32, _> = HashMap::default();
        intake.each(|consumer, text| {
            let told = parse(text).map_err(|(why, _)| Refused::Wrong(why.into()))?;
            known.insert(told.into(), consumer).map_or(Ok(()), |other| Err(Refused::Common(other)))
        });
        Self(known)
    }

    fn common(&self, other: &Self) -> Vec<(u32, u32)> {
        self.0.iter().filter_map(|(told, ours)| Some((*ours, *other.0.get(told)?))).collect()
    }
}

impl IntoFilter for MtlsAuthSettings {
    type Filter = MtlsAuth;

    fn into_filter(self, build: &mut Build<'_>) -> Option<MtlsAuth> {
        let before = build.mistakes.len();
        if let Some(name) = &self.consumer_header {
            allow_name(build, "consumer_header", name);
        }
        let mut known: HashMap<_, _, foldhash::fast::RandomState> = HashMap::default();
        let consumers = Consumers::clone(build.consumers);
        for (index, consumer) in consumers.iter().enumerate() {
            for text in consumer.credentials.get("mtls_auth").into_iter().flatten() {
                let told = match parse(text) {
                    Ok(told) => told,
                    Err((message, hint)) => {
                        let whose = format!("`{text}` of consumer `{}`", consumer.name);
                        build.refuse("", format!("{whose} {message}"), Some(hint.into()));
                        continue;
                    }
                };
                if let Some(other) = known.insert(told, index) {
                    let other = consumers.get(other).map_or("", |c| &c.name);
                    let message = format!(
                        "`{text}` of consumer `{}` already belongs to consumer `{other}`",
                        consumer.name
                    );
                    build.refuse("", message, Some("it must identify one consumer".into()));
                }
            }
        }
        if known.is_empty() && build.directory.is_none() && build.mistakes.len() == before {
            let hint = "write consumers: { NAME: { mtls_auth: [ \"dns:shop.internal\" ] } }";
            build.refuse(
                "",
                "no consumer has a certificate: every request would be refused",
                Some(hint.into()),
            );
        }
        (build.mistakes.len() == before).then(|| MtlsAuth {
            settings: self,
            known,
            directory: build.directory.cloned(),
            client_cert: HeaderName::fixed("client-cert"),
            client_cert_chain: HeaderName::fixed("client-cert-chain"),
        })
    }
}

/// Reads what identifies a consumer and brings it to the form that certificates use.
fn parse(text: &str) -> Result<String, (&'static str, &'static str)> {
    let (kind, value) = text.split_once(':').unwrap_or(("", text));
    let hint = "write dns:, email:, uri:, ip:, subject: or sha256: and what the certificate says";
    match kind {
        _ if value.is_empty() => Err(("says nothing", hint)),
        "dns" if value.contains('*') => Err((
            "is a wildcard, which only certificates of servers have",
            "write the name exactly as in the certificate",
        )),
        "dns" => Ok(format!("dns:{}", value.to_ascii_lowercase())),
        "ip" => match value.parse::<std::net::IpAddr>() {
            Ok(ip) => Ok(format!("ip:{ip}")),
            Err(_) => Err(("is not an address", "write ip:192.0.2.7")),
        },
        "sha256" => {
            let digits: String = value.chars().filter(|c| *c != ':').collect::<String>().to_ascii_lowercase();
            if digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                Ok(format!("sha256:{digits}"))
            } else {
                Err((
                    "is not a fingerprint",
                    "write sha256: and the 64 digits of `openssl x509 -fingerprint -sha256`",
                ))
            }
        }
        "subject" if !value.contains('=') => Err(("is not a subject", "write subject:CN=shop,O=Example")),
        "email" | "subject" | "uri" => Ok(text.to_owned()),
        _ => Err(("is of no kind that is known", hint)),
    }
}

impl Filter for MtlsAuth {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let own = [&self.client_cert, &self.client_cert_chain];
        let names = own.into_iter().chain(&self.settings.consumer_header);
        FieldGuards { request: names.map(|name| (**name).clone()).collect(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        head.headers.remove(&self.client_cert);
        head.headers.remove(&self.client_cert_chain);
        if let Some(name) = &self.settings.consumer_header {
            head.headers.remove(name);
        }
        let Some(certificate) = cx.certificate.clone() else {
            if !self.settings.optional {
                return Flow::refuse(&CERTIFICATE_MISSING);
            }
            cx.pass_unnamed();
            return Flow::Continue;
        };
        match self.consumer_of(&certificate) {
            Ok(named) => named.name(cx),
            Err(nobody) => return Flow::refuse(nobody.cause(&CERTIFICATE_UNKNOWN)),
        }
        if let Some(digits) = certificate.fingerprint.as_bytes().first_chunk() {
            cx.set_credential(*digits);
        }
        let Some(consumer) = cx.consumer() else { return Flow::refuse(&CERTIFICATE_UNKNOWN) };
        if !consumer.may_call_from(&cx.client) {
            return Flow::refuse(&CONSUMER_ADDRESS);
        }
        if let Some(name) = &self.settings.consumer_header {
            let _ = head.headers.insert(name, consumer.name.as_bytes()); // the client's own field was removed above
        }
        if self.settings.forward {
            // RFC 9440 §2.2: a byte sequence of structured fields (RFC 8941 §3.3.5).
            let value = format!(":{}:", base64::encode(&certificate.der));
            cx.identify("mtls_auth", certificate.fingerprint.as_bytes()); // a consumer may have several
            if head.headers.insert(&self.client_cert, value.as_bytes()).is_err() {
                return Flow::refuse(&CERTIFICATE_UNKNOWN); // the certificate is longer than a field may be
            }
        }
        Flow::Continue
    }
}

impl MtlsAuth {
    /// The consumer of a certificate. Names that belong to different consumers identify none. While a source has no
    /// consumers, a name that the config does not know could be another consumer's, so it identifies none either.
    fn consumer_of(&self, certificate: &PeerCertificate) -> Result<Named, Nobody> {
        let find = |text: &str| match self.find(text) {
            Ok(named) => Ok(Some(named)),
            Err(Nobody::Unknown) => Ok(None),
            Err(unavailable) => Err(unavailable),
        };
        if let Some(named) = find(&format!("sha256:{}", certificate.fingerprint))? {
            return Ok(named);
        }
        let mut by_name: Option<Named> = None;
        for name in &certificate.names {
            let Some(named) = find(name)? else { continue };
            if by_name.as_ref().is_some_and(|other| !other.is(&named)) {
                return Err(Nobody::Unknown);
            }
            by_name = Some(named);
        }
        match by_name {
            Some(named) => Ok(named),
            None => find(&format!("subject:{}", certificate.subject))?.ok_or(Nobody::Unknown),
        }
    }

    fn find(&self, text: &str) -> Result<Named, Nobody> {
        if let Some(index) = self.known.get(text) {
            return Ok(Named::Config(*index));
        }
        let Some(directory) = &self.directory else { return Err(Nobody::Unknown) };
        let found = directory.find("mtls_auth", |known: &Certificates| Some((*known.0.get(text)?, ())));
        listed(found).map(|(consumer, ())| Named::Listed(consumer))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Exchange, Stand};
    use super::*;
    use serde_json::{Value, json};

    fn consumer(name: &str, told: &[&str]) -> Consumer {
        let told = told.iter().map(|text| (*text).to_owned()).collect();
        let credentials = std::collections::BTreeMap::from([("mtls_auth".to_owned(), told)]);
        Consumer { name: name.to_owned(), credentials, ..Consumer::default() }
    }

    fn certificate(subject: &str, names: &[&str]) -> PeerCertificate {
        PeerCertificate {
            subject: subject.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            fingerprint: "ab".repeat(32),
            der: vec![1, 2, 3],
            ..PeerCertificate::default()
        }
    }

    fn stand(settings: Value) -> Stand {
        Stand::new(&KIND, settings)
            .consumer(consumer("shop", &["dns:Shop.internal", "uri:spiffe://example/shop"]))
            .consumer(consumer("desk", &["subject:CN=desk,O=Example", "ip:192.0.2.7"]))
            .consumer(consumer("lab", &[&format!("sha256:{}", "CD:".repeat(32).trim_end_matches(':'))]))
    }

    async fn ask(settings: Value, certificate: Option<PeerCertificate>, fields: &str) -> Exchange {
        let stand = stand(settings);
        let mut stand = match certificate {
            Some(certificate) => stand.certificate(certificate),
            None => stand,
        };
        stand.build().request(&format!("GET /\n{fields}")).await
    }

    #[tokio::test]
    async fn a_certificate_names_its_consumer() {
        let lab = PeerCertificate { fingerprint: "cd".repeat(32), ..certificate("CN=desk,O=Example", &[]) };
        for (certificate, name) in [
            (certificate("CN=x", &["dns:shop.internal"]), "shop"),
            (certificate("CN=desk,O=Example", &["dns:other", "uri:spiffe://example/shop"]), "shop"),
            (certificate("CN=desk,O=Example", &["dns:other"]), "desk"),
            (certificate("", &["ip:192.0.2.7"]), "desk"),
            (lab, "lab"),
        ] {
            let mut exchange = ask(json!({}), Some(certificate), "").await;
            exchange.expect_continue().expect_no_header("client-cert");
            assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some(name));
        }
    }

    #[tokio::test]
    async fn consumers_of_a_source_are_told_like_others() {
        let document = "consumers: { crm: { mtls_auth: [ \"dns:CRM.internal\", \"subject:CN=crm\" ] } }";
        for (subject, names, expected) in [
            ("", &["dns:crm.internal"][..], Some("crm")),
            ("CN=crm", &["dns:other"], Some("crm")),
            ("", &["dns:shop.internal"], Some("shop")),
            ("", &["dns:crm.internal", "dns:shop.internal"], None), // of two consumers
        ] {
            let mut stand = stand(json!({})).listed(document).certificate(certificate(subject, names));
            let exchange = stand.build().request("GET /").await;
            let name = exchange.cx.consumer().map(|consumer| consumer.name.as_str());
            assert_eq!(name, expected, "{subject} {names:?}");
        }
    }

    /// A name that the config does not know may be another consumer's, and then the certificate identifies nobody. So
    /// may the fingerprint, which takes precedence over names.
    #[tokio::test]
    async fn nobody_passes_by_half_a_certificate_while_a_source_is_away() {
        let lab = PeerCertificate { fingerprint: "cd".repeat(32), ..certificate("", &["dns:crm.internal"]) };
        let both = || certificate("", &["dns:shop.internal", "dns:crm.internal"]);
        let shop = || certificate("", &["dns:shop.internal"]);
        let mut away = stand(json!({})).awaiting().certificate(both());
        away.build().request("GET /").await.expect_status(503).expect_cause(&CONSUMERS_UNAVAILABLE);
        let mut away = away.certificate(shop());
        away.build().request("GET /").await.expect_cause(&CONSUMERS_UNAVAILABLE);
        let mut away = away.certificate(lab);
        let mut exchange = away.build().request("GET /").await;
        exchange.expect_continue();
        assert_eq!(
            exchange.cx.consumer().map(|consumer| &*consumer.name),
            Some("lab"),
            "of the config alone"
        );
        // With the answer of the source, each is what it is.
        away.relist("consumers: { crm: { mtls_auth: [ \"dns:crm.internal\" ] } }");
        let mut here = away.certificate(both());
        here.build().request("GET /").await.expect_cause(&CERTIFICATE_UNKNOWN);
        let mut here = here.certificate(shop());
        let mut exchange = here.build().request("GET /").await;
        exchange.expect_continue();
        assert_eq!(exchange.cx.consumer().map(|consumer| &*consumer.name), Some("shop"));
    }

    #[tokio::test]
    async fn what_nobody_is_told_by() {
        for (subject, names) in [
            ("CN=desk", &["dns:shop.internal.evil.example"][..]),
            ("CN=desk,O=Example,C=DE", &[]),
            ("", &["dns:shop.internal", "ip:192.0.2.7"]), // shop and desk
        ] {
            let mut exchange = ask(json!({}), Some(certificate(subject, names)), "").await;
            exchange.expect_status(403).expect_cause(&CERTIFICATE_UNKNOWN);
        }
        ask(json!({}), None, "").await.expect_status(401).expect_cause(&CERTIFICATE_MISSING);
        ask(json!({ "optional": true }), None, "").await.expect_continue();
        let unknown = Some(certificate("CN=x", &[]));
        ask(json!({ "optional": true }), unknown, "").await.expect_cause(&CERTIFICATE_UNKNOWN);
    }

    #[tokio::test]
    async fn the_upstream_is_told_what_was_verified_and_nothing_else() {
        let forged = "Client-Cert: :forged:\nClient-Cert-Chain: :forged:\nX-Who: root";
        let settings = json!({ "forward": true, "consumer_header": "x-who", "optional": true });
        let shop = Some(certificate("", &["dns:shop.internal"]));
        let mut exchange = ask(settings.clone(), shop, forged).await;
        exchange.expect_continue().expect_header("client-cert", ":AQID:").expect_header("x-who", "shop");
        exchange.expect_no_header("client-cert-chain");
        let mut unnamed = ask(settings, None, forged).await;
        unnamed.expect_continue().expect_no_header("client-cert").expect_no_header("x-who");
    }

    #[test]
    fn mistakes() {
        let with =
            |told: &[&str]| Stand::new(&KIND, json!({})).consumer(consumer("a", told)).mistakes().join("\n");
        for (told, expected) in [
            ("shop.internal", "is of no kind that is known"),
            ("cn:shop", "is of no kind that is known"),
            ("dns:", "says nothing"),
            ("dns:*.internal", "is a wildcard"),
            ("ip:shop", "is not an address"),
            ("sha256:12", "is not a fingerprint"),
            ("subject:shop", "is not a subject"),
        ] {
            assert!(with(&[told]).contains(expected), "{told}: {}", with(&[told]));
        }
        assert!(with(&[]).contains("no consumer has a certificate"));
        let twice = stand(json!({})).consumer(consumer("b", &["dns:shop.internal"])).mistakes();
        assert!(twice[0].contains("already belongs to consumer `shop`"), "{twice:?}");
    }
}

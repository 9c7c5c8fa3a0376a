//! Certificates of listeners: reports each mistake at its entry, and checks dates. An expired certificate is no
//! error, because one lapsed certificate must not keep twenty hosts from starting. It does not replace a valid one
//! either.

use super::Compiler;
use std::path::Path;
use std::time::SystemTime;
use weir_config::{Diagnostic, schema};
use weir_wire::Chain;
use weir_wire::tls::{self, Certificate, Identity, Part, Validity};

/// How long before its end a certificate draws a warning. ACME renews 30 days before the end, so one renewal has
/// failed by then.
const SOON: i64 = 14 * DAY;

const DAY: i64 = 24 * 60 * 60;

impl Compiler<'_> {
    /// The certificates of the `tls` at a path; none if any of them is unusable.
    pub(super) fn certificates(
        &mut self,
        tls: &str,
        written: &[schema::CertificateFiles],
    ) -> Option<Vec<Certificate>> {
        let list = format!("{tls}.certificates");
        let whole = self.tree.find(&list).is_none_or(|node| node.elements().len() == written.len());
        let made: Vec<_> = written
            .iter()
            .enumerate()
            .filter(|_| whole) // if part of a list was rejected, positions are unknown
            .map(|(index, files)| {
                let identity = Identity { cert: files.cert.0.clone(), key: files.key.0.clone() };
                self.certificate(&format!("{list}[{index}]"), &identity)
            })
            .collect();
        made.into_iter().collect()
    }

    fn certificate(&mut self, path: &str, identity: &Identity) -> Option<Certificate> {
        if self.misses_file(path) {
            return None;
        }
        let new = match Certificate::read(identity) {
            Ok(new) => new,
            Err(e) => {
                let at = if e.part == Part::Key { "key" } else { "cert" };
                let holds = |file: &Path, what: &str| {
                    std::fs::read_to_string(file).is_ok_and(|text| text.contains(what))
                };
                let swapped = holds(&identity.cert, "PRIVATE KEY-----")
                    && holds(&identity.key, "BEGIN CERTIFICATE-----");
                let both =
                    |file: &Path| holds(file, "PRIVATE KEY-----") && holds(file, "BEGIN CERTIFICATE-----");
                let swapped = swapped && !both(&identity.cert) && !both(&identity.key);
                let hint = swapped
                    .then(|| "`cert` names the key and `key` the certificate: swap the two".to_owned());
                self.error(
                    &format!("{path}.{at}"),
                    "tls-unusable",
                    Chain(&e).to_string(),
                    hint.map(Into::into),
                );
                return None;
            }
        };
        let now = now();
        let holds = |c: &Certificate| c.validity().is_none_or(|validity| validity.holds(now));
        let running = self.carry.certificates.get(identity).filter(|running| !holds(&new) && holds(running));
        let (chosen, instead) = match running {
            Some(running) => (running.clone(), "; the one before it stays"),
            None => (new.clone(), ""),
        };
        let at = format!("{path}.cert");
        self.dates(&at, &identity.cert, new.validity(), instead);
        self.dates_of_others(&at, &identity.cert, 2, new.chain_validities());
        self.carry.fresh_certificates.insert(identity.clone(), chosen.clone());
        Some(chosen)
    }

    /// Warns of a certificate that has expired or soon will.
    pub(super) fn dates(&mut self, path: &str, file: &Path, validity: Option<Validity>, instead: &str) {
        let now = now();
        let Some((validity, wrong)) = validity.and_then(|v| Some((v, wrong_dates(v, now)?))) else { return };
        let message = format!("the certificate {} {wrong}{instead}", file.display());
        let warning = Diagnostic::warning("certificate-dates", message).on(self.tree, path);
        self.found.push(warning.hint(dates_hint(validity, now)));
    }

    /// Warns of the first expired authority in a file, or of one that soon expires if it is the only one.
    pub(super) fn authority_dates(&mut self, path: &str, file: &Path) {
        match tls::validities(file)[..] {
            [only] => self.dates(path, file, Some(only), ""),
            ref many => self.dates_of_others(path, file, 1, many.iter().copied()),
        }
    }

    /// Warns of the first expired certificate in a file, starting at `first`.
    fn dates_of_others(
        &mut self,
        path: &str,
        file: &Path,
        first: usize,
        validities: impl Iterator<Item = Validity>,
    ) {
        let now = now();
        let wrong = (first..).zip(validities).find(|(_, validity)| !validity.holds(now));
        let Some((number, validity, wrong)) = wrong.and_then(|(n, v)| Some((n, v, wrong_dates(v, now)?)))
        else {
            return;
        };
        let message = format!("certificate {number} of those in {} {wrong}", file.display());
        let warning = Diagnostic::warning("certificate-dates", message).on(self.tree, path);
        self.found.push(warning.hint(dates_hint(validity, now)));
    }
}

fn dates_hint(validity: Validity, now: i64) -> &'static str {
    if now < validity.not_before {
        "check the clock of this machine; if it is right, use the certificate only from that day on: peers refuse it earlier"
    } else {
        "renew it: peers refuse a certificate that is out of date"
    }
}

fn wrong_dates(validity: Validity, now: i64) -> Option<String> {
    let days = |seconds: i64| match seconds / DAY {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    let Validity { not_before, not_after } = validity;
    if now > not_after {
        Some(format!("expired {} ago", days(now - not_after)))
    } else if now < not_before {
        Some(format!("is not valid for another {}", days(not_before - now)))
    } else if not_after - now < SOON {
        Some(format!("expires in {}", days(not_after - now)))
    } else {
        None
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_judged() {
        let validity = Validity { not_before: 10 * DAY, not_after: 100 * DAY };
        for (now, wrong) in [
            (50 * DAY, None),
            (86 * DAY, None),
            (86 * DAY + 1, Some("expires in 13 days")),
            (100 * DAY, Some("expires in less than a day")),
            (101 * DAY, Some("expired 1 day ago")),
            (103 * DAY, Some("expired 3 days ago")),
            (8 * DAY, Some("is not valid for another 2 days")),
        ] {
            assert_eq!(wrong_dates(validity, now).as_deref(), wrong, "{now}");
        }
    }
}

//! `tls.acme` of listeners: reports every setting that makes an order impossible, at its place.

use super::Compiler;
use rustix::fs::{Access, access};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_acme::{Challenge, Entry, External, Hook, LETS_ENCRYPT, Name, Settings, Spec};
use weir_config::{Diagnostic, schema};
use weir_upstream::fetch::Trust;
use weir_wire::base64;
use weir_wire::tls::Certificate;

/// How long a TXT record may take to appear: the authority needs some of an order's time too.
const LONGEST_HOOK: Duration = Duration::from_secs(10 * 60);

/// A listener's automatically renewed certificate, and where it is written.
pub(super) struct Kept {
    path: String,
    spec: Spec,
}

impl Compiler<'_> {
    /// The certificates of a listener's `acme`, in written order; none if any of its settings is wrong.
    pub(super) fn acme(
        &mut self,
        tls: &str,
        written: &schema::Acme,
        fixed: &[Certificate],
    ) -> Option<Vec<Arc<Entry>>> {
        let before = self.found.errors();
        let path = format!("{tls}.acme");
        let names = self.domains(&path, written);
        let settings = self.authority(&path, written);
        let challenge = self.challenge(&path, written);
        self.storage(&path, &written.storage.0);
        let (settings, challenge) = (settings?, challenge?);
        let mut specs = Vec::new();
        for (at, name) in &names {
            if fixed.iter().any(|certificate| certificate.is_for(&name.to_string())) {
                let message =
                    format!("`{name}` has a certificate under `certificates`, which is used instead");
                let warning = Diagnostic::warning("unused", message).on(self.tree, at);
                self.found.push(warning.hint("remove one of the two"));
            }
            let spec = Spec {
                name: name.clone(),
                settings: settings.clone(),
                challenge: challenge.clone(),
                profile: written.profile.clone(),
                storage: written.storage.0.clone(),
            };
            self.agrees(&path, at, &spec);
            specs.push(spec);
        }
        if self.found.errors() > before || specs.is_empty() {
            return None;
        }
        let entries: Result<Vec<_>, String> = specs.iter().map(|spec| self.carry.acme.entry(spec)).collect();
        entries.map_err(|e| self.error(&path, "tls-unusable", e, None)).ok()
    }

    /// Whether authorities may request tokens from cleartext listeners.
    pub(super) fn asks_for_tokens(&self) -> bool {
        self.kept.iter().any(|kept| kept.spec.challenge == Challenge::Http)
    }

    /// The names, each with its place.
    fn domains(&mut self, path: &str, written: &schema::Acme) -> Vec<(String, Name)> {
        let list = format!("{path}.domains");
        let whole = self.tree.find(&list).is_none_or(|node| node.elements().len() == written.domains.len());
        if written.domains.is_empty() && whole {
            let hint = "write the names that clients ask for, such as [ api.example.com ]".to_owned();
            self.error(&list, "empty", "the list is empty; expected at least one name", Some(hint.into()));
        }
        let mut names: Vec<(String, Name)> = Vec::new();
        for (index, text) in written.domains.iter().enumerate().filter(|_| whole) {
            let at = format!("{list}[{index}]");
            let name: Name = match text.parse() {
                Ok(name) => name,
                Err(why) => {
                    let message = format!("`{text}` is not a name for a certificate: {why}");
                    self.error(&at, "bad-domain", message, Some("write it as api.example.com".into()));
                    continue;
                }
            };
            let by_dns = written.challenge == schema::AcmeChallenge::Dns;
            match &name {
                Name::Wildcard(_) if !by_dns => {
                    let message = format!("`{name}` can be proven by dns-01 only");
                    let hint = "write `challenge: dns-01` and `dns`, or the names one by one".to_owned();
                    self.error(&at, "needs-dns", message, Some(hint.into()));
                }
                Name::Address(_) if by_dns => {
                    let message = format!("`{name}` is an address, which dns-01 cannot prove");
                    let hint =
                        "write `challenge: http-01` or `tls-alpn-01`, on a listener of its own if need be";
                    self.error(&at, "no-dns", message, Some(hint.into()));
                }
                _ => {}
            }
            if names.iter().any(|(_, other)| *other == name) {
                self.error(&at, "twice", format!("`{name}` is named twice"), None);
            }
            names.push((at, name));
        }
        names
    }

    fn authority(&mut self, path: &str, written: &schema::Acme) -> Option<Settings> {
        let before = self.found.errors();
        let directory = match &written.directory {
            Some(url) if !url.is_tls() => {
                let message = format!("`{url}` is not https, which ACME needs (RFC 8555 §6.1)");
                let hint =
                    "write the https URL; `ca` names the authorities of one that is not public".to_owned();
                self.error(&format!("{path}.directory"), "needs-https", message, Some(hint.into()));
                url.to_string()
            }
            Some(url) => url.to_string(),
            None => LETS_ENCRYPT.to_owned(),
        };
        if let Some(email) = written.email.as_deref().filter(|email| !is_email(email)) {
            let message = format!("`{email}` is not an email address; expected e.g. ops@example.com");
            self.error(&format!("{path}.email"), "bad-email", message, None);
        }
        if written.profile.as_deref() == Some("") {
            self.error(&format!("{path}.profile"), "empty", "the profile has no name", None);
        }
        let trust = written.ca.as_ref().map(|ca| ca.0.clone());
        if let Some(ca) = &trust {
            self.files.push(ca.clone());
            if let Err(why) = Trust::file(ca) {
                self.error_once(&format!("{path}.ca"), "bad-certificate", why);
            }
        }
        let external = written.external_account.as_ref().map(|external| {
            let secret = external.secret.reveal().trim();
            let decoded = base64::decode_url(secret.trim_end_matches('=').as_bytes());
            if decoded.is_none_or(|key| key.is_empty()) {
                let message =
                    "the secret is not base64url; expected it as the certificate authority gives it";
                self.error(&format!("{path}.external_account.secret"), "bad-value", message, None);
            }
            if external.key_id.is_empty() {
                self.error(&format!("{path}.external_account.key_id"), "empty", "the key has no name", None);
            }
            External { key_id: external.key_id.clone(), key: secret.to_owned() }
        });
        let email = written.email.clone();
        (self.found.errors() == before).then_some(Settings { directory, email, trust, external })
    }

    fn challenge(&mut self, path: &str, written: &schema::Acme) -> Option<Challenge> {
        if written.dns.is_some() && written.challenge != schema::AcmeChallenge::Dns {
            let message = "`dns` is used by `challenge: dns-01` only";
            let warning = Diagnostic::warning("unused", message).on(self.tree, &format!("{path}.dns"));
            self.found.push(warning.hint("write `challenge: dns-01`, or remove `dns`"));
        }
        match written.challenge {
            schema::AcmeChallenge::TlsAlpn => Some(Challenge::TlsAlpn),
            schema::AcmeChallenge::Http => {
                let is_clear = |listener: &schema::Listener| {
                    listener.tls.is_none() && listener.serves() == schema::Serves::Http
                };
                let clear = self.config.listeners.iter().any(|(_, listener)| is_clear(listener));
                if !clear {
                    let message = "http-01 is asked for over cleartext HTTP, and every listener has `tls`";
                    let hint = "add `plain: { address: 0.0.0.0:80 }` to the listeners, or take tls-alpn-01"
                        .to_owned();
                    self.error(
                        &format!("{path}.challenge"),
                        "no-cleartext-listener",
                        message,
                        Some(hint.into()),
                    );
                    return None;
                }
                Some(Challenge::Http)
            }
            schema::AcmeChallenge::Dns => {
                let Some(dns) = &written.dns else {
                    let message = "dns-01 needs a command that writes TXT records";
                    let hint = "add `dns: { exec: [ /etc/weir/dns-hook ] }`".to_owned();
                    self.error(&format!("{path}.challenge"), "missing-key", message, Some(hint.into()));
                    return None;
                };
                self.hook(&format!("{path}.dns"), dns)
            }
        }
    }

    fn hook(&mut self, path: &str, dns: &schema::AcmeDns) -> Option<Challenge> {
        let before = self.found.errors();
        let exec = format!("{path}.exec");
        match dns.exec.first().map(Path::new) {
            None => {
                let hint =
                    Some("write the program with its arguments, such as [ /etc/weir/dns-hook ]".into());
                self.error(&exec, "empty", "the list is empty; expected a program", hint);
            }
            Some(program) if !program.is_absolute() => {
                let message = format!("`{}` is not an absolute path", program.display());
                let hint = Some("no shell and no search path are used: write it from the root".into());
                self.error(&format!("{exec}[0]"), "bad-value", message, hint);
            }
            Some(program) if !program.is_file() => {
                let message = format!("{} does not exist or is not a file", program.display());
                self.error(&format!("{exec}[0]"), "file-missing", message, None);
            }
            Some(program) if access(program, Access::EXEC_OK).is_err() => {
                let message = format!("{} may not be run by this user", program.display());
                let hint = Some(format!("chmod +x {}", program.display()).into());
                self.error(&format!("{exec}[0]"), "not-executable", message, hint);
            }
            Some(_) => {}
        }
        if dns.timeout.is_zero() {
            let message = "`0s` is out of range; expected a time above zero";
            self.error(&format!("{path}.timeout"), "out-of-range", message, None);
        }
        if dns.timeout.get().saturating_add(dns.wait.get()) > LONGEST_HOOK {
            let message = "`timeout` and `wait` are more than 10m together, and an order ends after 15m";
            self.error(path, "out-of-range", message, None);
        }
        let hook = Hook { command: dns.exec.clone(), timeout: dns.timeout.get(), wait: dns.wait.get() };
        (self.found.errors() == before).then_some(Challenge::Dns(hook))
    }

    /// Reports a folder that cannot be written. Issued certificates would be lost and ordered again until the
    /// authority refuses.
    fn storage(&mut self, path: &str, folder: &Path) {
        let path = format!("{path}.storage");
        let ours = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        let there = folder.ancestors().find(|above| above.symlink_metadata().is_ok());
        let Some(there) = there else { return };
        if !there.is_dir() {
            let message = format!("{} is not a folder", there.display());
            self.error(
                &path,
                "no-folder",
                message,
                Some("write a folder; Weir creates it if it is missing".into()),
            );
        } else if access(there, ours).is_err() {
            let message = format!("{} may not be written by this user", there.display());
            let hint =
                format!("give it to the user that the gateway runs as: chown USER {}", folder.display());
            // A missing folder may be created by whatever starts the service, such as systemd.
            let found = if there == folder { Diagnostic::error } else { Diagnostic::warning };
            let told = found("storage-unwritable", message).on(self.tree, &path).hint(hint);
            self.found.push(told);
        }
    }

    /// Two listeners may share a certificate and an account, but must agree on their settings.
    fn agrees(&mut self, path: &str, at: &str, spec: &Spec) {
        let same_account = |kept: &&Kept| {
            kept.spec.storage == spec.storage && kept.spec.settings.directory == spec.settings.directory
        };
        let mut others = self.kept.iter().filter(same_account);
        let other = match others.clone().next() {
            Some(first) if first.spec.settings != spec.settings => {
                Some((path.to_owned(), first.path.clone(), "email, ca and external_account"))
            }
            _ => {
                let differs = |kept: &&Kept| kept.spec.name == spec.name && kept.spec != *spec;
                let other = others.find(differs);
                other.map(|other| (at.to_owned(), other.path.clone(), "challenge, dns and profile"))
            }
        };
        if let Some((at, other, keys)) = other {
            let message = format!("it shares its storage with {other}, but its settings differ");
            let hint = format!("write the same {keys} in both places, or another `storage`");
            if !self.found.iter().any(|d| d.path == at && d.code == "acme-differs") {
                self.error(&at, "acme-differs", message, Some(hint.into()));
            }
        }
        self.kept.push(Kept { path: at.to_owned(), spec: spec.clone() });
    }
}

/// Whether an authority accepts it as a mail address: one address and nothing else (RFC 8555 §7.3).
fn is_email(text: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic() && !b",?;:<>()[]\\\"/".contains(&b))
    };
    text.split_once('@').is_some_and(|(name, host)| plain(name) && plain(host) && !host.contains('@'))
}

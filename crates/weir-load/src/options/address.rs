//! Resolves hosts to addresses, and builds the TLS policy.

use super::Reader;
use crate::transport::addresses::Addresses;
use crate::transport::origin::{Origin, Proxy};
use crate::url::{Scheme, Url};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::time::Instant;
use weir_report::Mistake;
use weir_wire::Chain;
use weir_wire::listen::Address;
use weir_wire::tls::ClientTls;

impl Reader<'_> {
    pub(super) fn tls(&mut self) -> Option<ClientTls> {
        let offers: &[&[u8]] = match (self.speaks_grpc(), self.options.http2) {
            (true, _) => &[b"h2"],
            (false, true) => &[b"h2", b"http/1.1"],
            (false, false) => &[b"http/1.1"],
        };
        self.tls_with(offers)
    }

    /// The destination with these addresses; with `--http3` its policy for QUIC too.
    pub(super) fn origin(
        &mut self,
        addresses: Vec<Address>,
        tls: Option<(ClientTls, String)>,
        proxy: Option<Proxy>,
    ) -> Origin {
        #[cfg(feature = "http3")]
        let quic = tls.as_ref().filter(|_| self.options.http3).and_then(|(tls, host)| {
            let policy = crate::transport::h3::dial::Policy::new(tls, host, self.timeout());
            policy.map_err(|why| self.wrong("--http3", &why)).ok()
        });
        Origin {
            addresses: Addresses::new(addresses),
            tls,
            #[cfg(feature = "http3")]
            quic,
            proxy,
        }
    }

    /// The policy that offers these protocols by ALPN.
    pub(super) fn tls_with(&mut self, offers: &'static [&'static [u8]]) -> Option<ClientTls> {
        let o = self.options;
        let identity = match (&o.cert, &o.key) {
            (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
            (None, None) => None,
            _ => {
                self.wrong("--cert", "a client certificate needs both --cert and --key");
                None
            }
        };
        match ClientTls::new(o.cacert.as_deref(), identity, o.server_name.as_deref(), !o.insecure, offers) {
            Ok(tls) if o.tls_resume => Some(tls),
            Ok(tls) => Some(tls.without_resumption()),
            Err(e) => {
                self.wrong("TLS", &Chain(&e).to_string());
                None
            }
        }
    }

    /// The addresses that `--resolve` gives a URL: those of all rules for its host, or else of all rules for `*`.
    /// Connections are spread over all of them; curl would keep only the last rule for a host.
    fn resolved(&mut self, url: &Url) -> Vec<Address> {
        let (mut named, mut any) = (Vec::new(), Vec::new());
        let (mut named_by, mut any_by) = (Vec::new(), Vec::new());
        let rules = &self.options.resolve;
        for (i, rule) in rules.iter().enumerate() {
            match resolve(rule, url) {
                Ok(Rule::Named(addresses)) => {
                    named.extend(addresses);
                    named_by.push(i);
                }
                Ok(Rule::Any(addresses)) => {
                    any.extend(addresses);
                    any_by.push(i);
                }
                Ok(Rule::Other) => {}
                Err(hint) => {
                    let mistake = Mistake::new(&format!("--resolve {rule}"), hint);
                    if !self.mistakes.contains(&mistake) {
                        self.mistakes.push(mistake);
                    }
                    named_by.push(i);
                }
            }
        }
        // A rule for `*` that each host overrides is no mistake.
        self.rules_used.extend(named_by.into_iter().chain(any_by));
        let mut all: Vec<Address> = if named.is_empty() { any } else { named };
        let mut seen = HashSet::new();
        all.retain(|address| seen.insert(address.to_string()));
        all
    }

    /// Refuses a `--resolve` rule that no URL uses: with a wrong port, the load would go to whatever the name server
    /// says.
    pub(super) fn rules_are_used(&mut self, seen: &[(Scheme, String, u16)]) {
        if self.options.shares_resolve || seen.is_empty() || self.options.unix_socket.is_some() {
            return;
        }
        let places: Vec<String> = seen.iter().map(|(_, host, port)| format!("{host}:{port}")).collect();
        for (i, rule) in self.options.resolve.iter().enumerate() {
            if !self.rules_used.contains(&i) {
                let hint = match self.options.proxy {
                    Some(_) => "has no effect through a proxy, which looks up the host".to_owned(),
                    None => {
                        format!("no URL has this host and port; the URLs have {}", places.join(", "))
                    }
                };
                self.mistakes.push(Mistake::new(&format!("--resolve {rule}"), &hint));
            }
        }
    }

    pub(super) fn addresses(&mut self, text: &str, url: &Url) -> Vec<Address> {
        if let Some(path) = &self.options.unix_socket {
            if !path.metadata().is_ok_and(|file| file.file_type().is_socket()) {
                self.wrong(&format!("--unix-socket {}", path.display()), "there is no such socket");
            }
            return vec![Address::Unix(path.clone())];
        }
        let resolved = self.resolved(url);
        if !resolved.is_empty() {
            return resolved;
        }
        if self.options.is_elsewhere {
            return Vec::new();
        }
        let begun = Instant::now();
        let found = (url.host.as_str(), url.port).to_socket_addrs();
        self.looked_up += begun.elapsed();
        match found {
            Ok(found) => {
                let mut found: Vec<SocketAddr> = found.collect();
                let mut seen = HashSet::new();
                found.retain(|a| seen.insert(*a));
                if found.is_empty() {
                    self.wrong(text, &format!("`{}` has no address", url.host));
                }
                found.into_iter().map(Address::Tcp).collect()
            }
            Err(e) => {
                self.wrong(text, &format!("the host `{}` can not be found: {e}", url.host));
                vec![]
            }
        }
    }
}

/// What a `--resolve` rule says about a URL.
enum Rule {
    /// It names another host or port.
    Other,
    /// It names all hosts, `*`, at this port.
    Any(Vec<Address>),
    /// It names the host and port of the URL.
    Named(Vec<Address>),
}

/// The addresses of a `--resolve` rule, if it matches this URL.
fn resolve(rule: &str, url: &Url) -> Result<Rule, &'static str> {
    const FORM: &str = "expected HOST:PORT:ADDRESS[,ADDRESS], such as api.example.com:443:127.0.0.1";
    let mut parts = rule.splitn(3, ':');
    let (Some(host), Some(port), Some(list)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(FORM);
    };
    let port: u16 = port.parse().map_err(|_| FORM)?;
    let mut addresses = Vec::new();
    for address in list.split(',') {
        let ip: IpAddr = address.trim_matches(['[', ']']).parse().map_err(|_| FORM)?;
        addresses.push(Address::Tcp(SocketAddr::new(ip, url.port)));
    }
    Ok(match () {
        () if port != url.port => Rule::Other,
        () if host == "*" => Rule::Any(addresses),
        () if host.eq_ignore_ascii_case(&url.host) => Rule::Named(addresses),
        () => Rule::Other,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Options, Plan};

    /// The addresses of the first URL, or the mistakes.
    fn addresses(urls: &[&str], rules: &[&str]) -> Result<Vec<String>, Vec<String>> {
        let own = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        let options = Options { urls: own(urls), resolve: own(rules), ..Options::default() };
        let plan = Plan::new(&options);
        plan.map(|plan| plan.as_run.targets[0].addresses.clone())
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rules_for_one_host_add_up_and_a_named_host_beats_the_star() {
        for (rules, want) in [
            (&["a.test:80:127.0.0.1", "a.test:80:127.0.0.2"][..], &["127.0.0.1:80", "127.0.0.2:80"][..]),
            (&["a.test:80:127.0.0.1,[::1]", "A.test:80:127.0.0.1"], &["127.0.0.1:80", "[::1]:80"]),
            (&["*:80:127.0.0.9", "a.test:80:127.0.0.2"], &["127.0.0.2:80"]),
            (&["*:80:127.0.0.9"], &["127.0.0.9:80"]),
        ] {
            assert_eq!(addresses(&["http://a.test/"], rules).unwrap(), want, "{rules:?}");
        }
        let two = ["a.test:80:127.0.0.1", "b.test:81:127.0.0.2"];
        assert_eq!(addresses(&["http://b.test:81/", "http://a.test/"], &two).unwrap(), ["127.0.0.2:81"]);
    }

    #[test]
    fn a_rule_for_no_url_is_a_mistake_and_each_is_told_once() {
        let told = addresses(&["http://a.test/"], &["a.test:80:127.0.0.1", "a.test:443:127.0.0.1"]);
        assert_eq!(
            told.unwrap_err(),
            ["--resolve a.test:443:127.0.0.1: no URL has this host and port; the URLs have a.test:80"]
        );
        let two = ["http://a.test/", "http://b.test/"];
        let told = addresses(&two, &["*:80:127.0.0.1", "a.test:x:127.0.0.1", "b.test:80:nowhere"]);
        let told = told.unwrap_err();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|text| text.contains("expected HOST:PORT:ADDRESS")), "{told:?}");
    }
}

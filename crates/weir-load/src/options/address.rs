//! Resolves hosts to addresses, and builds the TLS policy.

use super::Reader;
use crate::url::Url;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::time::Instant;
use weir_wire::Chain;
use weir_wire::listen::Address;
use weir_wire::tls::ClientTls;

impl Reader<'_> {
    pub(super) fn tls(&mut self) -> Option<ClientTls> {
        let o = self.options;
        let identity = match (&o.cert, &o.key) {
            (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
            (None, None) => None,
            _ => {
                self.wrong("--cert", "a client certificate needs both --cert and --key");
                None
            }
        };
        match ClientTls::new(
            o.cacert.as_deref(),
            identity,
            o.server_name.as_deref(),
            !o.insecure,
            match (self.speaks_grpc(), o.http2) {
                (true, _) => &[b"h2"],
                (false, true) => &[b"h2", b"http/1.1"],
                (false, false) => &[b"http/1.1"],
            },
        ) {
            Ok(tls) if o.tls_resume => Some(tls),
            Ok(tls) => Some(tls.without_resumption()),
            Err(e) => {
                self.wrong("TLS", &Chain(&e).to_string());
                None
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
        for rule in &self.options.resolve {
            match resolve(rule, url) {
                Ok(Some(addresses)) => return addresses,
                Ok(None) => {}
                Err(hint) => {
                    self.wrong(&format!("--resolve {rule}"), hint);
                    return vec![];
                }
            }
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

/// The addresses of a `--resolve` rule, if it matches this URL.
fn resolve(rule: &str, url: &Url) -> Result<Option<Vec<Address>>, &'static str> {
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
    let same = (host == "*" || host.eq_ignore_ascii_case(&url.host)) && port == url.port;
    Ok(same.then_some(addresses))
}

//! An old gateway that runs elsewhere (`--against URL`): it is asked where it is, and its upstreams are our echo.
//!
//! Nothing but the addresses that the person named is contacted or opened, and loopback. Weir is asked afterwards, in
//! the world of [`super::play`].

use super::echo::Echo;
use super::observer::Observer;
use super::play::server_tls;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};
use weir_import::proof::patterns::{Front, Origin};
use weir_import::proof::{Ask, Observation};
use weir_wire::tls::ClientTls;

/// Longest wait for the first connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Where the old gateway runs, and where its upstreams are opened.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// Its addresses.
    places: Vec<Place>,
    /// Where an origin of the config is opened: its address in the config, and one of this machine.
    echo: Vec<(String, String)>,
}

#[derive(Debug)]
struct Place {
    url: String,
    address: SocketAddr,
    tls: bool,
}

impl Elsewhere {
    /// Reads `--against` and `--echo`.
    ///
    /// # Errors
    /// What is wrong with which value.
    pub(crate) fn read(against: &[String], echo: &[String]) -> Result<Self, String> {
        let mut places = Vec::new();
        for url in against {
            let wrong = || format!("--against {url}: expected http://HOST:PORT or https://HOST:PORT");
            let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
            let tls = match scheme {
                "http" => false,
                "https" => true,
                _ => return Err(wrong()),
            };
            let authority = rest.trim_end_matches('/');
            if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
                return Err(wrong());
            }
            let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let usual = if tls { ":443" } else { ":80" };
            let full = if has_port { authority.to_owned() } else { format!("{authority}{usual}") };
            let found = full.to_socket_addrs().map_err(|e| format!("--against {url}: {e}"))?;
            let mut all: Vec<SocketAddr> = found.collect();
            all.sort_by_key(SocketAddr::is_ipv6);
            let address = *all.first().ok_or_else(|| format!("--against {url}: the name has no address"))?;
            places.push(Place { url: url.clone(), address, tls });
        }
        let mut opened = Vec::new();
        for pair in echo {
            let read = pair
                .split_once('=')
                .filter(|(name, at)| !name.is_empty() && at.parse::<SocketAddr>().is_ok());
            let (name, at) = read.ok_or_else(|| {
                format!("--echo {pair}: expected UPSTREAM=ADDRESS, such as app:8080=127.0.0.1:9001")
            })?;
            opened.push((name.to_owned(), at.to_owned()));
        }
        Ok(Self { places, echo: opened })
    }

    /// Whether the old gateway runs elsewhere.
    pub(crate) const fn is_used(&self) -> bool {
        !self.places.is_empty()
    }

    /// Its addresses, in sentences.
    pub(super) fn shown(&self) -> String {
        self.places.iter().map(|place| &*place.url).collect::<Vec<_>>().join(", ")
    }

    /// Where a front of the config is: the address with its port, else the first that speaks TLS as it does.
    fn place_of(&self, front: &Front) -> Option<&Place> {
        let alike = || self.places.iter().filter(|place| place.tls == front.tls);
        alike().find(|place| place.address.port() == front.port).or_else(|| alike().next())
    }

    /// Whether a front can be asked.
    pub(super) fn reaches(&self, front: &Front) -> bool {
        self.place_of(front).is_some()
    }

    /// The addresses at which the origins are opened, each with its name in the config. The error names those that
    /// nothing says where to open.
    fn origins(&self, origins: &[Origin]) -> Result<Vec<(String, String)>, String> {
        let (mut places, mut missing) = (self.echo.clone(), Vec::new());
        for origin in origins {
            let address = &origin.address;
            if places.iter().any(|(known, _)| super::echo::who(known) == super::echo::who(address)) {
                continue;
            }
            let own = super::echo::who(address);
            match own.parse::<SocketAddr>() {
                Ok(at) if at.ip().is_loopback() => places.push((address.clone(), own)),
                _ => missing.push(&**address),
            }
        }
        if missing.is_empty() {
            return Ok(places);
        }
        missing.dedup();
        let first = missing.first().copied().unwrap_or_default();
        Err(format!(
            "the upstreams {} are not on loopback: point the gateway's at addresses of this machine, and name them with \
             --echo {first}=127.0.0.1:9001",
            missing.join(", ")
        ))
    }

    /// Asks the old gateway.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub(super) fn ask(
        &self,
        origins: &[Origin],
        asks: &[Ask],
        time: Duration,
    ) -> Result<Vec<Observation>, String> {
        let places = self.origins(origins)?;
        for place in &self.places {
            TcpStream::connect_timeout(&place.address, CONNECT_LIMIT)
                .map_err(|e| format!("{}: {e}", place.url))?;
        }
        let names = vec!["localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
        let mut echo = Echo::open_at(&places, server_tls(&made)?)?;
        let tls = ClientTls::new(None, None, None, false, &[]).map_err(|e| e.to_string())?;
        let until = Instant::now() + time;
        let mut found = Vec::with_capacity(asks.len());
        let mut observer = Observer::new(&mut echo, &tls);
        for ask in asks {
            let Some(place) = self.place_of(&ask.front) else {
                return Err(format!("no --against URL for {}:{}", ask.front.ip, ask.front.port));
            };
            let ip = match place.address {
                SocketAddr::V4(address) => address.ip().to_string(),
                SocketAddr::V6(address) => format!("[{}]", address.ip()),
            };
            let front = Front { ip, port: place.address.port(), tls: place.tls };
            found.push(observer.observe(&Ask { front, ..ask.clone() }));
            if Instant::now() > until {
                return Err(format!("{} took longer than {} s", self.shown(), time.as_secs()));
            }
        }
        let reached = found.iter().flat_map(|seen| &seen.answers).any(|answer| !answer.seen.is_empty());
        if !places.is_empty() && !reached {
            let at = places.iter().map(|(_, at)| &**at).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "none of {} requests to {} came to the echo at {at}: the gateway's upstreams must lead there",
                asks.len(),
                self.shown()
            ));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_read() {
        let read = |against: &[&str], echo: &[&str]| {
            let owned = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            Elsewhere::read(&owned(against), &owned(echo))
        };
        let one = read(&["http://127.0.0.1:8000", "https://127.0.0.1/"], &["app:80=127.0.0.1:9001"]).unwrap();
        let front = |port, tls| Front { ip: "127.0.0.1".to_owned(), port, tls };
        let ports = [front(80, false), front(8000, false), front(8443, true)];
        let ports = ports.map(|front| one.place_of(&front).map(|place| place.address.port()));
        assert_eq!(ports, [Some(8000), Some(8000), Some(443)]);
        let origin = |address: &str| Origin { address: address.to_owned(), tls: false };
        let places = one.origins(&[origin("app:80"), origin("localhost:1234")]).unwrap();
        assert_eq!(places[1], ("localhost:1234".to_owned(), "127.0.0.1:1234".to_owned()));
        assert!(one.origins(&[origin("db:1")]).unwrap_err().contains("--echo db:1=127.0.0.1:9001"));
        for wrong in ["127.0.0.1:8000", "ftp://127.0.0.1", "http://127.0.0.1/x", "http://a@127.0.0.1"] {
            assert!(read(&[wrong], &[]).unwrap_err().contains("expected http://HOST:PORT"), "{wrong}");
        }
        for wrong in ["app:80", "=127.0.0.1:1", "app:80=somewhere"] {
            assert!(read(&[], &[wrong]).unwrap_err().contains("expected UPSTREAM=ADDRESS"), "{wrong}");
        }
    }
}

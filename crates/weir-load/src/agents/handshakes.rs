//! Bounds the connections that are at their handshake or have not asked for a run, in all and by address. The one that
//! has waited longest gives way, so that connections that stall shut nobody out.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use tokio::task::AbortHandle;
use weir_agents::agent::Conn;
use weir_wire::client_network;

/// Most of them.
const ALL_MOST: usize = 64;

/// Most of one address, or of one /64 network. A coordinator opens one.
const EACH_MOST: usize = 8;

#[derive(Debug)]
struct Waiting {
    conn: Conn,
    from: IpAddr,
    task: Option<AbortHandle>,
}

/// Those that wait, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Strangers(Rc<RefCell<Vec<Waiting>>>);

/// A place among them, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    conn: Conn,
    all: Strangers,
}

impl Strangers {
    /// Gives a connection a place. If there is none, the one that has waited longest is cut: of the same address, if
    /// that has too many.
    pub(super) fn admit(&self, conn: Conn, from: IpAddr) -> Place {
        let from = client_network(from);
        let mut all = self.0.borrow_mut();
        let of_address = all.iter().filter(|other| other.from == from).count();
        let oldest = match () {
            () if of_address >= EACH_MOST => all.iter().position(|other| other.from == from),
            () if all.len() >= ALL_MOST => Some(0),
            () => None,
        };
        if let Some(Waiting { task: Some(task), .. }) = oldest.map(|at| all.remove(at)) {
            task.abort();
        }
        all.push(Waiting { conn, from, task: None });
        drop(all);
        Place { conn, all: self.clone() }
    }

    /// The task of a connection, which ends with its place.
    pub(super) fn runs(&self, conn: Conn, task: AbortHandle) {
        if let Some(waiting) = self.0.borrow_mut().iter_mut().find(|other| other.conn == conn) {
            waiting.task = Some(task);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.0.borrow_mut().retain(|other| other.conn != self.conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conns(all: &Strangers) -> Vec<Conn> {
        all.0.borrow().iter().map(|waiting| waiting.conn).collect()
    }

    #[test]
    fn the_longest_wait_gives_way() {
        let all = Strangers::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut places: Vec<Place> = (0..8).map(|conn| all.admit(conn, address("10.0.0.1"))).collect();
        // The ninth of one address cuts the first of that address.
        places.push(all.admit(8, address("10.0.0.2")));
        places.push(all.admit(9, address("::ffff:10.0.0.1")));
        assert_eq!(conns(&all), (1..=9).collect::<Vec<_>>());
        // A place that was given up is free.
        places.retain(|place| place.conn != 5);
        places.push(all.admit(10, address("10.0.0.1")));
        assert_eq!(conns(&all), [1, 2, 3, 4, 6, 7, 8, 9, 10]);
        // Of many addresses, the oldest of all.
        for conn in 100..200 {
            places.push(all.admit(conn, IpAddr::from([10, 1, 0, u8::try_from(conn).unwrap()])));
        }
        assert_eq!(conns(&all), (136..200).collect::<Vec<_>>());
        // A site has one network of IPv6.
        let all = Strangers::default();
        let places: Vec<Place> =
            (0..20).map(|conn| all.admit(conn, address(&format!("2001:db8::{conn}")))).collect();
        assert_eq!(conns(&all).len(), EACH_MOST);
        drop(places);
        assert!(conns(&all).is_empty());
    }
}

//! Tells whether the address that a connection sends to is proved, and bounds how often a peer may change it.
//!
//! quinn-proto sends to a new address as soon as a packet comes from there (RFC 9000 §9.3), before the peer has proved
//! that it receives packets there, and does not tell when it has. A peer can forge the source of its packets, so until
//! then the new address may not decide what the peer may do. [`Watched`] learns it: quinn-proto reports
//! acknowledgements to the congestion controller of a path only while no proof of that path is missing, and each new
//! path has a controller of its own.

use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::{Connection, RttEstimator};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many datagrams from new addresses a connection accepts at once. Each proves the new address, or makes us ask for
/// a proof: quinn-proto sends 1,200 bytes to that address (RFC 9000 §8.2), whatever arrived from it. A phone that
/// changes networks sends a few.
const MOVES: u32 = 16;

/// The time after which it accepts one more.
const MOVE: Duration = Duration::from_secs(1);

/// Makes the controllers of a connection's paths.
#[derive(Debug, Default)]
pub(crate) struct Paths(Arc<CubicConfig>);

/// The congestion controller of a path.
struct Watched {
    inner: Box<dyn Controller>,
    /// The peer has proved that it receives packets on this path.
    is_proved: bool,
    /// That of the path whose controller was copied.
    was_proved: bool,
}

/// How many datagrams from other addresses a connection still accepts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moves(Budget);

/// How often something may still happen: a number of times at once, and once more per period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    spent: u32,
    since: Option<Instant>,
}

/// Whether the peer has proved that it receives packets at the address that a connection sends to now.
pub(crate) fn is_proved(proto: &Connection) -> bool {
    let copy = proto.congestion_state().clone_box().into_any().downcast::<Watched>();
    copy.is_ok_and(|copy| copy.was_proved)
}

impl Moves {
    /// Accepts a datagram from another address, or not.
    pub(crate) fn accept(&mut self, now: Instant) -> bool {
        self.0.spend(now, MOVES, MOVE)
    }
}

impl Budget {
    /// Whether it may happen now; counts it if so. The period is in whole seconds.
    pub(crate) fn spend(&mut self, now: Instant, most: u32, period: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        let earned = now.saturating_duration_since(since).as_secs() / period.as_secs();
        if earned > 0 {
            self.spent = self.spent.saturating_sub(u32::try_from(earned).unwrap_or(u32::MAX));
            self.since = Some(now);
        }
        let may = self.spent < most;
        self.spent += u32::from(may);
        may
    }

    /// Takes back that it happened this often.
    pub(crate) fn give_back(&mut self, times: u32) {
        self.spent = self.spent.saturating_sub(times);
    }
}

impl ControllerFactory for Paths {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::clone(&self.0).build(now, current_mtu);
        Box::new(Watched { inner, is_proved: false, was_proved: false })
    }
}

impl Controller for Watched {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.is_proved = true;
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    /// The state for a new path, of which nothing is proved.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), is_proved: false, was_proved: self.is_proved })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_earned_by_time() {
        let (begin, mut moves) = (Instant::now(), Moves::default());
        let accepted = |moves: &mut Moves, at| (0..100).filter(|_| moves.accept(begin + at)).count();
        assert_eq!(accepted(&mut moves, Duration::ZERO), MOVES as usize);
        assert_eq!(accepted(&mut moves, Duration::from_millis(900)), 0);
        assert_eq!(accepted(&mut moves, MOVE * 3), 3);
        assert_eq!(accepted(&mut moves, MOVE * 1000), MOVES as usize);
    }
}

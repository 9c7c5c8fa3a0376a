//! Switches that operators set while the gateway runs. They are not part of the config, so they expire.

use super::kind::Portable;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A switch that settings name. All filters that name it share it. It survives reloads and upgrades, and restarts if
/// the config has a history to store it in.
#[derive(Debug, Default)]
pub struct Switch {
    /// Until when it is on, in seconds since 1970; 0 if it is off.
    until: AtomicU64,
}

impl Switch {
    /// Whether it is on now. If it is off, the check costs one load.
    pub fn is_on(&self) -> bool {
        let until = self.until.load(Relaxed);
        until > 0 && seconds(SystemTime::now()) < until
    }

    /// Until when it is on, if it is.
    pub fn until(&self) -> Option<SystemTime> {
        self.is_on().then(|| UNIX_EPOCH + Duration::from_secs(self.until.load(Relaxed)))
    }

    /// Turns it on for this long, or off.
    pub fn turn(&self, time: Option<Duration>) {
        let until = time.map_or(0, |time| seconds(SystemTime::now()).saturating_add(time.as_secs().max(1)));
        self.until.store(until, Relaxed);
    }

    /// Reads the output of [`Portable::save`].
    pub(crate) fn load(saved: &[u8]) -> Option<Self> {
        Some(Self { until: AtomicU64::new(u64::from_le_bytes(saved.try_into().ok()?)) })
    }
}

impl Portable for Switch {
    fn save(&self) -> Vec<u8> {
        self.until.load(Relaxed).to_le_bytes().to_vec()
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_on_for_a_while_and_outlives_the_process() {
        let switch = Switch::default();
        assert!(!switch.is_on() && switch.until().is_none());
        switch.turn(Some(Duration::from_secs(3600)));
        assert!(switch.is_on() && switch.until() > Some(SystemTime::now()));
        let next = Switch::load(&switch.save()).unwrap();
        assert_eq!(next.until(), switch.until());
        next.turn(None);
        assert!(!next.is_on() && switch.is_on());
        switch.until.store(seconds(SystemTime::now()), Relaxed); // its time is over
        assert!(!switch.is_on());
        assert!(Switch::load(b"").is_none() && Switch::load(&[0; 9]).is_none());
    }
}

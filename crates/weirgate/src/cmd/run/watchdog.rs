//! The systemd watchdog (WatchdogSec=): notifies systemd while the event loop of every core runs, and stops if
//! one hangs.

use std::thread;
use std::time::{Duration, Instant};
use weir_gateway::Gateway;
use weir_telemetry::log;

/// Names the process that systemd watches. An upgrade removes the variable from the new process's environment, so
/// that it notifies systemd too.
pub(super) const PID: &str = "WATCHDOG_PID";

/// Starts the notifications, if systemd asked for them (sd_watchdog_enabled(3)).
pub(super) fn start(gateway: &Gateway) {
    let Some(within) = asked(std::env::var("WATCHDOG_USEC").ok(), std::env::var(PID).ok()) else { return };
    let gateway = gateway.clone();
    let spawned =
        thread::Builder::new().name("weir-watchdog".to_owned()).spawn(move || tell(&gateway, within));
    if let Err(e) = spawned {
        log::error("systemd's watchdog gets no signal and will end this process", &[("error", &e)]);
    }
}

/// The timeout of the watchdog, if it watches this process.
fn asked(within_us: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid == std::process::id().to_string());
    let within = within_us?.parse().ok().filter(|us| *us > 0 && is_ours)?;
    Some(Duration::from_micros(within))
}

fn tell(gateway: &Gateway, within: Duration) {
    // Three notifications per timeout, so one may be late.
    let pause = within / 3;
    let mut stands = false;
    loop {
        let since = Instant::now();
        if gateway.turns(pause) {
            super::notify("WATCHDOG=1");
            stands = false;
        } else if gateway.has_ended() {
            return;
        } else if !std::mem::replace(&mut stands, true) {
            log::error(
                "a core is stuck: systemd's watchdog gets no signal",
                &[("within", &format!("{pause:?}"))],
            );
        }
        thread::sleep(pause.saturating_sub(since.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_the_watchdog_waits_for() {
        let us = |text: &str| Some(text.to_owned());
        let own = std::process::id().to_string();
        assert_eq!(asked(us("3000000"), None), Some(Duration::from_secs(3)));
        assert_eq!(asked(us("3000000"), Some(own)), Some(Duration::from_secs(3)));
        assert_eq!(asked(us("3000000"), us("1")), None);
        assert_eq!((asked(us("0"), None), asked(us("soon"), None), asked(None, None)), (None, None, None));
    }
}

//! The trial of a bundle on this node.

use super::Driver;
use std::time::Duration;
use weir_fleet::pointer::State;
use weir_fleet::report::Reason;
use weir_fleet::{Digest, Weight};
use weir_telemetry::log;

impl Driver {
    /// During a rollout, the running bundle is watched like a change with `--watch`.
    pub(super) fn try_out(&mut self, digest: Digest) {
        let Some(pointer) = self.follower.pointer().filter(|pointer| pointer.to == digest) else { return };
        let hold = Duration::from_millis(pointer.rollout.hold_ms);
        if pointer.rollout.state == State::Running
            && !hold.is_zero()
            && let Some(gateway) = self.gateway.upgrade()
        {
            gateway.try_bundle(hold);
            self.on_trial = true;
        }
    }

    /// The watch ends when the rollout is over or something else runs.
    pub(super) fn end_trial(&mut self) {
        let running = self.follower.running();
        let is_under_way = self
            .follower
            .pointer()
            .is_some_and(|pointer| pointer.rollout.state != State::Done && Some(pointer.to) == running);
        if self.on_trial && !is_under_way {
            self.on_trial = false;
            if let Some(gateway) = self.gateway.upgrade() {
                gateway.end_bundle_trial();
            }
        }
    }

    /// Compares a bundle's cost with that of the previous one, while other bundles wait.
    pub(super) fn compare_weight(&mut self, digest: Digest, weight: Weight) {
        let is_tried =
            self.follower.pointer().is_some_and(|pointer| pointer.to == digest && pointer.is_tried());
        let why = self.weight.and_then(|before| weight.complaint(before)).filter(|_| is_tried);
        if let Some(why) = &why {
            log::error("bundle is too large", &[("bundle", &digest.short()), ("why", why)]);
        }
        self.unwell = why.map(|why| Reason::new(digest, &why));
        self.weight = Some(weight);
    }

    pub(super) fn check_trial(&mut self) {
        let Some(digest) = self.follower.running() else { return };
        if self.unwell.is_none()
            && let Some(gateway) = self.gateway.upgrade()
            && let Some(why) = gateway.bundle_blamed()
        {
            log::error("bundle is unhealthy", &[("bundle", &digest.short()), ("why", &why)]);
            self.unwell = Some(Reason::new(digest, &why));
        }
    }
}

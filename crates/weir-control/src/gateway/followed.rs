//! What the thread that follows a source may do with its gateway.

use super::{Gateway, Inner};
use crate::fleet::Follows;
use crate::history::By;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_config::Mistakes;

impl Follows for Inner {
    fn run_bundle(self: Arc<Self>, folder: &Path, by: &By) -> Result<(), Mistakes> {
        Gateway::from(self).run_bundle(folder, by)
    }

    fn try_bundle(self: Arc<Self>, hold: Duration) {
        Gateway::from(self).try_bundle(hold);
    }

    fn end_bundle_trial(self: Arc<Self>) {
        Gateway::from(self).end_bundle_trial();
    }

    fn bundle_blamed(self: Arc<Self>) -> Option<String> {
        Gateway::from(self).bundle_blamed()
    }
}

//! A fixed rate: what is open before it begins.

use super::{report, url};
use crate::support::OK;
use weir_testkit::Upstream;

#[test]
fn connections_for_a_pause_of_10_ms_are_open_before_the_first_start() {
    for (args, opened) in [
        (&["--rate", "1000/s", "-t1"][..], 10),
        (&["--rate", "1000/s", "-t3"], 10),
        (&["--rate", "1000/s", "-t1", "-c4"], 4),
        (&["--stages", "10s:500/s", "-t1"], 5),
        (&["--rate", "1000/s", "-t1", "--no-keepalive"], 1),
    ] {
        let upstream = Upstream::fixed(OK);
        let r = report(&[args, &["-n1", &url(&upstream)]].concat());
        assert_eq!((r.counts.responses, r.connections.opened), (1, opened), "{args:?}");
        assert_eq!(r.connections.dial.count(), opened, "{args:?}");
        let waited = r.phases.blocked.max();
        assert_eq!(waited == 0, opened > 1, "{args:?}: the first waited {waited} ns for its connection");
    }
}

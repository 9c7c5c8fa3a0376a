//! The process's log during many failures: a storm of one fault hides no other, and each line names its upstream.

use std::time::Duration;
use weir_testkit::{Upstream, Weir};

use crate::support::WEB;

/// Minimum interval between lines about one upstream and one cause.
const INTERVAL: Duration = Duration::from_secs(5);

/// Number of requests in the storm.
const STORM: usize = 60;

/// A gateway with an upstream for each of these answers, at the path with its name.
fn in_front_of(upstreams: &[(&str, &Upstream)]) -> Weir {
    let lines = |line: &dyn Fn(&str, &Upstream) -> String| -> String {
        upstreams.iter().map(|(name, upstream)| line(name, upstream)).collect()
    };
    let of = lines(&|name, upstream| format!("  {name}: {{ endpoints: [{}] }}\n", upstream.address()));
    let routes = lines(&|name, _| format!("  {name}: {{ match: {{ path: /{name} }}, upstream: {name} }}\n"));
    Weir::start(&format!("{WEB}\nupstreams:\n{of}routes:\n{routes}"))
}

#[test]
fn a_storm_hides_no_line_about_another_upstream() {
    let closing = Upstream::script(|conn| {
        conn.next_request();
    });
    let malformed = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n");
    let broken =
        Upstream::fixed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nnonsense\r\n");
    let weir = in_front_of(&[("storm", &closing), ("malformed", &malformed), ("broken", &broken)]);
    for _ in 0..STORM {
        weir.client().get("/storm").expect_cause(crate::cause::UPSTREAM_CLOSED);
    }
    // Within the same second, once each.
    weir.client().get("/malformed").expect_cause(crate::cause::BAD_RESPONSE);
    let mut cut = weir.client();
    cut.send("GET /broken HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    cut.read_to_close();
    let of = |name: &str| {
        let mut lines = weir.logged("upstream failed");
        lines.retain(|line| line.field("upstream") == Some(name));
        lines
    };
    for (name, upstream, cause, error) in [
        ("storm", &closing, "upstream_closed", "closed"),
        ("malformed", &malformed, "bad_response", "Content-Length is not one plain number"),
        ("broken", &broken, "bad_response", "malformed chunk"),
    ] {
        weir_testkit::eventually("a line about it", || !of(name).is_empty());
        let [line] = &of(name)[..] else { panic!("one line about {name}:\n{}", weir.stderr()) };
        assert_eq!(line.field("endpoint"), Some(&*upstream.address().to_string()), "{line:?}");
        assert_eq!(line.field("cause"), Some(cause), "{line:?}");
        assert!(line.field("error").is_some_and(|said| said.contains(error)), "{line:?}");
    }
}

#[test]
fn the_next_line_counts_those_left_out() {
    let closing = Upstream::script(|conn| {
        conn.next_request();
    });
    let weir = in_front_of(&[("storm", &closing)]);
    let mut asked = 0_u64;
    // One line about it may appear every five seconds.
    weir_testkit::eventually_within(4 * INTERVAL, "a second line", || {
        weir.client().get("/storm").expect_cause(crate::cause::UPSTREAM_CLOSED);
        asked += 1;
        weir.logged("upstream failed").len() > 1
    });
    let lines = weir.logged("upstream failed");
    assert_eq!(lines[0].field("suppressed"), None, "{lines:?}");
    let left_out: u64 = lines[1].field("suppressed").unwrap().parse().unwrap();
    // Requests between the second line and this check are suppressed again.
    assert!(left_out > 0 && left_out <= asked - 2, "{left_out} of {asked}");
}

//! Who may call, as a client meets it. What each filter does in detail is tested in its own file.

use weir_testkit::{Upstream, Weir, eventually};

use crate::cause::IP_DENIED;
use crate::support::{OK, WEB};

/// The file is watched: a change is in effect without anybody asking for it, and one with a mistake changes nothing.
#[test]
fn ip_from_a_watched_file() {
    let upstream = Upstream::fixed(OK);
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("blocked.txt");
    std::fs::write(&file, "192.0.2.0/24\n").unwrap();
    let weir = Weir::start(&format!(
        "{WEB}\nwatch: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  all: {{ match: {{ path: \"/*\" }}, filters: [ {{ ip: {{ file: \"{}\" }} }} ], upstream: up }}",
        upstream.address(),
        file.display()
    ));
    weir.client().get("/").expect_status(200);
    std::fs::write(&file, "192.0.2.0/24\n127.0.0.0/8 # this machine\n").unwrap();
    eventually("the client is blocked", || weir.client().get("/").status == 403);
    weir.client().get("/").expect_cause(IP_DENIED);
    std::fs::write(&file, "nonsense\n").unwrap();
    weir.wait_log("reload refused");
    weir.client().get("/").expect_cause(IP_DENIED);
}

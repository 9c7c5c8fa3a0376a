//! `redirects`: a file of many rows in a running gateway. The filter's own tests have the details.

use weir_testkit::{Upstream, Weir, eventually, run_weir};

use crate::support::{OK, WEB};

fn config(upstream: &Upstream, listener: &str) -> String {
    format!(
        "{listener}\nwatch: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  \
         all: {{ match: {{ path: \"/*\" }}, filters: [ {{ redirects: {{ file: moved.csv }} }} ], upstream: up }}\n",
        upstream.address()
    )
}

/// Rows that come, change and go take effect by themselves; a mistake changes nothing.
#[test]
fn a_watched_file_of_many_rows() {
    let upstream = Upstream::fixed(OK);
    let rows = |to: &str| -> String { (0..100_000).map(|i| format!("/old/{i},/{to}/{i}\n")).collect() };
    let config = config(&upstream, WEB);
    let weir = Weir::start_by(&config, |dir| {
        std::fs::write(dir.join("moved.csv"), rows("new")).unwrap();
        let mut command = weir_testkit::weir_command(dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    let mut client = weir.client();
    client.get("/old/99999?a=1").expect_status(308).expect_header("location", "/new/99999?a=1");
    client.get("/old/%390").expect_header("location", "/new/90");
    client.get("/old/100000").expect_status(200);
    let file = weir.dir().join("moved.csv");
    std::fs::write(&file, rows("newer")).unwrap();
    eventually("the file is read again", || client.get("/old/7").header("location") == Some("/newer/7"));
    std::fs::write(&file, "/a,/b\n/b,/a\n").unwrap();
    let told = weir.wait_log("reload refused");
    assert!(told.field("first").is_some_and(|first| first.contains("leads back to itself")), "{told:?}");
    client.get("/old/7").expect_header("location", "/newer/7");
}

#[test]
fn check_and_explain_name_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::fixed(OK);
    std::fs::write(dir.path().join("weir.yaml"), config(&upstream, WEB)).unwrap();
    std::fs::write(dir.path().join("moved.csv"), "/a,/b\n/%61,/c\n/d,//evil.example\n/e,/e\n").unwrap();
    let checked = run_weir(dir.path(), &["check"]);
    checked.expect_code(1);
    for text in
        ["moved.csv:2: `/a` is redirected in line 1 already", "moved.csv:3: `//evil.example` leaves for"]
    {
        checked.expect_text(text);
    }
    std::fs::write(dir.path().join("moved.csv"), "from,to\n/a,/b\n").unwrap();
    run_weir(dir.path(), &["check"]).expect_code(0);
    let explained = run_weir(dir.path(), &["explain", "GET", "http://weir.test/a"]);
    explained.expect_code(0).expect_text("line 2 of ./moved.csv redirects it to /b (308)");
    let bare = run_weir(dir.path(), &["explain", "GET", "weir.test/a"]);
    assert_eq!(bare.expect_code(0).stdout, explained.stdout);
}

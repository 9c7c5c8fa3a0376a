//! A reload never hurts: unchanged parts keep running, and a bad config changes nothing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use weir_testkit::{
    Authority, Client, Tls, Upstream, Weir, eventually, own_network, run_weir, unused_address, weir_command,
};

use crate::cause::NO_ROUTE;
use crate::support::{GET, OK_BODY, WEB, config_for};

/// A config whose only route answers with this text.
fn saying(text: &str) -> String {
    format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: {text} }} }} }}\n"
    )
}

// === Triggers ===

#[test]
fn by_sighup() {
    let weir = Weir::start(&saying("one"));
    let mut client = weir.client();
    client.get("/").expect_body("one");
    let address = weir.address("web");
    weir.reload_with(&saying("two")).unwrap();
    client.get("/").expect_body("two");
    weir.client().get("/").expect_body("two");
    assert_eq!(weir.address("web"), address, "an unchanged listener keeps its socket");
}

/// The config is a pipe, which can be opened without waiting only while the gateway reads it.
#[test]
fn by_a_sighup_during_the_start() {
    let dir = tempfile::TempDir::new().unwrap();
    let (config, log) = (dir.path().join("weir.yaml"), dir.path().join("log"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &config, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let mut command = weir_command(dir.path());
    let mut child =
        command.args(["run", "-c", "weir.yaml"]).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let tell =
        |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
    let text = format!("{}admin: {{ address: 127.0.0.1:0 }}\n", saying("one"));
    let logged = |what: &str| std::fs::read_to_string(&log).unwrap().contains(what);
    let give = |then: &dyn Fn()| {
        eventually("the gateway reads the config", || {
            let pipe = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&config);
            let Ok(mut pipe) = pipe else { return false };
            then();
            pipe.write_all(text.as_bytes()).unwrap();
            true
        });
    };
    give(&|| tell(rustix::process::Signal::HUP));
    // A second writer that came before the end of the first reading would add to it.
    eventually("it starts", || logged(" ready "));
    give(&|| {});
    eventually("it reloads", || logged(" reloaded "));
    tell(rustix::process::Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn by_a_changed_file() {
    let weir = Weir::start(&format!("{}watch: true", saying("one")));
    let before = weir.stderr().len();
    weir.write_config(&format!("{}watch: true", saying("two")));
    weir.wait_reload_after(before).unwrap();
    weir.client().get("/").expect_body("two");
}

#[test]
fn by_a_changed_file_that_is_included() {
    let weir =
        Weir::start(&saying("main").replace("routes:", "include: [ \"more/*.yaml\" ]\nwatch: true\nroutes:"));
    weir.client().get("/extra").expect_body("main");
    std::fs::create_dir_all(weir.dir().join("more")).unwrap();
    let extra = "routes: { extra: { match: { path: /extra }, respond: { status: 200, body: extra } } }\n";
    std::fs::write(weir.dir().join("more/extra.yaml"), extra).unwrap();
    // The folder did not exist at startup and is not watched; SIGHUP sees it anyway.
    weir.reload().unwrap();
    weir.client().get("/extra").expect_body("extra");
    std::fs::write(weir.dir().join("more/extra.yaml"), extra.replace("body: extra", "body: again")).unwrap();
    // The watcher may report the file's first text only now.
    eventually("the folder is watched", || weir.client().get("/extra").text() == "again");
}

#[test]
fn by_a_swapped_symlink() {
    // As Kubernetes mounts a ConfigMap: weir.yaml → ..data/weir.yaml, ..data → a folder, swapped by a rename.
    let weir = Weir::start(&format!("{}watch: true", saying("one")));
    let dir = weir.dir();
    let config = std::fs::read_to_string(dir.join("weir.yaml")).unwrap();
    let put = |folder: &str, text: &str| {
        std::fs::create_dir(dir.join(folder)).unwrap();
        std::fs::write(
            dir.join(folder).join("weir.yaml"),
            config.replace("body: one", &format!("body: {text}")),
        )
        .unwrap();
        std::os::unix::fs::symlink(folder, dir.join("..data_tmp")).unwrap();
        std::fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    };
    put("..first", "two");
    std::os::unix::fs::symlink("..data/weir.yaml", dir.join("link")).unwrap();
    std::fs::rename(dir.join("link"), dir.join("weir.yaml")).unwrap();
    eventually("the link is followed", || weir.client().get("/").text() == "two");
    put("..second", "three");
    eventually("the swap is seen", || weir.client().get("/").text() == "three");
}

#[test]
fn by_a_renewed_certificate() {
    let authority = Authority::new();
    let (old, new) = (authority.leaf(&["weir.test"]), authority.leaf(&["weir.test"]));
    let weir = Weir::start(&format!(
        "watch: true\nlisteners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\n",
        old.yaml()
    ));
    let tls = || Tls::new(&authority, "weir.test");
    let mut before = Client::connect_tls(weir.address("web"), &tls());
    assert_eq!(before.tls().certificate, old.der);
    old.replace_files_by(&new);
    eventually("the new certificate is presented", || {
        Client::connect_tls(weir.address("web"), &tls()).tls().certificate == new.der
    });
    before.get("/").expect_status(200);
}

/// The greeting promises it. The embedded default has fixed ports, so this needs a separate network namespace.
#[test]
fn by_a_config_written_beside_the_embedded_default() {
    if let Err(e) = own_network(&(32_768..=60_999)) {
        return eprintln!("SKIPPED: no network of our own: {e}");
    }
    let weir = Weir::start_by("", |dir| {
        std::fs::remove_file(dir.join("weir.yaml")).unwrap();
        let mut command = weir_command(dir);
        command.arg("run");
        command
    });
    assert_eq!(weir.address("web"), "127.0.0.1:8080");
    weir.client().get("/").expect_status(200);
    let before = weir.stderr().len();
    weir.write_config(&format!("{}watch: true\n", saying("one")));
    weir.wait_reload_after(before).unwrap();
    weir.client().get("/").expect_body("one");
    // From now on it is a normal config file.
    let before = weir.stderr().len();
    weir.write_config(&format!("{}watch: true\n", saying("two")));
    weir.wait_reload_after(before).unwrap();
    weir.client().get("/").expect_body("two");
}

/// A failed renewal must not disable a certificate that still works.
#[test]
fn an_expired_certificate_does_not_replace_a_valid_one() {
    let authority = Authority::new();
    let names = &["weir.test"];
    let (good, expired, renewed) =
        (authority.leaf(names), authority.expired_leaf(names), authority.leaf(names));
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\n",
        good.yaml()
    ));
    let shown =
        || Client::connect_tls(weir.address("web"), &Tls::new(&authority, "weir.test")).tls().certificate;
    let admin =
        |path: &str| weir.admin_client().ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let days_left = || {
        let status = admin("/status").json();
        assert_eq!(status["certificates"][0]["names"], serde_json::json!(names));
        status["certificates"][0]["days_left"].as_i64().unwrap()
    };
    let until = || {
        let metrics = admin("/metrics").text();
        let line =
            metrics.lines().find(|l| l.starts_with("weir_certificate_expiry_timestamp_seconds")).unwrap();
        assert!(
            line.contains(&*good.cert_file.to_string_lossy()) && line.contains("name=\"weir.test\""),
            "{line}"
        );
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let (first_days, first_end) = (days_left(), until());
    assert!(first_days > 14, "{first_days}");
    good.replace_files_by(&expired);
    weir.reload().unwrap();
    assert_eq!(shown(), good.der);
    assert_eq!((days_left(), until()), (first_days, first_end));
    eventually("it warns", || {
        weir.stderr().lines().any(|l| l.contains("expired") && l.contains("the one before it stays"))
    });
    good.replace_files_by(&renewed);
    weir.reload().unwrap();
    assert_eq!(shown(), renewed.der);
}

#[test]
fn by_the_command() {
    let weir = Weir::start(&saying("one"));
    weir.write_config(&saying("two"));
    run_weir(weir.dir(), &["reload", "--admin", &weir.admin()]).expect_code(0);
    weir.client().get("/").expect_body("two");
    weir.write_config("listeners: { web: { adress: 127.0.0.1:0 } }");
    let refused = run_weir(weir.dir(), &["reload", "--admin", &weir.admin()]);
    refused.expect_code(1).expect_text("adress").expect_text("weir.yaml:1:");
    weir.client().get("/").expect_body("two");
}

// === A bad config changes nothing ===

#[test]
fn a_bad_config_is_refused_with_its_reasons() {
    let weir = Weir::start(&saying("one"));
    let mut client = weir.client();
    for bad in [
        "listeners: { web: { address: 127.0.0.1:0 } }\nroutes: { all: { match: { path: \"/*\" }, upstream: nobody } }",
        "listeners: { web: [",
        "listeners: { web: { address: 127.0.0.1:0, tls: { certificates: [ { cert: /nothing, key: /nothing } ] } } }",
        "",
    ] {
        let why = weir.reload_with(bad).unwrap_err();
        assert!(why.contains("weir.yaml"), "{bad:?}: {why}");
        client.get("/").expect_body("one");
        weir.client().get("/").expect_body("one");
    }
    weir.reload_with(&saying("two")).unwrap();
    client.get("/").expect_body("two");
}

#[test]
fn a_config_that_is_gone_changes_nothing() {
    let weir = Weir::start(&saying("one"));
    std::fs::remove_file(weir.dir().join("weir.yaml")).unwrap();
    weir.reload().unwrap_err();
    weir.client().get("/").expect_body("one");
}

#[test]
fn an_address_that_cannot_be_had_changes_nothing() {
    let taken = Upstream::named("somebody else");
    let weir = Weir::start(&saying("one"));
    let two = saying("two").replace(
        "listeners: { web: { address: 127.0.0.1:0 } }",
        &format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }}, more: {{ address: {} }} }}",
            taken.address()
        ),
    );
    weir.reload_with(&two).unwrap_err();
    weir.client().get("/").expect_body("one");
}

// === Unchanged parts keep running ===

#[test]
fn an_idle_connection_stays() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.get("/").expect_status(200);
    for number in 0..5 {
        weir.reload_with(&format!("{}log: {{ level: debug }}\n# {number}\n", config_for(&upstream, "")))
            .unwrap();
        client.get("/").expect_status(200).expect_no_header("connection");
    }
    assert_eq!(upstream.connections(), 1, "the pool stays too");
}

#[test]
fn an_exchange_under_way_ends_as_it_began() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
    client.read_until("ha");
    weir.reload_with(&saying("two")).unwrap();
    conn.send("lf");
    client.expect("lf");
    client.get("/").expect_body("two");
}

#[test]
fn a_tunnel_stays() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = crate::upgrade::tunnel(&weir, &upstream);
    for number in 0..3 {
        weir.reload_with(&format!("{}# {number}\n", config_for(&upstream, ""))).unwrap();
        client.send("ping");
        conn.expect("ping");
        conn.send("pong");
        client.expect("pong");
    }
}

#[test]
fn a_limit_remembers() {
    let limited = |extra: &str| {
        format!(
            "{WEB}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    filters: [ {{ rate_limit: {{ requests: 1, per: 1h }} }} ]\n    \
             respond: {{ status: 200, body: ok }}\n{extra}\n"
        )
    };
    let weir = Weir::start(&limited(""));
    weir.client().get("/").expect_status(200);
    weir.client().get("/").expect_status(429);
    weir.reload_with(&limited("# the same")).unwrap();
    weir.client().get("/").expect_status(429);
    weir.reload_with(&limited("").replace("requests: 1,", "requests: 5,")).unwrap();
    weir.client().get("/").expect_status(200);
}

// === Changed parts ===

#[test]
fn a_listener_comes_and_goes() {
    let extra = unused_address();
    let one = saying("ok") + "shutdown: { idle: 1m }\n";
    let two = one.replace(
        "listeners: { web: { address: 127.0.0.1:0 } }",
        &format!("listeners: {{ web: {{ address: 127.0.0.1:0 }}, extra: {{ address: {extra} }} }}"),
    );
    let weir = Weir::start(&one);
    let mut stays = weir.client();
    stays.get("/").expect_status(200);
    weir.reload_with(&two).unwrap();
    let [mut used, mut unused] = [(); 2].map(|()| Client::connect(weir.address("extra")));
    used.get("/").expect_body("ok");
    weir.reload_with(&one).unwrap();
    eventually("the listener is gone", || !Client::can_connect(extra));
    stays.get("/").expect_status(200);
    // Each of its connections may bring one more request.
    for client in [&mut used, &mut unused] {
        client.get("/").expect_body("ok").expect_header("connection", "close");
        client.expect_close();
    }
}

#[test]
fn idle_connections_of_a_listener_that_goes_are_closed() {
    let extra = unused_address();
    let one = saying("ok") + "shutdown: { idle: 100ms }\n";
    let extra_one =
        format!("listeners: {{ web: {{ address: 127.0.0.1:0 }}, extra: {{ address: {extra} }} }}");
    let weir = Weir::start(&one.replace(WEB, &extra_one));
    let [mut used, mut unused] = [(); 2].map(|()| Client::connect(extra));
    used.get("/").expect_body("ok");
    weir.reload_with(&one).unwrap();
    used.expect_close();
    unused.expect_close();
}

#[test]
fn a_route_goes() {
    let weir = Weir::start(&saying("one"));
    let mut client = weir.client();
    weir.reload_with(&saying("one").replace("\"/*\"", "/only")).unwrap();
    client.get("/other").expect_cause(NO_ROUTE);
    client.get("/only").expect_body("one");
}

#[test]
fn an_endpoint_goes() {
    let (old, new) = (Upstream::named("old"), Upstream::named("new"));
    let weir = Weir::in_front_of(&old);
    let mut client = weir.client();
    client.get("/").expect_body("old");
    weir.reload_with(&config_for(&new, "")).unwrap();
    client.get("/").expect_body("new");
}

#[test]
fn many_reloads_leave_nothing_behind() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    let mut reload = |number: usize| {
        weir.reload_with(&format!("{}# {number}\n", config_for(&upstream, ""))).unwrap();
        client.get("/").expect_status(200);
    };
    (0..20).for_each(&mut reload);
    let (memory, files) = (weir.rss_kib(), weir.open_files());
    (20..120).for_each(&mut reload);
    let grown = weir.rss_kib().saturating_sub(memory);
    assert!(grown < 2048, "100 reloads cost {grown} KiB");
    assert!(weir.open_files() <= files + 2, "{files} open files became {}", weir.open_files());
}

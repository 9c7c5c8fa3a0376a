//! TLS and client certificates on the admin listener, and the command line as its client.

use std::path::Path;
use weir_testkit::{
    Authority, Certificate, Client, Finished, Response, Tls, Weir, eventually, run_weir, unused_address,
};

use crate::support::WEB;

fn config(admin: &str) -> String {
    format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200 }} }} }}\nadmin: {{ {admin} }}\n"
    )
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Sends a request over TLS.
fn ask(weir: &Weir, tls: &Tls, line: &str) -> Response {
    let host = weir.admin();
    let request =
        format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    Client::connect_tls(host, tls).ask(request)
}

#[test]
fn whoever_has_the_config_knows_the_listener_by_its_certificate() {
    let authority = Authority::new();
    // Its name does not match the address, and no system store trusts the authority.
    let leaf = authority.leaf(&["gw1.internal"]);
    let address = unused_address();
    let tls = format!("address: {address}, tls: {{ certificates: [ {} ] }}", leaf.yaml());
    let weir = Weir::start(&config(&tls));
    let run = |args: &[&str]| run_weir(weir.dir(), args);
    run(&["status", "-c", "weir.yaml"]).expect_code(0).expect_text("running");
    run(&["reload", "-c", "weir.yaml"]).expect_code(0).expect_text("reloaded");

    let at = format!("https://{address}");
    run(&["status", "--admin", &at])
        .expect_code(1)
        .expect_text("no TLS with what answers")
        .expect_text("--cacert");
    run(&["status", "--admin", &at, "--cacert", text(&authority.file())])
        .expect_code(1)
        .expect_text("no TLS with");
    let other = Authority::new();
    run(&["status", "--admin", &at, "--cacert", text(&other.file())])
        .expect_code(1)
        .expect_text("no TLS with");
    run(&["status", "--admin", &address.to_string()]).expect_code(1);
    // The listener still works, and follows its config to another certificate and to cleartext.
    let next = authority.leaf(&["gw2.internal"]);
    weir.reload_with(&config(&format!("address: {address}, tls: {{ certificates: [ {} ] }}", next.yaml())))
        .unwrap();
    ask(&weir, &Tls::new(&authority, "gw2.internal"), "GET /status").expect_status(200);
    assert!(Client::try_connect_tls(address, &Tls::new(&authority, "gw1.internal")).is_err());
    weir.reload_with(&config(&format!("address: {address}"))).unwrap();
    run(&["status", "-c", "weir.yaml"]).expect_code(0).expect_text("running");
}

#[test]
fn clients_are_known_by_their_certificates() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["localhost", "127.0.0.1"]);
    let tls = format!(
        "address: 127.0.0.1:0, tls: {{ certificates: [ {} ], client_auth: {{ ca: {}, mode: optional }} }}, tokens: [ \
         {{ name: ci, role: operate, certificate: \"dns:ci.internal\" }} ]",
        leaf.yaml(),
        authority.file().display()
    );
    let weir = Weir::start(&config(&tls));
    let (ci, cd) =
        (authority.client_for("ci", &["ci.internal"]), authority.client_for("cd", &["cd.internal"]));
    let stranger = Authority::new().client_for("ci", &["ci.internal"]);
    let at = format!("https://{}", weir.admin());
    let run = |verb: &str, shown: Option<&Certificate>| -> Finished {
        let ca = authority.file();
        let mut args = vec![verb, "--admin", &at, "--cacert", text(&ca)];
        if let Some(shown) = shown {
            args.extend(["--cert", text(&shown.cert_file), "--key", text(&shown.key_file)]);
        }
        run_weir(weir.dir(), &args)
    };
    run("status", Some(&ci)).expect_code(0).expect_text("running");
    run("reload", Some(&ci)).expect_code(0).expect_text("reloaded");
    run("drain", Some(&ci)).expect_code(1).expect_text("needs the role admin");
    run("status", Some(&cd)).expect_code(1).expect_text("send `Authorization");
    run("status", None).expect_code(1).expect_text("send `Authorization");
    run("status", Some(&stranger)).expect_code(1);
    eventually("the log says who it was", || weir.stderr().contains("who=ci"));
    // Every TLS client may check health.
    ask(&weir, &Tls::new(&authority, "localhost"), "GET /healthz").expect_status(200);
    ask(&weir, &Tls::new(&authority, "localhost").identity(&ci), "GET /status").expect_status(200);
}

#[test]
fn without_a_certificate_there_is_no_handshake_where_one_is_required() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["localhost"]);
    let tls = format!(
        "address: 127.0.0.1:0, tls: {{ certificates: [ {} ], client_auth: {{ ca: {} }} }}, tokens: [ \
         {{ name: ci, role: admin, certificate: \"subject:CN=ci\" }} ]",
        leaf.yaml(),
        authority.file().display()
    );
    let weir = Weir::start(&config(&tls));
    let with = Tls::new(&authority, "localhost").identity(&authority.client("ci"));
    ask(&weir, &with, "GET /status").expect_status(200);
    let ca = authority.file();
    let at = format!("https://{}", weir.admin().replace("127.0.0.1", "localhost"));
    run_weir(weir.dir(), &["status", "--admin", &at, "--cacert", text(&ca)]).expect_code(1);
    // A silent client and a cleartext client delay nobody.
    let _silent = Client::connect(weir.admin());
    Client::connect(weir.admin()).send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ask(&weir, &with, "GET /status").expect_status(200);
}

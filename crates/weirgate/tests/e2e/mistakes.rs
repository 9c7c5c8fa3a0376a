//! Mistakes that depend on the system: unreadable files, unavailable ports.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use tempfile::TempDir;
use weir_testkit::{Authority, Finished, run_weir, weir_command};

/// The unprivileged user of every system. Source: nobody of the Linux Standard Base.
const NOBODY: u32 = 65534;

/// Runs `weir` without privileges: as `nobody` if the tests run as root, otherwise as the current user. `None` if
/// that user may not run the binary.
fn run_unprivileged(dir: &TempDir, args: &[&str]) -> Option<Finished> {
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = weir_command(dir.path());
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.args(args).output().ok()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some(Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
}

#[test]
fn a_key_that_may_not_be_read_names_the_user() {
    let (dir, authority) = (TempDir::new().unwrap(), Authority::new());
    let leaf = authority.leaf(&["a.test"]);
    fs::copy(&leaf.cert_file, dir.path().join("a.pem")).unwrap();
    fs::copy(&leaf.key_file, dir.path().join("a.key")).unwrap();
    fs::set_permissions(dir.path().join("a.key"), fs::Permissions::from_mode(0o000)).unwrap();
    let config = "listeners: { a: { address: 127.0.0.1:0, tls: { certificates: [ { cert: a.pem, key: a.key } ] } } }\n\
                  routes: { a: { respond: {} } }\n";
    fs::write(dir.path().join("weir.yaml"), config).unwrap();
    let Some(checked) = run_unprivileged(&dir, &["check"]) else { return };
    checked.expect_code(1).expect_text("a.key may not be read by").expect_text("uid ");
    checked.expect_text("certificates[0].key").expect_text("1 error");
}

#[test]
fn secrets_in_a_file_are_warned_about_and_not_repeated() {
    let dir = TempDir::new().unwrap();
    let config = "listeners: { a: { address: 127.0.0.1:8080 } }\n\
                  consumers:\n  shop:\n    signature_auth:\n\
                  \x20     - { key_id: a, algorithm: hmac-sha256, key: 0123456789abcdef0123456789abcdef }\n\
                  \x20     - { key_id: b, algorithm: hmac-sha256, key: \"${NOT_SET:-0123456789abcdef0123456789abcdef}\" }\n\
                  routes:\n  a:\n    filters:\n      - signature_auth: {}\n      - sign:\n          key_id: weir\n\
                  \x20         algorithm: hmac-sha256\n          key: fedcba9876543210fedcba9876543210\n    respond: {}\n";
    fs::write(dir.path().join("weir.yaml"), config).unwrap();
    let checked = run_weir(dir.path(), &["check"]);
    checked
        .expect_code(0)
        .expect_text("weir.yaml:5:")
        .expect_text("weir.yaml:14:")
        .expect_text("0 errors, 2 warnings");
    let told = format!("{}{}", checked.stdout, checked.stderr);
    assert!(!told.contains("89abcdef") && !told.contains("fedcba"), "{told}");
    assert_eq!(told.matches("[literal-credential]").count(), 2, "{told}");
}

#[test]
fn what_filters_do_not_do_is_told() {
    let dir = TempDir::new().unwrap();
    let config = "listeners: { a: { address: 127.0.0.1:8080 } }\n\
                  stores: { limits: { redis: \"redis://127.0.0.1:6379\" } }\n\
                  consumers: { shop: { jwt: [ shop ] } }\n\
                  routes:\n  a:\n    match: { path: /a }\n    filters:\n\
                  \x20     - jwt: { secret: \"${NOT_SET:-0123456789abcdef0123456789abcdef}\" }\n\
                  \x20     - rate_limit: { requests: 100, per: 1s, by: address, store: limits, cost: \"header:x-cost\" }\n    respond: {}\n\
                  \x20 b:\n    match: { path: /b }\n    filters:\n\
                  \x20     - jwt: { secret: \"${NOT_SET:-0123456789abcdef0123456789abcdef}\", consumer: sub }\n\
                  \x20     - rate_limit: { requests: 100, per: 1s, by: address, store: limits }\n    respond: {}\n";
    fs::write(dir.path().join("weir.yaml"), config).unwrap();
    let checked = run_weir(dir.path(), &["check"]);
    checked
        .expect_code(0)
        .expect_text("this filter does not say which claim names the consumer")
        .expect_text(
            "it has no bound, because the cost of a request is only known from `x-cost` of its response",
        )
        .expect_text("N gateways let pass at most 100 + N × 6 of it");
    let told = format!("{}{}", checked.stdout, checked.stderr);
    assert_eq!(told.matches("which claim names").count(), 1, "{told}");
    assert_eq!(told.matches("let pass at most").count(), 1, "{told}");
}

#[test]
fn a_low_port_says_what_it_needs() {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if first.trim().parse().unwrap_or(1024) <= 81 {
        return; // unprivileged processes may bind any port here
    }
    let dir = TempDir::new().unwrap();
    let config = "listeners: { a: { address: 127.0.0.1:81 } }\nadmin: { address: off }\nroutes: { a: { respond: {} } }\n";
    fs::write(dir.path().join("weir.yaml"), config).unwrap();
    let Some(ran) = run_unprivileged(&dir, &["run", "-c", "weir.yaml"]) else { return };
    ran.expect_code(1).expect_text("CAP_NET_BIND_SERVICE").expect_text("ip_unprivileged_port_start");
}

//! `maps`: tables that expressions read.

use weir_testkit::{Weir, eventually, run_weir};

use crate::support::WEB;

/// Three routes: for gold tenants, for blocked clients, and for the rest.
fn config(maps: &str) -> String {
    format!(
        "{WEB}\ntrusted_proxies: [ 127.0.0.1 ]\nwatch: true\nmaps:\n{maps}routes:\n  \
         gold: {{ match: {{ path: \"/*\", when: 'maps.plans == \"gold\"' }}, respond: {{ body: gold }} }}\n  \
         blocked: {{ match: {{ path: \"/*\", when: 'maps.blocked == \"yes\"' }}, priority: 1, respond: {{ body: blocked }} }}\n  \
         rest: {{ match: {{ path: \"/*\" }}, respond: {{ body: rest }} }}\n"
    )
}

const TENANTS: &str = "  tenants: { of: 'request.headers[\"x-tenant\"]', values: { acme: gold, \"be*\": silver, \"~v[0-9]+\": gold }, default: free }\n  \
                       plans: { of: maps.tenants, values: { gold: gold } }\n";

#[track_caller]
fn expect(weir: &Weir, fields: &str, want: &str) {
    let answer = weir.client().ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    assert_eq!(answer.expect_status(200).text(), want, "{fields}");
}

#[test]
fn a_map_chooses_the_route() {
    let blocked = "  blocked: { of: client.ip, values: { 10.0.0.0/8: \"yes\", 10.1.0.0/16: \"no\", 2001:db8::/32: \"yes\" } }\n";
    let weir = Weir::start(&config(&format!("{TENANTS}{blocked}")));
    for (fields, want) in [
        ("", "rest"),
        ("X-Tenant: acme\r\n", "gold"),
        ("X-Tenant: acme2\r\n", "rest"),
        ("X-Tenant: beta\r\n", "rest"),
        ("X-Tenant: v12\r\n", "gold"),
        ("X-Tenant: v12x\r\n", "rest"),
        // A field that is sent twice is both of its values.
        ("X-Tenant: acme\r\nX-Tenant: acme\r\n", "rest"),
        ("X-Forwarded-For: 10.2.0.1\r\n", "blocked"),
        ("X-Forwarded-For: 10.1.0.1\r\n", "rest"),
        ("X-Forwarded-For: 2001:db8::1\r\nX-Tenant: acme\r\n", "blocked"),
    ] {
        expect(&weir, fields, want);
    }
}

#[test]
fn the_file_of_a_map_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blocked.csv");
    std::fs::write(&file, "# networks\n10.0.0.0/8,yes\n").unwrap();
    let blocked = format!("  blocked: {{ of: client.ip, file: {} }}\n", file.display());
    let weir = Weir::start(&config(&format!("{TENANTS}{blocked}")));
    let ten = "X-Forwarded-For: 10.0.0.1\r\n";
    let eleven = "X-Forwarded-For: 11.0.0.1\r\n";
    expect(&weir, ten, "blocked");
    expect(&weir, eleven, "rest");
    std::fs::write(&file, "11.0.0.0/8,yes\n").unwrap();
    let ask = |fields: &str| weir.client().ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).text();
    eventually("the new file decides", || ask(eleven) == "blocked");
    expect(&weir, ten, "rest");
    // A mistake keeps what runs.
    std::fs::write(&file, "12.0.0.0/8,yes\n13.0.0.0/8\n").unwrap();
    let told = weir.reload().unwrap_err();
    assert!(told.contains("the row has a key and no value"), "{told}");
    expect(&weir, eleven, "blocked");
}

#[test]
fn explain_tells_what_maps_came_to() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        config(&format!("{TENANTS}  blocked: {{ of: client.ip, values: {{ 10.0.0.0/8: \"yes\" }} }}\n"));
    std::fs::write(folder.path().join("weir.yaml"), text).unwrap();
    run_weir(folder.path(), &["explain", "GET", "/", "-H", "x-tenant: acme"])
        .expect_code(0)
        .expect_text("route: gold\n")
        .expect_text(
            "maps.plans is \"gold\", maps.tenants is \"gold\", request.headers[\"x-tenant\"] is \"acme\"",
        )
        .expect_text("maps.blocked is absent, client.ip is 127.0.0.1");
}

/// Wrong rows of files, which the golden mistakes cannot hold.
#[test]
fn a_wrong_file_is_told_by_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let check = |csv: &[u8], told: &[&str]| {
        std::fs::write(folder.path().join("a.csv"), csv).unwrap();
        let blocked = "  blocked: { of: client.ip, values: { 10.0.0.1: x }, file: a.csv }\n";
        std::fs::write(folder.path().join("weir.yaml"), config(&format!("{TENANTS}{blocked}"))).unwrap();
        let ran = run_weir(folder.path(), &["check"]);
        let ran = ran.expect_code(1);
        told.iter().fold(ran, |ran, told| ran.expect_text(told));
    };
    check(
        b"10.0.0.0/8,yes\n\n10.0.0.0/33,yes\n10.0.0.0/8,no\n10.0.0.1/32,x\na\n1.1.1.1,b,c\n\"x,y\n2.2.2.2\"z,y\nname,x\n",
        &[
            "line 3: this is no address and no network",
            "line 4: this key occurs twice, first in line 1",
            "line 5: this key occurs twice, first in `values`",
            "line 6: the row has a key and no value",
            "line 7: the row has 3 fields",
            "3 more rows have mistakes",
        ],
    );
    check(b"10.0.0.0/8,yes\n\xff,x\n", &["line 2: this is not UTF-8"]);
    std::fs::remove_file(folder.path().join("a.csv")).unwrap();
    run_weir(folder.path(), &["check"]).expect_code(1).expect_text("a.csv does not exist");
}

/// Twenty thousand entries of each form.
#[test]
fn many_entries_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |row: &dyn Fn(u32) -> String| (0..20_000_u32).map(row).collect::<String>();
    let network = |n: u32| std::net::Ipv4Addr::from_bits(0x0b00_0000 + (n << 8));
    for (name, text) in [
        ("tenants.csv", rows(&|n| format!("t{n}x,gold\nt{n}*,silver\n"))),
        ("blocked.csv", rows(&|n| format!("{}/24,yes\n", network(n)))),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let maps = format!(
        "  plans: {{ of: 'request.headers[\"x-tenant\"]', file: {0}/tenants.csv }}\n  blocked: {{ of: client.ip, file: {0}/blocked.csv }}\n",
        folder.path().display()
    );
    let weir = Weir::start(&config(&maps));
    for n in [0, 4_711, 19_999] {
        expect(&weir, &format!("X-Tenant: t{n}x\r\n"), "gold");
        expect(&weir, &format!("X-Tenant: t{n}y\r\n"), "rest");
        expect(&weir, &format!("X-Forwarded-For: {}\r\n", network(n)), "blocked");
    }
    expect(&weir, "X-Forwarded-For: 10.255.255.255\r\n", "rest");
}

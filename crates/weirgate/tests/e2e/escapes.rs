//! Escaped slashes and path parameters: no interpretation of a path evades the route that guards it.

use weir_testkit::{Upstream, Weir};

use crate::cause::{AMBIGUOUS_PATH, BAD_PATH, KEY_MISSING, NO_ROUTE};
use crate::support::{OK, PathRow, expect_targets};

/// `/admin/*` requires a key, everything else is open. `listener` and `open` are further keys of the listener and the
/// open route.
#[track_caller]
fn guarded(upstream: &Upstream, listener: &str, open: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2]{listener} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ shop: {{ key_auth: [ the-key ] }} }}\nroutes:\n  \
         admin: {{ match: {{ path: \"/admin/*\" }}, filters: [ {{ key_auth: {{}} }} ], upstream: up }}\n  \
         one: {{ match: {{ path: \"/one/{{id}}\" }}, filters: [ {{ rewrite: {{ path: \"/v2/{{id}}\" }} }} ], upstream: up }}\n  \
         open: {{ match: {{ path: \"/*\" }}, upstream: up{open} }}\n",
        upstream.address()
    ))
}

#[test]
fn an_escaped_slash_does_not_get_around_a_key() {
    let upstream = Upstream::fixed(OK);
    let weir = guarded(&upstream, "", "");
    expect_targets(
        &weir,
        &upstream,
        &[
            ("/admin/x", Err(KEY_MISSING)),
            ("/admin%2Fx", Err(AMBIGUOUS_PATH)),
            ("/admin%2fx?q", Err(AMBIGUOUS_PATH)),
            ("/%2Fadmin/x", Err(AMBIGUOUS_PATH)),
            ("/.%2Fadmin/x", Err(AMBIGUOUS_PATH)),
            ("/one/a%2Fb", Err(AMBIGUOUS_PATH)),
            ("/a%2F..%2Fadmin%2Fx", Err(BAD_PATH)),
            ("/projects/a%2Fb", Ok("/projects/a%2Fb")),
            ("/projects/a%2fb", Ok("/projects/a%2Fb")),
            ("/admin%252Fx", Ok("/admin%252Fx")),
            ("/admin/a%2Fb", Err(KEY_MISSING)),
        ],
    );
    let mut client = weir.h2();
    let stream = client.get("/admin%2Fx");
    client.message(stream).expect_cause(AMBIGUOUS_PATH);
}

#[test]
fn path_parameters_do_not_get_around_a_key() {
    let upstream = Upstream::fixed(OK);
    for setting in ["", ", escaped_slashes: keep", ", escaped_slashes: decode"] {
        let weir = guarded(&upstream, setting, "");
        expect_targets(
            &weir,
            &upstream,
            &[
                ("/admin;x/y", Err(AMBIGUOUS_PATH)),
                ("/admin;", Err(AMBIGUOUS_PATH)),
                ("/;x/admin/y", Err(AMBIGUOUS_PATH)),
                ("/admin%3Bx/y", Err(AMBIGUOUS_PATH)),
                ("/a/..;/admin/y", Err(BAD_PATH)),
                ("/a/..%3b/admin/y", Err(BAD_PATH)),
                ("/a/.;/b", Err(BAD_PATH)),
                ("/a;b=c/d;e", Ok("/a;b=c/d;e")),
                ("/one/a;b", Ok("/v2/a;b")),
            ],
        );
    }
}

#[test]
fn kept_slashes_go_on_as_they_came() {
    let upstream = Upstream::fixed(OK);
    let rows: &[PathRow] = &[
        ("/admin%2Fx", Ok("/admin%2Fx")),
        ("/one/a%2Fb", Ok("/v2/a%2Fb")),
        ("/a%2F..%2Fb", Err(BAD_PATH)),
        ("/admin/x", Err(KEY_MISSING)),
    ];
    expect_targets(&guarded(&upstream, ", escaped_slashes: keep", ""), &upstream, rows);
    // If only a route sets it: it matches the path as received.
    let rows: &[PathRow] = &[("/admin%2Fx", Ok("/admin%2Fx")), ("/one/a%2Fb", Err(AMBIGUOUS_PATH))];
    expect_targets(&guarded(&upstream, "", ", escaped_slashes: keep"), &upstream, rows);
}

#[test]
fn decoded_slashes_are_slashes() {
    let upstream = Upstream::fixed(OK);
    let rows: &[PathRow] = &[
        ("/admin%2Fx", Err(KEY_MISSING)),
        ("/%2Fadmin%2fx", Err(KEY_MISSING)),
        ("/a%2Fb%2F%2Fc%2F", Ok("/a/b/c/")),
        ("/one/a%2Fb", Ok("/one/a/b")), // two segments: no longer the route `one`
        ("/one%2Fa", Ok("/v2/a")),
        ("/admin%252Fx", Ok("/admin%252Fx")),
        ("/a%2F..%2Fb", Err(BAD_PATH)),
    ];
    expect_targets(&guarded(&upstream, ", escaped_slashes: decode", ""), &upstream, rows);
    let rows: &[PathRow] = &[("/admin%2Fx", Err(KEY_MISSING)), ("/a%2Fb", Ok("/a/b"))];
    expect_targets(&guarded(&upstream, "", ", escaped_slashes: decode"), &upstream, rows);
}

#[test]
fn a_path_without_a_route_stays_one() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes: {{ a: {{ match: {{ path: \"/a/*\" }}, upstream: up }} }}\n",
        crate::support::WEB,
        upstream.address()
    ));
    let rows: &[PathRow] = &[("/b%2Fc", Err(NO_ROUTE)), ("/a%2Fc", Err(NO_ROUTE)), ("/b;c", Err(NO_ROUTE))];
    expect_targets(&weir, &upstream, rows);
}

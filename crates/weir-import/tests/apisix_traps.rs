//! The traps between APISIX and Weir: for each a piece of a file, and what the config or the report must say. None may
//! be silent.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::Memory;

/// What the import of a file says and writes.
fn imported(text: &str) -> String {
    let memory = Memory([("apisix.yaml".to_owned(), text.as_bytes().to_vec())].into());
    let system = weir_import::system("apisix").unwrap();
    match weir_import::import(system, &memory, &["apisix.yaml".to_owned()]) {
        Ok(import) => {
            let files: String = import.written().iter().map(|file| file.text.clone()).collect();
            format!("{}{files}", import.to_text())
        }
        Err(unreadable) => format!("unreadable: {unreadable}"),
    }
}

/// A route with `keys` and an upstream of one node.
fn route(keys: &str) -> String {
    format!(
        "routes:\n- {{ id: 1, {keys}, upstream: {{ type: roundrobin, nodes: {{ \"u:80\": 1 }} }} }}\n#END\n"
    )
}

fn upstream(keys: &str) -> String {
    format!("routes:\n- {{ id: 1, uri: /x, upstream: {{ {keys} }} }}\n#END\n")
}

fn plugin(plugins: &str) -> String {
    let caller = "consumers:\n- { username: c, plugins: { key-auth: { key: k } } }\n";
    format!("{caller}{}", route(&format!("uri: /x, plugins: {{ {plugins} }}")))
}

#[test]
fn every_trap_is_told() {
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("1 /x/* does not take /x", route("uri: \"/x/*\""), &["path: \"/x/*\", when: 'request.path != \"/x\"'"]),
        ("1 /x* is any beginning", route("uri: \"/x*\""), &["path: \"/x*\""]),
        ("2 exact otherwise", route("uri: /x"), &["match: { path: /x }"]),
        ("3 :id", route("uri: \"/u/:id\""), &["only with radixtree_uri_with_parameter"]),
        ("4 priority", route("uri: /x, priority: 3"), &["a longer uri comes first"]),
        ("5 host before uri", route("uri: /x, host: \"*.a.test\""), &["radixtree_host_uri", "*.a.test"]),
        ("6 %2F", route("uri: /x"), &["APISIX decodes `%2F`"]),
        ("7 text in the middle", route("uri: \"/a/*/b\""), &["`*` stands only at the end"]),
        ("8 pass_host node", upstream("type: roundrobin, pass_host: node, nodes: { \"u:80\": 1 }"), &["host: endpoint"]),
        (
            "8 rewrite",
            upstream("type: roundrobin, pass_host: rewrite, upstream_host: h.test, nodes: { \"u:80\": 1 }"),
            &["host: h.test"],
        ),
        ("9 http by default", upstream("type: roundrobin, nodes: { \"u:443\": 1 }"), &["endpoints: [u:443]"]),
        ("10 https is not verified", upstream("type: roundrobin, scheme: https, nodes: { u: 1 }"), &["verify: false", "u:443"]),
        ("11 retries and timeouts", route("uri: /x"), &["attempts: 1", "connect: 60s, response: 60s"]),
        ("12 weight 0", upstream("type: roundrobin, nodes: { \"a:1\": 0, \"b:1\": 2 }"), &["weight 0: no requests", "[b:1]"]),
        ("13 roundrobin", route("uri: /x"), &["balancer: round_robin"]),
        (
            "14 chash",
            upstream("type: chash, key: remote_addr, nodes: { \"u:80\": 1 }"),
            &["hash: { by: address }"],
        ),
        (
            "14 chash by what Weir cannot",
            upstream("type: chash, hash_on: vars_combinations, key: \"$a$b\", nodes: { \"u:80\": 1 }"),
            &["no such balancer"],
        ),
        ("15 WebSocket", route("uri: /x, enable_websocket: true"), &["WebSocket: APISIX refuses upgrades"]),
        (
            "16 vars",
            route("uri: /x, vars: [[\"http_x_a\", \"!\", \"~~\", \"^b\"], [\"arg_v\", \"in\", [\"1\", \"2\"]]]"),
            &["!request.headers[\"x-a\"].matches(\"^b\")", "(request.args[\"v\"].all()[0] ?? \"\") in [\"1\", \"2\"]"],
        ),
        ("16 an unknown variable", route("uri: /x, vars: [[\"post_arg_a\", \"==\", \"1\"]]"), &["the variable `post_arg_a`"]),
        ("17 filter_func", route("uri: /x, filter_func: \"function(vars) return true end\""), &["Lua", "Refused"]),
        (
            "18 the route's plugin wins whole",
            "services:\n- { id: s, plugins: { client-control: { max_body_size: 1 } } }\nroutes:\n- { id: 1, uri: /x, service_id: s, plugins: { client-control: { max_body_size: 2 } }, upstream: { type: roundrobin, nodes: { \"u:80\": 1 } } }\n#END\n".to_owned(),
            &["max: 2B"],
        ),
        ("19 _meta", plugin("cors: { _meta: { priority: 5 } }"), &["an order or an answer of its own"]),
        (
            "19 _meta.filter",
            plugin("client-control: { max_body_size: 9, _meta: { filter: [[\"arg_a\", \"==\", \"1\"]] } }"),
            &["(request.args[\"a\"].all()[0] ?? \"\") == \"1\""],
        ),
        (
            "20 global rules",
            format!("global_rules:\n- {{ id: 1, plugins: {{ request-id: {{}} }} }}\n{}", route("uri: /x")),
            &["For every route, before its own filters"],
        ),
        (
            "21 limit-count",
            plugin("limit-count: { count: 5, time_window: 60 }"),
            &["fixed windows", "APISIX refuses with 503", "by: address"],
        ),
        (
            "21 a group",
            plugin("limit-count: { count: 5, time_window: 60, group: g }"),
            &["counts in a place of its own"],
        ),
        ("22 limit-req", plugin("limit-req: { rate: 5, burst: 2, key: remote_addr }"), &["burst: 3", "APISIX delays"]),
        ("23 limit-conn", plugin("limit-conn: { conn: 5, burst: 1, key: remote_addr }"), &["concurrency: { requests: 6"]),
        ("24 key-auth", plugin("key-auth: {}"), &["header: apikey, query: apikey, hide: false"]),
        ("24 nobody has a password", plugin("basic-auth: {}"), &["no consumer has what basic_auth asks for"]),
        (
            "25 jwt-auth",
            format!(
                "consumers:\n- {{ username: c, plugins: {{ jwt-auth: {{ key: k, secret: 0123456789abcdef0123456789abcdef }} }} }}\n{}",
                route("uri: /x, plugins: { jwt-auth: {} }")
            ),
            &["require: { key: k }, consumer: key", "needs `exp`"],
        ),
        (
            "26 regex_uri",
            route("uri: \"/a/*\", plugins: { proxy-rewrite: { regex_uri: [\"^/a/(.*)\", \"/b/$1\"] } }"),
            &["path: \"~/a/(.*)\"", "path: \"/b/{1}\"", "a route of its own takes the paths that the regex matches"],
        ),
        ("27 bodies", plugin("response-rewrite: { body: x }"), &["does not know this setting"]),
        ("28 redirect", plugin("redirect: { uri: /y }"), &["status: 302, keep_query: false"]),
        ("28 http_to_https", plugin("redirect: { http_to_https: true }"), &["308 here"]),
        ("29 ip-restriction", plugin("ip-restriction: { whitelist: [10.0.0.1], message: no }"), &["Weir answers 403"]),
        ("30 cors", plugin("cors: { allow_origins: \"**\", allow_credential: true }"), &["any page could read"]),
        ("31 status 0", route("uri: /x, status: 0"), &["the route is off"]),
        ("32 no #END", "routes: []\n".to_owned(), &["APISIX itself ignores such a file"]),
        ("an unknown plugin", plugin("my-guard: { a: 1 }"), &["CLOSED by weir import", "ext_proc"]),
        ("an unknown key", route("uri: /x, frobnicate: 1"), &["does not know this key of a route"]),
        ("another file", "a: 1\n".to_owned(), &["unreadable"]),
    ];
    let mut silent = Vec::new();
    for (name, text, said) in &cases {
        let all = imported(text).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in *said {
            if !all.contains(words) {
                silent.push(format!("{name}: no `{words}` in\n{}", imported(text)));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n\n"));
}

#[test]
fn wrong_types_everywhere_are_refused_not_guessed() {
    let keys = [
        "routes",
        "services",
        "upstreams",
        "consumers",
        "plugin_configs",
        "global_rules",
        "ssls",
        "list",
        "node",
    ];
    let values = [
        "1",
        "text",
        "[1, 2]",
        "{ a: 1 }",
        "[[x]]",
        "[{ id: { a: 1 }, uri: 5, plugins: [], upstream: 7, nodes: [1], vars: [[[[]]]] }]",
        "[{ uri: /x, upstream: { nodes: { a: b }, type: [] }, plugins: { cors: 1, limit-count: [], jwt-auth: x } }]",
        "null",
    ];
    for key in keys {
        for value in values {
            assert!(!imported(&format!("{key}: {value}\n#END\n")).is_empty());
        }
    }
}

/// A field that APISIX overwrites does not reach the service as the client sent it.
#[test]
fn no_client_chooses_what_says_who_calls() {
    for headers in ["{ set: { X-Who: $unknown } }", "{ X-Who: $unknown }"] {
        let text = imported(&plugin(&format!("proxy-rewrite: {{ headers: {headers} }}")));
        assert!(text.contains("remove: [x-who]"), "{text}");
    }
    let text = imported(&plugin("key-auth: {}"));
    assert!(text.contains("remove: [x-consumer-custom-id, x-credential-identifier]"), "{text}");
}

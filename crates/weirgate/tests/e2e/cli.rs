//! The command line: what it prints, and how it exits.

use std::collections::BTreeSet;
use std::fs;

use tempfile::TempDir;
use weir_testkit::{Finished, Pty, Weir, run_weir, weir_command};

use crate::support::WEB;

const GOOD: &str = "listeners: { web: { address: 127.0.0.1:0 } }\n\
                    upstreams: { up: { endpoints: [ 127.0.0.1:1 ] } }\n\
                    routes:\n  \
                      orders: { match: { hosts: [api.test], path: \"/orders/{id}\" }, filters: [ { request_id: {} } ], upstream: up }\n  \
                      rest: { match: { path: \"/*\" }, upstream: up }\n";

const BAD: &str = "listeners:\n  web: { adress: 127.0.0.1:0 }\nroutes:\n  all: { match: { path: \"/*\" }, upstream: nobody }\n";

/// Runs `weir` beside a `weir.yaml` with this text.
#[track_caller]
fn run(yaml: &str, args: &[&str]) -> Finished {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
    run_weir(dir.path(), args)
}

#[track_caller]
fn json(finished: &Finished) -> serde_json::Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}:\n{finished:#?}"))
}

// === check ===

#[test]
fn check_says_yes() {
    run(GOOD, &["check"]).expect_code(0);
    run(GOOD, &["check", "-c", "weir.yaml"]).expect_code(0);
}

#[test]
fn check_names_every_mistake_with_its_place() {
    let checked = run(BAD, &["check"]);
    checked.expect_code(1).expect_text("weir.yaml:2:10").expect_text("address");
    checked.expect_text("weir.yaml:4:").expect_text("nobody");
}

#[test]
fn check_for_machines() {
    let diagnostics = json(run(BAD, &["check", "--format", "json"]).expect_code(1));
    let text = diagnostics.to_string();
    assert!(text.contains("\"line\":2") && text.contains("\"line\":4"), "{text}");
    json(run(GOOD, &["check", "--format", "json"]).expect_code(0));
}

#[test]
fn check_lets_warnings_pass_unless_told() {
    let warned = format!("{GOOD}consumers: {{ shop: {{ key_auth: [ literal-key ] }} }}\n");
    run(&warned, &["check"]).expect_code(0).expect_text("literal");
    run(&warned, &["check", "--deny-warnings"]).expect_code(1);
}

#[test]
fn check_without_a_file() {
    let dir = TempDir::new().unwrap();
    run_weir(dir.path(), &["check", "-c", "nothing.yaml"]).expect_code(1).expect_text("nothing.yaml");
}

#[test]
fn a_config_may_be_json() {
    let config = r#"{ "listeners": { "web": { "address": "127.0.0.1:0" } },
        "routes": { "all": { "match": { "path": "/*" }, "respond": { "status": 200 } } } }"#;
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.json"), config).unwrap();
    run_weir(dir.path(), &["check", "-c", "weir.json"]).expect_code(0);
}

// === explain ===

#[test]
fn explain_tells_the_decision() {
    let explained = run(GOOD, &["explain", "GET", "http://api.test/orders/7"]);
    explained.expect_code(0).expect_text("orders").expect_text("request_id").expect_text("127.0.0.1:1");
    let explained = run(GOOD, &["explain", "GET", "http://other.test/orders/7"]);
    // The winning route, and why the near miss lost.
    explained.expect_code(0).expect_text("rest").expect_text("orders").expect_text("host");
}

/// Without a file, as in a pod: the running Weir says what `weir explain` says beside its file.
#[test]
fn explain_asks_a_running_weir() {
    let weir = Weir::start(
        "listeners: { web: { address: 127.0.0.1:0 } }\nupstreams: { up: { endpoints: [127.0.0.1:1] } }\n\
         routes: { orders: { match: { path: /orders, headers: { x-a: \"2\" } }, upstream: up } }\n",
    );
    let admin = weir.admin();
    let elsewhere = TempDir::new().unwrap();
    for (fields, code) in
        [(&["-H", "x-a: 2"][..], 0), (&["-H", "x-a: 1"], 1), (&["-H", "x-a: 1", "-H", "x-a: 2"], 1), (&[], 1)]
    {
        let line = [&["explain", "GET", "http://api.test/orders"], fields].concat();
        let beside = run_weir(weir.dir(), &line);
        let asked = run_weir(elsewhere.path(), &[&line, &["--running", "--admin", &admin][..]].concat());
        asked.expect_code(code).expect_text(&beside.expect_code(code).stdout);
        if code == 0 {
            asked.expect_text("live     up 127.0.0.1:1");
        }
    }
    let line =
        ["explain", "GET", "/orders", "-H", "x-a: 2", "--running", "--admin", &admin, "--format", "json"];
    let told = json(run_weir(elsewhere.path(), &line).expect_code(0));
    assert_eq!(told["decision"]["winner"]["route"], "orders");
    assert!(told["live"]["up"]["endpoints"].is_array() && told["text"].is_null(), "{told}");
    let line = ["explain", "GET", "/", "--running", "--admin", &admin, "--listener", "nothing"];
    run_weir(elsewhere.path(), &line).expect_code(1).expect_text("nothing");
    // A token for nobody is a mistake.
    run_weir(weir.dir(), &["explain", "GET", "/orders", "--token", "x"])
        .expect_code(2)
        .expect_text("--admin");
}

#[test]
fn explain_tells_why_a_path_in_part_or_in_any_case_lost() {
    const FORMS: &str = "listeners: { web: { address: 127.0.0.1:1 } }\nroutes:\n  \
         json: { match: { path: \"/u/{id}.json\" }, respond: {} }\n  \
         short: { match: { path: \"/u/{id}n\" }, respond: {} }\n  \
         any: { match: { path: \"/U/{id}.json\", case: insensitive }, respond: {} }\n  \
         raw: { match: { path: \"/be*\" }, respond: {} }\n  longer: { match: { path: \"/beta*\" }, respond: {} }\n";
    run(FORMS, &["explain", "GET", "/u/7.json"])
        .expect_code(0)
        .expect_text("captured: id = 7")
        .expect_text("short: the path `/u/{id}.json` of `json` is more specific than `/u/{id}n`: its segment 2 has more literal text")
        .expect_text("any: the path `/u/{id}.json` of `json` is more specific than `/U/{id}.json`: it compares letters exactly");
    run(FORMS, &["explain", "GET", "/betax"])
        .expect_code(0)
        .expect_text("raw: the path `/beta*` of `longer` is more specific than `/be*`: it has more text after its last slash");
    run(FORMS, &["explain", "GET", "/U/7.JSON"]).expect_code(0).expect_text("path /U/{id}.json in any case");
}

#[test]
fn explain_tells_how_a_path_may_be_read() {
    const GUARDED: &str = "listeners: { web: { address: 127.0.0.1:1 } }\nupstreams: { up: { endpoints: [127.0.0.1:2] } }\nroutes:\n  \
         admin: { match: { path: \"/admin/*\" }, upstream: up }\n  open: { match: { path: \"/*\" }, upstream: up }\n";
    for path in ["/admin%2Fx", "/admin;a/x"] {
        let refused = run(GUARDED, &["explain", "GET", path]);
        refused
            .expect_code(1)
            .expect_text("ambiguous_path")
            .expect_text("`/admin/x`")
            .expect_text("route `admin`");
    }
    run(GUARDED, &["explain", "GET", "/a%2Fb"]).expect_code(0).expect_text("/a%2Fb").expect_text("unchanged");
    let decoding = GUARDED.replace(":1 }", ":1, escaped_slashes: decode }");
    run(&decoding, &["explain", "GET", "/admin%2Fx"])
        .expect_code(0)
        .expect_text("GET /admin/x")
        .expect_text("decode");
}

#[test]
fn explain_tells_what_is_done_for_a_slow_request() {
    let dir = TempDir::new().unwrap();
    let text = "listeners: { web: { address: 127.0.0.1:8080 } }\n\
                upstreams: { up: { endpoints: [127.0.0.1:1, 127.0.0.1:2], hedge: { after: 50ms } } }\n\
                routes: { all: { match: { path: \"/*\" }, upstream: up } }\n";
    fs::write(dir.path().join("weir.yaml"), text).unwrap();
    let explained = run_weir(dir.path(), &["explain", "GET", "/"]);
    explained
        .expect_code(0)
        .expect_text("hedge    another endpoint after 50ms; only idempotent methods; budget 5%")
        .expect_text("retry    failed connects, the keep-alive race, idempotent requests that are reset");
}

#[test]
fn explain_for_machines() {
    let decision =
        json(run(GOOD, &["explain", "--format", "json", "GET", "http://api.test/orders/7"]).expect_code(0));
    assert!(decision.to_string().contains("\"orders\""), "{decision}");
}

#[test]
fn explain_sees_headers() {
    let config = format!(
        "{WEB}\nroutes:\n  blue: {{ match: {{ path: \"/*\", headers: {{ x-env: blue }} }}, respond: {{ status: 200 }} }}\n"
    );
    run(&config, &["explain", "GET", "http://h/", "-H", "x-env: blue"]).expect_code(0).expect_text("blue");
    run(&config, &["explain", "GET", "http://h/"]).expect_code(1);
}

// === filters, schema ===

#[test]
fn filters_are_listed_and_explained() {
    let list = run(GOOD, &["filters"]);
    list.expect_code(0);
    for name in [
        "request_id",
        "headers",
        "rewrite",
        "redirect",
        "key_auth",
        "rate_limit",
        "body_limit",
        "forward_auth",
    ] {
        list.expect_text(name);
    }
    list.expect_text("and responses ahead of the client."); // a sentence of two lines in the source
    run(GOOD, &["filters", "key_auth"]).expect_code(0).expect_text("x-api-key");
    assert_ne!(run(GOOD, &["filters", "key_aut"]).expect_text("key_auth").code, Some(0));
}

#[test]
fn the_schema_is_a_json_schema() {
    let schema = json(run(GOOD, &["schema"]).expect_code(0));
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["properties"]["listeners"].is_object(), "{schema}");
}

// === The embedded default, exit codes ===

#[test]
fn the_default_config_is_good() {
    let dir = TempDir::new().unwrap();
    run_weir(dir.path(), &["check"]).expect_code(0);
    run_weir(dir.path(), &["explain", "GET", "http://127.0.0.1:8080/any"]).expect_code(0);
}

#[test]
fn a_wrong_command_line_is_2() {
    run(GOOD, &["--no-such-flag"]).expect_code(2);
    run(GOOD, &["chek"]).expect_code(2).expect_text("check");
    run(GOOD, &["explain"]).expect_code(2);
    run(GOOD, &["check", "--format", "xml"]).expect_code(2);
}

#[test]
fn help_and_version() {
    run(GOOD, &["--version"]).expect_code(0).expect_text("weir");
    let help = run(GOOD, &["--help"]);
    for command in ["run", "check", "explain", "filters", "schema", "status", "reload", "drain"] {
        help.expect_code(0).expect_text(command);
    }
}

#[test]
fn a_bad_config_does_not_run() {
    run(BAD, &["run"]).expect_code(1).expect_text("weir.yaml:2:10");
}

// === Two processes ===

#[test]
fn a_second_one_on_the_same_address_is_refused() {
    let weir = Weir::start(&format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200 }} }} }}\n"
    ));
    let again = format!(
        "listeners: {{ web: {{ address: {} }} }}\nadmin: {{ address: 127.0.0.1:0 }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200 }} }} }}\n",
        weir.address("web")
    );
    let second = run(&again, &["run"]);
    second.expect_code(1).expect_text(&weir.address("web")).expect_text(&weir.pid().to_string());
    weir.client().get("/").expect_status(200);
}

#[test]
fn a_socket_file_that_was_left_behind_is_no_hindrance() {
    let yaml = "listeners: { web: { address: \"unix:{dir}/weir.sock\" } }\n\
                routes: { all: { match: { path: \"/*\" }, respond: { status: 200, body: ok } } }\n";
    let mut weir = Weir::start(yaml);
    weir.signal(libc::SIGKILL);
    weir.wait_exit(weir_testkit::DEADLINE);
    assert!(weir.dir().join("weir.sock").exists());
    run_weir(weir.dir(), &["check"]).expect_code(0);
    // Nothing listens on the stale socket: the next process replaces it.
    let again = Weir::start(&yaml.replace("{dir}", &weir.dir().display().to_string()));
    let address = format!("unix:{}", weir.dir().join("weir.sock").display());
    weir_testkit::Client::connect(address).get("/").expect_body("ok");
    drop(again);
}

#[test]
fn status_of_a_running_one() {
    let weir = Weir::start(&format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200 }} }} }}\n"
    ));
    let page = run_weir(weir.dir(), &["status", "--admin", &weir.admin()]);
    page.expect_code(0).expect_text(": running, up for").expect_text("\nlisteners\n  web  127.0.0.1:");
    let status = json(run_weir(weir.dir(), &["status", "--json", "--admin", &weir.admin()]).expect_code(0));
    assert_eq!(status["state"], "running");
    let nobody = weir_testkit::unused_address().to_string();
    run_weir(weir.dir(), &["status", "--admin", &nobody]).expect_code(1).expect_text(&nobody);
}

// === the reference page ===

const REFERENCE: &str = include_str!("../../../../docs/reference/cli.md");

/// The section of the reference page whose heading has this anchor.
#[track_caller]
fn section(anchor: &str) -> &'static str {
    let heading = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    let (_, rest) = REFERENCE
        .match_indices("\n#")
        .map(|(at, _)| REFERENCE[at + 1..].split_once('\n').unwrap())
        .find(|(line, _)| heading(line) == anchor)
        .unwrap_or_else(|| panic!("docs/reference/cli.md has no section #{anchor}"));
    rest.split("\n#").next().unwrap()
}

/// The long options in the tables of a section.
fn listed(section: &'static str) -> BTreeSet<&'static str> {
    let names = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names = names.flat_map(|names| names.split('`').skip(1).step_by(2));
    names.filter_map(|name| name.split(' ').next()?.strip_prefix("--")).collect()
}

/// Compares a command with its section, and its subcommands with theirs.
#[track_caller]
fn compare_with_the_reference(command: &[&str]) {
    let help = run("", &[command, &["--help"]].concat());
    // Options begin their line; `protoc --include_imports` in a description does not.
    let options = help.stdout.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.split_once(", ").filter(|(short, _)| short.len() == 2).map_or(line, |(_, l)| l);
        line.strip_prefix("--")?.split([' ', '\n']).next()
    });
    let options: BTreeSet<&str> = options.filter(|option| *option != "help").collect();
    let own = section(&format!("weir-{}", command.join("-")));
    let (commands, _) = help.stdout.split_once("Options:").unwrap();
    let inner: Vec<&str> = commands
        .split_once("Commands:\n")
        .map_or("", |(_, commands)| commands)
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()))
        .collect();
    let linked = own.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    let everywhere: BTreeSet<&str> =
        linked.flat_map(|anchor| listed(section(anchor))).chain(listed(own)).collect();
    let missing: Vec<_> = options.difference(&everywhere).collect();
    assert!(missing.is_empty(), "the section of weir {command:?} lacks {missing:?}");
    let told = |name: &&str| help.stdout.contains(&format!("--{name}"));
    let unknown: Vec<_> = listed(own).into_iter().filter(|name| !told(name)).collect();
    assert!(unknown.is_empty() || !inner.is_empty(), "weir {command:?} has no {unknown:?}");
    for name in inner {
        compare_with_the_reference(&[command, &[name]].concat());
    }
}

#[test]
fn every_option_stands_in_the_reference() {
    let help = run("", &["--help"]);
    let (_, commands) = help.stdout.split_once("Commands:\n").unwrap();
    let names =
        commands.split("\n\n").next().unwrap().lines().filter_map(|line| line.trim().split(' ').next());
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{help:#?}");
    for name in names {
        compare_with_the_reference(&[name]);
    }
}

// === unwritable output ===

#[test]
fn a_stdout_that_can_not_be_written_is_told() {
    let dir = TempDir::new().unwrap();
    let to = |out: std::process::Stdio| {
        let run = weir_command(dir.path()).arg("schema").stdout(out).output().unwrap();
        (run.status.code(), String::from_utf8(run.stderr).unwrap())
    };
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (code, said) = to(full.into());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("weir: stdout: No space left"), "{said}");
    // A closed pipe.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(to(writer.into()), (Some(0), String::new()));
}

// === -c before the command, and where the admin listener is ===

#[test]
fn a_config_before_the_command_is_the_commands() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("good.yaml"), GOOD).unwrap();
    fs::write(dir.path().join("bad.yaml"), BAD).unwrap();
    run_weir(dir.path(), &["-c", "good.yaml", "check"]).expect_code(0).expect_text("good.yaml: good");
    run_weir(dir.path(), &["-c", "bad.yaml", "check"]).expect_code(1).expect_text("bad.yaml:2:10");
    let explain = ["-c", "good.yaml", "explain", "GET", "http://api.test/orders/1"];
    run_weir(dir.path(), &explain).expect_code(0).expect_text("orders");
    run_weir(dir.path(), &["-c", "bad.yaml", "run"]).expect_code(1).expect_text("bad.yaml:2:10");
    run_weir(dir.path(), &["-c", "good.yaml", "check", "-c", "bad.yaml"]).expect_code(2).expect_text("once");
    run_weir(dir.path(), &["-c", "good.yaml", "filters"]).expect_code(2).expect_text("no effect");
}

#[test]
fn the_admin_listener_is_found_in_the_config() {
    let weir = Weir::start(&format!("{WEB}\nadmin: {{ address: unix:admin.sock, token: sesame }}"));
    for command in [&["status"][..], &["-c", "weir.yaml", "status"], &["status", "-c", "weir.yaml"]] {
        run_weir(weir.dir(), command).expect_code(0).expect_text("revision");
    }
    run_weir(weir.dir(), &["reload"]).expect_code(0).expect_text("reloaded: revision");
    fs::write(
        weir.dir().join("weir.yaml"),
        format!("{BAD}admin: {{ address: unix:admin.sock, token: sesame }}\n"),
    )
    .unwrap();
    let refused = run_weir(weir.dir(), &["reload"]);
    refused.expect_code(1).expect_text("weir.yaml:2:10: listeners.web.adress");
    assert!(!refused.stdout.starts_with('{'), "{refused:#?}");
    json(run_weir(weir.dir(), &["reload", "--format", "json"]).expect_code(1));
    run("admin: { address: off }", &["status"]).expect_code(1).expect_text("turns the admin listener off");
}

// === deprecated keys ===

const WITH_DEPRECATED: &str = "# kept\r\nversion: 1\r\ninclude: [ more/*.yaml ]\r\n\
    listeners: { web: { address: 127.0.0.1:8080 } }\r\n\
    routes: { a: { match: { path: /a }, filters: [ ip: { \"file\" : blocked.txt } ], respond: { status: 204 } } } # a\r\n";
const INCLUDED: &str = "routes:\n  b: # as well\n    match: { path: /b }\n    respond: { status: 204 }\n    filters:\n      \
    - ip:\n          file:   ../blocked.txt   # from the feed\n";

/// A folder with a config of two files that have a deprecated key each.
fn deprecated() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("more")).unwrap();
    fs::write(dir.path().join("weir.yaml"), WITH_DEPRECATED).unwrap();
    fs::write(dir.path().join("more/b.yaml"), INCLUDED).unwrap();
    fs::write(dir.path().join("blocked.txt"), "203.0.113.0/24\n").unwrap();
    dir
}

#[test]
fn a_deprecated_key_works_and_is_told_once() {
    let dir = deprecated();
    let checked = run_weir(dir.path(), &["check"]);
    checked.expect_code(0);
    let told = "`file` is deprecated since 1.0, and ends in 2.0; one more place has it";
    assert_eq!(checked.stdout.matches("deprecated-key").count(), 1, "{}", checked.stdout);
    assert!(checked.stdout.contains(told), "{}", checked.stdout);
    run_weir(dir.path(), &["check", "--deny-warnings"]).expect_code(1);
}

#[test]
fn check_fixes_deprecated_keys_in_all_files() {
    let dir = deprecated();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let diff = run_weir(dir.path(), &["check", "-c", "weir.yaml", "--fix", "--diff"]);
    diff.expect_code(0);
    assert_eq!(
        diff.stdout,
        "--- weir.yaml\n+++ weir.yaml\n@@ -5,1 +5,1 @@\n\
         -routes: { a: { match: { path: /a }, filters: [ ip: { \"file\" : blocked.txt } ], respond: { status: 204 } } } # a\r\n\
         +routes: { a: { match: { path: /a }, filters: [ ip: { \"deny_file\" : blocked.txt } ], respond: { status: 204 } } } # a\r\n\
         --- more/b.yaml\n+++ more/b.yaml\n@@ -7,1 +7,1 @@\n\
         -          file:   ../blocked.txt   # from the feed\n\
         +          deny_file:   ../blocked.txt   # from the feed\n"
    );
    assert_eq!((read("weir.yaml"), read("more/b.yaml")), (WITH_DEPRECATED.into(), INCLUDED.into()));

    let fixed = run_weir(dir.path(), &["check", "-c", "weir.yaml", "--fix", "--deny-warnings"]);
    fixed.expect_code(0);
    assert_eq!(fixed.stderr, "weir.yaml: rewrote 1 deprecated key\nmore/b.yaml: rewrote 1 deprecated key\n");
    assert_eq!(read("weir.yaml"), WITH_DEPRECATED.replace("\"file\"", "\"deny_file\""));
    assert_eq!(read("more/b.yaml"), INCLUDED.replace("file:   ", "deny_file:   "));
    let again = run_weir(dir.path(), &["check", "--fix"]);
    again.expect_code(0);
    assert_eq!(again.stderr, "");
}

#[test]
fn what_cannot_be_fixed_is_told() {
    let dir = TempDir::new().unwrap();
    run_weir(dir.path(), &["check", "--fix"]).expect_code(1);
    run_weir(dir.path(), &["check", "--diff"]).expect_code(2);
    fs::write(dir.path().join("weir.yaml"), "routes: [").unwrap();
    run_weir(dir.path(), &["check", "--fix"]).expect_code(1);
    let both = "listeners: { web: { address: 127.0.0.1:0 } }\n\
                routes: { a: { filters: [ ip: { file: a, deny_file: b } ], respond: { status: 204 } } }\n";
    fs::write(dir.path().join("weir.yaml"), both).unwrap();
    let fixed = run_weir(dir.path(), &["check", "--fix"]);
    fixed.expect_code(1);
    assert!(
        fixed.stderr.contains("weir.yaml:2:33: `file` stays: the new name is written, too"),
        "{}",
        fixed.stderr
    );
    assert_eq!(fs::read_to_string(dir.path().join("weir.yaml")).unwrap(), both);
}

// === the greeting ===

#[test]
fn a_terminal_is_greeted_and_nothing_else_is() {
    let config = format!("{GOOD}admin: {{ address: \"off\" }}\n");
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.yaml"), &config).unwrap();
    let pty = Pty::open();
    let mut child = pty.spawn(weir_command(dir.path()).arg("run"), false, true).unwrap();
    pty.wait_for(0, "Ctrl-C drains and stops.");
    let shown = pty.shown();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(shown.contains("runs ./weir.yaml: 2 routes, 1 upstream, "), "{shown}");
    assert!(shown.contains("  web    http://127.0.0.1:"), "{shown}");

    let weir = Weir::start(&config);
    assert!(!weir.stderr().contains("Ctrl-C"), "{}", weir.stderr());
}

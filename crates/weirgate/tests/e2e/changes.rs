//! Changing the config of a running gateway and reverting changes: over the admin API and by the command line.

mod described;
mod guard;
mod hostile;
mod owners;
mod persistence;
mod secrets;

use described::{Api, request};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_testkit::{Client, Finished, Response, Weir, eventually, run_weir, table, weir_command};

use crate::support::WEB;

/// A config whose managed file and history are in a folder that outlives the gateway.
fn config(folder: &Path, admin: &str, more: &str) -> String {
    let folder = folder.display();
    format!(
        "{WEB}\nroutes: {{ hand: {{ match: {{ path: /hand }}, respond: {{ status: 200, body: hand }} }} }}\n\
         admin: {{ address: 127.0.0.1:0, writes: {folder}/managed.yaml, state: {folder}/state{admin} }}\n{more}"
    )
}

fn api(folder: &Path) -> Api {
    Api::of(Weir::start(&config(folder, "", "")), "")
}

/// A route with this text as its answer.
fn saying(path: &str, text: &str) -> String {
    format!("{{\"match\": {{\"path\": \"{path}\"}}, \"respond\": {{\"status\": 200, \"body\": \"{text}\"}}}}")
}

const NEW: &str = "If-None-Match: *\r\n";
const ANY: &str = "If-Match: *\r\n";

fn if_match(response: &Response) -> String {
    format!("If-Match: {}\r\n", response.header("etag").unwrap())
}

fn weir(api: &Api, args: &[&str]) -> Finished {
    let admin = api.weir.admin();
    let args: Vec<&str> = args.iter().copied().chain(["--admin", &admin]).collect();
    run_weir(api.weir.dir(), &args)
}

// === one entry ===

#[test]
fn a_thing_is_made_changed_and_taken_away() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let managed = folder.path().join("managed.yaml");
    assert!(!managed.exists());
    let at = "/api/v1/config/routes/a";
    api.ask(&format!("GET {at}"), "", "").expect_status(404);

    api.ask(&format!("PUT {at}"), "", &saying("/a", "one")).expect_status(428);
    let made =
        api.ask(&format!("PUT {at}"), &format!("{NEW}X-Weir-Message: as asked\r\n"), &saying("/a", "one"));
    made.expect_status(201);
    assert_eq!(made.json()["number"], 2);
    api.weir.client().get("/a").expect_body("one");
    api.weir.client().get("/hand").expect_body("hand");
    api.ask(&format!("PUT {at}"), NEW, &saying("/a", "two")).expect_status(412);

    let there = api.ask(&format!("GET {at}"), "", "");
    assert_eq!(there.header("etag"), made.header("etag"));
    assert_eq!(there.json()["respond"]["body"], "one");
    let changed = api.ask(&format!("PATCH {at}"), &if_match(&there), "{\"respond\": {\"body\": \"two\"}}");
    changed.expect_status(200);
    assert_eq!(changed.json()["things"], serde_json::json!(["routes.a"]));
    api.weir.client().get("/a").expect_body("two");

    // A client with the older ETag learns who was faster.
    let stale = api.ask(&format!("PUT {at}"), &if_match(&there), &saying("/a", "three"));
    stale.expect_status(412);
    assert_eq!(stale.json()["etag"].as_str(), changed.header("etag"));
    assert_eq!(stale.json()["changed_by"][0]["number"], 3);
    assert_eq!(stale.json()["changed_by"][1]["message"], "as asked");
    api.weir.client().get("/a").expect_body("two");

    // An identical value makes no revision.
    let same = api.ask(&format!("PUT {at}"), ANY, &saying("/a", "two"));
    assert_eq!((same.status, &same.json()["number"]), (200, &serde_json::Value::Null), "{}", same.text());

    let text = fs::read_to_string(&managed).unwrap();
    assert!(text.contains("  a:\n    match:\n      path: /a\n"), "{text}");
    drop(api);

    // It survives a crash and a restart.
    let api = self::api(folder.path());
    api.weir.client().get("/a").expect_body("two");
    let there = api.ask(&format!("GET {at}"), "", "");
    assert_eq!(
        api.ask(&format!("DELETE {at}"), &if_match(&there), "").expect_status(200).json()["number"],
        4
    );
    api.weir.client().get("/a").expect_status(404);
    api.ask(&format!("DELETE {at}"), ANY, "").expect_status(404);
    assert_eq!(fs::read_to_string(&managed).unwrap().lines().last(), Some("{}"));
}

#[test]
fn what_people_wrote_is_theirs() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let at = "/api/v1/config/routes/hand";
    for line in [format!("PUT {at}"), format!("PATCH {at}"), format!("DELETE {at}")] {
        let body = if line.starts_with("DELETE") { String::new() } else { saying("/hand", "mine") };
        let refused = api.ask(&line, ANY, &body);
        refused.expect_status(409);
        let place = refused.json()["place"].as_str().unwrap().to_owned();
        assert!(place.contains("weir.yaml:2:"), "{place}");
    }
    let body = format!("{{\"routes\": {{\"new\": {}, \"hand\": null}}}}", saying("/new", "new"));
    api.ask("POST /api/v1/config:apply", "", &body).expect_status(409);
    api.weir.client().get("/new").expect_status(404);
    assert!(!folder.path().join("managed.yaml").exists());
    let origin = api.ask("GET /api/v1/config?origin", "", "").json();
    assert!(origin["origin"]["routes.hand"].as_str().unwrap().contains("weir.yaml:2:"), "{origin}");
}

#[test]
fn without_a_managed_file_nothing_is_written() {
    let weir = Weir::start(&format!(
        "{WEB}\nroutes: {{ a: {{ match: {{ path: /a }}, respond: {{ status: 200 }} }} }}\n"
    ));
    let api = Api::of(weir, "");
    api.ask("GET /api/v1/config", "", "").expect_status(200);
    api.ask("GET /api/v1/config/routes/a", "", "").expect_status(200);
    api.ask("GET /api/v1/drift", "", "").expect_status(200);
    api.ask("GET /api/v1/revisions", "", "").expect_status(404).expect_body_with("admin.state");
    api.ask("POST /api/v1/revisions/1:rollback", "", "").expect_status(404);
    api.ask("PUT /api/v1/config/routes/b", NEW, &saying("/b", "b"))
        .expect_status(409)
        .expect_body_with("admin.writes");
}

// === several entries ===

#[test]
fn all_mistakes_are_told_and_nothing_happens() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let before = api.ask("GET /api/v1/config", "", "");
    let body = "{\n\"routes\": {\n\"a\": {\"match\": {\"path\": \"/a\"}, \"upstream\": \"nowhere\"},\n\
                \"b\": {\"match\": {\"pth\": \"/b\"}, \"respond\": {\"status\": 99}},\n\
                \"<script>\": {\"match\": {\"path\": \"/c\"}, \"respond\": {}}}}";
    for line in
        ["POST /api/v1/config:apply", "POST /api/v1/config:apply?dry_run", "POST /api/v1/config:check"]
    {
        let refused = api.ask(line, "", body);
        refused.expect_status(422);
        let found = refused.json()["diagnostics"].as_array().unwrap().clone();
        let errors: Vec<_> = found.iter().filter(|d| d["severity"] == "error").collect();
        assert!(errors.len() >= 4, "{}", refused.text());
        assert!(
            errors.iter().any(|d| d["line"] == 3 && d["code"] == "unknown-upstream"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(api.ask("GET /api/v1/config", "", "").header("etag"), before.header("etag"));
    assert!(!folder.path().join("managed.yaml").exists());
    api.ask("POST /api/v1/config:apply", "", "{ no json").expect_status(422);
    api.ask("POST /api/v1/config:apply", "", "{\"workers\": {}}").expect_status(422);
    api.ask("POST /api/v1/config:apply", "Content-Type: text/plain\r\n", "{}").expect_status(415);
    api.ask("POST /api/v1/config:apply?now", "", "{}").expect_status(400);
}

#[test]
fn many_things_change_at_once() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let file = api.weir.dir().join("more.yaml");
    fs::write(
        &file,
        "upstreams: { up: { endpoints: [ 127.0.0.1:9 ] } }\nroutes:\n  a: { match: { path: /a }, upstream: up }\n  \
         b: { match: { path: /b }, respond: { status: 200, body: b } }\n",
    )
    .unwrap();
    weir(&api, &["apply", "more.yaml", "--dry-run"])
        .expect_code(0)
        .expect_text("+ routes.b")
        .expect_text("would be applied");
    api.weir.client().get("/b").expect_status(404);
    weir(&api, &["apply", "more.yaml", "-m", "two more"]).expect_code(0).expect_text("applied: revision 2");
    api.weir.client().get("/b").expect_body("b");

    // An entry that others need cannot be deleted, and the answer names them.
    let needed = api.ask("DELETE /api/v1/config/upstreams/up", ANY, "");
    needed.expect_status(409).expect_body_with("routes.a.upstream");
    fs::write(&file, "upstreams: { up: ~ }\nroutes: { a: ~ }\n").unwrap();
    weir(&api, &["apply", "more.yaml"]).expect_code(0).expect_text("- upstreams.up");
    fs::write(&file, "routes:\n  c: { match: { path: /c }, upstream: nowhere }\n").unwrap();
    weir(&api, &["apply", "more.yaml"]).expect_code(1).expect_text("more.yaml:2:").expect_text("nowhere");

    // Based on a config that is no longer current.
    let stale = api.ask("POST /api/v1/config:apply", "If-Match: \"000000000000\"\r\n", "{}");
    stale.expect_status(412);
}

#[test]
fn nothing_that_reads_the_machine_can_be_written() {
    let folder = TempDir::new().unwrap();
    let (inside, secret) = (folder.path().join("www"), folder.path().join("secret"));
    fs::create_dir(&inside).unwrap();
    fs::write(&secret, "hunter2\n").unwrap();
    fs::write(inside.join("keys"), "10.9.0.0/16\n").unwrap();
    std::os::unix::fs::symlink(&secret, inside.join("link")).unwrap();
    let weir = Weir::start(&config(folder.path(), &format!(", paths: [ {} ]", inside.display()), ""));
    let api = Api::of(weir, "");
    let key_file = |path: &str| {
        format!(
            "{{\"match\": {{\"path\": \"/a\"}}, \"filters\": [{{\"ip\": {{\"file\": \"{path}\"}}}}], \"respond\": {{\"status\": 200}}}}"
        )
    };
    let (www, hidden) = (inside.display(), secret.display());
    // Each is refused for its own reason only: a mistake in the request itself would also be refused.
    let (variable, path, program) =
        ("`${…}` may not be written over the API", "admin.paths", "names a program");
    let refused = [
        (variable, "routes", saying("/a", "${HOME}")),
        (variable, "routes", saying("/a", &format!("${{file:{hidden}}}"))),
        (variable, "routes", saying("${HOME}", "a")),
        (path, "routes", key_file(&hidden.to_string())),
        (path, "routes", key_file("secret")),
        (path, "routes", key_file(&format!("{www}/../secret"))),
        (path, "routes", key_file(&format!("{www}/link"))),
        (path, "routes", key_file("/nowhere/at/all")),
        (path, "upstreams", "{\"endpoints\": [\"unix:/run/docker.sock\"]}".to_owned()),
        (
            path,
            "upstreams",
            format!("{{\"endpoints\": [\"127.0.0.1:1\"], \"tls\": {{\"ca\": \"{hidden}\"}}}}"),
        ),
        (path, "listeners", "{\"address\": \"unix:/tmp/weir-there.sock\"}".to_owned()),
        (
            path,
            "listeners",
            format!(
                "{{\"address\": \"127.0.0.1:0\", \"tls\": {{\"certificates\": [{{\"cert\": \"{hidden}\", \"key\": \"/no\"}}]}}}}"
            ),
        ),
        (program, "listeners", "{\"address\": \"127.0.0.1:0\", \"exec\": [\"sh\"]}".to_owned()),
    ];
    table(
        &refused,
        |(_, section, body)| format!("{section} {body}"),
        |(why, section, body)| {
            let answer = api.ask(&format!("PUT /api/v1/config/{section}/x"), NEW, body);
            answer.expect_status(422);
            let told = answer.json()["diagnostics"].as_array().unwrap().clone();
            let errors = told.iter().filter(|found| found["severity"] == "error");
            for error in errors {
                let said = format!("{} {}", error["message"], error["hint"]);
                assert!(said.contains(why), "expected {why:?}: {}", answer.text());
            }
            assert!(!answer.text().contains("hunter2"), "{}", answer.text());
            // Nor does the answer reveal whether a file exists.
            assert!(
                !answer.text().contains("no such file") && !answer.text().contains("No such"),
                "{}",
                answer.text()
            );
        },
    );
    assert!(!folder.path().join("managed.yaml").exists());
    api.ask("PUT /api/v1/config/routes/x", NEW, &key_file(&format!("{www}/keys"))).expect_status(201);
    api.ask("PUT /api/v1/config/routes/y", NEW, &saying("/y", "$${{HOME}} costs $5")).expect_status(201);
    api.weir.client().get("/y").expect_body("${HOME} costs $5");
}

#[test]
fn secrets_are_not_told() {
    let folder = TempDir::new().unwrap();
    let more = "consumers: { shop: { key_auth: [ hunter2-of-the-shop ] } }\nfilters: [ { key_auth: {} } ]\n";
    let token = |role: &str| format!("{{ name: {role}, role: {role}, token: \"{}\" }}", hash(role));
    let tokens = format!(", tokens: [ {}, {} ]", token("read"), token("write"));
    let api = Api::of(Weir::start(&config(folder.path(), &tokens, more)), "write");
    let read = |line: &str| api.ask_raw(line, "Authorization: Bearer read\r\n", "");
    api.ask("PUT /api/v1/config/consumers/app", NEW, "{\"key_auth\": [\"hunter2-of-the-app\"]}")
        .expect_status(201);
    for line in [
        "GET /api/v1/config",
        "GET /api/v1/config/consumers/app",
        "GET /api/v1/revisions",
        "GET /api/v1/revisions/2",
        "GET /api/v1/revisions/1..2",
        "GET /api/v1/drift",
    ] {
        let answer = read(line);
        answer.expect_status(200);
        assert!(!answer.text().contains("hunter2"), "{line}: {}", answer.text());
    }
    // The mask shown in its place is not a key.
    let there = read("GET /api/v1/config/consumers/app");
    api.ask("PUT /api/v1/config/consumers/app", &if_match(&there), &there.text()).expect_status(422);
    let log = api.weir.stderr();
    assert!(!log.contains("hunter2"), "{log}");
}

// === rollback ===

#[test]
fn the_history_leads_back() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    for text in ["one", "two", "three"] {
        api.ask(
            "POST /api/v1/config:apply",
            "",
            &format!("{{\"routes\": {{\"a\": {}}}}}", saying("/a", text)),
        )
        .expect_status(200);
    }
    weir(&api, &["history"]).expect_code(0).expect_text("*    4").expect_text("api").expect_text("start");
    weir(&api, &["diff", "2", "4"])
        .expect_code(0)
        .expect_text("~ routes.a.respond.body: \"one\" → \"three\"");
    weir(&api, &["diff", "--exit-code"]).expect_code(0);
    weir(&api, &["diff", "2", "--exit-code"]).expect_code(1);
    weir(&api, &["diff", "99"]).expect_code(1).expect_text("no revision 99");
    weir(&api, &["rollback", "2", "-m", "three was wrong"])
        .expect_code(0)
        .expect_text("revision 2 runs as revision 5");
    api.weir.client().get("/a").expect_body("one");
    weir(&api, &["rollback"]).expect_code(0);
    api.weir.client().get("/a").expect_body("three");
    let revisions = api.ask("GET /api/v1/revisions", "", "").json();
    let all = revisions["revisions"].as_array().unwrap();
    let told: Vec<_> =
        all.iter().map(|r| (r["number"].as_u64().unwrap(), r["source"].as_str().unwrap())).collect();
    assert_eq!(told, [(6, "rollback"), (5, "rollback"), (4, "api"), (3, "api"), (2, "api"), (1, "start")]);
    assert!(all[2]["verdict"].as_str().unwrap().contains("left for revision 2"), "{revisions}");
    assert_eq!(all[1]["message"], "three was wrong");
    weir(&api, &["rollback", "99"]).expect_code(1).expect_text("no revision 99");
    // The users' own files were not involved.
    assert_eq!(api.ask("GET /api/v1/drift", "", "").json()["drift"], false);
}

#[test]
fn files_that_were_left_do_not_run_until_they_change() {
    let folder = TempDir::new().unwrap();
    let hand = folder.path().join("hand.yaml");
    let say = |text: &str| {
        let route = format!(
            "routes: {{ b: {{ match: {{ path: /b }}, respond: {{ status: 200, body: {text} }} }} }}\n"
        );
        fs::write(&hand, route).unwrap();
    };
    say("good");
    let config = config(folder.path(), "", &format!("include: [ {} ]\n", hand.display()));
    let api = Api::of(Weir::start(&config), "");
    say("bad");
    api.weir.reload().unwrap();
    api.weir.client().get("/b").expect_body("bad");
    weir(&api, &["rollback", "1", "-m", "it is bad"]).expect_code(0);
    api.weir.client().get("/b").expect_body("good");
    assert!(fs::read_to_string(&hand).unwrap().contains("bad"), "files of people stay as they are");

    // Reported in status, log and check, whatever loads them again.
    weir(&api, &["status"]).expect_text("THE FILES DO NOT RUN").expect_text("it is bad");
    let metrics = api.weir.admin_client().ask(request(&api.weir.admin(), "GET /metrics", "", ""));
    metrics.expect_body_with("weir_config_drift{reason=\"rolled_back\"} 1");
    run_weir(api.weir.dir(), &["check", "-c", "weir.yaml"]).expect_code(0).expect_text("rolled-back");
    weir(&api, &["diff"]).expect_text("~ routes.b.respond.body: \"good\" → \"bad\"");
    api.weir.reload().unwrap();
    api.weir.client().get("/b").expect_body("good");
    eventually("the log says so", || api.weir.stderr().contains("these files do not run"));
    // Entries that the API manages still work.
    api.ask("PUT /api/v1/config/routes/a", NEW, &saying("/a", "a")).expect_status(201);
    api.weir.client().get("/b").expect_body("good");
    drop(api);
    let api = Api::of(Weir::start(&config), "");
    api.weir.client().get("/b").expect_body("good");
    api.weir.client().get("/a").expect_body("a");
    assert_eq!(api.ask("GET /api/v1/drift", "", "").json()["drift"], true);

    // A comment does not change a file's meaning.
    fs::write(&hand, format!("# mended?\n{}", fs::read_to_string(&hand).unwrap())).unwrap();
    api.weir.reload().unwrap();
    api.weir.client().get("/b").expect_body("good");
    say("better");
    api.weir.reload().unwrap();
    api.weir.client().get("/b").expect_body("better");
    assert_eq!(api.ask("GET /api/v1/drift", "", "").json()["drift"], false);
    assert!(api.ask("GET /api/v1/revisions", "", "").json()["pinned"].is_null());
}

// === trials ===

#[test]
fn a_bad_change_goes_back_by_itself() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let put = |text: &str| fs::write(api.weir.dir().join("a.yaml"), text).unwrap();
    put("routes: { a: { match: { path: /a }, respond: { status: 200 } } }\n");
    weir(&api, &["apply", "a.yaml"]).expect_code(0);
    // Traffic, which the guard counts once a second: a few seconds before the change, then until it has seen enough.
    let mut client = api.weir.client();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        client.get("/a").expect_status(200);
    }
    put("routes: { a: { match: { path: /a }, respond: { status: 500 } } }\n");
    weir(&api, &["apply", "a.yaml", "--watch", "20s", "-m", "worth a try"])
        .expect_code(0)
        .expect_text("revision 3");
    assert_eq!(api.ask("GET /api/v1/revisions", "", "").json()["running"], 3);
    client.get("/a").expect_status(500);
    let began = Instant::now();
    while client.get("/a").status == 500 {
        assert!(began.elapsed() < Duration::from_secs(30), "it stays:\n{}", api.weir.stderr());
    }
    let told = api.ask("GET /api/v1/revisions", "", "").json();
    let (back, bad) = (&told["revisions"][0], &told["revisions"][1]);
    assert_eq!(
        (&back["number"], &back["source"], &back["author"]),
        (&4.into(), &"guard".into(), &"guard".into())
    );
    let why = back["message"].as_str().unwrap();
    assert!(why.starts_with("route a: ") && why.contains("5xx") && why.contains("0.0 % before"), "{why}");
    assert!(bad["verdict"].as_str().unwrap().contains(why), "{told}");
    api.weir.wait_log("change reverted");
}

#[test]
fn a_change_that_is_confirmed_stays() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let apply = |query: &str, text: &str| {
        let body = format!("{{\"routes\": {{\"a\": {}}}}}", saying("/a", text));
        api.ask(&format!("POST /api/v1/config:apply{query}"), "", &body)
    };
    for query in ["?watch=1s", "?watch=soon", "?confirm=2d", "?confirm=1m&confirm=2m", "?watch"] {
        apply(query, "no").expect_status(400);
    }
    let status = || api.weir.admin_client().ask(request(&api.weir.admin(), "GET /status", "", "")).json();
    apply("?watch=1h&confirm=1h", "one").expect_status(200);
    assert_eq!((&status()["trial"]["number"], &status()["trial"]["back_to"]), (&2.into(), &1.into()));
    assert_eq!(api.ask("GET /api/v1/revisions/2", "", "").json()["verdict"], "on trial");
    weir(&api, &["history"]).expect_code(0).expect_text("on trial");
    weir(&api, &["confirm"]).expect_code(0).expect_text("revision 2 stays");
    assert!(status()["trial"].is_null());
    weir(&api, &["confirm"]).expect_code(1).expect_text("no change is on trial");
    weir(&api, &["confirm", "2"]).expect_code(1).expect_text("not on trial");
    let verdict = api.ask("GET /api/v1/revisions/2", "", "").json();
    assert_eq!(verdict["verdict"], "confirmed by local");

    // Another change ends a trial; a reload of the same files does not.
    apply("?confirm=1h", "two").expect_status(200);
    api.weir.reload().unwrap();
    assert_eq!(status()["trial"]["number"], 3);
    apply("", "three").expect_status(200);
    assert!(status()["trial"].is_null());
}

// === attempts to lose a change ===

#[test]
fn of_two_writers_one_is_quicker() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    api.ask("PUT /api/v1/config/routes/a", NEW, &saying("/a", "0")).expect_status(201);
    for round in 1..=10 {
        let known = if_match(&api.ask("GET /api/v1/config/routes/a", "", ""));
        let host = api.weir.admin();
        let write = |who: &str| {
            let request = request(
                &host,
                "PUT /api/v1/config/routes/a",
                &known,
                &saying("/a", &format!("{who}{round}")),
            );
            let host = host.clone();
            std::thread::spawn(move || Client::connect(host).ask(request).status)
        };
        let writers = [write("x"), write("y")];
        let mut statuses = writers.map(|writer| writer.join().unwrap());
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412]);
    }
    let numbers = api.ask("GET /api/v1/revisions", "", "").json();
    assert_eq!(numbers["running"], 12);
}

/// Killed during writes, repeatedly: every acknowledged change survives, and the history agrees with it.
#[test]
fn what_was_acknowledged_survives_kill_9() {
    let folder = TempDir::new().unwrap();
    let mut last: Option<u32> = None;
    let mut next = 0;
    for round in 0..12 {
        let api = api(folder.path());
        if let Some(known) = last {
            let body = api.weir.client().get("/a").text();
            let found: u32 = body.trim_matches('v').parse().unwrap();
            assert!(found == known || found == known + 1, "round {round}: {found} after {known}");
            last = Some(found);
            next = found + 1;
        }
        let history = api.ask("GET /api/v1/revisions", "", "").json();
        let drift = api.ask("GET /api/v1/drift", "", "").json();
        assert_eq!(history["revisions"][0]["hash"], drift["running"], "round {round}");
        assert_eq!(drift["drift"], false, "round {round}");
        // A few answered writes, and one that may remain unanswered.
        for _ in 0..round % 4 {
            let answer = api.ask(
                "POST /api/v1/config:apply",
                "",
                &format!("{{\"routes\": {{\"a\": {}}}}}", saying("/a", &format!("v{next}v"))),
            );
            answer.expect_status(200);
            last = Some(next);
            next += 1;
        }
        let body = format!("{{\"routes\": {{\"a\": {}}}}}", saying("/a", &format!("v{next}v")));
        let mut client = Client::connect(api.weir.admin());
        client.send(request(&api.weir.admin(), "POST /api/v1/config:apply", "", &body));
        if round % 3 == 0 {
            // At least the managed file was written.
            let managed = folder.path().join("managed.yaml");
            let wanted = format!("v{next}v");
            eventually("the write is under way", || {
                fs::read_to_string(&managed).is_ok_and(|text| text.contains(&wanted))
            });
            last = Some(next);
        } else if last.is_none() {
            client.read_response().expect_status(200);
            last = Some(next);
        }
        drop(api); // SIGKILL
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let config = config(folder.path(), "", "");
    // No file may exceed 16 blocks. The signal for that is ignored, so writes fail as on a full disk.
    let weir = Weir::start_by(&config, |dir| {
        let weir = weir_command(dir);
        let program = weir.get_program().to_owned();
        let mut command = std::process::Command::new("sh");
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.arg("-c").arg("trap '' XFSZ; ulimit -f 16; exec \"$0\" run -c weir.yaml").arg(program);
        command
    });
    let api = Api::of(weir, "");
    api.ask("PUT /api/v1/config/routes/a", NEW, &saying("/a", "small")).expect_status(201);
    let before = fs::read(folder.path().join("managed.yaml")).unwrap();
    let large = saying("/large", &"x".repeat(40_000));
    let refused = api.ask("PUT /api/v1/config/routes/large", NEW, &large);
    refused.expect_status(507).expect_body_with("nothing has changed");
    assert_eq!(fs::read(folder.path().join("managed.yaml")).unwrap(), before);
    api.weir.client().get("/large").expect_status(404);
    api.weir.client().get("/a").expect_body("small");
    // Small writes succeed again.
    api.ask("PUT /api/v1/config/routes/b", NEW, &saying("/b", "b")).expect_status(201);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

// === permissions ===

#[test]
fn every_call_is_guarded() {
    let folder = TempDir::new().unwrap();
    let tokens = format!(
        ", hosts: [ gw1.internal ], tokens: [ {{ name: dash, role: read, token: \"{}\" }}, {{ name: ci, role: write, token: \"{}\" }} ]",
        hash("look"),
        hash("change")
    );
    let api = Api::of(Weir::start(&config(folder.path(), &tokens, "")), "look");
    let calls = api.calls();
    assert!(calls.len() >= 14, "{calls:?}");
    let (read, write) = ("Authorization: Bearer look\r\n", "Authorization: Bearer change\r\n");
    let asks = |method: &str, path: &str| {
        // A shadow shows what a config would do that only its author should have.
        let is_question = method == "GET" && !path.contains("/shadow") || path.ends_with(":explain");
        let body = if matches!(method, "PUT" | "PATCH") || path.contains("config:") { "{}" } else { "" };
        (is_question, body)
    };
    for (method, path) in &calls {
        let (is_question, body) = asks(method, path);
        // Whatever the path ends in.
        for path in
            [path.clone(), format!("{path}.js"), format!("{path}/../../status"), format!("{path}/%2e%2e")]
        {
            let line = format!("{method} {path}");
            for (fields, status) in [
                ("", 401),
                ("Authorization: Bearer guess\r\n", 401),
                ("Authorization: Basic bG9vazo=\r\n", 401),
                ("Authorization: Bearer change\r\nOrigin: https://evil.example\r\n", 403),
                ("Authorization: Bearer change\r\nSec-Fetch-Site: cross-site\r\n", 403),
                ("Authorization: Bearer change\r\nHost: evil.example\r\n", 403),
            ] {
                let answer = api.ask_raw(&line, fields, body);
                assert_eq!(answer.status, status, "{line} {fields}: {}", answer.text());
                assert_eq!(answer.header("access-control-allow-origin"), None);
            }
        }
        let line = format!("{method} {path}");
        let answer = api.ask_raw(&line, read, body);
        assert_eq!(answer.status == 403, !is_question, "{line}: {}", answer.text());
        let answer = api.ask_raw(&line, &format!("{write}Host: gw1.internal:9180\r\n"), body);
        // Only an administrator may give away entries of the users' files.
        let needs_admin = path.ends_with(":adopt") || path.ends_with(":release");
        assert_eq!(matches!(answer.status, 401 | 403), needs_admin, "{line}: {}", answer.text());
        assert!(answer.status != 500, "{line}: {}", answer.text());
    }
    // Neither may stop the process.
    for line in ["POST /drain", "POST /upgrade"] {
        assert_eq!(api.ask_raw(line, write, "").status, 403);
    }
    assert_eq!(api.ask_raw("POST /reload", read, "").status, 403);
    assert_eq!(api.ask_raw("POST /reload", write, "").status, 200);
    let log = api.weir.stderr();
    assert!(log.contains("who=ci") && log.contains("refused="), "{log}");
    assert!(!log.contains("Bearer") && !log.contains("guess"), "{log}");
}

pub(crate) fn hash(token: &str) -> String {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

#[test]
fn bodies_and_names_have_limits() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let claim = |line: &str, length: usize| {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{ANY}Content-Length: {length}\r\n\r\n",
            api.weir.admin()
        );
        Client::connect(api.weir.admin()).ask(request).status
    };
    assert_eq!(claim("POST /api/v1/config:apply", (16 << 20) + 1), 413);
    assert_eq!(claim("PUT /api/v1/config/routes/a", (1 << 20) + 1), 413);
    assert_eq!(claim("DELETE /api/v1/config/routes/a", (64 << 10) + 1), 413);
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    api.ask("PUT /api/v1/config/routes/a", NEW, &deep).expect_status(422);
    for name in ["%3Cimg%20src=x%20onerror=alert(1)%3E", "a%2Fb", "a%00b", &"x".repeat(65), "%C3%BC"] {
        let answer = api.ask(&format!("PUT /api/v1/config/routes/{name}"), NEW, &saying("/a", "a"));
        assert!(matches!(answer.status, 404 | 422), "{name}: {}", answer.text());
        assert!(answer.header("content-type").unwrap().contains("json"), "{name}");
    }
    api.ask("PUT /api/v1/config/workers/a", NEW, "{}").expect_status(404);
    assert!(!folder.path().join("managed.yaml").exists());
    // A body that is not text, and an unknown entry.
    let mut client = Client::connect(api.weir.admin());
    client.send(format!("PUT /api/v1/config/routes/a HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{NEW}Content-Length: 2\r\n\r\n", api.weir.admin()));
    client.send(b"\xff\xfe");
    client.read_response().expect_status(400);
    api.ask("PUT /api/v1/config/routes/a", NEW, "[]").expect_status(422);
    api.ask("PUT /api/v1/config/routes/a", "If-Match: unquoted\r\n", "{}").expect_status(400);
}

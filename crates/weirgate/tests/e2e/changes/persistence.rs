//! Changes, reverts and trials across a crash, a restart, an upgrade and a full disk.

use super::*;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use std::fs;
use std::process::Command;
use weir_testkit::eventually_within;

/// A gateway whose disk can fill up: writes beyond a limit fail instead of ending it. `full` starts it with a full
/// disk.
fn start(config: &str, full: bool) -> Api {
    let limit = if full { "ulimit -S -f 0;" } else { "" };
    let weir = Weir::start_by(config, |dir| {
        let program = weir_command(dir).get_program().to_owned();
        let mut command = Command::new("sh");
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let script = format!("trap '' XFSZ; {limit} exec \"$0\" run -c weir.yaml");
        command.arg("-c").arg(script).arg(program);
        command
    });
    Api::of(weir, "")
}

/// Fills the gateway's disk, or makes room.
fn fill(api: &Api, full: bool) {
    let pid = Pid::from_raw(i32::try_from(api.weir.pid()).unwrap());
    let limit = Rlimit { current: full.then_some(0), maximum: None };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

fn status(api: &Api) -> Value {
    api.weir.admin_client().ask(request(&api.weir.admin(), "GET /status", "", "")).expect_status(200).json()
}

/// The metrics for files that do not run.
fn drift(api: &Api) -> [bool; 2] {
    let metrics = api.weir.admin_client().ask(request(&api.weir.admin(), "GET /metrics", "", "")).text();
    ["rolled_back", "unsaved"]
        .map(|reason| metrics.contains(&format!("weir_config_drift{{reason=\"{reason}\"}} 1\n")))
}

fn apply(api: &Api, query: &str, text: &str) -> Response {
    let body = format!("{{\"routes\": {{\"a\": {}}}}}", saying("/a", text));
    api.ask(&format!("POST /api/v1/config:apply{query}"), "", &body)
}

#[test]
fn the_way_back_does_not_wait_for_a_full_disk() {
    let folder = TempDir::new().unwrap();
    let config = config(folder.path(), "", "");
    let managed = || fs::read_to_string(folder.path().join("managed.yaml")).unwrap();
    let api = start(&config, false);
    apply(&api, "", "good").expect_status(200);
    apply(&api, "", "bad").expect_status(200);
    fill(&api, true);
    apply(&api, "", "more").expect_status(507).expect_body_with("nothing has changed");
    api.weir.client().get("/a").expect_body("bad");

    let back = api.ask("POST /api/v1/revisions/2:rollback", "", "");
    back.expect_status(200).expect_body_with("FROM MEMORY ONLY");
    assert!(back.json()["unsaved"].is_string() && back.json()["number"].is_null(), "{}", back.text());
    api.weir.client().get("/a").expect_body("good");
    assert!(managed().contains("bad"), "{}", managed());
    api.weir.wait_log("the config runs from memory only: it could not be saved");
    weir(&api, &["status"]).expect_code(0).expect_text("THE CONFIG RUNS FROM MEMORY ONLY");
    assert_eq!(drift(&api), [false, true]);
    let told = api.ask("GET /api/v1/drift", "", "").json();
    assert!(told["drift"] == true && told["unsaved"].is_string(), "{told}");
    // Neither another change nor a reload restores a reverted change.
    apply(&api, "", "more").expect_status(507);
    api.weir.reload().unwrap();
    api.weir.client().get("/a").expect_body("good");
    drop(api);

    // Nor does a restart, even with the disk still full.
    let api = start(&config, true);
    api.weir.client().get("/a").expect_body("good");
    assert!(status(&api)["unsaved"].is_string());
    run_weir(api.weir.dir(), &["check", "-c", "weir.yaml"]).expect_code(0).expect_text("rolled-back");
    assert!(managed().contains("bad"), "{}", managed());

    // With room again, it is written automatically.
    fill(&api, false);
    let began = Instant::now();
    while status(&api)["unsaved"].is_string() {
        // It is retried at least every minute.
        assert!(began.elapsed() < Duration::from_secs(90), "{}", api.weir.stderr());
        std::thread::park_timeout(Duration::from_millis(50));
    }
    api.weir.wait_log("the config is saved now");
    assert!(status(&api)["unsaved"].is_null());
    assert_eq!(drift(&api), [false, false]);
    assert!(managed().contains("good"), "{}", managed());
    let told = api.ask("GET /api/v1/revisions", "", "").json();
    let (back, bad) = (&told["revisions"][0], &told["revisions"][1]);
    assert_eq!((&back["number"], &back["source"]), (&4.into(), &"guard".into()), "{told}");
    assert!(bad["verdict"].as_str().unwrap().contains("left for revision 2"), "{told}");
    apply(&api, "", "better").expect_status(200);
    drop(api);
    let api = start(&config, false);
    api.weir.client().get("/a").expect_body("better");
    assert_eq!(api.ask("GET /api/v1/drift", "", "").json()["drift"], false);
    assert!(fs::symlink_metadata(folder.path().join("state/taken-back")).is_err());
}

#[test]
fn what_was_taken_back_stays_so_beside_files_that_people_change() {
    let folder = TempDir::new().unwrap();
    let managed = || fs::read_to_string(folder.path().join("managed.yaml")).unwrap();
    let api = start(&config(folder.path(), "", ""), false);
    apply(&api, "", "good").expect_status(200);
    apply(&api, "", "bad").expect_status(200);
    fill(&api, true);
    api.ask("POST /api/v1/revisions/2:rollback", "", "")
        .expect_status(200)
        .expect_body_with("FROM MEMORY ONLY");
    drop(api); // SIGKILL

    // Meanwhile a user replaces a file: it runs, and the managed file still does not.
    let changed = config(folder.path(), "", "").replace("body: hand", "body: written anew");
    let api = start(&changed, true);
    api.weir.client().get("/hand").expect_body("written anew");
    api.weir.client().get("/a").expect_body("good");
    assert!(status(&api)["unsaved"].is_string() && managed().contains("bad"), "{}", managed());
    run_weir(api.weir.dir(), &["check", "-c", "weir.yaml"]).expect_code(0).expect_text("rolled-back");
    drop(api);

    // With room it is written, and persists.
    let api = start(&changed, false);
    api.weir.client().get("/a").expect_body("good");
    api.weir.wait_log("the config is saved now");
    assert!(managed().contains("good"), "{}", managed());
    assert!(fs::symlink_metadata(folder.path().join("state/taken-back")).is_err());
    drop(api);
    let api = start(&changed, false);
    api.weir.client().get("/a").expect_body("good");
    api.weir.client().get("/hand").expect_body("written anew");
}

/// Backdates a trial's start.
fn age(folder: &Path, number: u64, ms: u64) {
    let path = folder.join(format!("state/revisions/{number:08}"));
    let text = fs::read_to_string(&path).unwrap();
    let (head, files) = text.split_once('\n').unwrap();
    let mut head: Value = serde_json::from_str(head).unwrap();
    let began = head["trial"]["began"].as_u64().unwrap();
    head["trial"]["began"] = (began - ms).into();
    fs::write(path, format!("{head}\n{files}")).unwrap();
}

#[test]
fn a_trial_outlives_a_restart() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    apply(&api, "", "one").expect_status(200);
    apply(&api, "?confirm=1h&watch=1h", "two").expect_status(200);
    drop(api);
    let api = self::api(folder.path());
    let trial = status(&api)["trial"].clone();
    assert_eq!((&trial["number"], &trial["back_to"]), (&3.into(), &2.into()), "{trial}");
    assert!(trial["confirm_by"].is_string() && trial["watched_until"].is_string(), "{trial}");
    weir(&api, &["confirm"]).expect_code(0).expect_text("revision 3 stays");
    drop(api);
    let api = self::api(folder.path());
    assert!(status(&api)["trial"].is_null(), "what was confirmed is on trial no more");
    api.weir.client().get("/a").expect_body("two");

    // Only watched, and its time ended while the gateway was down: the change stays.
    apply(&api, "?watch=1h", "three").expect_status(200);
    drop(api);
    age(folder.path(), 4, 7_200_000);
    let api = self::api(folder.path());
    api.weir.client().get("/a").expect_body("three");
    assert!(status(&api)["trial"].is_null());
    let verdict = api.ask("GET /api/v1/revisions/4", "", "").json();
    assert!(verdict["verdict"].as_str().unwrap().contains("ended while Weir was not running"), "{verdict}");
}

#[test]
fn what_nobody_confirmed_while_it_was_away_goes_back_at_the_start() {
    let folder = TempDir::new().unwrap();
    let config = config(folder.path(), "", "");
    let api = start(&config, false);
    apply(&api, "", "one").expect_status(200);
    apply(&api, "?confirm=1h", "two").expect_status(200);
    drop(api);
    age(folder.path(), 3, 7_200_000);
    // It is reverted on a full disk too, and stays reverted.
    let api = start(&config, true);
    api.weir.client().get("/a").expect_body("one");
    api.weir.wait_log("change reverted");
    drop(api);
    let api = start(&config, false);
    api.weir.client().get("/a").expect_body("one");
    let told = api.ask("GET /api/v1/revisions", "", "").json();
    assert_eq!((&told["running"], &told["revisions"][0]["source"]), (&4.into(), &"guard".into()), "{told}");
    drop(api);

    // With room it becomes a revision immediately, with its reason.
    let api = start(&config, false);
    apply(&api, "?confirm=1h", "three").expect_status(200);
    drop(api);
    age(folder.path(), 5, 7_200_000);
    let api = start(&config, false);
    api.weir.client().get("/a").expect_body("one");
    let told = api.ask("GET /api/v1/revisions", "", "").json();
    let why = told["revisions"][0]["message"].as_str().unwrap();
    assert!(why.contains("it was not confirmed in time"), "{told}");
}

#[test]
fn a_trial_outlives_an_upgrade() {
    let folder = TempDir::new().unwrap();
    let api = Api::of(Weir::start_installed(&config(folder.path(), "", "")), "");
    apply(&api, "?confirm=1h&watch=1h", "one").expect_status(200);
    api.weir.upgrade().unwrap();
    assert_eq!(status(&api)["trial"]["number"], 2);
    weir(&api, &["confirm"]).expect_code(0).expect_text("revision 2 stays");
}

/// An unrelated edit while Weir is down neither confirms an unconfirmed change nor gets lost.
#[test]
fn what_people_change_while_it_is_away_does_not_confirm_a_change() {
    let folder = TempDir::new().unwrap();
    let config = config(folder.path(), "", "");
    let api = start(&config, false);
    apply(&api, "", "one").expect_status(200);
    apply(&api, "?confirm=1h", "two").expect_status(200);
    drop(api);
    age(folder.path(), 3, 7_200_000);
    let api = start(&config.replace("body: hand", "body: edited"), false);
    api.weir.client().get("/a").expect_body("one");
    api.weir.client().get("/hand").expect_body("edited");
    let told = api.ask("GET /api/v1/revisions", "", "").json();
    assert_eq!((&told["running"], &told["revisions"][0]["source"]), (&5.into(), &"guard".into()), "{told}");
    let verdict = told["revisions"][2]["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("reverted by guard: it was not confirmed in time"), "{told}");
    assert!(told["pinned"].is_null(), "{told}");
    drop(api);
    let api = start(&config.replace("body: hand", "body: edited"), false);
    api.weir.client().get("/a").expect_body("one");
}

/// The same at runtime: the trial continues over a reload, another change and a restart, and reverts only its own
/// change.
#[test]
fn other_changes_do_not_confirm_a_change() {
    let folder = TempDir::new().unwrap();
    let config = config(folder.path(), "", "");
    let api = start(&config, false);
    apply(&api, "", "one").expect_status(200);
    apply(&api, "?confirm=1h&watch=1h", "two").expect_status(200);
    fs::write(api.weir.dir().join("weir.yaml"), config.replace("body: hand", "body: edited")).unwrap();
    api.weir.reload().unwrap();
    api.weir.client().get("/hand").expect_body("edited");
    api.weir
        .wait_log("change no longer watched, because another was made: it goes back unless it is confirmed");
    let other = format!("{{\"routes\": {{\"b\": {}}}}}", saying("/b", "b"));
    api.ask("POST /api/v1/config:apply", "", &other).expect_status(200);
    let trial = status(&api)["trial"].clone();
    assert_eq!((&trial["number"], trial["watched_until"].is_null()), (&3.into(), true), "{trial}");
    assert_eq!(api.ask("GET /api/v1/revisions/3", "", "").json()["verdict"], "on trial");
    drop(api);

    let edited = config.replace("body: hand", "body: edited");
    let api = start(&edited, false);
    assert_eq!(status(&api)["trial"]["number"], 3);
    api.weir.client().get("/a").expect_body("two");
    drop(api);
    age(folder.path(), 3, 3_595_000);
    let api = start(&edited, false);
    eventually_within(Duration::from_secs(30), "it is back", || api.weir.client().get("/a").text() == "one");
    api.weir.client().get("/b").expect_body("b");
    api.weir.client().get("/hand").expect_body("edited");
    assert!(status(&api)["trial"].is_null());
}

/// Of two unconfirmed changes of one entry, the older is reverted first, and neither stays.
#[test]
fn of_changes_on_top_of_each_other_none_stays_unconfirmed() {
    let folder = TempDir::new().unwrap();
    let config = config(folder.path(), "", "");
    let api = start(&config, false);
    apply(&api, "", "one").expect_status(200);
    apply(&api, "?confirm=1h", "two").expect_status(200);
    apply(&api, "?confirm=1h", "three").expect_status(200);
    assert_eq!(status(&api)["trial"]["number"], 4);
    drop(api);
    age(folder.path(), 3, 7_200_000);
    let api = start(&config, false);
    api.weir.client().get("/a").expect_body("three");
    assert_eq!(status(&api)["trial"]["number"], 4);
    drop(api);
    age(folder.path(), 4, 7_200_000);
    let api = start(&config, false);
    api.weir.client().get("/a").expect_body("one");
    drop(api);

    // A change that replaces one on trial without being on trial stays, and the history records the other's fate.
    let api = start(&config, false);
    apply(&api, "?confirm=1h", "four").expect_status(200);
    let number = status(&api)["trial"]["number"].as_u64().unwrap();
    apply(&api, "", "five").expect_status(200);
    assert!(status(&api)["trial"].is_null());
    let told = api.ask(&format!("GET /api/v1/revisions/{number}"), "", "").json();
    assert_eq!(told["verdict"], "never confirmed: later changes replaced it");
}

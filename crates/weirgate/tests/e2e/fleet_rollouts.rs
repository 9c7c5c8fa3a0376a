//! Failing rollouts over a real etcd: killed nodes and coordinators, operator errors, damaged keys.

use serde_json::Value;
use weir_testkit::Weir;

use crate::fleet::{Config, Etcd, comes_to_say, says, within};

/// A fleet of these nodes, with a config that answers "one" everywhere. Nodes whose names begin with `canary` are
/// canaries.
fn fleet(etcd: &Etcd, names: &[&str]) -> (Config, Vec<Weir>) {
    let config = Config::saying("one");
    etcd.publish(&config, &[]);
    let labels = |name: &str| if name.starts_with("canary") { "canary: \"true\"" } else { "" };
    let weirs: Vec<Weir> = names.iter().map(|name| etcd.node(name, labels(name))).collect();
    within("all are known", || live(etcd).len() == names.len());
    (config, weirs)
}

fn live(etcd: &Etcd) -> Vec<Value> {
    etcd.status()["nodes"].as_array().unwrap().clone()
}

fn silent(etcd: &Etcd) -> Vec<String> {
    let status = etcd.status();
    status["silent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["node"].as_str().unwrap().to_owned())
        .collect()
}

/// Killed, with its lease ended, so that nobody has to wait for that.
fn dies(etcd: &Etcd, weir: Weir, name: &str) {
    let lease = etcd.lease_of(&format!("/weir/test/nodes/{name}"));
    weir.signal(9);
    drop(weir);
    etcd.revoke(&lease);
}

#[test]
fn who_is_silent_is_known_and_who_leaves_is_not_missed() {
    let Some(etcd) = Etcd::start() else { return };
    let (config, weirs) = fleet(&etcd, &["a", "b"]);
    within("both are remembered", || {
        ["a", "b"].iter().all(|name| etcd.has(&format!("/weir/test/seen/{name}")))
    });
    let [a, b] = <[Weir; 2]>::try_from(weirs).unwrap();
    a.stop();
    assert!(live(&etcd).len() == 1 && silent(&etcd).is_empty(), "it has left");
    dies(&etcd, b, "b");
    assert_eq!(silent(&etcd), ["b"]);
    let shown = etcd.fleet(config.dir(), &["status"]);
    shown.expect_text("SILENT nodes, which did not leave: 1").expect_text("silent for less than 2 min");
    // It returns.
    let _b = etcd.node("b", "");
    within("it is there again", || silent(&etcd).is_empty() && live(&etcd).len() == 1);
}

/// Any of the three may coordinate, even the canary: the next coordinator knows what the first one saw.
#[test]
fn a_canary_that_dies_halts_the_rollout_whoever_coordinates() {
    let Some(etcd) = Etcd::start() else { return };
    let (config, weirs) = fleet(&etcd, &["canary-1", "canary-2", "other"]);
    config.say("two");
    etcd.publish(&config, &["--canary", "canary=true", "--hold", "300s"]);
    let [one, two, other] = <[Weir; 3]>::try_from(weirs).unwrap();
    comes_to_say(&one, "two");
    within("both have said so, and somebody coordinates", || {
        let status = etcd.status();
        let tries = |node: &&Value| {
            node["tries"].as_u64().is_some_and(|tries| tries > 0)
                && node["running"] == status["pointer"]["to"]
        };
        live(&etcd).iter().filter(tries).count() == 2 && status["coordinator"].is_string()
    });
    within("it is remembered", || etcd.has("/weir/test/seen/canary-1"));
    // The new coordinator must be elected first, and knows nothing of what the old one saw.
    dies(&etcd, one, "canary-1");
    etcd.delete("/weir/test/leader");
    within("it halts", || etcd.status()["pointer"]["rollout"]["state"] == "halted");
    etcd.fleet(config.dir(), &["status"]).expect_text("canary-1 took it and went silent");
    comes_to_say(&two, "one");
    assert_eq!(says(&other), "one");
    // An operator knows that it died for another reason.
    etcd.fleet(config.dir(), &["resume"]).expect_code(0);
    comes_to_say(&two, "two");
    assert_eq!(etcd.status()["pointer"]["rollout"]["state"], "running");
}

#[test]
fn keys_pressed_in_odd_orders() {
    let Some(etcd) = Etcd::start() else { return };
    let (config, weirs) = fleet(&etcd, &["canary", "other"]);
    let fleet = |words: &[&str]| etcd.fleet(config.dir(), words);
    fleet(&["resume"]).expect_code(1).expect_text("is not halted");
    fleet(&["halt"]).expect_code(1).expect_text("no rollout is under way");
    fleet(&["rollback"]).expect_code(1).expect_text("no earlier bundle to go back to");
    config.say("two");
    etcd.publish(&config, &["--canary", "canary=true", "--hold", "300s"]);
    comes_to_say(&weirs[0], "two");
    fleet(&["publish", "config"]).expect_code(1).expect_text("is being rolled out, step 1 of 2 is open");
    // A second rollout during the first: its canaries first return to the old bundle, or continue.
    config.say("three");
    etcd.publish(&config, &["--canary", "canary=true", "--hold", "300s"]);
    comes_to_say(&weirs[0], "three");
    assert_eq!(says(&weirs[1]), "one");
    fleet(&["halt", "-m", "too warm"]).expect_code(0).expect_text("HALTED at step 1 of 2: too warm");
    fleet(&["rollback"]).expect_code(0).expect_text("runs on every node");
    comes_to_say(&weirs[0], "one");
    // Again: the halted bundle does not return.
    fleet(&["rollback"]).expect_code(1).expect_text("taken back from");
    assert_eq!(says(&weirs[0]), "one");
}

#[test]
fn keys_of_etcd_that_are_damaged() {
    let Some(etcd) = Etcd::start() else { return };
    let (config, weirs) = fleet(&etcd, &["a"]);
    let first = etcd.status()["pointer"]["to"].as_str().unwrap().to_owned();
    config.say("two");
    etcd.publish(&config, &[]);
    comes_to_say(&weirs[0], "two");
    // The bundle to return to does not match its name, so no node gets the order to run it.
    let bundle = format!("/weir/test/configs/{first}");
    etcd.put(&bundle, "routes: {}");
    let back = etcd.fleet(config.dir(), &["rollback"]);
    back.expect_code(1).expect_text("is another").expect_text("nothing was written");
    etcd.delete(&bundle);
    etcd.fleet(config.dir(), &["rollback"]).expect_code(1).expect_text("is not there");
    assert_eq!(etcd.status()["pointer"]["generation"], 2);
    etcd.put("/weir/test/current", "{");
    weirs[0].wait_log("the source cannot be followed");
    assert_eq!(says(&weirs[0]), "two");
    let shown = etcd.fleet(config.dir(), &["status"]);
    shown.expect_code(1).expect_text("etcdctl del /weir/test/current");
    etcd.delete("/weir/test/current");
    weirs[0].wait_log("the source has no config");
    config.say("three");
    etcd.publish(&config, &[]);
    comes_to_say(&weirs[0], "three");
}

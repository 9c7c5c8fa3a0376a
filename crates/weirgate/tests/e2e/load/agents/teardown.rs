//! Which agent runs `teardown` if agents, their coordinator or the network between them fail.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_report::report::Grade;
use weir_testkit::{Upstream, eventually_within};

use super::super::expect_reason;
use super::{Agent, Keys, LONG, finished, noting, refs, report};

/// A cut-off agent waits 12 s; on a busy machine everything takes longer.
const VERY_LONG: Duration = Duration::from_secs(60);

/// Two agents under load, with a target that notes every request.
struct Scene {
    keys: Keys,
    agents: Vec<Agent>,
    upstream: Upstream,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    fn new() -> Self {
        let keys = Keys::new();
        let agents = keys.agents(2);
        let (upstream, seen) = noting();
        let plan = format!(
            "target: http://{}\nsetup: [ {{ name: up, get: /setup }} ]\ndry_run: false\n\
             scenarios: {{ a: {{ rate: 60/s, users_max: 9, steps: [ {{ name: one, get: /x }} ] }} }}\n\
             teardown: [ {{ name: down, get: /teardown }} ]\n",
            upstream.address()
        );
        std::fs::write(keys.dir.path().join("plan.yaml"), plan).unwrap();
        Self { keys, agents, upstream, seen }
    }

    /// Starts the load of agents at these addresses, and waits until both send.
    fn start(&self, addresses: [&str; 2], on_loss: &str) -> Child {
        let args = ["-f", "plan.yaml", "-d", "1h", "--on-agent-loss", on_loss];
        let mut command = self.keys.command_to(&addresses, &args);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        eventually_within(LONG, "both send", || self.count("/x") > 60);
        child
    }

    fn addresses(&self) -> [&str; 2] {
        [&self.agents[0].address, &self.agents[1].address]
    }

    fn count(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|target| *target == what).count()
    }

    /// Waits until an agent takes another load.
    fn is_free(&self, agent: &Agent) {
        let url = format!("http://{}/again", self.upstream.address());
        let again = ["-n", "1", "-c", "1", &url];
        eventually_within(VERY_LONG, "it is free", || self.keys.load(&[agent], &again).code == Some(0));
    }
}

#[test]
fn an_agent_that_a_signal_ends_hands_teardown_back() {
    let scene = Scene::new();
    let child = scene.start(scene.addresses(), "abort");
    // The first agent ran `setup` and has the task.
    scene.agents[0].signal(libc::SIGTERM);
    let r = report(&finished(child.wait_with_output().unwrap()));
    expect_reason(&r, "agent_lost", Grade::Invalid);
    let lost = r.agents[0].lost.as_ref().unwrap();
    let by = format!("the agent was ended on its machine; {} ran `teardown`", scene.agents[1].address);
    assert_eq!(lost.why, by);
    assert_eq!((scene.count("/setup"), scene.count("/teardown")), (1, 1));
    assert_eq!(scene.seen.lock().unwrap().last().map(String::as_str), Some("/teardown"));
}

#[test]
fn teardown_needs_no_coordinator_unless_others_may_go_on() {
    for (on_loss, wanted) in [("abort", 1), ("continue", 0)] {
        let scene = Scene::new();
        let mut child = scene.start(scene.addresses(), on_loss);
        child.kill().unwrap();
        child.wait().unwrap();
        if wanted == 1 {
            eventually_within(VERY_LONG, "teardown", || scene.count("/teardown") == 1);
        }
        refs(&scene.agents).iter().for_each(|agent| scene.is_free(agent));
        let seen = scene.seen.lock().unwrap().clone();
        let last = seen.iter().rposition(|target| target == "/x").unwrap();
        let torn = seen.iter().position(|target| target == "/teardown");
        assert_eq!(torn.is_some(), wanted == 1, "{on_loss}");
        assert!(torn.is_none_or(|torn| torn > last), "nobody sends any more: {seen:?}");
        assert_eq!(scene.count("/teardown"), wanted);
    }
}

/// A network between the coordinator and an agent that can fail: from then on it carries nothing, and says nothing.
struct Network {
    address: SocketAddr,
    has_failed: Arc<AtomicBool>,
}

impl Network {
    fn to(agent: &Agent) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, agent) = (listener.local_addr().unwrap(), agent.address.clone());
        let has_failed = Arc::<AtomicBool>::default();
        let failed = Arc::clone(&has_failed);
        std::thread::spawn(move || {
            let mut held = Vec::new(); // so that neither side sees an end
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(&agent).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let failed = Arc::clone(&failed);
                    std::thread::spawn(move || carry(from, to, &failed));
                }
                held.push((near, far));
            }
        });
        Self { address, has_failed }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, has_failed: &AtomicBool) {
    let mut some = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut some) {
        if has_failed.load(Ordering::SeqCst) {
            return;
        }
        if n == 0 || to.write_all(&some[..n]).is_err() {
            let _ = to.shutdown(std::net::Shutdown::Write); // the other side may have ended
            return;
        }
    }
}

#[test]
fn a_network_that_fails_leaves_it_uncertain_who_ran_teardown_and_the_report_says_so() {
    let scene = Scene::new();
    let network = Network::to(&scene.agents[0]);
    let near = network.address.to_string();
    let child = scene.start([&near, &scene.agents[1].address], "abort");
    network.has_failed.store(true, Ordering::SeqCst);
    let r = report(&finished(child.wait_with_output().unwrap()));
    expect_reason(&r, "agent_lost", Grade::Invalid);
    let why = &r.agents[0].lost.as_ref().unwrap().why;
    let told = format!("{} ran `teardown`, and this agent may have run it too", scene.agents[1].address);
    assert!(why.contains("no word for 5 s") && why.ends_with(&told), "{why}");
    eventually_within(VERY_LONG, "the agent that was cut off ran it too", || scene.count("/teardown") == 2);
    let seen = scene.seen.lock().unwrap().clone();
    let (first, last) = (
        seen.iter().position(|target| target == "/teardown").unwrap(),
        seen.iter().rposition(|target| target == "/x").unwrap(),
    );
    assert!(first > last, "neither while the other sends: {seen:?}");
}

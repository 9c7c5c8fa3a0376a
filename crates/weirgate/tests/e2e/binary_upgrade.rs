//! SIGUSR2 and `weir upgrade`: replacing the binary without disturbing clients.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::{fs, thread};

use weir_testkit::{Authority, Client, Tls, Upstream, Weir, command_for, eventually, install, run_weir};

use crate::support::{GET, OK_BODY, WEB, config_for};
use crate::upgrade::tunnel;

fn saying(text: &str) -> String {
    format!("{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: {text} }} }} }}\n")
}

/// Puts another program at the path from which this gateway was started.
fn replace_by(weir: &Weir, script: &str) {
    // A separate process writes it: see `install`.
    let write = "printf %s \"$1\" >weir.new && chmod +x weir.new && mv weir.new weir";
    let status = Command::new("/bin/sh").args(["-c", write, "sh", script]).current_dir(weir.dir()).status();
    assert!(status.unwrap().success());
}

// === Nothing is lost ===

#[test]
fn under_load_every_request_is_answered() {
    let weir = Weir::start_installed(&format!("{}workers: 2", saying("hello")));
    let address = weir.address("web");
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for requests in [1, 3, 1000] {
            let (over, answered, address) = (&over, &answered, &address);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let mut client = Client::connect(address);
                    for _ in 0..requests {
                        // Panics with the received bytes if there is no answer.
                        let response = client.get("/");
                        response.expect_status(200).expect_body("hello");
                        answered.fetch_add(1, Relaxed);
                        if response.header("connection") == Some("close") || over.load(Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        for _ in 0..5 {
            let before = answered.load(Relaxed);
            weir.upgrade().unwrap();
            eventually("the new process answers", || answered.load(Relaxed) > before + 50);
        }
        over.store(true, Relaxed);
    });
    assert_eq!(weir.address("web"), address);
}

/// As after a reload, the answer names the connections that are drained and the state that is lost.
#[test]
fn what_is_drained_and_forgotten_is_told() {
    let limited = |filters: &str| {
        format!(
            "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: x }}{filters} }} }}\n\
             admin: {{ address: \"127.0.0.1:0\" }}\nwatch: false\n"
        )
    };
    let weir = Weir::start_installed(&limited(", filters: [ { rate_limit: { requests: 5, per: day } } ]"));
    let mut idle = weir.client();
    idle.get("/").expect_status(200);
    weir.write_config(&limited(""));
    let (admin, before) = (weir.admin(), weir.stderr().len());
    let mut client = Client::connect(&admin);
    let answer = client.ask(format!("POST /upgrade HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 0\r\n\r\n"));
    let told: serde_json::Value = serde_json::from_str(&answer.expect_status(200).text()).unwrap();
    let forgotten = told["forgets"][0].as_str().unwrap();
    assert!(forgotten.starts_with("routes.all rate_limit"), "{told}");
    assert_eq!(told["drains"], serde_json::json!([{ "listener": "web", "connections": 1 }]), "{told}");
    let text = format!("drains 1 connections of listeners.web\nforgets the state of {forgotten}\n");
    assert_eq!(told["text"], text, "{told}");
    weir.wait_upgrade_after(before).unwrap();
}

#[test]
fn an_idle_connection_brings_one_more_request_and_a_tunnel_lives_on() {
    let upstream = Upstream::listen();
    let mut weir = Weir::start_installed(&config_for(&upstream, ""));
    let (mut client, mut conn) = tunnel(&weir, &upstream);
    let (mut idle, mut service) = weir.begin(&upstream, GET);
    service.send(OK_BODY);
    idle.read_response().expect_status(200).expect_no_header("connection");

    let new = weir.upgrade().unwrap();
    assert_ne!(new, weir.pid());
    client.send("still here?");
    conn.expect("still here?");
    conn.send("yes");
    client.expect("yes");
    // The old process answers it and announces that it closes.
    idle.send(GET);
    service.read_request();
    service.send(OK_BODY);
    idle.read_response().expect_status(200).expect_header("connection", "close");
    idle.expect_close();
    assert!(weir.is_running());
    client.close();
    conn.close();
    eventually("the old process ends", || !weir.is_running());
}

#[test]
fn a_connection_whose_head_promised_it_carries_one_more_request() {
    let upstream = Upstream::listen();
    let weir = Weir::start_installed(&config_for(&upstream, ""));
    let (mut client, mut service) = weir.begin(&upstream, GET);
    service.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
    client.expect("HTTP/1.1 200 OK\r\n");
    weir.upgrade().unwrap();
    service.send("more");
    let rest = client.read_until(b"halfmore");
    assert!(!String::from_utf8_lossy(&rest).to_ascii_lowercase().contains("connection: close"));
    // The head allowed the client to send another request: it must not find the connection closed.
    client.send(GET);
    service.read_request();
    service.send(OK_BODY);
    client.read_response().expect_status(200).expect_header("connection", "close");
    client.expect_close();
}

#[test]
fn what_was_counted_counts_on_and_sessions_resume() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let weir = Weir::start_installed(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: hello }}, \
         filters: [ {{ rate_limit: {{ requests: 3, per: 1h, by: address }} }} ] }} }}\n",
    ));
    let tls = Tls::new(&authority, "weir.test");
    let get = || {
        let mut client = Client::connect_tls(weir.address("web"), &tls);
        (client.get("/").status, client.tls().resumed)
    };
    assert_eq!((get(), get()), ((200, false), (200, true)));
    weir.upgrade().unwrap();
    assert_eq!((get(), get()), ((200, true), (429, true)));
}

/// The descriptors of a process: number, target, and whether exec closes it.
fn descriptors(pid: u32) -> Vec<(u32, PathBuf, bool)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let describe = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let target = fs::read_link(format!("/proc/{pid}/fd/{name}")).ok()?; // not if it was closed meanwhile
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{name}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
        Some((name.parse().ok()?, target, i32::from_str_radix(flags, 8).ok()? & libc::O_CLOEXEC != 0))
    };
    entries.filter_map(describe).collect()
}

#[test]
fn a_started_program_inherits_no_descriptor() {
    let (upstream, authority) = (Upstream::listen(), Authority::new());
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let weir = Weir::start_installed(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }}, local: {{ address: \"unix:{{dir}}/web.sock\" }}, \
         tls: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }} }}\n\
         watch: true\naccess_log: {{ output: \"{{dir}}/access.log\" }}\nadmin: {{ address: 127.0.0.1:0, writes: managed.yaml }}\n\
         stores: {{ pages: {{ memory: 4MiB, disk: {{ path: \"{{dir}}/pages\", size: 64MiB }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }},\n\
         kept: {{ match: {{ path: \"/kept\" }}, filters: [ {{ cache: {{ store: pages, ttl: 1h }} }} ], upstream: up }},\n\
         files: {{ match: {{ path: \"/files/*\" }}, files: {{ root: \"{{dir}}\" }} }} }}\n",
        upstream.address()
    ));
    let (_client, _conn) = tunnel(&weir, &upstream);
    let mut large = weir.client(); // a download that waits: its file stays open
    fs::create_dir(weir.dir().join("files")).unwrap();
    fs::write(weir.dir().join("files/small"), "few").unwrap();
    fs::write(weir.dir().join("files/large"), vec![b'x'; 64 << 20]).unwrap();
    large.send("GET /files/large HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    large.expect("HTTP/1.1 200 OK\r\n");
    let (mut kept, mut service) = weir.begin(&upstream, GET.replace("/ ", "/kept "));
    service.send(OK_BODY);
    kept.read_response().expect_status(200);
    let mut secure = Client::connect_tls(weir.address("tls"), &Tls::new(&authority, "weir.test"));
    secure.get("/files/small").expect_status(200);

    let mut seen = 0;
    for (number, target, is_closed) in descriptors(weir.pid()) {
        // Descriptors that the test itself inherited are not Weir's.
        let inherited = || descriptors(std::process::id()).contains(&(number, target.clone(), false));
        seen += 1;
        assert!(number <= 2 || is_closed || inherited(), "{number} ({target:?}) outlives an exec");
    }
    assert!(seen > 20, "only {seen}");
}

#[test]
fn fewer_workers_serve_every_queue_and_more_do_too() {
    let weir = Weir::start_installed(&format!("{}workers: 4", saying("four")));
    for (workers, text) in [(1, "one"), (3, "three")] {
        weir.write_config(&format!("{}workers: {workers}", saying(text)));
        weir.upgrade().unwrap();
        // The kernel spreads them over all queues by hash: 64 reach every queue.
        for _ in 0..64 {
            weir.client().get("/").expect_body(text);
        }
    }
}

#[test]
fn a_unix_socket_keeps_its_file() {
    let mut weir = Weir::start_installed(
        "listeners: { web: { address: \"unix:{dir}/web.sock\" } }\n\
         admin: { address: \"unix:{dir}/admin.sock\" }\n\
         routes: { all: { match: { path: \"/*\" }, respond: { body: hello } } }\n",
    );
    weir.upgrade().unwrap();
    eventually("the old process ends", || !weir.is_running());
    assert!(weir.dir().join("web.sock").exists());
    let admin = format!("unix:{}", weir.dir().join("admin.sock").display());
    run_weir(weir.dir(), &["status", "--admin", &admin]).expect_code(0).expect_text("running");
}

// === By the admin API ===

#[test]
fn the_command_says_which_process_serves() {
    let mut weir = Weir::start_installed(&saying("hello"));
    let before = weir.stderr().len();
    let told = run_weir(weir.dir(), &["upgrade", "--admin", &weir.admin()]);
    let pid = weir.wait_upgrade_after(before).unwrap();
    told.expect_code(0).expect_text(&pid.to_string());
    eventually("the old process ends", || !weir.is_running());
    // The admin listener moved too, to the same address.
    run_weir(weir.dir(), &["status", "--admin", &weir.admin()]).expect_code(0).expect_text("running");
    weir.client().get("/").expect_body("hello");
    // The new process can be upgraded in turn.
    weir.upgrade().unwrap();
    weir.client().get("/").expect_body("hello");
}

// === A failed upgrade changes nothing ===

#[test]
fn a_program_that_does_not_come_up_changes_nothing() {
    let weir = Weir::start_installed(&saying("old"));
    let mut client = weir.client();
    client.get("/").expect_body("old");
    for (script, why) in [
        ("#!/bin/sh\nexit 3\n", "ended before it was ready (exit status: 3)"),
        ("#!/nowhere\n", "cannot be started"),
        ("#!/bin/sh\nexec 0<&-\nexec sleep 60\n", "hung up before it was ready"),
    ] {
        replace_by(&weir, script);
        let refused = weir.upgrade().unwrap_err();
        assert!(refused.contains(why), "{script:?}:\n{refused}");
    }
    fs::remove_file(weir.dir().join("weir")).unwrap();
    assert!(weir.upgrade().unwrap_err().contains("cannot be started"));
    client.get("/").expect_body("old");
    weir.client().get("/").expect_body("old");

    install(&weir.dir().join("weir"));
    weir.upgrade().unwrap();
}

#[test]
fn a_second_upgrade_waits_for_the_first() {
    let weir = Weir::start_installed(&saying("old"));
    replace_by(&weir, "#!/bin/sh\nexec sleep 3\n"); // silent, and gone before the test could be
    weir.upgrade_begin();
    let refused = weir.upgrade().unwrap_err();
    assert!(refused.contains("an upgrade is under way"), "{refused}");
    weir.client().get("/").expect_body("old");
}

/// The new process has the sockets as they were.
#[test]
fn the_config_stays_until_an_upgrade_is_over() {
    let weir = Weir::start_installed(&(saying("old") + "watch: false\n"));
    replace_by(&weir, "#!/bin/sh\nexec sleep 3\n"); // as above
    weir.upgrade_begin();
    eventually("a reload is refused", || {
        let new = saying("newer") + "watch: false\n";
        weir.reload_with(&new).is_err_and(|why| why.contains("an upgrade is under way"))
    });
    weir.wait_log("not upgraded: this process keeps serving");
    weir.reload_with(&(saying("new") + "watch: false\n")).unwrap();
    weir.client().get("/").expect_body("new");
}

#[test]
fn a_refused_config_changes_nothing_and_is_told() {
    let weir = Weir::start_installed(&saying("old"));
    weir.write_config(&saying("new").replace("respond", "repsond"));
    let told = run_weir(weir.dir(), &["upgrade", "--admin", &weir.admin()]);
    told.expect_code(1).expect_text("repsond").expect_text("weir.yaml:");
    weir.wait_log("not upgraded: this process keeps serving"); // otherwise the next upgrade would take this line for its
    weir.client().get("/").expect_body("old");
    weir.write_config(&saying("new"));
    weir.upgrade().unwrap();
    weir.client().get("/").expect_body("new");
}

// === The new process dies ===

pub(crate) fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// Waits until a new process serves in place of one that died; returns its pid.
fn taken_over(weir: &Weir, died: u32) -> u32 {
    let line = weir.wait_log("took over again");
    assert_eq!(line.field("died"), Some(died.to_string().as_str()));
    line.field("pid").unwrap().parse().unwrap()
}

#[test]
fn a_successor_that_dies_is_replaced() {
    let upstream = Upstream::listen();
    let yaml = config_for(&upstream, "") + "watch: false\n";
    let mut weir = started_with(&yaml, &["--pid-file", "weir.pid"]);
    let (mut client, mut conn) = tunnel(&weir, &upstream); // the old process drains while it is open
    let dead = weir.upgrade().unwrap();
    kill(dead, "-KILL");
    // The request waits in the socket, which the old process keeps open, until another process accepts.
    let (mut waiting, mut service) = weir.begin(&upstream, GET);
    service.send(OK_BODY);
    waiting.read_response().expect_status(200);
    let fresh = taken_over(&weir, dead);
    let written = fs::read_to_string(weir.dir().join("weir.pid")).unwrap();
    assert_eq!(written.trim(), fresh.to_string());
    client.send("still here?");
    conn.expect("still here?");

    // It is a normal gateway, and can be upgraded in turn.
    let before = weir.stderr().len();
    run_weir(weir.dir(), &["upgrade", "--admin", &weir.admin()]).expect_code(0);
    let last = weir.wait_upgrade_after(before).unwrap();
    assert!(last != fresh && last != dead);
    client.close();
    conn.close();
    eventually("the old process ends", || !weir.is_running());
    run_weir(weir.dir(), &["drain", "--admin", &weir.admin()]).expect_code(0);
}

#[test]
fn one_that_dies_at_once_is_replaced_by_a_process_without_connections_too() {
    let weir = Weir::start_installed(&saying("hello"));
    let dead = weir.upgrade().unwrap();
    kill(dead, "-ABRT");
    taken_over(&weir, dead);
    weir.client().get("/").expect_body("hello");
    run_weir(weir.dir(), &["drain", "--admin", &weir.admin()]).expect_code(0);
}

#[test]
fn one_that_ends_on_purpose_is_not_replaced() {
    let mut weir = Weir::start_installed(&saying("hello"));
    let new = weir.upgrade().unwrap();
    kill(new, "-TERM");
    eventually("the old process ends", || !weir.is_running());
    eventually("nobody listens", || std::net::TcpStream::connect(weir.address("web")).is_err());
    assert!(weir.logged("took over again").is_empty());
}

// === process supervisors ===

/// A gateway in a folder with a link to the binary, with additional arguments.
fn started_with(yaml: &str, more: &[&str]) -> Weir {
    Weir::start_by(yaml, |dir| {
        install(&dir.join("weir"));
        let mut command = command_for(&dir.join("weir"), dir);
        command.args(["run", "-c", "weir.yaml"]).args(more);
        command
    })
}

#[test]
fn the_pid_file_goes_to_the_new_process() {
    let mut weir = started_with(&saying("hello"), &["--pid-file", "weir.pid"]);
    let path = weir.dir().join("weir.pid");
    let told = || fs::read_to_string(&path).unwrap().trim().parse::<u32>().unwrap();
    assert_eq!(told(), weir.pid());
    // With another config, the process does not get that far.
    let again = run_weir(weir.dir(), &["run", "-c", "weir.yaml", "--pid-file", "weir.pid"]);
    again.expect_code(1).expect_text(&format!("process {} holds it", weir.pid()));
    let new = weir.upgrade().unwrap();
    assert_eq!(told(), new);
    eventually("the old process ends", || !weir.is_running());
    assert_eq!(told(), new);
    run_weir(weir.dir(), &["drain", "--admin", &weir.admin()]).expect_code(0);
    eventually("its file goes with it", || !path.exists());
}

#[test]
fn a_pid_file_that_was_left_behind_is_replaced() {
    let weir = Weir::start_by(&saying("hello"), |dir| {
        fs::write(dir.join("weir.pid"), "1\n").unwrap(); // a running process, but not Weir
        let mut command = weir_testkit::weir_command(dir);
        command.args(["run", "-c", "weir.yaml", "--pid-file", "weir.pid"]);
        command
    });
    let path = weir.dir().join("weir.pid");
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", weir.pid()));
    weir.stop();
    assert!(!path.exists());
}

#[test]
fn systemd_is_told_which_process_serves() {
    let heard = tempfile::tempdir().unwrap();
    let path = heard.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(weir_testkit::DEADLINE)).unwrap();
    let next = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).expect("a message for systemd");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let weir = Weir::start_by(&saying("hello"), |dir| {
        install(&dir.join("weir"));
        let mut command = command_for(&dir.join("weir"), dir);
        command.args(["run", "-c", "weir.yaml"]).env("NOTIFY_SOCKET", &path);
        command
    });
    assert_eq!(next(), "READY=1");
    let new = weir.upgrade().unwrap();
    // systemd accepts the successor from the old process, and then messages from the new one.
    let mut seen = vec![next(), next(), next()];
    seen.sort();
    assert_eq!(seen, [format!("MAINPID={new}"), format!("MAINPID={new}"), "READY=1".to_owned()]);
}

#[test]
fn process_1_of_a_container_is_not_replaced() {
    let unshare = ["--pid", "--fork", "--kill-child"];
    let allowed = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("not tried: this user may not make a namespace of processes");
        return;
    }
    let weir = Weir::start_by(&saying("hello"), |dir| {
        let mut command = command_for("unshare".as_ref(), dir);
        command.args(unshare).arg(weir_testkit::weir_command(dir).get_program());
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    assert_eq!(weir.wait_log("ready").field("pid"), Some("1"));
    let told = run_weir(weir.dir(), &["upgrade", "--admin", &weir.admin()]);
    told.expect_code(1).expect_text("this is process 1 of a container").expect_text("replace the container");
    weir.client().get("/").expect_body("hello");
}

// === Sockets that systemd opened ===

#[test]
fn sockets_of_systemd_are_served() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = saying("hello").replace("127.0.0.1:0 }", &format!("{address} }}"));
    let weir = Weir::start_by(&config, |dir| {
        // As systemd does: descriptors from 3 on, and the pid that they are for.
        let mut command = command_for("/bin/sh".as_ref(), dir);
        let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" run -c weir.yaml";
        command.args(["-c", script]).arg(weir_testkit::weir_command(dir).get_program());
        command.stdin(Stdio::from(OwnedFd::from(socket)));
        command
    });
    assert_eq!(weir.address("web"), address.to_string());
    weir.client().get("/").expect_body("hello");
    weir.upgrade().unwrap();
    weir.client().get("/").expect_body("hello");
}

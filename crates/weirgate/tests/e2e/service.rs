//! The service as shipped: a gateway under the system call filter of dist/weir.service. `make test-unit-filter` runs
//! all modules this way. This one covers features with special system calls: files, TLS, disks, names, threads, a
//! reload and an upgrade.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_testkit::{Authority, Client, Tls, Upstream, Weir, command_for, eventually, run_weir, weir_command};

use crate::support::{GET, OK_BODY, WEB};

/// A launcher that runs the binary under this unit's filter; `None` without the tools for it.
fn under_filter(unit: &str, dir: &Path) -> Option<PathBuf> {
    let tools =
        "import seccomp, shutil, sys; sys.exit(not (shutil.which('systemd-analyze') and shutil.which('cc')))";
    let has_tools = Command::new("/usr/bin/python3").args(["-c", tools]).output();
    if !has_tools.is_ok_and(|found| found.status.success()) {
        eprintln!("SKIPPED: python3-seccomp, systemd-analyze or cc is not installed");
        return None;
    }
    fs::write(dir.join("unit.service"), unit).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/unit-filter.py");
    let mut command = Command::new(script);
    command.arg("unit.service").arg(weir_command(dir).get_program()).arg("launcher");
    assert!(command.current_dir(dir).status().unwrap().success());
    Some(dir.join("launcher"))
}

const UNIT: &str = include_str!("../../../../dist/weir.service");

#[test]
fn what_the_unit_allows_is_enough() {
    let tools = tempfile::tempdir().unwrap();
    let Some(launcher) = under_filter(UNIT, tools.path()) else { return };
    let (upstream, authority) = (Upstream::listen(), Authority::new());
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let address = upstream.address();
    let yaml = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }}, tls: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }} }}\n\
         workers: 2\nwatch: true\naccess_log: {{ output: \"{{dir}}/access.log\" }}\n\
         admin: {{ address: 127.0.0.1:0, writes: \"{{dir}}/managed.yaml\", state: \"{{dir}}/state\" }}\n\
         stores: {{ pages: {{ memory: 4MiB, disk: {{ path: \"{{dir}}/pages\", size: 64MiB }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [\"localhost:{}\"] }} }}\n\
         routes: {{ files: {{ match: {{ path: \"/files/*\" }}, files: {{ root: \"{{dir}}\" }} }},\n\
         kept: {{ match: {{ path: \"/*\" }}, filters: [ compress: {{}}, {{ cache: {{ store: pages, ttl: 1h }} }} ], upstream: up }} }}\n",
        address.port()
    );
    let weir = Weir::start_by(&yaml, |dir| {
        fs::create_dir(dir.join("files")).unwrap();
        fs::write(dir.join("files/page"), vec![b'x'; 100_000]).unwrap();
        symlink(&launcher, dir.join("weir")).unwrap();
        let mut command = command_for(&dir.join("weir"), dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    for path in ["/files/page", "/files/page", "/files/missing"] {
        let status = if path.ends_with("page") { 200 } else { 404 };
        weir.client().get(path).expect_status(status);
    }
    let (mut kept, mut service) = weir.begin(&upstream, GET);
    service.send(OK_BODY);
    kept.read_response().expect_status(200).expect_body("ok");
    kept.get("/").expect_status(200).expect_body("ok");
    let secure = || Client::connect_tls(weir.address("tls"), &Tls::new(&authority, "weir.test"));
    secure().get("/files/page").expect_status(200);
    let body = r#"{"endpoints": ["127.0.0.1:9999"]}"#;
    let written = weir.admin_client().ask(format!(
        "PUT /api/v1/config/upstreams/more HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIf-None-Match: *\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    written.expect_status(201);
    assert!(weir.dir().join("managed.yaml").exists());
    weir.reload().unwrap();
    weir.upgrade().unwrap();
    // The new process reads the disk after the old one has released it. A request before that would go to the
    // service.
    eventually("the disk is known again", || weir.logged("the disk of a cache is ready").len() == 2);
    secure().get("/files/page").expect_status(200);
    weir.client().get("/").expect_body("ok");
    run_weir(weir.dir(), &["drain", "--admin", &weir.admin()]).expect_code(0);
}

/// The line by which a call that the unit does not list fails. Without it, such a call ends the process.
const FAILS: &str = "SystemCallErrorNumber=EPERM\n";

fn start_files_by(launcher: &Path) -> Weir {
    Weir::start_by(
        "listeners: { web: { address: 127.0.0.1:0 } }\nroutes: { all: { match: { path: \"/*\" }, files: { root: \"{dir}\" } } }\n",
        |dir| {
            fs::write(dir.join("page"), vec![b'x'; 100_000]).unwrap();
            let mut command = command_for(launcher, dir);
            command.args(["run", "-c", "weir.yaml"]);
            command
        },
    )
}

#[test]
fn the_filter_of_the_test_is_one() {
    let tools = tempfile::tempdir().unwrap();
    let unit = UNIT.replace(FAILS, "SystemCallFilter=~sendfile\n");
    assert_ne!(unit, UNIT);
    let Some(launcher) = under_filter(&unit, tools.path()) else { return };
    let mut weir = start_files_by(&launcher);
    let mut client = weir.client();
    client.send("GET /page HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let ended = weir.wait_exit(weir_testkit::DEADLINE);
    assert_eq!(ended.code, None, "a call that is not listed ends a process of a unit that names no errno");
}

/// An upgrade in place keeps the filter of the unit that started the first process. That of 0.1 does not know
/// cachestat, and ends a process that asks.
#[test]
fn files_are_sent_under_the_filter_of_an_older_unit() {
    let tools = tempfile::tempdir().unwrap();
    let unit = UNIT.replace(FAILS, "").replace(" cachestat\n", "\n");
    let Some(launcher) = under_filter(&unit, tools.path()) else { return };
    let weir = start_files_by(&launcher);
    for _ in 0..2 {
        weir.client().get("/page").expect_status(200).expect_body("x".repeat(100_000));
    }
}

#[test]
fn a_file_that_the_api_may_not_write_is_told_of() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("etc");
    fs::create_dir(&folder).unwrap();
    let yaml = "listeners: { web: { address: 127.0.0.1:8080 } }\nadmin: { writes: managed.yaml, state: /tmp/none, token: secret }\n\
                routes: { all: { match: { path: \"/*\" }, respond: { body: hello } } }\n";
    fs::write(folder.join("weir.yaml"), yaml).unwrap();
    let check = || {
        let mut command = weir_command(&folder);
        command.args(["check", "-c", "weir.yaml"]);
        // Root may write everywhere, so another user plays the service's user.
        if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
            command.uid(NOBODY);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(!check().contains("[not-writable]"));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let told = check();
    assert!(told.contains("admin.writes") && told.contains("[not-writable]"), "{told}");
    assert!(told.contains(&folder.display().to_string()) && told.contains("/var/lib/weir"), "{told}");
}

/// A small Debian has no `/bin/kill`, for one.
#[test]
fn the_unit_runs_only_weir_and_the_shell() {
    let commands = UNIT.lines().filter(|line| line.starts_with("Exec"));
    let commands = commands.map(|line| line.split_once('=').unwrap().1.trim_start_matches('-'));
    let programs: Vec<&str> = commands.map(|command| command.split(' ').next().unwrap()).collect();
    assert!(programs.len() >= 4, "{programs:?}");
    for program in programs {
        assert!(["/usr/bin/weir", "/bin/sh"].contains(&program), "{program} is of another package");
    }
}

// === notifications to systemd ===

#[test]
fn lines_in_the_journal_have_a_priority() {
    let start = |stream: &str| {
        Weir::start_by(
            &format!(
                "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: hello }} }} }}\n"
            ),
            |dir| {
                let mut command = command_for("/bin/sh".as_ref(), dir);
                let script = format!("JOURNAL_STREAM={stream} exec \"$0\" run -c weir.yaml");
                command.args(["-c", &script]).arg(weir_command(dir).get_program());
                command
            },
        )
    };
    let weir = start("$(stat -L -c %d:%i /proc/self/fd/2)");
    let (info, warn) = (weir.wait_log("ready"), weir.wait_log("config"));
    assert_eq!((info.level.as_str(), warn.level.as_str()), ("info", "warn"));
    let text = weir.stderr();
    assert!(text.lines().all(|line| line.starts_with("<6>20") || line.starts_with("<4>20")), "{text}");
    // Its stderr is not the journal: it was started within a service, with output to a file.
    let text = start("1:1").stderr();
    assert!(text.lines().all(|line| line.starts_with("20")), "{text}");
}

#[test]
fn the_watchdog_is_told_while_the_loops_turn() {
    let heard = tempfile::tempdir().unwrap();
    let path = heard.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(weir_testkit::DEADLINE)).unwrap();
    let next = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).expect("a message for systemd");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut weir = Weir::start_by(
        &format!("{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: hello }} }} }}\n"),
        |dir| {
            weir_testkit::install(&dir.join("weir"));
            let mut command = command_for(&dir.join("weir"), dir);
            command
                .args(["run", "-c", "weir.yaml"])
                .env("NOTIFY_SOCKET", &path)
                .env("WATCHDOG_USEC", "2000000"); // a busy machine may stop a core for some hundred milliseconds
            command
        },
    );
    assert_eq!(
        (next(), next(), next()),
        ("READY=1".to_owned(), "WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned())
    );
    weir.upgrade().unwrap();
    // A process that notifies systemd blocks if nobody reads.
    let read_all = || {
        socket.set_nonblocking(true).unwrap();
        while socket.recv(&mut [0; 256]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
    };
    eventually("the old process ends", || {
        read_all();
        !weir.is_running()
    });
    assert!(weir.logged("a core is stuck: systemd's watchdog gets no signal").is_empty());
    read_all();
    assert_eq!(next(), "WATCHDOG=1", "of the new process");
}

// === The first config ===

#[test]
fn the_first_config_serves_this_machine() {
    let first = include_str!("../../../../dist/weir.yaml");
    for address in ["\"127.0.0.1:8080\"", "\"127.0.0.1:9180\"", "state: /var/lib/weir\n"] {
        assert!(first.contains(address), "{address}");
    }
    assert!(include_str!("../../../../dist/weir.socket").contains("ListenStream=127.0.0.1:8080\n"));
    let writable = ["/var/lib/weir", "/var/log/weir"];
    for path in first.split([' ', '"', '\n']).filter(|word| word.starts_with("/var/")) {
        assert!(
            writable.iter().any(|folder| path.starts_with(folder)),
            "the unit does not let it write {path}"
        );
    }
    let anywhere = first.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:9180", "127.0.0.1:0");
    let weir = Weir::start(&anywhere.replace("/var/lib/weir", "{dir}/state"));
    let answer = weir.client().get("/");
    answer.expect_status(200);
    assert!(answer.text().contains("/etc/weir/weir.yaml"), "it says what to do next");
    let ready = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    weir.admin_client().ask(ready).expect_status(200);
}

//! UDP sockets that change hands, or come back, while older cores and processes still have connections on them. The
//! kernel goes on to give clients to every socket of an address that is open: each needs a reader.

use crate::binary_upgrade::kill;
use crate::http3::udp_descriptors;
use weir_testkit::{Asked, Authority, Conn, H3, Tls, Upstream, Weir, eventually, run_weir};

/// A listener, with a route that answers and one whose answer a test holds back.
struct Lab {
    authority: Authority,
    upstream: Upstream,
}

/// A request under way.
type Held = (Conn, Asked, H3);

/// More than a client takes without telling the server that it has received some.
const LONG: usize = 400_000;

impl Lab {
    fn new() -> Self {
        Self { authority: Authority::new(), upstream: Upstream::listen() }
    }

    fn config(&self, protocols: &str, workers: usize) -> String {
        let certificate = self.authority.leaf(&["a.test"]).yaml();
        let up = self.upstream.address();
        format!(
            "listeners: {{ web: {{ address: \"127.0.0.1:0\", protocols: [{protocols}], tls: {{ certificates: [ {certificate} ] }} }} }}\n\
             upstreams: {{ up: {{ endpoints: [{up}] }} }}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: ok }} }}, slow: {{ match: {{ path: /slow }}, upstream: up }} }}\n\
             watch: false\nworkers: {workers}\n"
        )
    }

    fn with(&self, workers: usize) -> String {
        self.config("h3, h2, http1", workers)
    }

    fn without(&self, workers: usize) -> String {
        self.config("h2, http1", workers)
    }

    fn client(&self, weir: &Weir) -> H3 {
        H3::connect(&weir.udp_address(), &Tls::new(&self.authority, "a.test"))
    }

    /// Requests under way, so many that each core has one.
    fn hold(&self, weir: &Weir) -> Vec<Held> {
        let hold = |_| {
            let client = self.client(weir);
            let asked = client.start("GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
            (self.upstream.accept_request(), asked, client)
        };
        (0..12).map(hold).collect()
    }

    /// New clients reach whichever socket the kernel picks.
    fn all_get_in(&self, weir: &Weir) {
        for _ in 0..16 {
            self.client(weir).get("/").expect_body("ok");
        }
    }

    /// The requests end, for which the acknowledgements of their clients have to arrive.
    fn finish(held: Vec<Held>) {
        let body = "x".repeat(LONG);
        for (mut conn, asked, _client) in held {
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n{body}"));
            asked.response().expect_body(&body);
        }
    }
}

fn reload(weir: &Weir, yaml: &str) {
    weir.write_config(yaml);
    let before = weir.stderr().len();
    kill(weir.serving(), "-HUP");
    weir.wait_reload_after(before).unwrap();
}

#[test]
fn http3_comes_back_beside_connections_of_a_core_that_left() {
    let lab = Lab::new();
    let weir = Weir::start(&lab.with(2));
    let held = lab.hold(&weir);
    reload(&weir, &lab.with(1));
    reload(&weir, &lab.without(1));
    reload(&weir, &lab.with(1));
    lab.all_get_in(&weir);
    reload(&weir, &lab.with(3));
    lab.all_get_in(&weir);
    Lab::finish(held);
    lab.all_get_in(&weir);
}

/// One core keeps its socket for a request while HTTP/3 is off. When HTTP/3 comes back, that socket is the first of its
/// address, and usually another core gets it: then only that one may read it.
#[test]
fn a_socket_that_is_dealt_to_another_core_has_one_reader() {
    let lab = Lab::new();
    let weir = Weir::start(&lab.with(8));
    let client = lab.client(&weir);
    let asked = client.start("GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let held = vec![(lab.upstream.accept_request(), asked, client)];
    reload(&weir, &lab.without(8));
    eventually("the other cores have closed theirs", || udp_descriptors(&weir) == 1);
    reload(&weir, &lab.with(8));
    lab.all_get_in(&weir);
    Lab::finish(held);
    eventually("each socket is open once", || udp_descriptors(&weir) == 8);
    lab.all_get_in(&weir);
}

#[test]
fn requests_end_where_http3_is_off_by_now() {
    let lab = Lab::new();
    let weir = Weir::start(&lab.with(2));
    let held = lab.hold(&weir);
    reload(&weir, &lab.without(2));
    reload(&weir, &lab.without(1));
    Lab::finish(held);
    reload(&weir, &lab.with(1));
    lab.all_get_in(&weir);
}

#[test]
fn http3_comes_back_beside_connections_of_the_process_before() {
    let lab = Lab::new();
    let weir = Weir::start_installed(&lab.with(2));
    let held = lab.hold(&weir);
    weir.upgrade().unwrap();
    reload(&weir, &lab.without(2));
    reload(&weir, &lab.with(2));
    lab.all_get_in(&weir);
    Lab::finish(held);
    lab.all_get_in(&weir);
}

#[test]
fn http3_comes_back_after_an_upgrade_that_took_it_away() {
    let lab = Lab::new();
    let weir = Weir::start_installed(&lab.with(2));
    let held = lab.hold(&weir);
    weir.write_config(&lab.without(2));
    weir.upgrade().unwrap();
    reload(&weir, &lab.with(2));
    lab.all_get_in(&weir);
    Lab::finish(held);
    lab.all_get_in(&weir);
}

#[test]
fn http3_comes_back_in_the_third_process() {
    let lab = Lab::new();
    let weir = Weir::start_installed(&lab.with(2));
    let held = lab.hold(&weir);
    weir.write_config(&lab.without(2));
    weir.upgrade().unwrap();
    weir.write_config(&lab.with(2));
    weir.upgrade().unwrap();
    lab.all_get_in(&weir);
    Lab::finish(held);
    lab.all_get_in(&weir);
}

#[test]
fn requests_of_the_process_before_outlive_the_new_one() {
    let lab = Lab::new();
    let weir = Weir::start_installed(&lab.with(2));
    let held = lab.hold(&weir);
    weir.write_config(&(lab.with(2) + "shutdown: { drain: 1s }\n"));
    let new = weir.upgrade().unwrap();
    kill(new, "-TERM");
    weir.wait_log("ended");
    Lab::finish(held);
}

#[test]
fn a_successor_that_dies_after_a_reload_is_replaced() {
    let lab = Lab::new();
    let weir = Weir::start_installed(&lab.with(2));
    let held = lab.hold(&weir);
    let dead = weir.upgrade().unwrap();
    reload(&weir, &lab.with(2));
    kill(dead, "-KILL");
    weir.wait_log("took over again");
    lab.all_get_in(&weir);
    Lab::finish(held);
    run_weir(weir.dir(), &["drain", "--admin", &weir.admin()]).expect_code(0);
}

//! `weir import caddy --prove`: a real Caddy and Weir, asked the same in a world of their own.
//!
//! Without Caddy, or where the kernel gives no namespaces, the tests print a note and pass; `make test` installs Caddy.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use weir_testkit::run_weir;

/// Sites in which order, paths, hosts and conditions decide.
const CADDYFILE: &str = "\
http://shop.test {
	header X-Site shop
	redir /old /new
	redir /docs/* https://docs.test{uri} permanent
	handle /private* {
		respond \"closed\" 403
	}
	handle_path /api/* {
		reverse_proxy app1:8080 app2:8080 {
			header_up X-Api yes
		}
	}
	@beta header X-Beta 1
	handle @beta {
		reverse_proxy next:8080
	}
	handle {
		reverse_proxy front:3000 {
			header_down -X-Powered-By
		}
	}
}

http://other.test, http://second.test {
	rewrite /legacy /current
	request_body {
		max_size 100B
	}
	reverse_proxy /current legacy:80
	respond \"other\"
}
";
/// Imports the config into `weir`. None if this machine cannot prove.
fn imported(dir: &Path) -> Option<Value> {
    fs::write(dir.join("Caddyfile"), CADDYFILE).unwrap();
    let told = run_weir(dir, &["import", "caddy", "Caddyfile", "-o", "weir", "--prove", "--format", "json"]);
    let report: Value =
        serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}:\n{told:#?}"));
    assert_eq!(report["mistakes_of_weir_import"], serde_json::json!([]), "{report:#}");
    let why = report["proof"]["not_proved"].as_str().unwrap_or_default();
    if why.contains("is not on this machine") || why.contains("this kernel cannot create a sandbox") {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    assert_eq!(why, "", "{report:#}");
    Some(report)
}

/// Fields that the two send differently, as docs/guide/from-caddy.md says. Go asks upstreams for gzip by itself.
const KNOWN: &[&str] = &["accept-encoding", "forwarded", "user-agent", "x-forwarded-"];

/// The differences that nobody explains: `LINE DIFFERENCE WITNESS: OLD, OURS`. Weir sends and compares canonical
/// paths, and refuses those that servers read differently (400); where Caddy closes the connection, Weir answers.
fn unexplained(report: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for row in report["lines"].as_array().unwrap() {
        for one in row["differences"].as_array().unwrap() {
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            let (name, old, ours) = (text("difference"), text("old"), text("weir"));
            let target = one["request"]["target"].as_str().unwrap_or_default();
            let is_known = KNOWN.iter().any(|known| name.starts_with(&format!("upstream field {known}")));
            // Where it strips a prefix, it escapes `*` too.
            let is_path = ["//", "%", "/.", "*"].iter().any(|part| target.contains(part)) || ours == "400";
            let has_no_host = one["request"]["host"].is_null();
            // Caddy 2.6 answers every method with a file, sends its own placeholder where the service named nobody,
            // and strips `/app` from `/appx` too.
            let is_caddys = name == "status" && one["request"]["method"] != "GET" && ["404", "405"].contains(&&*ours)
                    || old.contains("{http.")
                    || name == "upstream field content-type"
                    // Weir names the charset of user and password (RFC 7617 §2.1).
                    || name == "answer field www-authenticate" && old.starts_with("Basic")
                    || name == "upstream target" && target == "/appx"
                    // It passes a client's Remote-User on if the service that it asked named nobody.
                    || name.starts_with("upstream field remote-") && ours == "none"
                    || name == "answer field set-cookie" && old.starts_with("lb=");
            if !is_known && !is_path && !is_caddys && !has_no_host && !old.contains("no answer") {
                found.push(format!("{} {name} {}: {old}, {ours}", row["line"], text("witness")));
            }
        }
    }
    found
}

/// What `weir prove` finds that nobody explains.
fn differences(dir: &Path) -> Vec<String> {
    let proved = run_weir(dir, &["prove", "weir", "--format", "json"]);
    let report: Value =
        serde_json::from_str(&proved.stdout).unwrap_or_else(|error| panic!("{error}:\n{proved:#?}"));
    assert_eq!(report["not_proved"].as_str().unwrap_or_default(), "", "{report:#}");
    unexplained(&report)
}

/// Replaces a text in the routes; it must be there.
fn lie(dir: &Path, from: &str, to: &str) {
    let file = dir.join("weir/routes/shop.test.yaml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{from}\n{text}");
    fs::write(file, text.replace(from, to)).unwrap();
}

#[test]
fn an_import_does_what_caddy_does() {
    let dir = TempDir::new().unwrap();
    if imported(dir.path()).is_none() {
        return;
    }
    let found = differences(dir.path());
    assert!(found.is_empty(), "{found:#?}");
}

/// Every sample of weir-import: Caddy and the imported config answer alike.
#[test]
fn samples_do_what_caddy_does() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weir-import/tests/caddy");
    let mut count = 0;
    for sample in fs::read_dir(samples).unwrap().map(|entry| entry.unwrap().path()) {
        if sample.extension().is_none_or(|extension| extension != "Caddyfile") {
            continue;
        }
        let dir = TempDir::new().unwrap();
        // The folders of the sample are here.
        let mut text = fs::read_to_string(&sample).unwrap();
        for root in ["/srv/app/dist", "/srv/shop", "/var/www/wordpress", "/srv/rails/public"] {
            let own = dir.path().join("files");
            fs::create_dir_all(&own).unwrap();
            if text.contains("/srv/app/dist") || text.contains("/srv/shop") {
                fs::write(own.join("index.html"), "<h1>index</h1>").unwrap();
            }
            text = text.replace(root, own.to_str().unwrap());
        }
        fs::write(dir.path().join("Caddyfile"), text).unwrap();
        let told = run_weir(
            dir.path(),
            &["import", "caddy", "Caddyfile", "-o", "weir", "--prove", "--format", "json"],
        );
        let report: Value = serde_json::from_str(&told.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}:\n{told:#?}", sample.display()));
        let why = report["proof"]["not_proved"].as_str().unwrap_or_default();
        if why.contains("is not on this machine") || why.contains("cannot create a sandbox") {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let found = match why {
            "" => unexplained(&report["proof"]),
            why => vec![why.to_owned()],
        };
        assert!(found.is_empty(), "{}: {found:#?}", sample.display());
        count += 1;
    }
    assert!(count >= 9, "{count} samples");
}

#[test]
fn a_guard_that_was_dropped_is_caught() {
    let dir = TempDir::new().unwrap();
    if imported(dir.path()).is_none() {
        return;
    }
    lie(dir.path(), "status: 403", "status: 200");
    let found = differences(dir.path());
    assert!(found.iter().any(|found| found.contains(" status GET ")), "{found:#?}");
}

#[test]
fn another_upstream_is_caught() {
    let dir = TempDir::new().unwrap();
    if imported(dir.path()).is_none() {
        return;
    }
    lie(dir.path(), "upstream: next", "upstream: front");
    let found = differences(dir.path());
    assert!(!found.is_empty());
}

#[test]
fn json_is_not_proved() {
    let dir = TempDir::new().unwrap();
    let json = r#"{"apps":{"http":{"servers":{"s":{"listen":[":80"],"routes":[{"handle":[
        {"handler":"static_response","body":"hi"}]}]}}}}}"#;
    fs::write(dir.path().join("caddy.json"), json).unwrap();
    let told = run_weir(dir.path(), &["import", "caddy", "caddy.json", "-o", "weir", "--prove"]);
    assert_eq!(told.code, Some(1), "{told:#?}");
    told.expect_text("NOT PROVED");
}

#[test]
fn what_caddy_itself_refuses_is_told() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("Caddyfile"), "http://a.test {\n\tredir\n\trespond ok\n}\n").unwrap();
    let told = run_weir(dir.path(), &["import", "caddy", "Caddyfile", "-o", "weir", "--prove"]);
    if told.stdout.contains("is not on this machine") || told.stdout.contains("cannot create a sandbox") {
        eprintln!("SKIPPED: {}", told.stdout);
        return;
    }
    assert_eq!(told.code, Some(3), "{told:#?}");
}

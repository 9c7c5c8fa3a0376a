//! The pictures of the README are those of today's console and report.
//!
//! Pixels depend on fonts and on the version of the browser, and figures differ from run to run, so pictures are not
//! compared. The test compares the style sheet, the headings, the names of figures and the navigation of each page with
//! `docs/images/screenshots.txt`. If one of them changes, the picture is old: `make screenshots` takes it again with
//! headless Chromium (`scripts/screenshots.py`).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::process::Command;
use weir_testkit::{Client, Upstream, Weir, run_weir};

use crate::examples::root;
use crate::support::OK_BODY;

/// Most bytes of a picture.
const MOST: u64 = 100_000;
const PICTURES: [&str; 3] = ["console.webp", "failures.webp", "report.webp"];
/// Elements whose text does not depend on the traffic.
const TELLING: [&str; 4] = ["h1", "h2", "dt", "nav"];

#[test]
fn screenshots_show_todays_pages() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    let console = |path: &str| {
        let host = weir.admin();
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n");
        let page = Client::connect(host.clone()).ask(head);
        page.expect_status(200);
        page.text()
    };
    let images = root().join("docs/images");
    let is_blessed = std::env::var_os("WEIR_BLESS").is_some();
    if is_blessed {
        let taken = Command::new("python3")
            .arg(root().join("scripts/screenshots.py"))
            .arg(std::env::var("WEIR_BIN").expect("WEIR_BIN names the binary to show"))
            .status()
            .unwrap();
        assert!(taken.success(), "scripts/screenshots.py needs chromium");
    }
    // The result in the picture, so that it has the same parts on a slow machine.
    let saved = images.join("report.json");
    let report = run_weir(weir.dir(), &["report", saved.to_str().unwrap(), "--format", "html"]);
    report.expect_code(0);
    let pages = [console("/"), console("/failures"), report.stdout];
    let mut found = String::new();
    for (picture, page) in PICTURES.iter().zip(&pages) {
        writeln!(found, "{picture}").unwrap();
        for line in skeleton(page) {
            writeln!(found, "  {line}").unwrap();
        }
    }
    let kept = images.join("screenshots.txt");
    if is_blessed {
        fs::write(&kept, &found).unwrap();
    }
    let kept = fs::read_to_string(kept).unwrap_or_default();
    assert!(
        kept == found,
        "the pictures in docs/images are old. Take them again: make screenshots\n--- docs/images/screenshots.txt\n\
         {kept}\n--- today\n{found}"
    );
    for picture in PICTURES {
        let bytes = fs::metadata(images.join(picture)).map_or(0, |picture| picture.len());
        assert!((1..=MOST).contains(&bytes), "{picture} has {bytes} bytes");
    }
}

/// What a picture of the page is made of, without figures.
fn skeleton(page: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for tag in TELLING {
        for (at, _) in page.match_indices(&format!("<{tag}")) {
            let element = &page[at..];
            // `dt` may be left open.
            let ends = [format!("</{tag}>"), "<dd".to_owned()];
            let end = ends.iter().filter_map(|end| element.find(end.as_str())).min().unwrap_or(element.len());
            let text = text_of(&element[..end]);
            if !text.is_empty() {
                lines.insert(format!("{tag}: {text}"));
            }
        }
    }
    for (at, _) in page.match_indices("rel=\"stylesheet\"") {
        lines.insert(format!("style: {}", page[at..].split('>').next().unwrap()));
    }
    for (at, _) in page.match_indices("<style>") {
        let style = page[at..].split("</style>").next().unwrap();
        lines.insert(format!("style: {:016x}", fnv(style)));
    }
    lines
}

/// The words of HTML, without tags, digits and signs.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    let mut in_tag = false;
    for letter in html.chars() {
        match letter {
            '<' => in_tag = true,
            '>' => {
                in_tag = false;
                text.push(' ');
            }
            _ if in_tag => {}
            _ => text.push(if letter.is_alphabetic() { letter } else { ' ' }),
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// FNV-1a, of 64 bits: the same on every machine.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

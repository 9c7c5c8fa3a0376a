//! The target as a route uses it: a folder on disk, requests, answers.

use super::*;
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tempfile::TempDir;
use weir_filter::filter::{CallAnswer, CallRequest, Job, Services, Task};
use weir_filter::testing::request_head;

/// A core that runs blocking work immediately, and tasks until they first wait.
#[derive(Default)]
struct Core(RefCell<HashMap<usize, Rc<dyn Any>>>);

impl Services for Core {
    fn call<'a>(
        &'a self,
        _: &'a str,
        _: CallRequest,
    ) -> weir_filter::filter::Waiting<'a, Result<CallAnswer, &'static Cause>> {
        Box::pin(std::future::ready(Err(&error::NO_ENDPOINT)))
    }

    fn spawn(&self, mut task: Task) -> bool {
        task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn block(&self, job: Job) -> bool {
        job();
        true
    }

    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        Rc::clone(self.0.borrow_mut().entry(Arc::as_ptr(key).addr()).or_insert_with(make))
    }
}

/// A folder with a site, and the site.
struct Stand {
    dir: TempDir,
    site: Arc<Site>,
    core: CoreHandle,
}

/// An answer, or the cause of a refusal.
struct Seen {
    status: u16,
    cause: &'static str,
    headers: Vec<(FieldName, Vec<u8>)>,
    body: Vec<u8>,
}

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

impl Stand {
    fn new(change: impl FnOnce(&mut schema::Files)) -> Self {
        Self::new_settled(SETTLED, change)
    }

    /// The same, with another time after which files are copied.
    fn new_settled(settled: Duration, change: impl FnOnce(&mut schema::Files)) -> Self {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("docs/empty")).unwrap();
        fs::create_dir_all(root.join(".well-known")).unwrap();
        for (name, text) in [
            ("root/index.html", "<p>home"),
            ("root/letters.txt", LETTERS),
            ("root/app.css", "p { color: red }"),
            ("root/app.css.br", "pretend brotli"),
            ("root/app.css.gz", "pretend gzip"),
            ("root/docs/index.html", "<p>docs"),
            ("root/docs/a b.json", "{}"),
            ("root/.env", "SECRET=1"),
            ("root/.well-known/security.txt", "Contact: a"),
            ("root/empty.txt", ""),
            ("secret.txt", "secret"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        symlink("../secret.txt", root.join("out.txt")).unwrap();
        symlink("letters.txt", root.join("in.txt")).unwrap();
        let mut written = schema::Files::of(root);
        change(&mut written);
        let mut site = Site::new(&written, None).unwrap_or_else(|(key, why)| panic!("{key}: {why}"));
        site.settled = settled;
        Self { dir, site: Arc::new(site), core: CoreHandle::new(Rc::new(Core::default())) }
    }

    async fn ask(&self, request: &str) -> Seen {
        self.ask_at(Instant::now(), request).await
    }

    /// Asks at another time.
    async fn ask_at(&self, now: Instant, request: &str) -> Seen {
        let head = request_head(request);
        match self.site.answer_file_at(&head, &self.core, now).await {
            Ok(answer) => {
                Seen { status: answer.status, cause: "", headers: answer.headers, body: read(answer.body) }
            }
            Err(refusal) => Seen {
                status: refusal.cause.status,
                cause: refusal.cause.code,
                headers: refusal.headers,
                body: Vec::new(),
            },
        }
    }
}

fn read(body: Body) -> Vec<u8> {
    match body {
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::File(range) => {
            let mut bytes = vec![0; usize::try_from(range.length).unwrap()];
            range.file.read_exact_at(&mut bytes, range.offset).unwrap();
            bytes
        }
        Body::Stream(mut source) => {
            let (length, mut bytes) = (source.length(), Vec::new());
            let mut cx = Context::from_waker(Waker::noop());
            loop {
                match source.poll_piece(&mut cx) {
                    Poll::Ready(Ok(Some(piece))) => bytes.extend_from_slice(&piece),
                    Poll::Ready(Ok(None)) => break,
                    Poll::Ready(Err(cause)) => panic!("{cause}"),
                    Poll::Pending => {}
                }
            }
            assert_eq!(length, Some(bytes.len() as u64), "what was promised");
            bytes
        }
    }
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        let mut same = self.headers.iter().filter(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        same.next().map(|(_, value)| std::str::from_utf8(value).unwrap())
    }

    #[track_caller]
    fn expect(&self, status: u16, body: &str) -> &Self {
        assert_eq!(
            (self.status, String::from_utf8_lossy(&self.body).as_ref()),
            (status, body),
            "{}",
            self.cause
        );
        self
    }
}

#[tokio::test]
async fn files_and_indexes() {
    let stand = Stand::new(|_| {});
    for (path, body, media) in [
        ("/", "<p>home", "text/html; charset=utf-8"),
        ("/letters.txt", LETTERS, "text/plain; charset=utf-8"),
        ("/in.txt", LETTERS, "text/plain; charset=utf-8"),
        ("/docs/", "<p>docs", "text/html; charset=utf-8"),
        ("/docs/a%20b.json?v=1", "{}", "application/json"),
        ("/.well-known/security.txt", "Contact: a", "text/plain; charset=utf-8"),
        ("/empty.txt", "", "text/plain; charset=utf-8"),
    ] {
        for _ in 0..2 {
            let seen = stand.ask(&format!("GET {path}")).await;
            seen.expect(200, body);
            assert_eq!(seen.header("content-type"), Some(media), "{path}");
            assert_eq!(seen.header("accept-ranges"), Some("bytes"));
            assert!(
                seen.header("etag").is_some_and(|tag| tag.starts_with('"'))
                    && seen.header("last-modified").is_some()
            );
            assert_eq!(seen.header("vary"), None);
        }
    }
    let folder = stand.ask("GET /docs?x=//a").await;
    folder.expect(308, "");
    assert_eq!(folder.header("location"), Some("./docs/?x=//a"));
}

#[tokio::test]
async fn what_is_not_given_away() {
    let stand = Stand::new(|_| {});
    for (request, status, cause) in [
        ("GET /none", 404, "files_missing"),
        ("GET /letters.txt/", 404, "files_missing"),
        ("GET /letters.txt/x", 404, "files_missing"),
        ("GET /docs/empty/", 404, "files_no_index"),
        ("GET /.env", 404, "files_hidden"),
        ("GET /%2Eenv", 404, "files_hidden"),
        ("GET /out.txt", 404, "files_outside"),
        ("GET /docs%2Findex.html", 404, "files_missing"),
        ("GET /%252e%252e/secret.txt", 404, "files_missing"),
        ("POST /", 405, "files_method"),
        ("DELETE /letters.txt", 405, "files_method"),
    ] {
        let seen = stand.ask(request).await;
        assert_eq!((seen.status, seen.cause), (status, cause), "{request}");
        assert_eq!(seen.header("allow"), (status == 405).then_some("GET, HEAD"));
    }
    let open = Stand::new(|files| files.hidden = true);
    open.ask("GET /.env").await.expect(200, "SECRET=1");
}

#[tokio::test]
async fn ranges_and_conditions() {
    let stand = Stand::new(|_| {});
    let whole = stand.ask("GET /letters.txt").await;
    let tag = whole.header("etag").unwrap().to_owned();
    let part = stand.ask("GET /letters.txt\nRange: bytes=2-4").await;
    part.expect(206, "cde");
    assert_eq!(part.header("content-range"), Some("bytes 2-4/26"));
    stand.ask(&format!("GET /letters.txt\nRange: bytes=-1\nIf-Range: {tag}")).await.expect(206, "z");
    stand.ask("GET /letters.txt\nRange: bytes=-1\nIf-Range: \"old\"").await.expect(200, LETTERS);
    stand.ask("GET /letters.txt\nRange: lines=1-2").await.expect(200, LETTERS);
    let beyond = stand.ask("GET /letters.txt\nRange: bytes=26-").await;
    assert_eq!(
        (beyond.status, beyond.cause, beyond.header("content-range")),
        (416, "files_range", Some("bytes */26"))
    );
    assert_eq!(stand.ask("HEAD /letters.txt\nRange: bytes=2-4").await.status, 200);
    let same = stand.ask(&format!("GET /letters.txt\nIf-None-Match: {tag}\nRange: bytes=0-1")).await;
    same.expect(304, "");
    assert_eq!((same.header("etag"), same.header("content-type")), (Some(&*tag), None));
    assert_eq!(stand.ask("GET /letters.txt\nIf-Match: \"old\"").await.cause, "files_changed");

    let several = stand.ask("GET /letters.txt\nRange: bytes=0-1,-2,50-60").await;
    let boundary =
        several.header("content-type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
    let expected = format!(
        "--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: bytes 0-1/26\r\n\r\nab\r\n--{boundary}\r\n\
         content-type: text/plain; charset=utf-8\r\ncontent-range: bytes 24-25/26\r\n\r\nyz\r\n--{boundary}--\r\n"
    );
    several.expect(206, &expected);
}

#[tokio::test]
async fn a_file_written_anew_has_another_tag() {
    let stand = Stand::new(|_| {});
    let tag = |seen: &Seen| seen.header("etag").unwrap().to_owned();
    let first = tag(&stand.ask("GET /letters.txt").await);
    fs::write(stand.dir.path().join("root/letters.txt"), "shorter").unwrap();
    let second = stand.ask(&format!("GET /letters.txt\nIf-None-Match: {first}")).await;
    second.expect(200, "shorter");
    assert_ne!(first, tag(&second));
}

#[tokio::test]
async fn compressed_siblings() {
    let stand = Stand::new(|files| files.precompressed = vec![Coding::Zstd, Coding::Br, Coding::Gzip]);
    for (accept, body, coding) in [
        ("gzip, br, zstd", "pretend brotli", Some("br")),
        ("gzip;q=1, br;q=0.5", "pretend gzip", Some("gzip")),
        ("zstd", "p { color: red }", None),
        ("br;q=0", "p { color: red }", None),
        ("", "p { color: red }", None),
    ] {
        let seen = stand.ask(&format!("GET /app.css\nAccept-Encoding: {accept}")).await;
        seen.expect(200, body);
        assert_eq!(seen.header("content-encoding"), coding, "{accept}");
        assert_eq!(seen.header("content-type"), Some("text/css; charset=utf-8"));
        assert_eq!(seen.header("vary"), Some("accept-encoding"));
        assert_eq!(seen.header("etag").unwrap().ends_with("-br\""), coding == Some("br"));
    }
}

#[tokio::test]
async fn an_application_answers_every_page() {
    let stand = Stand::new(|files| files.fallback = Some("/index.html".to_owned()));
    stand.ask("GET /users/7").await.expect(200, "<p>home");
    stand.ask("GET /users/jane.doe").await.expect(200, "<p>home");
    stand.ask("GET /docs/empty/").await.expect(200, "<p>home");
    stand.ask("GET /letters.txt").await.expect(200, LETTERS);
    assert_eq!(stand.ask("GET /app.0a1b.js").await.cause, "files_missing");
    assert_eq!(stand.ask("GET /.git/config").await.cause, "files_hidden");
    assert_eq!(stand.ask("GET /out.txt").await.cause, "files_outside");
}

#[tokio::test]
async fn a_listing_by_choice() {
    let stand = Stand::new(|files| (files.browse, files.index) = (true, Vec::new()));
    let seen = stand.ask("GET /").await;
    let page = String::from_utf8(seen.body).unwrap();
    assert_eq!(
        (seen.status, page.contains("letters.txt"), page.contains(".env")),
        (200, true, false),
        "{page}"
    );
    assert_eq!(stand.ask("GET /docs").await.header("location"), Some("./docs/"));
}

#[tokio::test]
async fn a_root_that_goes_away() {
    let stand = Stand::new(|_| {});
    fs::rename(stand.dir.path().join("root"), stand.dir.path().join("gone")).unwrap();
    let seen = stand.ask("GET /").await;
    assert_eq!((seen.status, seen.cause), (500, "files_root"));
    fs::rename(stand.dir.path().join("gone"), stand.dir.path().join("root")).unwrap();
    stand.ask("GET /").await.expect(200, "<p>home");
}

/// A site whose files are copied without delay, with `letters.txt` copied, and the time of that.
async fn copied(change: impl FnOnce(&mut schema::Files)) -> (Stand, Instant) {
    let stand = Stand::new_settled(Duration::ZERO, change);
    let now = Instant::now();
    for _ in 0..2 {
        stand.ask_at(now, "GET /letters.txt").await.expect(200, LETTERS);
    }
    (stand, now)
}

/// What happens to a file or the way to it, and what is served a second later.
#[tokio::test]
async fn a_copy_is_at_most_a_second_old() {
    type Change = fn(&Path);
    /// Replaces `letters.txt` with a link.
    fn link(dir: &Path, target: &str) {
        fs::remove_file(dir.join("root/letters.txt")).unwrap();
        symlink(target, dir.join("root/letters.txt")).unwrap();
    }
    let changes: [(&str, Change, u16, &str); 12] = [
        (
            "replaced",
            |dir| {
                fs::write(dir.join("new"), "new").unwrap();
                fs::rename(dir.join("new"), dir.join("root/letters.txt")).unwrap();
            },
            200,
            "new",
        ),
        ("written anew", |dir| fs::write(dir.join("root/letters.txt"), "short").unwrap(), 200, "short"),
        (
            "as long, at another time",
            |dir| {
                let file = File::create(dir.join("root/letters.txt")).unwrap();
                file.write_all_at(LETTERS.to_uppercase().as_bytes(), 0).unwrap();
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            },
            200,
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        ),
        (
            "cut",
            |dir| File::options().write(true).open(dir.join("root/letters.txt")).unwrap().set_len(3).unwrap(),
            200,
            "abc",
        ),
        (
            "appended to",
            |dir| {
                let file = File::options().write(true).open(dir.join("root/letters.txt")).unwrap();
                file.write_all_at(b"!", 26).unwrap();
            },
            200,
            "abcdefghijklmnopqrstuvwxyz!",
        ),
        ("removed", |dir| fs::remove_file(dir.join("root/letters.txt")).unwrap(), 404, ""),
        ("a link out", |dir| link(dir, "../secret.txt"), 404, ""),
        ("a link in", |dir| link(dir, "docs/a b.json"), 200, "{}"),
        (
            "a folder",
            |dir| {
                fs::remove_file(dir.join("root/letters.txt")).unwrap();
                fs::create_dir(dir.join("root/letters.txt")).unwrap();
            },
            308,
            "",
        ),
        ("the folder renamed", |dir| fs::rename(dir.join("root"), dir.join("old")).unwrap(), 500, ""),
        (
            "the folder replaced",
            |dir| {
                fs::rename(dir.join("root"), dir.join("old")).unwrap();
                fs::create_dir(dir.join("root")).unwrap();
                fs::write(dir.join("root/letters.txt"), "next release").unwrap();
            },
            200,
            "next release",
        ),
        (
            "the folder a link to another",
            |dir| {
                fs::rename(dir.join("root"), dir.join("old")).unwrap();
                fs::create_dir(dir.join("next")).unwrap();
                fs::write(dir.join("next/letters.txt"), "next release").unwrap();
                symlink("next", dir.join("root")).unwrap();
            },
            200,
            "next release",
        ),
    ];
    for (what, change, status, body) in changes {
        let (stand, now) = copied(|_| {}).await;
        change(stand.dir.path());
        let tag = |seen: &Seen| seen.header("etag").map(str::to_owned);
        let before = stand.ask_at(now + Duration::from_millis(999), "GET /letters.txt").await;
        before.expect(200, LETTERS);
        // Two requests, because the second may bring another copy.
        for second in 1..=2 {
            let after = stand.ask_at(now + Duration::from_secs(second), "GET /letters.txt").await;
            assert_eq!(
                (after.status, String::from_utf8_lossy(&after.body).as_ref()),
                (status, body),
                "{what}"
            );
            assert_ne!(tag(&after), tag(&before), "{what}");
        }
    }
}

/// Without permission, a copy is not served for longer than a second either. Root may read everything.
#[tokio::test]
async fn a_copy_needs_permission() {
    use std::os::unix::fs::PermissionsExt;
    let (stand, now) = copied(|_| {}).await;
    let file = stand.dir.path().join("root/letters.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let expected = if File::open(&file).is_ok() { 200 } else { 404 };
    let after = stand.ask_at(now + Duration::from_secs(1), "GET /letters.txt").await;
    assert_eq!(after.status, expected, "{}", after.cause);
}

/// Each request gets what the file is, until it has been left alone.
#[tokio::test]
async fn a_file_that_was_just_written_is_not_copied() {
    let stand = Stand::new(|_| {});
    let now = Instant::now();
    for body in ["1", "2", "3", "4"] {
        fs::write(stand.dir.path().join("root/letters.txt"), body).unwrap();
        stand.ask_at(now, "GET /letters.txt").await.expect(200, body);
    }
}

/// A copy answers everything that a file answers.
#[tokio::test]
async fn a_copy_is_as_good_as_the_file() {
    for request in [
        "GET /letters.txt",
        "HEAD /letters.txt",
        "GET /letters.txt\nRange: bytes=2-4",
        "GET /letters.txt\nRange: bytes=-3",
        "GET /letters.txt\nRange: bytes=26-",
        "GET /letters.txt\nIf-Match: \"other\"",
        "GET /letters.txt\nIf-None-Match: *",
        "GET /app.css\nAccept-Encoding: br",
        "GET /app.css\nAccept-Encoding: gzip",
        "GET /app.css",
        "GET /in.txt",
        "GET /empty.txt",
        "GET /",
        "GET /docs/",
        "GET /docs",
        "GET /no/such/page",
        "GET /none.css",
        "GET /.env",
        "GET /out.txt",
        "POST /letters.txt",
    ] {
        let change = |files: &mut schema::Files| {
            files.precompressed = vec![Coding::Br, Coding::Gzip];
            files.fallback = Some("/index.html".to_owned());
        };
        let (stand, now) = copied(change).await;
        let name = request.replace("HEAD", "GET");
        let name = name.split_once("\nRange").or(name.split_once("\nIf")).map_or(&*name, |(name, _)| name);
        let opened = stand.ask_at(now, request).await;
        for _ in 0..2 {
            stand.ask_at(now, name).await;
        }
        let kept = stand.ask_at(now, request).await;
        let length = |seen: &Seen| if request.starts_with("HEAD") { Vec::new() } else { seen.body.clone() };
        assert_eq!(
            (kept.status, kept.cause, &kept.headers, length(&kept)),
            (opened.status, opened.cause, &opened.headers, length(&opened)),
            "{request}"
        );
    }
    let (stand, now) = copied(|_| {}).await;
    let parts = stand.ask_at(now, "GET /letters.txt\nRange: bytes=0-1,24-25").await;
    let text = String::from_utf8(parts.body).unwrap();
    assert!(text.contains("\r\n\r\nab\r\n--") && text.contains("\r\n\r\nyz\r\n--"), "{text}");
}

/// The copy of a file belongs to what was asked for: another folder, coding or slash is another answer.
#[tokio::test]
async fn a_copy_answers_nothing_else() {
    let (stand, now) = copied(|files| files.precompressed = vec![Coding::Br]).await;
    assert_eq!(stand.ask_at(now, "GET /letters.txt/").await.status, 404);
    for _ in 0..3 {
        stand.ask_at(now, "GET /app.css\nAccept-Encoding: br").await.expect(200, "pretend brotli");
        stand.ask_at(now, "GET /app.css").await.expect(200, "p { color: red }");
    }
    let mut other = Stand::new_settled(Duration::ZERO, |_| {});
    fs::write(other.dir.path().join("root/letters.txt"), "other").unwrap();
    other.core = stand.core.clone();
    for _ in 0..3 {
        other.ask_at(now, "GET /letters.txt").await.expect(200, "other");
        stand.ask_at(now, "GET /letters.txt").await.expect(200, LETTERS);
    }
}

/// A folder that was opened a while ago does not make its files good for another second.
#[tokio::test]
async fn a_copy_ends_with_its_folder() {
    let stand = Stand::new_settled(Duration::ZERO, |_| {});
    let now = Instant::now();
    let late = now + Duration::from_millis(900);
    stand.ask_at(now, "GET /").await.expect(200, "<p>home");
    for _ in 0..2 {
        stand.ask_at(late, "GET /letters.txt").await.expect(200, LETTERS);
    }
    fs::rename(stand.dir.path().join("root"), stand.dir.path().join("old")).unwrap();
    stand.ask_at(late, "GET /letters.txt").await.expect(200, LETTERS);
    assert_eq!(stand.ask_at(now + Duration::from_secs(1), "GET /letters.txt").await.status, 500);
}

#[test]
fn mistakes() {
    let refused = |change: &dyn Fn(&mut schema::Files)| {
        let mut written = schema::Files::of("/".into());
        change(&mut written);
        Site::new(&written, None).err().map(|(key, why)| format!("{key}: {why}")).unwrap_or_default()
    };
    assert_eq!(refused(&|_| {}), "");
    assert!(
        refused(&|files| files.root.0 = "/nowhere/at/all".into())
            .contains("root: the folder /nowhere/at/all cannot be opened")
    );
    assert!(refused(&|files| files.root.0 = "/etc/passwd".into()).starts_with("root: "));
    for fallback in ["index.html", "/", "/../a", "/a/"] {
        assert!(
            refused(&|files| files.fallback = Some(fallback.to_owned())).starts_with("fallback: "),
            "{fallback}"
        );
    }
    for index in ["", "..", "a/b"] {
        assert!(refused(&|files| files.index = vec![index.to_owned()]).starts_with("index: "), "{index}");
    }
}

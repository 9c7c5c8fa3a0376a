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

/// A core that runs blocking work immediately.
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

    fn spawn(&self, _: Task) -> bool {
        false
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
        let site = Site::new(&written, None).unwrap_or_else(|(key, why)| panic!("{key}: {why}"));
        Self { dir, site: Arc::new(site), core: CoreHandle::new(Rc::new(Core::default())) }
    }

    async fn ask(&self, request: &str) -> Seen {
        let head = request_head(request);
        match self.site.answer_file(&head, &self.core).await {
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

//! Command lines as browsers, API clients and people write them. The expectations were checked with curl 7.88.

use super::*;

fn read(command: &str) -> Options {
    let mut options = Options::default();
    options.add_curl(command).unwrap();
    options
}

fn body(options: &Options) -> &str {
    str::from_utf8(options.body.as_deref().unwrap()).unwrap()
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.csv");
    std::fs::write(&path, bytes).unwrap();
    let path = path.display().to_string();
    (dir, path)
}

#[test]
fn what_a_browser_copies() {
    let o = read(
        "curl 'https://api.example.com/v1?a=1' \\\n  -H 'accept: */*' -H \"x-a: \\\"q\\\"\" \\\n  \
         -b 'a=b; c=d' --data-raw $'{\"name\":\"it\\'s\\u0021\"}' --compressed --insecure",
    );
    assert_eq!(o.urls, ["https://api.example.com/v1?a=1"]);
    assert_eq!(
        o.headers,
        [
            "accept: */*",
            "x-a: \"q\"",
            "Accept-Encoding: deflate, gzip, br, zstd",
            "Content-Type: application/x-www-form-urlencoded"
        ]
    );
    assert_eq!(body(&o), "{\"name\":\"it's!\"}");
    assert_eq!((o.insecure, &o.cookies[..]), (true, &["a=b; c=d".to_owned()][..]));
    // Firefox and Chrome copy the header that belongs to the flag, Safari the body's length. curl sends these
    // headers.
    let o = read(
        "curl h --compressed -H 'Accept-Encoding: gzip' -X POST -H 'Content-Length: 3' --data-binary abc",
    );
    assert_eq!(o.headers, ["Accept-Encoding: gzip", "Content-Type: application/x-www-form-urlencoded"]);
}

#[test]
fn short_flags_and_values_glued_to_them() {
    let o = read("curl -sSLkXPUT -uA:b -HX:y --url=h:81/x -d a=1 -d b=2 --json '{}'");
    assert_eq!((o.method.as_deref(), o.urls[0].as_str()), (Some("PUT"), "http://h:81/x"));
    assert_eq!((o.user.as_deref(), o.insecure), (Some("A:b"), true));
    assert_eq!(o.headers, ["X:y", "Accept: application/json", "Content-Type: application/json"]);
    assert_eq!(body(&o), "a=1&b=2{}");
    let o = read("curl -G h/ -d a=1 h/?b --data-urlencode 'c=d e'");
    assert_eq!(o.urls, ["http://h/?a=1&c=d+e", "http://h/?b&a=1&c=d+e"]);
    assert_eq!((o.method.as_deref(), o.body), (Some("GET"), None));
}

#[test]
fn fields_that_curl_would_not_send_and_empty_ones() {
    assert_eq!(read("curl h -H 'Accept:' -H 'X-Empty;' -H 'A: b;'").headers, ["X-Empty:", "A: b;"]);
}

#[test]
fn data_of_files() {
    let (_dir, path) = file(b"id,name\r\n1,a\n\xff\n");
    let sent = |command: &str| read(&command.replace('@', &format!("@{path}"))).body.unwrap();
    assert_eq!(sent("curl h -d @"), b"id,name1,a\xff");
    assert_eq!(sent("curl h --data-binary @"), b"id,name\r\n1,a\n\xff\n");
    assert_eq!(sent("curl h --json @"), b"id,name\r\n1,a\n\xff\n");
    assert_eq!(sent("curl h --data-urlencode x@"), b"x=id%2Cname%0D%0A1%2Ca%0A%FF%0A");
    assert_eq!(sent("curl h --data-raw @x"), format!("@{path}x").as_bytes());
}

#[test]
fn data_that_is_encoded() {
    let o = read("curl h --data-urlencode 'a= b+c/é~' --data-urlencode '=x y' --data-urlencode q -d 1");
    assert_eq!(body(&o), "a=+b%2Bc%2F%C3%A9~&x+y&q&1");
}

#[test]
fn forms() {
    let (_dir, path) = file(b"1,2\n");
    let o = read(&format!(
        "curl h -F 'a=\"x \\\"y\";type=text/plain' -F 'b=@{path};filename=q.csv' -F 'c=<{path}' \
         --form 'd=@\"{path}\";type=text/csv' --form-string 'e=@x;type=y' -F 'f=\"@x\"'"
    ));
    let text = body(&o).replace("weir-3f1c9a7e5b2d4860-part", "B").replace("\r\n", "\n");
    assert_eq!(
        text,
        "--B\nContent-Disposition: form-data; name=\"a\"\nContent-Type: text/plain\n\nx \"y\n\
         --B\nContent-Disposition: form-data; name=\"b\"; filename=\"q.csv\"\nContent-Type: application/octet-stream\n\n1,2\n\n\
         --B\nContent-Disposition: form-data; name=\"c\"\n\n1,2\n\n\
         --B\nContent-Disposition: form-data; name=\"d\"; filename=\"f.csv\"\nContent-Type: text/csv\n\n1,2\n\n\
         --B\nContent-Disposition: form-data; name=\"e\"\n\n@x;type=y\n\
         --B\nContent-Disposition: form-data; name=\"f\"\n\n@x\n--B--\n"
    );
    assert_eq!(o.headers, ["Content-Type: multipart/form-data; boundary=weir-3f1c9a7e5b2d4860-part"]);
}

#[test]
fn uploads_proxies_and_tokens() {
    let (_dir, path) = file(b"1,2\n");
    let o = read(&format!("curl -T {path} h/d/ -x p:3128 --oauth2-bearer t0k -c jar.txt -b ''"));
    assert_eq!((o.method.as_deref(), &o.urls[..]), (Some("PUT"), &["http://h/d/f.csv".to_owned()][..]));
    assert_eq!((body(&o), o.headers.len()), ("1,2\n", 0));
    assert_eq!((o.proxy.as_deref(), o.bearer.as_deref()), (Some("p:3128"), Some("t0k")));
}

#[test]
fn every_url_is_a_target() {
    assert_eq!(read("curl h/a --url h/b http://h/c").urls, ["http://h/a", "http://h/b", "http://h/c"]);
}

#[test]
fn what_can_not_be_read_is_named() {
    for (bad, hint) in [
        ("curl --ftp-port x h", "--ftp-port"),
        ("curl -sP h", "`-P`"),
        ("curl 'h", "quote"),
        ("curl h -H", "`-H` has no value"),
        ("curl h -H @f", "file of headers"),
        ("curl -d @/nonexistent/x h", "/nonexistent/x"),
        ("curl -F a h", "-F a: expected name=value"),
        ("curl -F 'a=b;headers=c' h", "`;headers=`"),
        ("curl -T - h", "standard input"),
        ("curl -d 1 -F a=b h", "`-d` and `-F` cannot be combined"),
        ("curl -b jar.txt h", "file of cookies"),
    ] {
        let mistake = Options::default().add_curl(bad).unwrap_err();
        assert!(mistake.hint.contains(hint), "{bad}: {mistake}");
    }
}

//! Which script answers which path, and what it learns.

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use tempfile::TempDir;
use weir_config::schema::{FilePath, Pairs};
use weir_config::units::ByteSize;
use weir_fcgi::KeepConnection;
use weir_filter::testing::request_head;

fn scripts(root: &std::path::Path, change: impl FnOnce(&mut schema::FastCgi)) -> Scripts {
    let mut written = schema::FastCgi {
        root: FilePath(root.to_owned()),
        index: "index.php".to_owned(),
        split: ".php".to_owned(),
        path_info: false,
        root_remote: false,
        params: Pairs::default(),
        buffer: ByteSize(1024),
    };
    change(&mut written);
    Scripts::new(&written).unwrap_or_else(|(key, why)| panic!("{key}: {why}"))
}

/// A root with scripts, and a secret beside it.
fn site() -> TempDir {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("root/admin/.hidden")).unwrap();
    fs::create_dir_all(at("root/empty")).unwrap();
    fs::create_dir_all(at("root/folder.php")).unwrap();
    for name in [
        "secret.php",
        "root/index.php",
        "root/a b.php",
        "root/a.jpg",
        "root/admin/index.php",
        "root/admin/edit.php",
        "root/admin/.hidden/x.php",
        "root/x.php.php",
    ] {
        fs::write(at(name), "<?php").unwrap();
    }
    symlink("admin/edit.php", at("root/link.php")).unwrap();
    symlink("../secret.php", at("root/out.php")).unwrap();
    symlink("/etc", at("root/etc.php")).unwrap();
    dir
}

/// What a path leads to: the script, ` + ` and PATH_INFO, `/` for a redirect, or a cause.
fn led(scripts: &Scripts, path: &str) -> String {
    let asked = match scripts.asked(path.as_bytes(), path.as_bytes()) {
        Ok(asked) => asked,
        Err(cause) => return cause.code.to_owned(),
    };
    if scripts.is_remote {
        return match asked {
            Asked::Script(script) => shown(&script),
            Asked::Other(_) => shown(&scripts.front()),
        };
    }
    let root = crate::files::open::open_root(scripts.root(), Waiting::Fine).unwrap();
    match scripts.find(root.as_fd(), &asked, Waiting::Fine) {
        Ok(Found::Folder) => "/".to_owned(),
        Ok(Found::Script(script)) => shown(&script),
        Err(NotFound::NotOpened(OpenError::Missing)) => "missing".to_owned(),
        Err(lost) => cause_of(lost).code.to_owned(),
    }
}

fn shown(script: &Script) -> String {
    let info = script.info.as_ref().map(|info| format!(" + {}", String::from_utf8_lossy(info)));
    format!("{}{}", String::from_utf8_lossy(&script.name), info.unwrap_or_default())
}

#[test]
fn paths_lead_to_scripts() {
    let dir = site();
    let root = dir.path().join("root");
    let here = scripts(&root, |_| ());
    let info = scripts(&root, |written| written.path_info = true);
    let remote = scripts("/nowhere/to/see".as_ref(), |written| written.root_remote = true);
    for (path, expected, with_info, elsewhere) in [
        ("/", "index.php", "index.php", "index.php"),
        ("/index.php", "index.php", "index.php", "index.php"),
        ("/blog/2026/", "index.php", "index.php", "index.php"),
        ("/a%20b.php", "a b.php", "a b.php", "a b.php"),
        ("/admin/edit.php", "admin/edit.php", "admin/edit.php", "admin/edit.php"),
        ("/admin/", "admin/index.php", "admin/index.php", "index.php"),
        ("/admin", "/", "/", "index.php"),
        ("/empty/", "index.php", "index.php", "index.php"),
        ("/empty", "index.php", "index.php", "index.php"),
        ("/link.php", "link.php", "link.php", "link.php"),
        ("/index.php/a/b", "index.php", "index.php + /a/b", "index.php"),
        ("/index.php/", "index.php", "index.php + /", "index.php"),
        ("/index.php/x.php", "index.php", "index.php + /x.php", "index.php"),
        ("/x.php.php", "x.php.php", "x.php.php", "x.php.php"),
        // An upload that no script made: cgi.fix_pathinfo would have run the picture.
        ("/a.jpg/x.php", "missing", "missing", "a.jpg/x.php"),
        ("/none.php", "missing", "missing", "none.php"),
        ("/folder.php", "missing", "missing", "folder.php"),
        ("/folder.php/", "missing", "missing", "folder.php"),
        ("/out.php", "files_outside", "files_outside", "out.php"),
        ("/etc.php/passwd", "files_outside", "files_outside", "etc.php"),
        ("/../secret.php", "fastcgi_no_script", "fastcgi_no_script", "fastcgi_no_script"),
        ("/admin%2Fedit.php", "fastcgi_no_script", "fastcgi_no_script", "fastcgi_no_script"),
        ("/index.php%00.jpg", "fastcgi_no_script", "fastcgi_no_script", "fastcgi_no_script"),
        ("/a%00", "index.php", "index.php", "index.php"),
        ("/a%2Fb", "index.php", "index.php", "index.php"),
        ("/.git/config", "index.php", "index.php", "index.php"),
        ("/admin/.hidden/x.php", "files_hidden", "files_hidden", "files_hidden"),
        ("/.php", "files_hidden", "files_hidden", "files_hidden"),
        ("//admin/edit.php", "fastcgi_no_script", "fastcgi_no_script", "fastcgi_no_script"),
        ("/INDEX.PHP", "index.php", "index.php", "index.php"),
        ("/index.php5", "index.php", "index.php", "index.php"),
        ("/index.php;x", "index.php", "index.php", "index.php"),
    ] {
        let found = [&here, &info, &remote].map(|scripts| led(scripts, path));
        let remote_info = elsewhere;
        assert_eq!(found, [expected, with_info, remote_info], "{path}");
    }
}

#[test]
fn a_root_must_exist_unless_it_is_remote() {
    let written = |remote| schema::FastCgi {
        root: FilePath("/nowhere/to/see".into()),
        index: "index.php".to_owned(),
        split: ".php".to_owned(),
        path_info: false,
        root_remote: remote,
        params: Pairs::default(),
        buffer: ByteSize(0),
    };
    assert!(matches!(Scripts::new(&written(false)), Err(("root", _))));
    assert!(Scripts::new(&written(true)).is_ok());
}

/// The parameters of a request for `/index.php/info`, read back.
fn params(request: &str, scripts: &Scripts, facts: &Facts<'_>) -> BTreeMap<String, String> {
    let head = request_head(request);
    let script = Script { name: b"index.php".to_vec(), info: Some(b"/info".to_vec()) };
    let mut out = Vec::new();
    scripts.write_request(&script, &head, facts, &mut out);
    assert_eq!(out[..16], [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let length = usize::from(u16::from_be_bytes([out[20], out[21]]));
    let (mut pairs, end) = out[24..].split_at(length);
    assert_eq!(end, [1, 4, 0, 1, 0, 0, 0, 0]);
    let mut found = BTreeMap::new();
    let number = |pairs: &mut &[u8]| {
        let bytes = if pairs[0] < 128 { 1 } else { 4 };
        let (length, rest) = pairs.split_at(bytes);
        *pairs = rest;
        length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7fff_ffff
    };
    while !pairs.is_empty() {
        let (name, value) = (number(&mut pairs), number(&mut pairs));
        let (text, rest) = pairs.split_at(name + value);
        pairs = rest;
        let [name, value] =
            [&text[..name], &text[name..]].map(|text| String::from_utf8(text.to_vec()).unwrap());
        assert!(found.insert(name.clone(), value).is_none(), "{name} is there twice");
    }
    found
}

const FACTS: Facts<'static> = Facts {
    client: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    client_port: Some(5000),
    tls: true,
    local: None,
    port: 443,
    host: None,
    keep: KeepConnection::Close,
};

#[test]
fn what_scripts_learn() {
    let own = Pairs(
        [("APP_ENV".to_owned(), "test".to_owned()), ("SERVER_SOFTWARE".to_owned(), String::new())].into(),
    );
    let scripts = scripts("/srv/www/".as_ref(), |written| {
        (written.root_remote, written.params) = (true, own);
    });
    let request = "POST /index.php/info?a=%20b HTTP/1.1\r\nHost: a.test:8443\r\nContent-Length: 3\r\n\
        Content-Type: text/plain\r\nCookie: a=1\r\ncookie: b=2\r\nX-Two: 1\r\nx-two: 2\r\nProxy: http://evil\r\n\
        X_Two: 3\r\nContent_Length: 9\r\nX.Two: 4\r\nAuthorization: Basic eDp5\r\nExpect: 100-continue\r\n\
        Proxy-Authorization: x\r\nKeep-Alive: 5\r\nX-Long: ";
    let request = format!("{request}{}\r\n\r\n", "v".repeat(200));
    let found = params(&request, &scripts, &FACTS);
    let long = "v".repeat(200);
    let expected = [
        ("APP_ENV", "test"),
        ("CONTENT_LENGTH", "3"),
        ("CONTENT_TYPE", "text/plain"),
        ("DOCUMENT_ROOT", "/srv/www"),
        ("DOCUMENT_URI", "/index.php/info"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTPS", "on"),
        ("HTTP_AUTHORIZATION", "Basic eDp5"),
        ("HTTP_COOKIE", "a=1; b=2"),
        ("HTTP_HOST", "a.test:8443"),
        ("HTTP_X_LONG", &long),
        ("HTTP_X_TWO", "1, 2"),
        ("PATH_INFO", "/info"),
        ("PATH_TRANSLATED", "/srv/www/info"),
        ("QUERY_STRING", "a=%20b"),
        ("REDIRECT_STATUS", "200"),
        ("REMOTE_ADDR", "192.0.2.1"),
        ("REMOTE_PORT", "5000"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_SCHEME", "https"),
        ("REQUEST_URI", "/index.php/info?a=%20b"),
        ("SCRIPT_FILENAME", "/srv/www/index.php"),
        ("SCRIPT_NAME", "/index.php"),
        ("SERVER_NAME", "a.test"),
        ("SERVER_PORT", "443"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", ""),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn names_of_servers() {
    let scripts = scripts("/srv".as_ref(), |written| written.root_remote = true);
    for (host, name) in [
        ("a.test", "a.test"),
        ("a.test:80", "a.test"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("127.0.0.1", "127.0.0.1"),
    ] {
        let found = params(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), &scripts, &FACTS);
        assert_eq!((&*found["SERVER_NAME"], &*found["HTTP_HOST"]), (name, host));
        assert!(!found.contains_key("CONTENT_LENGTH"), "a GET without a body");
    }
}

//! ClientHellos by the byte: well formed, hostile, and cut in every place.

use super::*;

/// A value behind its length.
fn short(value: &[u8]) -> Vec<u8> {
    [&[value.len() as u8][..], value].concat()
}

fn long(value: &[u8]) -> Vec<u8> {
    [&(value.len() as u16).to_be_bytes()[..], value].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), long(content)].concat()
}

/// The extension `server_name` with these names and their types.
fn sni(names: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|(kind, name)| [vec![*kind], long(name)].concat()).collect();
    extension(0, &long(&list))
}

/// The message ClientHello.
fn message_of(extensions: &[Vec<u8>]) -> Vec<u8> {
    let ciphers = [0x0a, 0x0a, 0x13, 0x01]; // GREASE first
    let body =
        [vec![3, 3], vec![7; 32], short(&[1; 32]), long(&ciphers), short(&[0]), long(&extensions.concat())]
            .concat();
    [vec![1, 0], (body.len() as u16).to_be_bytes().to_vec(), body].concat()
}

/// The message in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [vec![22, 3, 1], long(part)].concat()).collect()
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    records(&message_of(extensions), RECORD_BYTES)
}

fn named(name: &str) -> Vec<u8> {
    hello(&[sni(&[(0, name.as_bytes())])])
}

#[test]
fn names() {
    let long_name = ["a"; 127].join(".");
    for (name, expected) in [
        ("db.example.com", Some("db.example.com")),
        ("DB.Example.COM", Some("db.example.com")),
        ("db.example.com.", Some("db.example.com")),
        ("localhost", Some("localhost")),
        ("a_b-c.test", Some("a_b-c.test")),
        ("xn--bcher-kva.test", Some("xn--bcher-kva.test")),
        (&long_name, Some(&long_name)),
        (&format!("{long_name}b"), None),
        (&format!("{}.test", "a".repeat(64)), None),
        ("", None),
        (".", None),
        ("a..test", None),
        (".a.test", None),
        ("a.test..", None),
        ("bücher.test", None),
        ("a\0.test", None),
        ("a.test\n", None),
        ("*.example.net", None),
        ("10.0.0.1", None),
        ("10.0.0.1.", None),
        ("::1", None),
        ("[::1]", None),
        ("a.test:443", None),
    ] {
        let expected = expected.map_or(Hello::None, |name| Hello::Name(name.to_owned()));
        assert_eq!(server_name(&named(name)), expected, "{name:?}");
    }
    assert_eq!(server_name(&hello(&[sni(&[(0, b"\xff\xfe")])])), Hello::None);
}

#[test]
fn extensions() {
    let a = || sni(&[(0, b"a.test")]);
    let is_a = Hello::Name("a.test".to_owned());
    for (case, bytes, expected) in [
        ("none", hello(&[]), Hello::None),
        ("others alone", hello(&[extension(43, &[2, 3, 4])]), Hello::None),
        ("GREASE around", hello(&[extension(0x0a0a, &[]), a(), extension(0xfafa, &[0])]), is_a.clone()),
        ("ECH: the outer name", hello(&[extension(0xfe0d, &[0; 200]), a()]), is_a.clone()),
        ("twice", hello(&[a(), a()]), Hello::NotTls),
        ("two names", hello(&[sni(&[(0, b"a.test"), (0, b"b.test")])]), Hello::NotTls),
        ("a name of another type", hello(&[sni(&[(9, b"x"), (0, b"a.test")])]), is_a.clone()),
        ("only another type", hello(&[sni(&[(9, b"x")])]), Hello::None),
        ("an empty list", hello(&[extension(0, &long(&[]))]), Hello::NotTls),
        ("an empty extension", hello(&[extension(0, &[])]), Hello::NotTls),
        (
            "bytes behind the list",
            hello(&[extension(0, &[&long(b"\0\0\x01a")[..], b"x"].concat())]),
            Hello::NotTls,
        ),
        ("a name beyond its list", hello(&[extension(0, &[0, 4, 0, 0, 9, b'a'])]), Hello::NotTls),
        ("a list beyond its extension", hello(&[extension(0, &[0, 99, 0, 0, 1, b'a'])]), Hello::NotTls),
    ] {
        assert_eq!(server_name(&bytes), expected, "{case}");
    }
    // An extension beyond the message, and bytes behind the extensions.
    let mut cut = message_of(&[a()]);
    let last = cut.len() - 1;
    cut[last - 16] = 0xff;
    assert_eq!(server_name(&records(&cut, RECORD_BYTES)), Hello::NotTls);
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    let bare = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    assert_eq!(server_name(&records(&bare, RECORD_BYTES)), Hello::None, "TLS 1.2 without extensions");
    let behind = [&[1, 0, 0, body.len() as u8 + 3][..], &body, &[0, 0, 9]].concat();
    assert_eq!(server_name(&records(&behind, RECORD_BYTES)), Hello::NotTls);
    for (at, value) in [(4 + 2 + 32, 33u8), (4 + 2 + 32 + 33 + 1, 3)] {
        let mut broken = message_of(&[a()]);
        broken[at] = value; // a session id that is too long; an odd list of ciphers
        assert_eq!(server_name(&records(&broken, RECORD_BYTES)), Hello::NotTls, "{at}");
    }
}

#[test]
fn what_is_no_tls() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PRI * HTTP/2.0",
        b"SSH-2.0-x",
        b"\x80\x2e\x01\x03\x01", // SSL 2.0
        b"\x16\x02",             // another major version
        b"\x15\x03\x01\x00\x02\x01\x00",
        b"\x16\x03\x01\x00\x00",             // an empty record
        b"\x16\x03\x01\x40\x01",             // a record that is too long
        b"\x16\x03\x01\x00\x04\x02",         // a ServerHello
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f", // PostgreSQL asks for TLS
    ] {
        assert_eq!(server_name(bytes), Hello::NotTls, "{bytes:x?}");
    }
    // Another record within the message.
    let message = message_of(&[sni(&[(0, b"a.test")])]);
    let mut bytes = records(&message[..20], RECORD_BYTES);
    bytes.extend_from_slice(b"\x14\x03\x03\x00\x01\x01");
    bytes.extend_from_slice(&records(&message[20..], RECORD_BYTES));
    assert_eq!(server_name(&bytes), Hello::NotTls);
}

#[test]
fn a_hello_in_pieces() {
    let message = message_of(&[extension(0xfe0d, &[3; 300]), sni(&[(0, b"a.test")])]);
    for size in [1, 2, 3, 5, 100, RECORD_BYTES] {
        let bytes = records(&message, size);
        let mut asked = 0;
        for end in 0..bytes.len() {
            let Hello::More(needed) = server_name(&bytes[..end]) else { panic!("{size}: {end}") };
            assert!((end + 1..=bytes.len()).contains(&needed), "{size}: {end} needs {needed}");
            asked = asked.max(needed);
        }
        assert_eq!(asked, bytes.len());
        let name = Hello::Name("a.test".to_owned());
        assert_eq!(server_name(&bytes), name, "{size}");
        let more = [&bytes[..], b"\x17\x03\x03\x00\x05early"].concat();
        assert_eq!(server_name(&more), name, "what follows is not looked at");
    }
}

#[test]
fn a_long_hello() {
    let fits = |padding: usize| {
        let bytes = hello(&[extension(21, &vec![0; padding]), sni(&[(0, b"a.test")])]);
        (bytes.len(), server_name(&bytes))
    };
    let (length, _) = fits(0);
    let room = HELLO_BYTES - length;
    assert_eq!(fits(room), (HELLO_BYTES, Hello::Name("a.test".to_owned())));
    let message = message_of(&[extension(21, &vec![0; room + 1]), sni(&[(0, b"a.test")])]);
    let bytes = records(&message, RECORD_BYTES);
    assert_eq!(server_name(&bytes), Hello::TooLong);
    assert_eq!(server_name(&bytes[..9]), Hello::TooLong, "its header says so");
    // Records of one byte: what counts is what is sent.
    let bytes = records(&message_of(&[extension(21, &[0; 4000]), sni(&[(0, b"a.test")])]), 1);
    assert!(bytes.len() > HELLO_BYTES);
    assert_eq!(server_name(&bytes[..HELLO_BYTES]), Hello::TooLong);
    assert_eq!(server_name(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"), Hello::TooLong);
}

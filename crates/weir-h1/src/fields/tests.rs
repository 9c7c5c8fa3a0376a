//! What is found in the fields of a message, what edits leave of them, and what is written.

use crate::{FieldName, Known, Limits, NameSet, Numbered, Prepared, Progress, RequestHead, parse_request};

fn head(text: &str) -> RequestHead {
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(text.as_bytes());
    assert_eq!(parse_request(&mut head, &Limits::default()), Ok(Progress::Complete));
    head
}

fn written(head: &RequestHead) -> String {
    let mut out = Vec::new();
    head.headers.write_to(&mut out);
    String::from_utf8(out).unwrap()
}

fn name(text: &str) -> FieldName {
    FieldName::new(text).unwrap()
}

#[test]
fn untouched_fields_come_out_as_they_went_in() {
    let head = head("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nb:2\r\nC:  3 \t\r\nD:\r\n\r\n");
    assert_eq!(written(&head), "Host: a\r\nA: 1\r\nb: 2\r\nC: 3\r\nD: \r\n");
}

/// As a comparison with the values that `get_all` finds, joined.
#[test]
fn a_field_is_its_values_joined() {
    let mut head = head(
        "GET / HTTP/1.1\r\nHost: a\r\nX-One: blue\r\nX-Two: a\r\nx-two: b\r\nX-Nil:\r\nX-Old: o\r\nX-Long-Value-Of-A-Field: \
         0123456789abcdefg\r\nX^: c\r\n\r\n",
    );
    head.headers.remove(&name("x-old"));
    head.headers.append(&name("X-Two"), b"c").unwrap();
    head.headers.insert(&name("X-New"), b"n").unwrap();
    let names =
        ["x-one", "x-two", "x-nil", "x-old", "x-new", "x-none", "host", "x-long-value-of-a-field", "x~"];
    let values = [
        "",
        "blue",
        "bluer",
        "blu",
        "a",
        "a, b",
        "a, b, c",
        "a, b, c, ",
        "a,b,c",
        "n",
        "0123456789abcdefg",
        "c",
    ];
    for name in names {
        let all: Vec<&[u8]> = head.headers.get_all(name.as_bytes()).collect();
        for value in values {
            let joined = all.join(&b", "[..]);
            assert_eq!(
                head.headers.is(name.as_bytes(), value.as_bytes()),
                joined == value.as_bytes(),
                "{name} {value}"
            );
        }
    }
}

#[test]
fn a_copy_holds_what_is_left() {
    let mut head = head("GET / HTTP/1.1\r\nHost: a\r\nA_b: 1\r\nb:2\r\nDate: x\r\nC: 3\r\n\r\nbody");
    head.headers.remove(&name("b"));
    head.headers.insert(&name("C"), b"4").unwrap();
    let mut copy = head.headers.to_owned_fields();
    let mut out = Vec::new();
    copy.write_to(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "Host: a\r\nA_b: 1\r\nDate: x\r\nC: 4\r\n");
    assert_eq!((copy.get_known(Known::Date), copy.get_str("c")), (Some(&b"x"[..]), Some(&b"4"[..])));
    assert!(!copy.was_received("date") && copy.base.is_empty());
    assert!(copy.remove(&name("a-b")), "it knows that a name has a `_`");
}

#[test]
fn edits() {
    let mut head = head("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\na: 3\r\n\r\n");
    assert_eq!(head.headers.get_all("a").collect::<Vec<_>>(), [b"1", b"3"]);
    assert_eq!(head.headers.values(&name("A")).collect::<Vec<_>>(), [b"1", b"3"]);
    head.headers.insert(&name("a"), b"4").unwrap();
    head.headers.append(&name("X"), b"5").unwrap();
    assert!(head.headers.remove(&name("b")));
    assert!(!head.headers.remove(&name("b")));
    assert_eq!(written(&head), "Host: a\r\na: 4\r\nX: 5\r\n");
    assert_eq!(head.headers.get_known(Known::Host), Some(&b"a"[..]));
    assert!(head.headers.remove_known(Known::Host));
    assert_eq!(head.headers.len(), 2);
}

#[test]
fn received_lines_are_written_without_what_was_removed() {
    const SENT: &str = "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nDate: 2\r\nB: 3\r\n\r\n";
    let whole = "Host: a\r\nA: 1\r\nDate: 2\r\nB: 3\r\n";
    assert_eq!(written(&head(SENT)), whole);
    let without = |line: &str| whole.replace(line, "");
    type Change = fn(&mut RequestHead);
    let changes: [(Change, String); 9] = [
        (
            |head| {
                head.headers.remove(&name("a"));
            },
            without("A: 1\r\n"),
        ),
        (
            |head| {
                head.headers.remove(&name("none"));
            },
            without("none"),
        ),
        (
            |head| {
                head.headers.remove_known(Known::Date);
            },
            without("Date: 2\r\n"),
        ),
        (
            |head| {
                head.headers.remove_known(Known::Host);
            },
            without("Host: a\r\n"),
        ),
        (
            |head| {
                head.headers.remove_where(|_, value| value == b"3");
            },
            without("B: 3\r\n"),
        ),
        (|head| head.headers.insert(&name("a"), b"4").unwrap(), without("A: 1\r\n") + "a: 4\r\n"),
        (|head| head.headers.append(&name("c"), b"4").unwrap(), whole.to_owned() + "c: 4\r\n"),
        (|head| head.set_authority(b"other").unwrap(), whole.replace("Host: a", "Host: other")),
        (|head| head.headers = head.headers.to_owned_fields(), whole.to_owned()),
    ];
    for (change, expected) in changes {
        let mut changed = head(SENT);
        change(&mut changed);
        assert_eq!(written(&changed), expected);
        for known in [Known::Date, Known::Host, Known::Location] {
            let is_there = changed.headers.get_known(known).is_some();
            assert_eq!(changed.headers.has_known(known), is_there, "{known:?} in {expected}");
        }
        assert_eq!(written(&changed.copied()), expected);
    }
    let mut hostless = head("GET / HTTP/1.0\r\nA: 1\r\nB: 3\r\n\r\n");
    hostless.set_authority(b"other").unwrap();
    assert_eq!(written(&hostless), "Host: other\r\nA: 1\r\nB: 3\r\n");
    let nominated = SENT.replace("B: 3", "B: 3\r\nConnection: a, x");
    assert_eq!(written(&head(&nominated)), without("A: 1\r\n"));
    for odd in ["A:1", "A:  1", "A: 1 "] {
        assert_eq!(written(&head(&SENT.replace("A: 1", odd))), whole, "{odd}");
    }
}

#[test]
fn names_that_servers_read_as_one() {
    const SENT: &str =
        "GET / HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nx_key: 2\r\nX-Keys: 3\r\nmy_id: 4\r\nMy-Id: 5\r\n\r\n";
    let mut whole = head(SENT);
    assert!(whole.headers.remove(&name("x-key")));
    assert!(whole.headers.remove(&name("my_id")));
    assert_eq!(written(&whole), "Host: a\r\nX-Keys: 3\r\n");
    let mut twins = head(SENT);
    assert!(twins.headers.remove_twins(&NameSet::new([name("x-key"), name("my_id")])));
    assert!(!twins.headers.remove_twins(&NameSet::new([name("x-keys")])));
    assert_eq!(written(&twins), "Host: a\r\nX-Key: 1\r\nX-Keys: 3\r\nmy_id: 4\r\n");
}

#[test]
fn the_only_field_of_a_name_is_taken_if_it_is_accepted() {
    const SENT: &str = "GET / HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nDate: 2\r\nB: 3\r\n\r\n";
    const KEPT: &str = "Host: a\r\nDate: 2\r\nB: 3\r\n";
    let key = name("x-key");
    let take = |sent: &str| {
        let mut head = head(sent);
        let mut seen = 0;
        let taken = head.headers.take_sole(&key, |value| {
            seen += 1;
            (value == b"1").then_some(7)
        });
        (taken, seen, written(&head))
    };
    let whole = |sent: &str| written(&head(sent));
    assert_eq!(take(SENT), (Some(7), 1, KEPT.to_owned()));
    // Not accepted, and not there.
    let other = SENT.replace("X-Key: 1", "X-Key: 2");
    assert_eq!(take(&other), (None, 1, whole(&other)));
    let none = SENT.replace("X-Key", "X-Kex");
    assert_eq!(take(&none), (None, 0, whole(&none)));
    // Not the only one, whatever its case, its value and its place.
    for second in ["X-Key: 1", "x-key: 2", "X-KEY:"] {
        for place in ["X-Key: 1", "B: 3"] {
            let twice = SENT.replace(place, &format!("{place}\r\n{second}"));
            assert_eq!(take(&twice), (None, 0, whole(&twice)), "{twice}");
        }
    }
    // Other spellings go with it, as with `remove`.
    let twin = SENT.replace("B: 3", "x_key: 4\r\nB: 3");
    assert_eq!(take(&twin), (Some(7), 1, KEPT.to_owned()));
    // A field that was removed before does not count, and neither does one of another length.
    let mut head = head(&SENT.replace("B: 3", "X-Keys: 1\r\nX-Key: 1"));
    head.headers.insert(&key, b"1").unwrap();
    assert_eq!(head.headers.take_sole(&key, |value| Some(value.to_owned())), Some(b"1".to_vec()));
    assert_eq!(head.headers.take_sole(&key, |_| Some(())), None);
    assert_eq!(written(&head), "Host: a\r\nDate: 2\r\nX-Keys: 1\r\n");
}

/// Removes each subset of the received fields, forwards and backwards.
#[test]
fn fields_are_there_until_they_are_removed() {
    const LINES: [(&str, Option<Known>); 5] = [
        ("Host: a\r\n", Some(Known::Host)),
        ("A: 1\r\n", None),
        ("Date: 2\r\n", Some(Known::Date)),
        ("B: 3\r\n", None),
        ("Location: 4\r\n", Some(Known::Location)),
    ];
    let sent = format!("GET / HTTP/1.1\r\n{}\r\n", LINES.map(|(line, _)| line).concat());
    for removed in 0..1 << LINES.len() {
        for backwards in [false, true] {
            let mut changed = head(&sent);
            let mut order: Vec<usize> = (0..LINES.len()).filter(|at| removed >> at & 1 == 1).collect();
            if backwards {
                order.reverse();
            }
            for at in order {
                let (line, known) = LINES[at];
                match known {
                    Some(known) => assert!(changed.headers.remove_known(known)),
                    None => assert!(changed.headers.remove(&name(&line[..1]))),
                }
            }
            let left = LINES.iter().enumerate().filter(|(at, _)| removed >> at & 1 == 0);
            let left: String = left.map(|(_, (line, _))| *line).collect();
            assert_eq!(written(&changed), left);
            changed.headers.append(&name("X"), b"5").unwrap();
            assert_eq!(written(&changed), left.clone() + "X: 5\r\n");
            assert_eq!(written(&changed.copied()), left.clone() + "X: 5\r\n");
            for known in LINES.iter().filter_map(|(_, known)| *known) {
                let is_there = changed.headers.get_known(known).is_some();
                assert_eq!(changed.headers.has_known(known), is_there, "{known:?} in {left}");
                assert_eq!(changed.copied().headers.has_known(known), is_there, "{known:?} in {left}");
            }
        }
    }
}

#[test]
fn prepared_fields_are_as_if_appended() {
    let mut head = head("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let left = Prepared::new(&name("Left"), b"n=").unwrap();
    head.headers.append_prepared(&left, b"12").unwrap();
    head.headers.append_prepared(&left, b"").unwrap();
    head.headers.append_prepared(&Prepared::new(&name("Expect"), b"").unwrap(), b"x").unwrap();
    assert_eq!(written(&head), "Host: a\r\nLeft: n=12\r\nLeft: n=\r\nExpect: x\r\n");
    assert_eq!(head.headers.get_known(Known::Expect), Some(&b"x"[..]));
    let several = Prepared::new(&name("One"), b"1").unwrap().and(&name("My_Date"), b"").unwrap();
    let several = several.and(&name("Date"), b"d").unwrap();
    head.headers.append_prepared(&several, b"").unwrap();
    head.headers.append_prepared(&several, b"ay").unwrap();
    assert_eq!(head.headers.values(&name("date")).collect::<Vec<_>>(), [&b"d"[..], b"day"]);
    assert!(head.headers.remove_known(Known::Date));
    assert!(head.headers.remove_twins(&NameSet::new([name("my-date")])));
    assert_eq!(head.headers.get(&name("one")), Some(&b"1"[..]));
    assert!(head.headers.remove(&name("One")));
    assert!(head.headers.remove(&name("left")));
    assert_eq!(written(&head), "Host: a\r\nExpect: x\r\n");
    assert!(Prepared::new(&name("x"), b"a\r\nb").is_err());
    assert!(head.headers.append_prepared(&left, b"\n").is_err());
    assert!(
        head.headers.append_prepared(&left, &[b'x'; 64 * 1024 - 1]).is_err(),
        "two bytes are there already"
    );
    assert!(left.clone().and(&name("x"), b"\0").is_err());
    assert_eq!(written(&head), "Host: a\r\nExpect: x\r\n");
}

#[test]
fn numbers_complete_a_prepared_field() {
    let fields = Prepared::new(&name("One"), b"1").unwrap().and(&name("Left"), b"n;r=").unwrap();
    let left = Numbered::new(fields.clone(), *b";t=").unwrap();
    let mut numbers: Vec<u64> = (0..=1100).chain([4_294_967_296, u64::MAX - 1, u64::MAX]).collect();
    for power in (0..20).map(|digits| 10u64.pow(digits)) {
        numbers.extend([power - 1, power, power + 1, power.saturating_mul(7), power.saturating_mul(9)]);
    }
    numbers.extend((1..64).map(|bits| u64::MAX >> bits));
    let written = |pair| {
        let mut head = head("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        head.headers.append_numbered(&left, pair);
        head.headers.append(&name("X"), b"2").unwrap();
        assert_eq!(head.headers.get(&name("one")), Some(&b"1"[..]));
        let value = head.headers.get(&name("left")).unwrap().to_vec();
        (written(&head), String::from_utf8(value).unwrap())
    };
    for &number in &numbers {
        for [first, second] in
            [[number, 0], [0, number], [number, number], [u64::MAX, number], [number, u64::MAX]]
        {
            let value = format!("n;r={first};t={second}");
            let whole = format!("Host: a\r\nOne: 1\r\nLeft: {value}\r\nX: 2\r\n");
            assert_eq!(written([first, second]), (whole, value));
        }
    }
    assert!(Numbered::new(fields.clone(), *b";\n=").is_err());
    assert!(Numbered::new(fields.clone(), *b";to long=").is_err());
    assert!(Numbered::new(Prepared::default(), *b";t=").is_err());
    let long = Prepared::new(&name("Long"), &[b'x'; 64 * 1024 - 20]).unwrap();
    assert!(Numbered::new(long, *b";t=").is_err());
}

/// Every byte at every place of values of several lengths.
#[test]
fn values_hold_no_control_bytes() {
    for length in 1..=40 {
        for place in 0..length {
            for byte in 0..=255 {
                let mut value = vec![b'a'; length];
                value[place] = byte;
                let is_bad = byte < b' ' && byte != b'\t' || byte == 0x7f;
                assert_eq!(super::check(&value).is_err(), is_bad, "{value:?}");
            }
        }
    }
}

#[test]
fn values_that_would_split_a_message_are_refused() {
    let mut head = head("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for bad in [&b"a\r\nb"[..], b"\n", b"\0", b"\x7f"] {
        assert!(head.headers.insert(&name("x"), bad).is_err(), "{bad:?}");
    }
    assert_eq!(written(&head), "Host: a\r\n");
}

//! The examples of RFC 9204, its errors, and conversations between encoders and decoders with streams that overtake
//! each other.

use super::decoder::max_entries;
use super::integer::{write, write_text};
use super::table::{Name, Table};
use super::*;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use weir_fields::render::Encode;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn with(capacity: usize) -> Decoder {
    Decoder::new(DecoderLimits { capacity, blocked: 16 })
}

/// Fields as lines, and answers.
type Lines = (Vec<String>, Vec<u8>);

/// The fields of a section as lines, and what the decoder stream gets; `None` while the section is blocked.
fn decode(decoder: &mut Decoder, stream: u64, section: &[u8]) -> Result<Option<Lines>, Undecodable> {
    let (mut lines, mut answers) = (Vec::new(), Vec::new());
    let decoded = decoder.decode(stream, section, &mut answers, |name, value| {
        lines.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        ControlFlow::Continue(())
    })?;
    Ok((decoded == Decoded::Done).then_some((lines, answers)))
}

#[test]
fn appendix_b() {
    // B.1: a literal with a static name.
    let mut decoder = with(220);
    let section = hex("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    let want = vec![":path: /index.html".to_owned()];
    assert_eq!(decode(&mut decoder, 0, &section), Ok(Some((want, vec![]))));

    // B.2: two insertions, and a section with post-base references that arrives before them.
    let section = hex("0381 1011");
    assert_eq!(decode(&mut decoder, 4, &section), Ok(None));
    let insertions =
        hex("3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468");
    assert_eq!(decoder.instructions(&insertions), Ok(3));
    assert_eq!(decoder.inserted(), 2);
    let want = vec![":authority: www.example.com".to_owned(), ":path: /sample/path".to_owned()];
    assert_eq!(decode(&mut decoder, 4, &section), Ok(Some((want, hex("84")))));
    let mut answers = Vec::new();
    decoder.acknowledge(&mut answers);
    assert!(answers.is_empty(), "the section has acknowledged both insertions");

    // B.3: a speculative insertion.
    assert_eq!(
        decoder.instructions(&hex("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565")),
        Ok(1)
    );
    decoder.acknowledge(&mut answers);
    assert_eq!(answers, hex("01"));

    // B.4: a duplicate; the stream is cancelled in the RFC, but its section is valid.
    assert_eq!(decode(&mut decoder, 8, &hex("0500 80 c1 81")), Ok(None));
    assert_eq!(decoder.instructions(&hex("02")), Ok(1));
    answers.clear();
    decoder.cancel(8, &mut answers);
    assert_eq!(answers, hex("48"));
    let want = [":authority: www.example.com", ":path: /", "custom-key: custom-value"];
    let got = decode(&mut decoder, 8, &hex("0500 80 c1 81"));
    assert_eq!(got, Ok(Some((want.map(str::to_owned).to_vec(), hex("88")))));

    // B.5: an insertion that evicts the first entry.
    assert_eq!(decoder.instructions(&hex("810d 6375 7374 6f6d 2d76 616c 7565 32")), Ok(1));
    let got = decode(&mut decoder, 12, &hex("0600 80 81 82 83"));
    let want = [
        "custom-key: custom-value2",
        ":authority: www.example.com",
        "custom-key: custom-value",
        ":path: /sample/path",
    ];
    assert_eq!(got, Ok(Some((want.map(str::to_owned).to_vec(), hex("8c")))));
    assert!(decode(&mut decoder, 16, &hex("0600 84")).is_err(), "entry 0 is evicted");
}

#[test]
fn our_encoder_writes_the_bytes_of_the_appendix() {
    // B.1.
    let mut out = Vec::new();
    let mut encoder = Encoder::new(0);
    encoder.begin();
    encoder.encode(b":path", b"/index.html", false, &mut out);
    assert_eq!(out, hex("510b 2f69 6e64 6578 2e68 746d 6c"));
    // B.2 and B.3, as insertions: the second time that a field is sent.
    let mut encoder = Encoder::new(220);
    encoder.allow(220);
    let fields: [(&[u8], &[u8]); 3] =
        [(b":authority", b"www.example.com"), (b":path", b"/sample/path"), (b"custom-key", b"custom-value")];
    for _ in 0..2 {
        encoder.begin();
        fields.iter().for_each(|(name, value)| encoder.encode(name, value, false, &mut Vec::new()));
    }
    let want = "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468
                4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";
    assert_eq!(*encoder.instructions(), hex(want));
    // B.2 acknowledges two of them, so the section refers to these two.
    assert_eq!(encoder.answers(&hex("02")), Ok(0));
    let (mut lines, mut section) = (Vec::new(), Vec::new());
    encoder.begin();
    fields.iter().for_each(|(name, value)| encoder.encode(name, value, false, &mut lines));
    encoder.finish(4, &mut section);
    assert_eq!(section, hex("0300"));
    assert_eq!(lines[..2], hex("81 80"));
    assert_eq!(lines[2..4], hex("27 03"), "custom-key is literal");
    assert_eq!(encoder.answers(&hex("84 01")), Ok(0));
}

#[test]
fn invalid_sections() {
    for (section, why) in [
        ("", "no prefix"),
        ("00", "half a prefix"),
        ("ff", "a prefix that is cut"),
        ("0080", "a negative Base (RFC 9204 §4.5.1.2)"),
        ("0d00", "a Required Insert Count above the range (§4.5.1.1)"),
        ("0100", "a Required Insert Count that decodes to 0"),
        ("0000ff24", "static entry 99"),
        ("00005f55 00", "a name of static entry 100"),
        ("000080", "an entry, but nothing required"),
        ("000010", "a post-base entry, but nothing required"),
        ("000000 00", "a post-base name, but nothing required"),
        ("000040 00", "a dynamic name, but nothing required"),
        ("020081", "an entry before the first"),
        ("020010", "an entry behind the required ones (§2.2.1)"),
        ("0000ff", "an index that is cut"),
        ("0000510b2f", "a value that is cut"),
        ("00005181ff", "a value of padding"),
        ("00002361", "a name that is cut"),
        ("0000ffffffffffffffffffff00", "an index of more than 62 bits"),
    ] {
        let mut decoder = with(220);
        assert_eq!(decoder.instructions(&hex("3fbd01 4161 0162")), Ok(2));
        assert!(decode(&mut decoder, 0, &hex(section)).is_err(), "{why}");
    }
}

#[test]
fn invalid_instructions() {
    for (bytes, why) in [
        ("3fbe01", "a capacity above the limit (§4.3.1)"),
        ("80 00", "a name of an entry that does not exist"),
        ("ff24 00", "a name of static entry 99"),
        ("00", "a duplicate of nothing"),
        ("4161 0162", "an entry, but the capacity is still 0 (§3.2.2)"),
        ("3fbd01 c0 7fe702", "a value that can not fit"),
        ("3fbd01 c0 7f3e", "a value one byte too long with its entry"),
        ("3fbd01 5fffffff7f", "a name that is too long, before it arrives"),
        ("3fbd01 6181 00 00", "a name that is no Huffman code"),
        ("3fffffffffffffffffff7f", "a capacity of more than 62 bits"),
    ] {
        let mut bytes = hex(bytes);
        if why.contains("one byte") {
            bytes.extend_from_slice(&[b'x'; 189]);
        }
        assert!(with(220).instructions(&bytes).is_err(), "{why}");
    }
}

#[test]
fn invalid_answers() {
    let mut encoder = Encoder::new(4096);
    encoder.allow(4096);
    for (bytes, why) in [
        ("84", "nothing was sent (§4.4.1)"),
        ("00", "an increment of 0 (§4.4.3)"),
        ("01", "more than was inserted"),
        ("3fffffffffffffffff7f", "an increment of many bits"),
    ] {
        assert!(encoder.answers(&hex(bytes)).is_err(), "{why}");
    }
    assert_eq!(encoder.answers(&hex("48 44")), Ok(2), "unknown streams may be cancelled");
    assert_eq!(encoder.answers(&hex("7f")), Ok(0));
    assert_eq!(encoder.answers(&hex("8001")), Ok(1), "an answer in pieces");
}

#[test]
fn a_receiver_may_stop() {
    let mut decoder = with(4096);
    let mut seen = 0;
    let done = decoder.decode(0, &hex("0000 d1 d7 c1"), &mut Vec::new(), |_, _| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((done, seen), (Ok(Decoded::Done), 2));
}

#[test]
fn secrets_stay_out_of_tables() {
    let mut encoder = Encoder::new(4096);
    encoder.allow(4096);
    encoder.instructions().clear();
    for _ in 0..3 {
        let mut out = Vec::new();
        encoder.begin();
        encoder.encode(b"authorization", b"Basic x", true, &mut out);
        encoder.encode(b"x-key", b"1", true, &mut out);
        encoder.encode(b"cookie", b"a=1", false, &mut out);
        encoder.encode(b"set-cookie", b"a=1", false, &mut out);
        // N on a static name (84) and on a literal name.
        assert_eq!((out[0], out[1], out[10]), (0x7f, 84 - 15, 0x35));
    }
    assert!(encoder.instructions().is_empty());
}

/// What is never acknowledged must stay: the encoder stops inserting, and still encodes.
#[test]
fn nothing_is_evicted_that_is_needed() {
    let mut encoder = Encoder::new(256);
    encoder.allow(1 << 20);
    for n in 0..100 {
        for _ in 0..2 {
            encoder.begin();
            encoder.encode(b"x-number", format!("{n}").as_bytes(), false, &mut Vec::new());
            encoder.finish(0, &mut Vec::new());
        }
    }
    let mut decoder = with(1 << 20);
    let written = encoder.instructions().clone();
    assert_eq!(decoder.instructions(&written), Ok(1 + 6), "256 bytes hold six of these");
    assert!(written.len() < 100);
}

/// A field from a small set, so that fields repeat.
fn field(random: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    const NAMES: [&str; 8] =
        [":status", "server", "x-a", "x-longer-name", "cache-control", "date", "etag", "vary"];
    let name = NAMES[random.usize(..NAMES.len())];
    let value = match random.usize(..4) {
        0 => "200".to_owned(),
        1 => "no-cache".to_owned(),
        2 => format!("value-{}", random.usize(..12)),
        _ => "v".repeat(random.usize(..60)),
    };
    (name.as_bytes().to_vec(), value.into_bytes())
}

/// Takes a random beginning of `wire`, or all of it.
fn piece(wire: &mut Vec<u8>, random: &mut fastrand::Rng) -> Vec<u8> {
    let len = if random.bool() { wire.len() } else { random.usize(..=wire.len()) };
    wire.drain(..len).collect()
}

/// Our encoder and our decoder: sections overtake instructions, answers come late, and streams are cancelled. No
/// section is ever blocked.
#[test]
fn sections_never_wait() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let wanted = [0, 64, 200, 600, 4096][random.usize(..5)];
        let limit = [0, 100, 220, 4096][random.usize(..4)];
        let (mut encoder, mut decoder) = (Encoder::new(wanted), with(limit));
        encoder.allow(limit as u64);
        let (mut instructions, mut answers) = (Vec::new(), Vec::new());
        let mut sections: VecDeque<(u64, Vec<u8>, Fields)> = VecDeque::new();
        for stream in 0..300u64 {
            let fields: Fields = (0..random.usize(..12)).map(|_| field(&mut random)).collect();
            let (mut lines, mut section) = (Vec::new(), Vec::new());
            encoder.begin();
            for (name, value) in &fields {
                encoder.encode(name, value, random.usize(..10) == 0, &mut lines);
            }
            encoder.finish(4 * stream, &mut section);
            section.append(&mut lines);
            sections.push_back((4 * stream, section, fields));
            instructions.append(encoder.instructions());
            while sections.len() > 8 || (!sections.is_empty() && random.bool()) {
                let (stream, section, want) = sections.remove(random.usize(..sections.len())).unwrap();
                if random.usize(..8) == 0 {
                    decoder.cancel(stream, &mut answers);
                    continue;
                }
                let mut got = Fields::new();
                let done = decoder.decode(stream, &section, &mut answers, |name, value| {
                    got.push((name.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                });
                assert_eq!((done, got), (Ok(Decoded::Done), want), "seed {seed}");
            }
            decoder.instructions(&piece(&mut instructions, &mut random)).unwrap();
            decoder.acknowledge(&mut answers);
            encoder.answers(&piece(&mut answers, &mut random)).unwrap();
        }
        if wanted >= 200 && limit >= 220 {
            assert!(decoder.inserted() > 10, "seed {seed}: the test has lost its point");
        }
    }
}

/// An encoder that does everything the format allows, with references to entries that the decoder may not have yet.
struct Bold {
    table: Table,
    capacity: usize,
    out: Vec<u8>,
    /// The oldest entry that sections in flight refer to.
    pinned: VecDeque<(u64, u64)>,
    /// How many insertions have arrived. Others may not be evicted, or counts modulo the table would be ambiguous.
    known: u64,
}

impl Bold {
    fn insert(&mut self, random: &mut fastrand::Rng) {
        let (name, value) = field(random);
        const LONGEST: usize = 13 + 59;
        let oldest = self.pinned.iter().map(|(_, oldest)| *oldest).min().unwrap_or(u64::MAX);
        if self.table.first_left(LONGEST).is_none_or(|left| left > oldest.min(self.known)) {
            return;
        }
        let (count, first) = (self.table.inserted(), self.table.oldest());
        let has = count > first;
        match random.usize(..3) {
            0 if has => {
                let absolute = random.u64(first..count);
                write(count - absolute - 1, 5, 0, &mut self.out);
                let (name, value) = self.table.get(absolute).unwrap();
                let (name, value) = (name.to_vec(), value.to_vec());
                self.table.insert(Name::Literal(&name), &value).unwrap();
            }
            1 if has => {
                let absolute = random.u64(first..count);
                write(count - absolute - 1, 6, 0x80, &mut self.out);
                write_text(&value, 7, 0, &mut self.out);
                let name = self.table.get(absolute).unwrap().0.to_vec();
                self.table.insert(Name::Literal(&name), &value).unwrap();
            }
            _ => {
                write_text(&name, 5, 0x40, &mut self.out);
                write_text(&value, 7, 0, &mut self.out);
                self.table.insert(Name::Literal(&name), &value).unwrap();
            }
        }
    }

    /// A section whose Base lies anywhere, with its fields.
    fn section(&mut self, stream: u64, random: &mut fastrand::Rng) -> (Vec<u8>, Fields) {
        let (first, count) = (self.table.oldest(), self.table.inserted());
        let base = random.u64(first..=count);
        let (mut lines, mut fields) = (Vec::new(), Fields::new());
        let (mut required, mut oldest) = (0, u64::MAX);
        for _ in 0..random.usize(..8) {
            let (name, value) = field(random);
            if first == count || random.usize(..4) == 0 {
                write_text(&name, 3, 0x20, &mut lines);
                write_text(&value, 7, 0, &mut lines);
                fields.push((name, value));
                continue;
            }
            let absolute = random.u64(first..count);
            (required, oldest) = (required.max(absolute + 1), oldest.min(absolute));
            let (of, its) = self.table.get(absolute).unwrap();
            let of = of.to_vec();
            if random.bool() {
                let is_before = absolute < base;
                let index = if is_before { base - absolute - 1 } else { absolute - base };
                write(index, if is_before { 6 } else { 4 }, if is_before { 0x80 } else { 0x10 }, &mut lines);
                fields.push((of, its.to_vec()));
            } else {
                match absolute < base {
                    true => write(base - absolute - 1, 4, 0x40, &mut lines),
                    false => write(absolute - base, 3, 0, &mut lines),
                }
                write_text(&value, 7, 0, &mut lines);
                fields.push((of, value));
            }
        }
        self.pinned.push_back((stream, oldest));
        let mut section = Vec::new();
        if required == 0 {
            write(0, 8, 0, &mut section);
            write(base, 7, 0, &mut section);
        } else {
            write(required % (2 * max_entries(self.capacity)) + 1, 8, 0, &mut section);
            match base.checked_sub(required) {
                Some(delta) => write(delta, 7, 0, &mut section),
                None => write(required - base - 1, 7, 0x80, &mut section),
            }
        }
        section.append(&mut lines);
        (section, fields)
    }
}

/// Instructions arrive in pieces, and sections before, between and after them, in any order. Whatever the order, each
/// section is blocked exactly until what it needs has arrived, and then has its fields.
#[test]
fn whatever_the_order_every_section_is_decoded() {
    let (mut blocked, mut evicted) = (0, 0);
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let capacity = [120, 220, 600, 4096][random.usize(..4)];
        let (out, pinned) = (Vec::new(), VecDeque::new());
        let mut bold = Bold { table: Table::EMPTY, capacity, out, pinned, known: 0 };
        bold.table.resize(capacity);
        write(capacity as u64, 5, 0x20, &mut bold.out);
        let mut decoder = with(capacity);
        let mut sections: Vec<(u64, Vec<u8>, Fields)> = Vec::new();
        for stream in 0..200u64 {
            bold.known = decoder.inserted();
            (0..random.usize(..5)).for_each(|_| bold.insert(&mut random));
            let (section, fields) = bold.section(stream, &mut random);
            sections.push((stream, section, fields));
            random.shuffle(&mut sections);
            decoder.instructions(&piece(&mut bold.out, &mut random)).unwrap();
            if sections.len() > 16 {
                let rest = std::mem::take(&mut bold.out);
                decoder.instructions(&rest).unwrap();
            }
            sections.retain(|(stream, section, want)| {
                let (mut got, mut answers) = (Fields::new(), Vec::new());
                let decoded = decoder.decode(*stream, section, &mut answers, |name, value| {
                    got.push((name.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                });
                match decoded.unwrap() {
                    Decoded::Blocked(required) => {
                        assert!(required > decoder.inserted() && got.is_empty() && answers.is_empty());
                        blocked += 1;
                        true
                    }
                    Decoded::Done => {
                        assert_eq!(got, *want, "seed {seed}, stream {stream}");
                        bold.pinned.retain(|(other, _)| other != stream);
                        false
                    }
                }
            });
        }
        evicted += bold.table.oldest();
    }
    assert!(blocked > 1000 && evicted > 1000, "{blocked}, {evicted}: the test has lost its point");
}

//! A sink that reads everything immediately, and pre-rendered heads: the needs of a load generator.

use super::*;

#[derive(Debug, Default)]
struct Counts {
    /// Names, ends, and the code of an earlier GOAWAY.
    over: Vec<(&'static str, Option<Failed>, Option<u32>)>,
}

#[derive(Debug, Default)]
struct Count {
    name: &'static str,
    heads: usize,
    bytes: usize,
    wire: usize,
}

impl Sink for Counts {
    type Kept = Count;

    const HELD: bool = false;

    fn head(
        &mut self,
        kept: &mut Count,
        block: &Block<'_>,
        decoder: &mut hpack::Decoder,
    ) -> Result<Result<HeadFacts, Malformed>, hpack::Undecodable> {
        let mut told = HeadFacts::default();
        decoder.decode(block.bytes, |name, value| {
            let number = || str::from_utf8(value).unwrap().parse::<u16>().unwrap();
            match name {
                b":status" => told.status = number(),
                b"content-length" => told.length = Some(number().into()),
                _ => {}
            }
        })?;
        (kept.heads, kept.wire) = (kept.heads + 1, kept.wire + block.wire);
        Ok(Ok(told))
    }

    fn data(&mut self, kept: &mut Count, piece: &Piece<'_>) -> Result<Taken, Malformed> {
        (kept.bytes, kept.wire) = (kept.bytes + piece.data.len(), kept.wire + piece.wire);
        if piece.data == b"nonsense" { Err(Malformed("nonsense")) } else { Ok(Taken::Read) }
    }

    fn over(&mut self, kept: &mut Count, failed: Option<Failed>, left: Option<u32>) {
        self.over.push((kept.name, failed, left));
    }
}

const FLOW: Flow = Flow { first: 100_000, growth: 0, credit: 50_000, out: 40_000 };

fn counting() -> Codec<Counts> {
    let bounds = Bounds { streams: 1, window: FLOW.first, ..BOUNDS };
    let mut codec = Codec::begin(Counts::default(), Role::Client, bounds, FLOW);
    let greeting = sent(&mut codec);
    assert_eq!(greeting[0].payload[6..], settings(&[(setting::PUSH, 0), (setting::WINDOW, 100_000)]));
    assert_eq!(greeting[1].payload, (150_000u32 - 65_535).to_be_bytes());
    hear(&mut codec, Kind::SETTINGS, 0, 0, &[]);
    sent(&mut codec);
    codec
}

fn hear(codec: &mut Codec<Counts>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    let mut wire = Vec::new();
    frame::write(kind, flags, stream, payload, &mut wire);
    assert_eq!(codec.receive(&wire), wire.len());
}

fn head(codec: &mut Codec<Counts>, stream: u32, fields: &[(&str, &str)], end: u8) {
    hear(codec, Kind::HEADERS, frame::END_HEADERS | end, stream, &block(fields));
}

fn sent(codec: &mut Codec<Counts>) -> Vec<Sent> {
    let all = codec.pending().to_vec();
    let mut rest = all.strip_prefix(PREFACE).unwrap_or(&all);
    let mut frames = Vec::new();
    while let Some(Header { len, kind, flags, stream }) = Header::parse(rest) {
        frames.push(Sent { kind, flags, stream, payload: rest[HEADER..HEADER + len].to_vec() });
        rest = &rest[HEADER + len..];
    }
    if let Some(spare) = codec.sent(all.len()) {
        codec.lend(spare);
    }
    frames
}

/// Two frames, like a head that is too long for one.
fn write(stream: u32, out: &mut Vec<u8>) {
    frame::write(Kind::HEADERS, 0, stream, &[0x82], out);
    frame::write(Kind::CONTINUATION, frame::END_HEADERS, stream, &[0x86], out);
}

#[test]
fn a_rendered_head_is_ended_as_any_other() {
    let mut codec = counting();
    let (slot, id) = codec.ask(false, false, write);
    assert_eq!((id, codec.find(1), codec.open()), (1, Some(slot), 1));
    codec.send_end(slot, &[]).unwrap();
    let shape: Vec<_> = sent(&mut codec).iter().map(|s| (s.kind, s.flags, s.stream)).collect();
    assert_eq!(shape, [(Kind::HEADERS, frame::END_STREAM, 1), (Kind::CONTINUATION, frame::END_HEADERS, 1)]);
    // If it was rendered with its end flag, nothing may follow.
    let (slot, id) = codec.ask(false, true, write);
    codec.send_end(slot, &[]).unwrap_err();
    let cx = Context::from_waker(Waker::noop());
    assert_eq!(codec.send_data(slot, b"x", &cx), Poll::Ready(Err(Failed::GivenUp)));
    assert_eq!((id, sent(&mut codec).len()), (3, 2));
}

#[test]
fn a_rendered_head_begins_with_the_table_size_that_is_owed() {
    let mut codec = counting();
    let permit = |codec: &mut Codec<Counts>, size| {
        hear(codec, Kind::SETTINGS, 0, 0, &settings(&[(setting::TABLE, size)]));
        sent(codec);
    };
    permit(&mut codec, 200);
    for payload in [&[0x20, 0x82][..], &[0x82]] {
        codec.ask(false, true, |id, out| {
            frame::write(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, id, &[0x82], out);
        });
        let sent = sent(&mut codec);
        assert_eq!((sent.len(), sent[0].flags, &sent[0].payload[..]), (1, 5, payload));
    }
    // In front of a full frame.
    for (flags, rest) in [(frame::END_HEADERS, &[][..]), (0, &[0x86])] {
        permit(&mut codec, 199 + u32::from(flags));
        permit(&mut codec, 100);
        let (slot, _) = codec.ask(false, false, |id, out| {
            frame::write(Kind::HEADERS, flags, id, &[0x82; FRAME_MOST], out);
            if flags == 0 {
                frame::write(Kind::CONTINUATION, frame::END_HEADERS, id, rest, out);
            }
        });
        codec.send_end(slot, &[]).unwrap();
        let sent = sent(&mut codec);
        let shape: Vec<_> = sent.iter().map(|s| (s.kind, s.flags, s.payload.len())).collect();
        let want = [
            (Kind::HEADERS, frame::END_STREAM, 1),
            (Kind::CONTINUATION, flags, FRAME_MOST),
            (Kind::CONTINUATION, frame::END_HEADERS, 1),
        ];
        assert_eq!(shape, want[..2 + rest.len()]);
        let block: Vec<u8> = sent.into_iter().flat_map(|s| s.payload).collect();
        assert_eq!(block, [&[0x20][..], &[0x82; FRAME_MOST], rest].concat());
    }
}

#[test]
fn who_reads_at_once_gives_windows_back_at_once() {
    let mut codec = counting();
    let (slot, _) = codec.ask(false, true, write);
    head(&mut codec, 1, &[(":status", "200")], 0);
    sent(&mut codec);
    for _ in 0..3 {
        hear(&mut codec, Kind::DATA, 0, 1, &[0; 16_000]);
        assert!(sent(&mut codec).is_empty());
    }
    hear(&mut codec, Kind::DATA, frame::PADDED, 1, &[&[255][..], &[0; 16_000]].concat());
    let updates: Vec<_> = sent(&mut codec).iter().map(|s| (s.stream, s.payload.clone())).collect();
    let all = 64_001u32.to_be_bytes().to_vec();
    assert_eq!(updates, [(0, all.clone()), (1, all)]);
    let kept = codec.kept(slot);
    assert_eq!((kept.heads, kept.bytes), (1, 3 * 16_000 + 15_745));
    assert_eq!(kept.wire, 9 + block(&[(":status", "200")]).len() + 4 * 9 + 64_001);
}

/// Sends a request that consists of its head, unless a body follows.
fn ask(codec: &mut Codec<Counts>, name: &'static str, ends: bool) -> usize {
    let (slot, _) = codec.ask(false, ends, write);
    codec.kept(slot).name = name;
    slot
}

#[test]
fn a_stream_that_nobody_holds_is_told_once_and_freed_when_it_ends() {
    let mut codec = counting();
    let names = ["answered", "reset", "short", "nonsense", "given up", "refused"];
    let slots = names.map(|name| ask(&mut codec, name, true));
    ask(&mut codec, "answered early", false);
    sent(&mut codec);
    head(&mut codec, 1, &[(":status", "200")], frame::END_STREAM);
    hear(&mut codec, Kind::RST_STREAM, 0, 1, &0u32.to_be_bytes()); // it was already answered: nothing new
    hear(&mut codec, Kind::RST_STREAM, 0, 3, &2u32.to_be_bytes());
    head(&mut codec, 5, &[(":status", "200"), ("content-length", "9")], frame::END_STREAM);
    head(&mut codec, 7, &[(":status", "200")], 0);
    hear(&mut codec, Kind::DATA, 0, 7, b"nonsense");
    head(&mut codec, 13, &[(":status", "413")], frame::END_STREAM);
    codec.release(slots[4]);
    let resets: Vec<_> = sent(&mut codec).iter().map(|s| (s.stream, s.payload[3])).collect();
    assert_eq!(resets, [(5, 1), (7, 1), (13, 8), (9, 8)]);
    assert_eq!(codec.places(), [slots[5]]);
    hear(&mut codec, Kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 11]);
    assert_eq!((codec.places(), codec.open(), codec.is_open()), (vec![], 0, false));
    let over = [
        ("answered", None, None),
        ("reset", Some(Failed::Reset(2)), None),
        ("short", Some(Failed::Malformed("less data than Content-Length")), None),
        ("nonsense", Some(Failed::Malformed("nonsense")), None),
        ("answered early", None, None),
        ("refused", Some(Failed::Refused { by_reset: false }), Some(11)),
    ];
    assert_eq!(codec.sink.over, over);
    assert_eq!(codec.ended(), None);
}

#[test]
fn a_place_that_was_freed_is_as_new() {
    let mut codec = counting();
    let slot = ask(&mut codec, "first", true);
    head(&mut codec, 1, &[(":status", "204")], frame::END_STREAM);
    let (again, id) = codec.ask(false, true, write);
    assert_eq!((again, id, codec.kept(slot).name), (slot, 3, ""));
    head(&mut codec, 1, &[(":status", "200")], 0); // of the previous stream
    hear(&mut codec, Kind::DATA, 0, 3, b"x");
    assert_eq!(codec.sink.over.pop(), Some(("", Some(Failed::Malformed("data before the head")), None)));
}

#[test]
fn streams_that_end_with_their_connection_stay() {
    let mut codec = counting();
    let slot = ask(&mut codec, "open", true);
    hear(&mut codec, Kind::PING, 0, 0, b"1234567");
    assert_eq!((codec.ended(), codec.rule()), (Some(Fault::Protocol), "PING is not 8 bytes long"));
    codec.gone();
    assert_eq!((codec.sink.over.len(), codec.places(), codec.rule().is_empty()), (0, vec![slot], false));
    codec.release(slot);
    assert_eq!(codec.places(), []);
}

#[test]
fn what_came_of_a_head_that_is_not_whole_is_known() {
    let mut codec = counting();
    codec.ask(false, true, write);
    hear(&mut codec, Kind::HEADERS, 0, 1, &block(&[(":status", "200")]));
    assert_eq!(codec.unfinished(), 10);
    hear(&mut codec, Kind::CONTINUATION, frame::END_HEADERS, 1, &[]);
    assert_eq!(codec.unfinished(), 0);
}

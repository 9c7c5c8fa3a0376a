//! Confirms to the peer that our encoder uses no dynamic table (RFC 7541 §4.2, RFC 9113 §4.3.1).

use super::*;

/// A decoder that insists on the size updates that its SETTINGS require.
struct Strict {
    inner: hpack::Decoder,
    /// The largest table that our SETTINGS permit, and the smallest since the last block.
    most: u32,
    least: u32,
    is_owed: bool,
}

impl Strict {
    fn new() -> Self {
        Self { inner: hpack::Decoder::default(), most: 4096, least: 4096, is_owed: false }
    }

    /// The peer has acknowledged these SETTINGS.
    fn permit(&mut self, sizes: &[u32]) {
        for &size in sizes {
            self.is_owed |= size < self.most;
            (self.most, self.least) = (size, self.least.min(size));
        }
    }

    /// The fields of a block.
    #[track_caller]
    fn decode(&mut self, block: &[u8]) -> Vec<String> {
        // Sizes below 31 take a single byte; the codec writes no other.
        let updates: Vec<u32> =
            block.iter().take_while(|b| **b & 0xe0 == 0x20).map(|b| u32::from(b & 0x1f)).collect();
        assert!(updates.len() <= 2 && !updates.contains(&0x1f), "{updates:?}");
        assert_eq!(self.is_owed, !updates.is_empty(), "an update is missing, or nothing called for it");
        assert!(updates.first().is_none_or(|size| *size <= self.least), "{updates:?} of {}", self.least);
        assert!(updates.last().is_none_or(|size| *size <= self.most), "{updates:?} of {}", self.most);
        (self.is_owed, self.least) = (false, self.most);
        let mut fields = Vec::new();
        let field = |name: &[u8], value: &[u8]| {
            fields.push(format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
        };
        self.inner.decode(block, field).unwrap();
        fields
    }
}

impl Talk {
    /// Sends SETTINGS with these table sizes, and has the codec acknowledge them.
    fn permit(&mut self, strict: &mut Strict, sizes: &[u32]) {
        let pairs: Vec<_> = sizes.iter().map(|size| (setting::TABLE, *size)).collect();
        self.hear(Kind::SETTINGS, 0, 0, &settings(&pairs));
        let sent = self.sent();
        assert!(sent.len() == 1 && (sent[0].kind, sent[0].flags) == (Kind::SETTINGS, frame::ACK), "{sent:?}");
        strict.permit(sizes);
    }

    /// Answers a request on a stream with its head and trailers; returns both blocks.
    fn answer(&mut self, stream: u32) -> [Vec<u8>; 2] {
        let slot = self.ask(stream, frame::END_STREAM);
        self.respond(slot);
        self.codec.send_end(slot, b"x-sum: 1\r\n").unwrap();
        let [head, trailers] = <[Sent; 2]>::try_from(self.sent()).unwrap();
        self.codec.release(slot);
        [head.payload, trailers.payload]
    }
}

#[test]
fn a_smaller_table_is_confirmed_at_the_start_of_the_next_block() {
    let (mut talk, mut strict) = (Talk::server(BOUNDS), Strict::new());
    let trailers = block(&[("x-sum", "1")]);
    let mut answers = |permitted: &[&[u32]], head: &[u8]| {
        permitted.iter().for_each(|sizes| talk.permit(&mut strict, sizes));
        let stream = (talk.codec.last + 1) | 1;
        let blocks = talk.answer(stream);
        assert_eq!(blocks, [head.to_vec(), trailers.clone()], "{permitted:?}");
        assert_eq!(blocks.map(|block| strict.decode(&block)), [[":status: 200"], ["x-sum: 1"]]);
    };
    answers(&[], &[0x88]);
    // Twice, in two frames: one update says the smallest size and the last one, as our encoder stays at 0.
    answers(&[&[1000], &[100]], &[0x20, 0x88]);
    answers(&[], &[0x88]);
    // Lower, and higher again, in one frame and in two.
    answers(&[&[0, 4096]], &[0x20, 0x88]);
    answers(&[&[50], &[4096]], &[0x20, 0x88]);
    // Neither a larger nor the same size calls for one; going back from it does.
    answers(&[&[65_536], &[65_536]], &[0x88]);
    answers(&[&[4096]], &[0x20, 0x88]);
}

#[test]
fn trailers_confirm_too() {
    let (mut talk, mut strict) = (Talk::server(BOUNDS), Strict::new());
    let slot = talk.ask(1, frame::END_STREAM);
    talk.respond(slot);
    talk.sent();
    talk.permit(&mut strict, &[0]);
    talk.codec.send_end(slot, b"x-sum: 1\r\n").unwrap();
    let sent = talk.sent();
    assert_eq!(sent[0].payload, [&[0x20][..], &block(&[("x-sum", "1")])].concat());
    assert_eq!(strict.decode(&sent[0].payload), ["x-sum: 1"]);
}

#[test]
fn a_block_that_is_not_sent_confirms_nothing() {
    let mut talk = Talk::client(&[(setting::TABLE, 0)]);
    let mut strict = Strict::new();
    strict.permit(&[0]);
    let slot = talk.codec.reserve();
    talk.codec.send_request(slot, b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n", "http").unwrap_err();
    talk.codec.release(slot);
    assert_eq!(talk.sent(), []);
    for first in [&[0x20, 0x82][..], &[0x82, 0x86]] {
        let Poll::Ready(slot) = talk.begin("GET / HTTP/1.1\r\nhost: h\r\n\r\n", Waker::noop()) else {
            panic!()
        };
        talk.codec.send_end(slot, &[]).unwrap();
        let sent = talk.sent();
        assert!(sent[0].payload.starts_with(first), "{sent:?}");
        let fields = strict.decode(&sent[0].payload);
        assert_eq!(fields, [":method: GET", ":scheme: http", ":authority: h", ":path: /"]);
    }
}

#[test]
fn an_update_makes_a_long_head_no_frame_too_long() {
    let mut talk = Talk::server(BOUNDS);
    let mut strict = Strict::new();
    talk.permit(&mut strict, &[0]);
    let slot = talk.ask(1, frame::END_STREAM);
    // Without the update, the block would fill two frames.
    let value = "x".repeat(2 * FRAME_MOST - (1 + 1 + 1 + 3 + 4));
    let head = format!("HTTP/1.1 200 OK\r\nx-a: {value}\r\n\r\n");
    let sent = talk.codec.send_response(slot, head.as_bytes(), &Context::from_waker(Waker::noop()));
    assert!(matches!(sent, Poll::Ready(Ok((_, true)))));
    let sent = talk.sent();
    assert_eq!(sent.iter().map(|frame| frame.payload.len()).collect::<Vec<_>>(), [FRAME_MOST, FRAME_MOST, 1]);
    let whole = sent.into_iter().flat_map(|frame| frame.payload).collect::<Vec<u8>>();
    assert_eq!(strict.decode(&whole), [":status: 200".to_owned(), format!("x-a: {value}")]);
}

//! Flow control in both directions.

use super::*;

// === the windows of the peer ===

#[test]
fn windows_may_become_less_than_nothing() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, frame::END_STREAM);
    talk.respond(slot);
    let (bell, waker) = bell();
    assert_eq!(talk.write(slot, &[0; 10_000], &waker), Poll::Ready(Ok(10_000)));
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 4000)]));
    assert_eq!(talk.write(slot, b"x", &waker), Poll::Pending);
    talk.hear(Kind::WINDOW_UPDATE, 0, 1, &6000u32.to_be_bytes());
    assert!(!bell.rung(), "10,000 of 10,000 are used");
    assert_eq!(talk.write(slot, b"x", &waker), Poll::Pending);
    talk.hear(Kind::WINDOW_UPDATE, 0, 1, &5u32.to_be_bytes());
    assert!(bell.rung());
    assert_eq!(talk.write(slot, b"something", &waker), Poll::Ready(Ok(5)));
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 0x7fff_ffff)]));
    assert_eq!(talk.write(slot, b"thing", &waker), Poll::Ready(Ok(5)));
    talk.hear(Kind::WINDOW_UPDATE, 0, 1, &20_000u32.to_be_bytes());
    talk.sent();
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 0x8000_0000)]));
    assert_eq!(talk.goaway(), code::FLOW_CONTROL);
}

#[test]
fn of_many_windows_in_one_frame_the_last_counts() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, frame::END_STREAM);
    talk.hear(Kind::WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes());
    // The first value, added to the earlier update, would exceed the largest window.
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 0x7fff_ffff), (setting::WINDOW, 10)]));
    assert_eq!((talk.codec.ended(), talk.codec.streams.at(slot).window), (None, 11));
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 0x8000_0000), (setting::WINDOW, 10)]));
    assert_eq!(talk.goaway(), code::FLOW_CONTROL);
}

#[test]
fn windows_have_a_least_and_a_largest_step() {
    for (by, wrong) in [(0u32, code::PROTOCOL), (0x7fff_ffff, code::FLOW_CONTROL)] {
        let mut talk = Talk::server(BOUNDS);
        talk.ask(1, 0);
        talk.hear(Kind::WINDOW_UPDATE, 0, 1, &by.to_be_bytes());
        assert_eq!(talk.reset(), (1, wrong));
        talk.hear(Kind::WINDOW_UPDATE, 0, 1, &by.to_be_bytes()); // the stream is gone
        talk.hear(Kind::WINDOW_UPDATE, 0, 0, &by.to_be_bytes());
        assert_eq!(talk.goaway(), wrong);
    }
}

#[test]
fn a_tight_connection_goes_round() {
    let mut talk = Talk::server(BOUNDS);
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 1_000_000)]));
    let slots: Vec<usize> = (0..4).map(|n| talk.ask(1 + 2 * n, frame::END_STREAM)).collect();
    let bells: Vec<_> = slots.iter().map(|_| bell()).collect();
    slots.iter().for_each(|slot| talk.respond(*slot));
    // The first stream takes the connection's whole 65,535. Then 20,000 bytes arrive at a time, and every stream
    // always wants more.
    let mut taken = BTreeMap::new();
    let mut first_order = Vec::new();
    for round in 0..60 {
        for (slot, (bell, waker)) in slots.iter().zip(&bells) {
            if !bell.rung() && round > 0 {
                continue;
            }
            while let Poll::Ready(Ok(n)) = talk.write(*slot, &[0; 16_384], waker) {
                *taken.entry(*slot).or_insert(0) += n;
                if round > 0 && first_order.len() < 8 {
                    first_order.push(*slot);
                }
            }
        }
        talk.sent();
        talk.hear(Kind::WINDOW_UPDATE, 0, 0, &20_000u32.to_be_bytes());
    }
    let (least, most) = (taken.values().min().unwrap(), taken.values().max().unwrap());
    assert!(most - least <= 65_535 + 5 * 16_384, "{taken:?}");
    for slot in &slots {
        talk.codec.release(*slot);
    }
    assert_eq!(talk.codec.reserved, 0);
}

#[test]
fn what_waits_to_be_sent_is_bounded_and_goes_on() {
    let mut talk = Talk::server(BOUNDS);
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 10_000_000)]));
    talk.hear(Kind::WINDOW_UPDATE, 0, 0, &10_000_000u32.to_be_bytes());
    let slots: Vec<usize> = (0..3).map(|n| talk.ask(1 + 2 * n, frame::END_STREAM)).collect();
    slots.iter().for_each(|slot| talk.respond(*slot));
    let bells: Vec<_> = slots.iter().map(|_| bell()).collect();
    for (slot, (_, waker)) in slots.iter().zip(&bells) {
        while talk.write(*slot, &[0; 16_384], waker).is_ready() {}
    }
    assert!(talk.codec.pending().len() < OUT_MOST + FRAME_MOST + 200, "{}", talk.codec.pending().len());
    assert!(bells.iter().all(|(bell, _)| !bell.rung()));
    talk.sent();
    assert!(bells.iter().all(|(bell, _)| bell.rung()));
    for (slot, (_, waker)) in slots.iter().zip(&bells) {
        assert_eq!(talk.write(*slot, &[0; 16_384], waker), Poll::Ready(Ok(16_384)));
    }
}

#[test]
fn one_that_leaves_the_queue_gives_its_turn_away() {
    let mut talk = Talk::server(BOUNDS);
    let slots: Vec<usize> = (0..3).map(|n| talk.ask(1 + 2 * n, frame::END_STREAM)).collect();
    slots.iter().for_each(|slot| talk.respond(*slot));
    let (bell, waker) = bell();
    while talk.write(slots[0], &[0; 16_384], Waker::noop()).is_ready() {
        talk.sent();
    }
    assert!(talk.write(slots[1], b"x", Waker::noop()).is_pending());
    assert!(talk.write(slots[2], b"x", &waker).is_pending());
    talk.hear(Kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
    assert!(!bell.rung());
    talk.codec.release(slots[0]);
    talk.codec.release(slots[1]);
    assert!(bell.rung());
    assert_eq!(talk.write(slots[2], b"xy", &waker), Poll::Ready(Ok(1)));
}

#[test]
fn a_stream_that_is_reset_in_the_queue_is_granted_nothing() {
    // Its holder may still read: an upstream that has answered early resets the rest of a request.
    let mut talk = Talk::client(&[]);
    let slots: Vec<usize> = (0..3).map(|_| talk.post()).collect();
    while talk.write(slots[0], &[0; 16_384], Waker::noop()).is_ready() {
        talk.sent();
    }
    let (bell, waker) = bell();
    assert!(talk.write(slots[1], b"x", Waker::noop()).is_pending());
    assert!(talk.write(slots[2], b"x", &waker).is_pending());
    for id in [1, 3] {
        talk.head(id, &[(":status", "413")], frame::END_STREAM);
        talk.hear(Kind::RST_STREAM, 0, id, &code::NO_ERROR.to_be_bytes());
    }
    talk.hear(Kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
    assert!(bell.rung());
    assert_eq!(talk.write(slots[2], b"x", &waker), Poll::Ready(Ok(1)));
    assert_eq!(talk.codec.reserved, 0);
}

// === our windows ===

/// Sends as much as the windows allow, tracking them like a client.
struct Windows {
    connection: i64,
    streams: BTreeMap<u32, i64>,
}

impl Windows {
    fn of(first: i64, connection: i64) -> Self {
        let streams = (0..8).map(|n| (1 + 2 * n, first)).collect();
        Self { connection, streams }
    }

    fn note(&mut self, sent: Vec<Sent>) {
        for frame in sent.into_iter().filter(|s| s.kind == Kind::WINDOW_UPDATE) {
            let by = i64::from(frame::number(&frame.payload, 0).unwrap());
            match frame.stream {
                0 => self.connection += by,
                id => *self.streams.get_mut(&id).unwrap() += by,
            }
        }
    }

    fn room(&self, stream: u32) -> usize {
        self.connection.min(self.streams[&stream]).clamp(0, 16_384) as usize
    }

    fn fill(&mut self, talk: &mut Talk, stream: u32) -> usize {
        let mut total = 0;
        while self.room(stream) > 0 {
            let now = self.room(stream);
            talk.data(stream, &vec![0; now], 0);
            self.connection -= now as i64;
            *self.streams.get_mut(&stream).unwrap() -= now as i64;
            total += now;
            self.note(talk.sent());
        }
        total
    }
}

#[test]
fn stalled_uploads_stall_no_neighbour() {
    let mut talk = Talk { codec: TextCodec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
    let hello = talk.sent();
    let mut windows = Windows::of(i64::from(STREAM_WINDOW), 65_535);
    windows.note(hello);
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
    let slots: Vec<usize> = (0..8).map(|n| talk.ask(1 + 2 * n, 0)).collect();
    // Each grows as far as it may, and then stalls.
    for (n, slot) in slots.iter().enumerate().skip(1) {
        let stream = 1 + 2 * n as u32;
        for _ in 0..50 {
            windows.fill(&mut talk, stream);
            while matches!(talk.read(*slot), Poll::Ready(Ok(_))) {}
            windows.note(talk.sent());
        }
        windows.fill(&mut talk, stream);
    }
    let held: usize = slots.iter().map(|slot| talk.codec.kept(*slot).unread()).sum();
    assert!(held <= 8 * STREAM_WINDOW as usize + CLIENT_GROWTH as usize, "{held}");
    assert!(held > 7 * 200_000, "they have grown: {held}");
    // The first stream can still send a large body.
    let mut total = 0;
    for _ in 0..100 {
        total += windows.fill(&mut talk, 1);
        while matches!(talk.read(slots[0]), Poll::Ready(Ok(_))) {}
        windows.note(talk.sent());
    }
    assert!(total > 2_000_000, "{total}");
    assert_eq!(talk.codec.ended(), None);
    slots.iter().for_each(|slot| talk.codec.release(*slot));
    assert_eq!(talk.codec.growth, CLIENT_GROWTH);
}

#[test]
fn more_than_a_window_is_an_error() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, 0);
    talk.data(1, &[0; 16_384], 0);
    talk.data(1, &[0; 16_384], 0);
    talk.data(1, &[0; 1], 0);
    assert_eq!(talk.reset(), (1, code::FLOW_CONTROL));
    assert_eq!(talk.codec.failed(slot), Some(Failed::Malformed("more data than a window")));
}

#[test]
fn before_it_knows_our_settings_a_client_counts_by_the_first_window() {
    let mut talk = Talk { codec: TextCodec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    talk.sent();
    let slot = talk.ask(1, 0);
    (0..3).for_each(|_| talk.data(1, &[0; 16_384], 0));
    talk.data(1, &[0; 16_383], 0);
    talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
    assert!(talk.sent().is_empty() && talk.codec.ended().is_none());
    assert_eq!(talk.codec.streams.at(slot).room, i64::from(STREAM_WINDOW) - 65_535);
}

#[test]
fn an_end_without_data_needs_no_window() {
    let mut talk = Talk { codec: TextCodec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    talk.sent();
    let slot = talk.ask(1, 0);
    (0..3).for_each(|_| talk.data(1, &[0; 16_384], 0));
    talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
    talk.data(1, &[], frame::END_STREAM);
    assert!(talk.sent().is_empty());
    assert_eq!(talk.codec.failed(slot), None);
}

#[test]
fn an_answer_to_nothing_changes_no_window() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, 0);
    (0..3).for_each(|_| talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]));
    assert_eq!(talk.codec.streams.at(slot).room, i64::from(STREAM_WINDOW));
}

#[test]
fn padding_takes_room_and_gives_it_back() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, 0);
    talk.codec.take_head(slot, &mut Vec::new());
    let padded = [&[255][..], b"x", &[0; 255]].concat();
    for n in 0..2000 {
        talk.hear(Kind::DATA, frame::PADDED, 1, &padded);
        assert_eq!(talk.read(slot), Poll::Ready(Ok(b"x".to_vec())), "{n}");
    }
    assert_eq!(talk.codec.ended(), None);
    let sent = talk.sent();
    assert!(!sent.is_empty() && sent.iter().all(|s| s.kind == Kind::WINDOW_UPDATE));
}

#[test]
fn what_is_dropped_is_given_back_to_the_connection() {
    let mut talk = Talk::server(BOUNDS);
    let before = talk.codec.room + i64::from(talk.codec.credit);
    let slot = talk.ask(1, 0);
    talk.data(1, &[0; 10_000], 0);
    talk.codec.release(slot);
    talk.data(1, &[0; 5_000], 0); // in flight
    assert_eq!(talk.codec.room + i64::from(talk.codec.credit), before);
}

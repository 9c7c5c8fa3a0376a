//! What a peer may do often is limited by kind, and cut with H3_EXCESSIVE_LOAD (RFC 9114 §10.5).

use super::*;

/// Repeats something until the connection ends; returns how often it was done, and why it ended.
fn until_cut(mut act: impl FnMut(&mut Peer, u64)) -> (u64, Option<Flood>) {
    let bounds = Bounds { streams: 10_000, floods: FloodLimits::default(), ..BOUNDS };
    let mut peer = Peer::with(Role::Server, bounds);
    peer.send(2, &hex("00 04 00"), false);
    let count = (0..20_000).find(|n| {
        act(&mut peer, *n);
        while let Some(slot) = peer.codec.next_arrival() {
            peer.codec.forget_head(slot);
        }
        peer.effects();
        peer.codec.ended().is_some()
    });
    let ended = peer.codec.ended();
    assert_eq!(ended.map(|ended| ended.code), Some(code::EXCESSIVE_LOAD));
    (count.unwrap() + 1, ended.and_then(|ended| ended.flood))
}

#[test]
fn each_flood_is_cut() {
    let limits = FloodLimits::default();
    let get = ask(&[]);
    let (count, flood) = until_cut(|peer, n| {
        peer.send(4 * n, &get, false);
        peer.codec.reset_came(4 * n, code::REQUEST_CANCELLED, peer.now);
    });
    assert_eq!((count, flood), (u64::from(limits.resets) + 1, Some(Flood::Resets)), "rapid reset");

    let (count, flood) = until_cut(|peer, n| {
        peer.codec.reset_came(4 * n, code::REQUEST_CANCELLED, peer.now);
    });
    assert_eq!((count, flood), (u64::from(limits.resets) + 1, Some(Flood::Resets)), "resets of nothing");

    let malformed = ask(&[("connection", "close")]);
    let (count, flood) = until_cut(|peer, n| {
        peer.send(4 * n, &malformed, true);
    });
    assert_eq!((count, flood), (u64::from(limits.errors) + 1, Some(Flood::Errors)), "malformed requests");

    let (count, flood) = until_cut(|peer, n| {
        peer.send(2 + 4 * (n + 1), &hex("21"), false);
        peer.codec.reset_came(2 + 4 * (n + 1), 0, peer.now);
    });
    assert!(count <= u64::from(limits.streams) + 1, "{count}");
    assert_eq!(flood, Some(Flood::Streams), "unknown streams");

    let (count, flood) = until_cut(|peer, n| peer.codec.reset_came(2 + 4 * (n + 1), 0, peer.now));
    assert_eq!(
        (count, flood),
        (u64::from(limits.streams) + 1, Some(Flood::Streams)),
        "streams without a type"
    );

    let (count, flood) = until_cut(|peer, n| {
        let bytes = if n == 0 { ask(&[]) } else { data("") };
        peer.send(0, &bytes, false);
    });
    assert!(count <= u64::from(limits.empty_data) + 3, "{count}");
    assert_eq!(flood, Some(Flood::Data), "empty DATA");

    for (bytes, flood, most) in [
        ("21 00", Flood::Priority, limits.priorities),
        ("800f0700 01 00", Flood::Priority, limits.priorities),
        ("0d 01 08", Flood::Push, limits.pushes),
        ("07 01 04", Flood::Push, limits.pushes),
    ] {
        let got = until_cut(|peer, _| {
            peer.send(2, &hex(bytes), false);
        });
        assert_eq!(got, (u64::from(most) + 1, Some(flood)), "{bytes}");
    }

    // A duplicate of one byte copies an entry; a cancellation of one byte names a stream that never was.
    let (count, flood) = until_cut(|peer, n| {
        peer.send(6, &hex(if n == 0 { "02 3fbd01 4161 0162" } else { "00" }), false);
    });
    assert!(count <= u64::from(limits.insertions) + 2, "{count}");
    assert_eq!(flood, Some(Flood::Insertions));
    let (count, flood) = until_cut(|peer, n| {
        peer.send(10, &hex(if n == 0 { "03 40" } else { "40" }), false);
    });
    assert_eq!((count, flood), (u64::from(limits.insertions) + 1, Some(Flood::Insertions)));
}

#[test]
fn honest_clients_are_not_cut() {
    let bounds = Bounds { floods: FloodLimits::default(), ..BOUNDS };
    let mut peer = Peer::with(Role::Server, bounds);
    peer.send(2, &hex("00 04 00 "), false);
    for n in 0..5000 {
        peer.send(4 * n, &[ask(&[("priority", "u=1")]), data("x"), data("")].concat(), false);
        let (slot, _) = peer.arrival().unwrap();
        let answer = b"HTTP/1.1 200 OK\r\n\r\n";
        assert!(matches!(peer.codec.send_response(slot, answer, &cx()), Poll::Ready(Ok(true))));
        peer.codec.reset_came(4 * n, code::REQUEST_CANCELLED, peer.now);
        peer.codec.release(slot);
        peer.effects();
    }
    assert_eq!((peer.code(), peer.codec.open()), (None, 0));
    peer.now += Duration::from_secs(1);
}

#[test]
fn unidirectional_streams_are_few() {
    let mut peer = Peer::greeted();
    for n in 1..200 {
        peer.send(2 + 4 * n, &[], false);
    }
    assert_eq!(peer.code(), Some(code::EXCESSIVE_LOAD));
}

/// A client whose requests refer to our table, but who gives our decoder stream no room.
#[test]
fn acknowledgements_that_nobody_reads_are_bounded() {
    let mut peer = Peer::greeted();
    peer.send(6, &hex("02 3fbd01 c1 02 2f70"), false);
    let wire = frame_of(kind::HEADERS, &hex("0200 80 d4 d7 50 06 612e74657374"));
    let count = (0..100_000).find(|n| {
        let stream = 4 * (n + 1_000_000);
        peer.send(stream, &wire, true);
        while let Some((slot, _)) = peer.arrival() {
            peer.codec.release(slot);
        }
        peer.effects();
        peer.code().is_some()
    });
    assert_eq!(peer.code(), Some(code::EXCESSIVE_LOAD));
    assert!(count.is_some_and(|count| count < 4096), "{count:?}");
}

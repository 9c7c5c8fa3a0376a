//! Streams, codes, limits and garbage.

use crate::relay::{Relay, Spoils};
use crate::world::{ask, echo, on_a_core, read, until, write};
use bytes::Bytes;
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::spawn_local;
use weir_quic::{
    Connection, Datagram, Elsewhere, Home, Limits, Lost, Piece, Reader, Retry, Server, StreamError, Then,
    Writer,
};

#[test]
fn a_stream_carries_bytes_both_ways() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        spawn_local(echo(server.clone()));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        assert_eq!(connection.alpn().unwrap(), b"talk");
        assert_eq!(ask(&connection, b"hello").await.unwrap(), b"hello");
        let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
        assert!(ask(&connection, &large).await.unwrap() == large);
        assert_eq!(server.counts().connected, 1);
        // The kernel took every batch.
        assert_eq!((server.counts().unsent, dial.counts().unsent), (0, 0));
        drop(connection);
    });
}

#[test]
fn more_streams_than_allowed_at_a_time_take_turns() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { streams: 3, ..Limits::default() });
        spawn_local(echo(server));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let tasks: Vec<_> = (0..40_u8)
            .map(|n| {
                let connection = connection.clone();
                spawn_local(async move { ask(&connection, &[n; 3000]).await })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap().unwrap(), [n as u8; 3000]);
        }
    });
}

#[test]
fn a_peer_that_uses_many_streams_may_open_more() {
    on_a_core(|world| async move {
        let (_server, address) = world.serve(Limits::default());
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let mut open = Vec::new(); // none of them ends
        for _ in 0..Limits::default().streams {
            let (mut writer, reader) = poll_fn(|cx| connection.poll_open(cx)).await.unwrap();
            write(&mut writer, b"x").await.unwrap();
            open.push((writer, reader));
        }
        let another = poll_fn(|cx| Poll::Ready(connection.poll_open(cx).is_ready())).await;
        assert!(!another);
    });
}

/// Opens streams until one would have to wait.
async fn open_all(connection: &Connection) -> Vec<(Writer, Reader)> {
    let mut open = Vec::new();
    poll_fn(|cx| {
        while let Poll::Ready(Ok(both)) = connection.poll_open(cx) {
            open.push(both);
        }
        Poll::Ready(())
    })
    .await;
    open
}

#[test]
fn a_first_burst_waits_for_nothing() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { streams: 128, ..Limits::default() });
        spawn_local(echo(server));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let mut open = open_all(&connection).await;
        assert_eq!(open.len(), 100);
        for (n, (writer, _)) in open.iter_mut().enumerate() {
            write(writer, &[n as u8; 200]).await.unwrap();
            writer.finish().unwrap();
        }
        for (n, (_, reader)) in open.iter_mut().enumerate() {
            assert_eq!(read(reader).await.unwrap(), [n as u8; 200]);
        }
    });
}

#[test]
fn the_last_stream_of_a_burst_may_come_first() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        spawn_local(echo(server.clone()));
        let dial = world.dial();
        for last in [99, 40, 8] {
            let connection = world.connect(&dial, address).await.unwrap();
            let mut open = open_all(&connection).await;
            for n in [last, 0] {
                let (writer, reader) = &mut open[n];
                write(writer, b"x").await.unwrap();
                writer.finish().unwrap();
                assert_eq!(read(reader).await.unwrap(), b"x");
            }
        }
    });
}

#[test]
fn bursts_wait_for_little_after_many_streams() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        spawn_local(echo(server));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        for least in [20, 60] {
            for _ in 0..120 {
                assert_eq!(ask(&connection, b"x").await.unwrap(), b"x");
            }
            let mut open = open_all(&connection).await;
            assert!(open.len() >= least, "{} streams", open.len());
            open.iter_mut().for_each(|(writer, _)| writer.finish().unwrap());
            for (_, reader) in &mut open {
                assert_eq!(read(reader).await.unwrap(), b"");
            }
        }
    });
}

#[test]
fn a_client_may_not_open_more_than_it_was_told() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { streams: 10, ..Limits::default() });
        spawn_local(echo(server));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        assert_eq!(open_all(&connection).await.len(), 10);
    });
}

#[test]
fn a_piece_tells_what_follows_it() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let (mut writer, _reader) = poll_fn(|cx| connection.poll_open(cx)).await.unwrap();
        write(&mut writer, b"one").await.unwrap();
        let theirs = server.accept().await;
        let (_back, mut from) = poll_fn(|cx| theirs.poll_accept(cx)).await.unwrap();
        let piece = |bytes: &'static [u8], then| Ok(Piece { bytes: Bytes::from_static(bytes), then });
        assert_eq!(poll_fn(|cx| from.poll_piece(cx, 2)).await, piece(b"on", Then::More));
        assert_eq!(poll_fn(|cx| from.poll_piece(cx, 2)).await, piece(b"e", Then::Wait));
        write(&mut writer, b"two").await.unwrap();
        writer.finish().unwrap();
        assert_eq!(poll_fn(|cx| from.poll_piece(cx, 9)).await, piece(b"two", Then::End));
        assert_eq!(poll_fn(|cx| from.poll_piece(cx, 9)).await, piece(b"", Then::End));
    });
}

#[test]
fn bytes_that_are_handed_over_arrive() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { unacknowledged: 10_000, ..Limits::default() });
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let (mut writer, mut reader) = poll_fn(|cx| connection.poll_open(cx)).await.unwrap();
        write(&mut writer, b"x").await.unwrap();
        let theirs = server.accept().await;
        let (mut back, _from) = poll_fn(|cx| theirs.poll_accept(cx)).await.unwrap();
        let sent: Vec<u8> = (0..500_000_u32).map(|n| (n % 251) as u8).collect();
        let mut rest = Bytes::from(sent.clone());
        spawn_local(async move {
            while !rest.is_empty() {
                poll_fn(|cx| back.poll_hand_over(cx, &mut rest)).await.unwrap();
            }
            back.finish().unwrap();
        });
        assert!(read(&mut reader).await.unwrap() == sent);
    });
}

#[test]
fn an_answer_that_the_client_stops_gives_its_place_back() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { streams: 1, ..Limits::default() });
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let theirs = server.accept().await;
        for _ in 0..3 {
            let (mut writer, mut reader) = poll_fn(|cx| connection.poll_open(cx)).await.unwrap();
            write(&mut writer, b"x").await.unwrap();
            writer.finish().unwrap();
            let (mut back, mut from) = poll_fn(|cx| theirs.poll_accept(cx)).await.unwrap();
            read(&mut from).await.unwrap();
            reader.stop(5);
            assert_eq!(poll_fn(|cx| back.poll_stopped(cx)).await, Ok(5));
            assert_eq!(back.finish(), Err(StreamError::Stopped(5)));
        }
    });
}

#[test]
fn a_sender_that_cannot_be_answered_gets_no_answer() {
    on_a_core(|world| async move {
        let (server, _) = world.serve(Limits::default());
        // A version that nobody knows: the answer names those that we know.
        let bytes = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8], &[7; 1300][..]].concat();
        let from = |port| Datagram {
            bytes: bytes.clone(),
            from: ([127, 0, 0, 1], port).into(),
            to: None,
            ecn: None,
        };
        server.take(&from(0));
        assert_eq!((server.counts().sent, server.counts().unsent), (0, 0));
        server.take(&from(9));
        assert_eq!(server.counts().sent, 1);
    });
}

#[test]
fn codes_of_resets_stops_and_closes_arrive() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let (mut writer, mut reader) = poll_fn(|cx| connection.poll_open(cx)).await.unwrap();
        write(&mut writer, b"x").await.unwrap();
        let theirs = server.accept().await;
        let (mut back, mut from) = poll_fn(|cx| theirs.poll_accept(cx)).await.unwrap();
        from.stop(0x10c);
        assert_eq!(poll_fn(|cx| writer.poll_stopped(cx)).await, Ok(0x10c));
        assert_eq!(write(&mut writer, b"y").await, Err(StreamError::Stopped(0x10c)));
        back.reset(0x10d);
        assert_eq!(read(&mut reader).await, Err(StreamError::Reset(0x10d)));
        theirs.close(0x100);
        assert_eq!(poll_fn(|cx| connection.poll_lost(cx)).await, Lost::Closed(0x100));
        let reopened = poll_fn(|cx| connection.poll_open(cx)).await;
        assert_eq!(reopened.unwrap_err(), Lost::Closed(0x100));
    });
}

#[test]
fn a_connection_that_nobody_uses_closes() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let theirs = server.accept().await;
        drop(connection);
        assert_eq!(poll_fn(|cx| theirs.poll_lost(cx)).await, Lost::Closed(0));
        drop(theirs);
        dial.close();
        server.close();
        until(|| dial.connections() + server.connections() == 0).await;
    });
}

#[test]
fn a_silent_peer_is_noticed() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { idle: Duration::from_millis(200), ..Limits::default() });
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let theirs = server.accept().await;
        assert_eq!(poll_fn(|cx| theirs.poll_lost(cx)).await, Lost::Idle);
        assert_eq!(poll_fn(|cx| connection.poll_lost(cx)).await, Lost::Idle);
    });
}

#[test]
fn clients_prove_their_address_when_asked() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { retry: Retry::Always, ..Limits::default() });
        spawn_local(echo(server.clone()));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        assert_eq!(ask(&connection, b"hello").await.unwrap(), b"hello");
        assert_eq!((server.counts().retries, server.counts().connected), (1, 1));
    });
}

#[test]
fn a_full_endpoint_refuses() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { connections: 1, ..Limits::default() });
        spawn_local(echo(server.clone()));
        let dial = world.dial();
        let first = world.connect(&dial, address).await.unwrap();
        let refused = world.connect(&dial, address).await.unwrap_err();
        assert!(matches!(&refused, Lost::Broken(why) if why.contains("refused")), "{refused:?}");
        assert_eq!(server.counts().refused, 1);
        assert_eq!(ask(&first, b"still here").await.unwrap(), b"still here");
    });
}

/// Notes what is passed on.
struct Notes(Rc<RefCell<Vec<(Home, Datagram)>>>);

impl Elsewhere for Notes {
    fn pass(&self, home: Home, datagram: Datagram) -> bool {
        self.0.borrow_mut().push((home, datagram));
        true
    }
}

#[test]
fn datagrams_of_another_core_are_passed_on() {
    on_a_core(|world| async move {
        // One socket, two endpoints: the first receives everything, as where the kernel can not steer.
        let (first, address) = world.serve(Limits::default());
        let passed = Rc::new(RefCell::new(Vec::new()));
        first.pass_on(Box::new(Notes(Rc::clone(&passed))));
        let server = Server::new(Arc::clone(&world.server), &world.keys, Limits::default()).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let other_address = socket.local_addr().unwrap();
        let other = world.endpoint(socket, Home { core: 1, generation: 0 }, Some(server));
        spawn_local(echo(other.clone()));
        let dial = world.dial();
        let relay = Relay::new(other_address, Spoils::default(), 1);
        let connection = world.connect(&dial, relay.address).await.unwrap();
        assert_eq!(ask(&connection, b"straight").await.unwrap(), b"straight");
        // Garbage with an id that nobody made stays; a datagram of the other core's connection is passed on.
        let garbage = [&[0x40, 1, 0], &[7; 40][..]].concat();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&garbage, address).unwrap();
        relay.mirror(address);
        assert_eq!(ask(&connection, b"mirrored").await.unwrap(), b"mirrored");
        until(|| !passed.borrow().is_empty()).await;
        let all = std::mem::take(&mut *passed.borrow_mut());
        let home = Home { core: 1, generation: 0 };
        assert!(all.iter().all(|(to, datagram)| *to == home && datagram.bytes != garbage));
        assert!(first.counts().misplaced >= all.len() as u64);
        all.iter().for_each(|(_, datagram)| other.take(datagram)); // it has seen them: the connection goes on
        assert_eq!(ask(&connection, b"unharmed").await.unwrap(), b"unharmed");
    });
}

#[test]
fn garbage_is_answered_with_little_and_breaks_nothing() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        spawn_local(echo(server.clone()));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut seed = 7_u64;
        let mut sent = 0;
        for length in (0..1400).step_by(7) {
            let garbage: Vec<u8> = (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 33) as u8
                })
                .collect();
            sent += stranger.send_to(&garbage, address).unwrap();
        }
        assert_eq!(ask(&connection, b"unharmed").await.unwrap(), b"unharmed");
        stranger.set_nonblocking(true).unwrap();
        let (mut received, mut buffer) = (0, [0; 2000]);
        while let Ok(count) = stranger.recv(&mut buffer) {
            received += count;
        }
        assert!(received < sent, "{received} bytes for {sent}");
    });
}

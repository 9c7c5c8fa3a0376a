//! Clients that send odd pieces, take their time, change keys, send early data, or break the protocol.

use super::records::OVERHEAD_BYTES;
use super::*;
use crate::driver::tests::on_a_core;
use crate::tls::TlsStream;
use crate::tls::tests::{Kind, configs, connection, pair, read};
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::thread;

async fn write(server: &mut TlsStream, a: &[u8], b: &[u8]) -> Poll<io::Result<usize>> {
    poll_fn(|cx| Poll::Ready(server.poll_write_two(cx, a, b))).await
}

/// The records of what the client has to say.
fn records(client: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut records).unwrap();
    }
    records
}

/// Each handshake message takes several records, and each byte arrives alone.
#[test]
fn handshakes_may_arrive_in_pieces() {
    on_a_core(async {
        let (server, client) = configs();
        let mut client = ClientConfig::clone(&client);
        client.max_fragment_size = Some(32); // half a Finished
        let mut client = ClientConnection::new(Arc::new(client), "a.test".try_into().unwrap()).unwrap();
        let (socket, mut peer) = connection();
        let shaking = thread::spawn(move || {
            while client.is_handshaking() {
                for byte in records(&mut client) {
                    peer.write_all(&[byte]).unwrap();
                }
                if client.is_handshaking() {
                    client.read_tls(&mut peer).unwrap();
                    client.process_new_packets().unwrap();
                }
            }
            client.writer().write_all(&[b'x'; 100]).unwrap();
            let all = records(&mut client);
            assert!(all.len() > 100 + 3 * 22, "the Finished, and four records");
            peer.write_all(&all).unwrap();
            (client, peer)
        });
        let mut accepted = Unbuffered::accept(&server, socket).await.unwrap();
        let mut came = Vec::with_capacity(1000);
        while came.len() < 100 {
            poll_fn(|cx| accepted.poll_read(cx, &mut came)).await.unwrap();
        }
        assert_eq!(came, [b'x'; 100]);
        shaking.join().unwrap();
    });
}

#[test]
fn records_may_arrive_a_byte_at_a_time() {
    on_a_core(async {
        let (mut server, mut client) = pair(Kind::Unbuffered).await;
        client.conn.writer().write_all(b"first").unwrap();
        client.conn.writer().write_all(b"second").unwrap();
        client.conn.send_close_notify();
        let (mut came, mut reads) = (Vec::with_capacity(64), 0);
        for byte in records(&mut client.conn) {
            client.sock.write_all(&[byte]).unwrap();
            while server.socket().peek(&mut [0]).is_err() {
                thread::yield_now();
            }
            server.socket().look_again();
            if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(server.poll_read(cx, &mut came))).await {
                reads += 1;
                assert_eq!(read.unwrap(), [5, 6, 0][reads - 1]);
            }
        }
        assert_eq!((reads, &*came), (3, &b"firstsecond"[..]));
        // The client has closed its side only.
        assert!(matches!(write(&mut server, b"answer", b"").await, Poll::Ready(Ok(6))));
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    });
}

#[test]
fn either_side_may_change_its_keys() {
    on_a_core(async {
        let (mut server, mut client) = pair(Kind::Unbuffered).await;
        for _ in 0..40 {
            client.conn.refresh_traffic_keys().unwrap();
            client.write_all(b"ping").unwrap();
            assert_eq!(read(&mut server, 64).await.unwrap(), b"ping");
            assert!(matches!(write(&mut server, b"po", b"ng").await, Poll::Ready(Ok(4))));
            let mut came = [0; 4];
            client.read_exact(&mut came).unwrap();
            assert_eq!(&came, b"pong");
        }
    });
}

/// All of it is sent in order later.
#[test]
fn a_client_that_takes_nothing_holds_at_most_one_write() {
    on_a_core(async {
        let (mut server, mut client) = pair(Kind::Unbuffered).await;
        let body: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let mut sent = Vec::new();
        while let Poll::Ready(count) = write(&mut server, b"head", &body).await {
            sent.extend(b"head".iter().chain(&body).take(count.unwrap()));
        }
        let crate::tls::Session::Unbuffered(session) = &server.session else { unreachable!() };
        assert!((1..MOST_SENT_BYTES + 5 * OVERHEAD_BYTES).contains(&session.unsent.bytes().len()));
        let reading = thread::spawn(move || {
            let mut came = Vec::new();
            client.read_to_end(&mut came).unwrap(); // up to a close_notify
            came
        });
        poll_fn(|cx| server.poll_flush(cx)).await.unwrap();
        poll_fn(|cx| server.poll_shutdown(cx)).await.unwrap();
        assert!(reading.join().unwrap() == sent);
        assert!(matches!(write(&mut server, b"late", b"").await, Poll::Ready(Err(_))));
    });
}

/// The client reads 1 KiB at a time. Writes complete meanwhile, and `unsent` stays within its limit.
#[test]
fn a_slow_client_sees_progress() {
    on_a_core(async {
        let (mut server, mut client) = pair(Kind::Unbuffered).await;
        let reading = thread::spawn(move || {
            let (mut came, mut piece) = (0, [0; 1024]);
            loop {
                match client.read(&mut piece).unwrap() {
                    0 => return came,
                    count => came += count,
                }
            }
        });
        let body = vec![b'x'; MOST_SENT_BYTES];
        let (mut sent, mut counts) = (0, Vec::new());
        let behind = |counts: &[usize]| counts.iter().filter(|count| **count == RECORD_BYTES).count();
        while behind(&counts) < 20 && counts.len() < 1000 {
            let count = poll_fn(|cx| server.poll_write_two(cx, &body, b"")).await.unwrap();
            sent += count;
            counts.push(count);
            let crate::tls::Session::Unbuffered(session) = &server.session else { unreachable!() };
            assert!(session.unsent.bytes.len() < MOST_SENT_BYTES + 5 * OVERHEAD_BYTES);
        }
        assert!(counts.len() < 1000, "no write went on before all of the one before was sent");
        poll_fn(|cx| server.poll_flush(cx)).await.unwrap();
        poll_fn(|cx| server.poll_shutdown(cx)).await.unwrap();
        assert_eq!(reading.join().unwrap(), sent);
    });
}

/// The client has a ticket of a server that accepted early data; ours does not.
#[test]
fn early_data_is_skipped() {
    on_a_core(async {
        let (server, client) = configs();
        let mut earlier = ServerConfig::clone(&server);
        (earlier.max_early_data_size, earlier.send_tls13_tickets) = (16_384, 1);
        let mut client = ClientConfig::clone(&client);
        client.enable_early_data = true;
        let client = Arc::new(client);
        let connect = || ClientConnection::new(Arc::clone(&client), "a.test".try_into().unwrap()).unwrap();
        let (mut first, mut serving) = (connect(), rustls::ServerConnection::new(Arc::new(earlier)).unwrap());
        for _ in 0..4 {
            serving.read_tls(&mut &*records(&mut first)).unwrap_or_default();
            serving.process_new_packets().unwrap();
            let mut answer = Vec::new();
            while serving.wants_write() {
                serving.write_tls(&mut answer).unwrap();
            }
            first.read_tls(&mut &*answer).unwrap_or_default();
            first.process_new_packets().unwrap();
        }
        let mut second = connect();
        second.early_data().expect("a ticket").write_all(&[b'e'; 8000]).unwrap();
        let (socket, mut peer) = connection();
        let shaking = thread::spawn(move || {
            peer.write_all(&records(&mut second)).unwrap();
            let mut client = rustls::StreamOwned::new(second, peer);
            client.flush().unwrap();
            assert!(!client.conn.is_early_data_accepted());
            client.write_all(b"again").unwrap();
            client
        });
        let mut accepted = Unbuffered::accept(&server, socket).await.unwrap();
        let mut came = Vec::with_capacity(64);
        poll_fn(|cx| accepted.poll_read(cx, &mut came)).await.unwrap();
        assert_eq!(came, b"again");
        shaking.join().unwrap();
    });
}

#[test]
fn a_forged_record_ends_the_session_with_an_alert() {
    on_a_core(async {
        let (mut server, mut client) = pair(Kind::Unbuffered).await;
        client.write_all(b"good").unwrap();
        client.sock.write_all(&[&[23, 3, 3, 0, 32][..], &[7; 32]].concat()).unwrap();
        assert_eq!(read(&mut server, 64).await.unwrap(), b"good");
        for _ in 0..2 {
            assert_eq!(read(&mut server, 64).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert!(matches!(write(&mut server, b"x", b"").await, Poll::Ready(Err(_))));
        }
        let alert = client.read(&mut [0]).unwrap_err();
        assert!(alert.to_string().contains("BadRecordMac"), "{alert}");
    });
}

/// Longer than a record, so part of it is received in place.
#[test]
fn a_long_handshake_message_may_arrive_in_pieces() {
    on_a_core(async {
        let (server, client) = configs();
        let mut client = ClientConfig::clone(&client);
        client.alpn_protocols = (0..250_u8).map(|n| vec![n; 200]).collect();
        let mut client = ClientConnection::new(Arc::new(client), "a.test".try_into().unwrap()).unwrap();
        let (socket, mut peer) = connection();
        let shaking = thread::spawn(move || {
            let hello = records(&mut client);
            assert!(hello.len() > 3 * RECORD_BYTES);
            for piece in hello.chunks(1000) {
                peer.write_all(piece).unwrap();
                thread::yield_now();
            }
            let mut client = rustls::StreamOwned::new(client, peer);
            client.write_all(b"hello").unwrap();
            client
        });
        let mut accepted = Unbuffered::accept(&server, socket).await.unwrap();
        let mut came = Vec::with_capacity(64);
        poll_fn(|cx| accepted.poll_read(cx, &mut came)).await.unwrap();
        assert_eq!(came, b"hello");
        assert_eq!(accepted.received.capacity(), 0, "an idle connection holds nothing of its handshake");
        shaking.join().unwrap();
    });
}

/// A handshake message that never ends, in records of one byte.
#[test]
fn a_handshake_message_may_not_fill_the_memory() {
    on_a_core(async {
        let (config, _) = configs();
        let (socket, mut client) = connection();
        let sending = thread::spawn(move || {
            let _ = client.write_all(&[22, 3, 1, 0, 4, 1, 0, 0xff, 0xf0]);
            let _ = client.write_all(&[22, 3, 1, 0, 1, 0].repeat(20_000)); // an error once the server is gone
        });
        let e = Unbuffered::accept(&config, socket).await.err().unwrap();
        assert_eq!(e.to_string(), "message buffer full");
        sending.join().unwrap();
    });
}

/// The thread has processed the ClientHello of another connection before, and its name is still noted.
#[test]
fn a_session_does_not_take_the_name_of_another() {
    on_a_core(async {
        note_server_name(Some("other.test"));
        let (server, _client) = pair(Kind::Unbuffered).await; // its server notes no names
        assert_eq!(server.server_name(), None);
    });
}

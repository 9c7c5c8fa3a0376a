//! Peers that send what carries nothing, and addresses that somebody may have forged.

use crate::relay::{Relay, Spoils};
use crate::world::{ask, echo, on_a_core, until, write};
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::UdpSocket;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::spawn_local;
use weir_quic::{Admission, Limits, Lost};

#[test]
fn a_client_that_only_pings_is_cut() {
    on_a_core(|world| async move {
        let limits = Limits { empty_frames: 100, flood_code: 7, ..Limits::default() };
        let (server, address) = world.serve(limits);
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let theirs = server.accept().await;
        let lost = spawn_local(async move { poll_fn(|cx| theirs.poll_lost(cx)).await });
        while !lost.is_finished() {
            let had = server.counts().received;
            connection.ping();
            until(|| server.counts().received > had).await;
        }
        assert_eq!(lost.await.unwrap(), Lost::Flood);
        assert_eq!(poll_fn(|cx| connection.poll_lost(cx)).await, Lost::Closed(7));
        // Some datagrams have several such frames, as acknowledgements count too.
        let received = server.counts().received;
        assert!((50..200).contains(&received), "cut after {received} datagrams");
    });
}

#[test]
fn data_earns_what_acknowledges_it() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { empty_frames: 10, ..Limits::default() });
        spawn_local(echo(server));
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let large = vec![7; 5_000_000];
        for _ in 0..3 {
            assert!(ask(&connection, &large).await.unwrap() == large);
        }
        for n in 0..500_u16 {
            assert_eq!(ask(&connection, &n.to_be_bytes()).await.unwrap(), n.to_be_bytes());
        }
    });
}

/// The first datagram of a client, as it goes to this socket.
async fn first_packet(
    world: &crate::world::World,
    dial: &weir_quic::Endpoint,
) -> (Vec<u8>, weir_quic::Connection) {
    let catcher = UdpSocket::bind("127.0.0.1:0").unwrap();
    catcher.set_nonblocking(true).unwrap();
    let connection = dial.connect(&world.client(), catcher.local_addr().unwrap(), "localhost").unwrap();
    let bytes = RefCell::new(vec![0; 2000]);
    let mut count = 0;
    until(|| {
        count = catcher.recv(&mut bytes.borrow_mut()).unwrap_or(0);
        count > 0
    })
    .await;
    let mut bytes = bytes.into_inner();
    bytes.truncate(count);
    (bytes, connection)
}

/// quinn-proto sends a whole datagram if a byte of the limit is left.
#[test]
fn the_last_datagram_does_not_exceed_three_times_what_came() {
    on_a_core(|world| async move {
        let (server, address) =
            world.serve(Limits { handshake: Duration::from_secs(4), ..Limits::default() });
        let dial = world.dial();
        let (mut first, _connection) = first_packet(&world, &dial).await;
        // Behind the packet, bytes that are none: they count as received.
        first.extend_from_slice(&[0; 30]);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(&first, address).unwrap();
        until(|| server.counts().failed == 1).await; // until then the server repeats its answer
        let (received, sent) = (server.counts().received_bytes, server.counts().sent_bytes);
        assert_eq!(received, 1230);
        assert!((3600..=3 * received).contains(&sent), "{sent} bytes for {received}");
    });
}

#[test]
fn a_handshake_goes_on_once_the_client_sends_more() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        spawn_local(echo(server));
        let dial = world.dial();
        for seed in 1..6 {
            let relay = Relay::new(address, Spoils { lost: 200, ..Spoils::default() }, seed);
            let connection = world.connect(&dial, relay.address).await.unwrap();
            assert_eq!(ask(&connection, b"hello").await.unwrap(), b"hello");
        }
    });
}

#[test]
fn a_longer_datagram_than_we_said_is_dropped() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let dial = world.dial();
        let (mut first, _connection) = first_packet(&world, &dial).await;
        first.resize(1473, 0);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(&first, address).unwrap();
        until(|| server.counts().received == 1).await;
        assert_eq!(server.connections(), 0);
        first.truncate(1472);
        client.send_to(&first, address).unwrap();
        until(|| server.connections() == 1).await;
    });
}

#[test]
fn the_gate_hears_who_has_proved_its_address() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        spawn_local(echo(server.clone()));
        let asked = Rc::new(RefCell::new(Vec::new()));
        let says = Rc::new(std::cell::Cell::new(Admission::Granted));
        server.admit_by({
            let (asked, says) = (Rc::clone(&asked), Rc::clone(&says));
            move |_, is_proved| {
                asked.borrow_mut().push(is_proved);
                if is_proved && says.get() == Admission::Proof { Admission::Granted } else { says.get() }
            }
        });
        let dial = world.dial();
        let first = world.connect(&dial, address).await.unwrap();
        assert_eq!(ask(&first, b"x").await.unwrap(), b"x");
        assert_eq!(asked.take(), [false]);
        says.set(Admission::Proof);
        let dial = world.dial();
        world.connect(&dial, address).await.unwrap();
        assert_eq!(server.counts().retries, 1);
        assert_eq!(asked.take(), [false, true]);
        says.set(Admission::Refused);
        let dial = world.dial();
        assert!(world.connect(&dial, address).await.is_err());
        assert_eq!((server.counts().refused, asked.take()), (1, vec![false]));
    });
}

#[test]
fn the_cipher_suite_is_known() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let dial = world.dial();
        let connection = world.connect(&dial, address).await.unwrap();
        let theirs = server.accept().await;
        assert_eq!(theirs.cipher(), "TLS13_AES_256_GCM_SHA384");
        let (mut writer, _) = poll_fn(|cx| connection.poll_open(cx)).await.unwrap();
        write(&mut writer, b"x").await.unwrap();
    });
}

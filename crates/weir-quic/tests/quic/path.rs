//! Connections over paths that lose, double and reorder datagrams, and of clients that change their address.

use crate::relay::{Relay, Spoils};
use crate::world::{ask, echo, on_a_core, until};
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::task::spawn_local;
use weir_quic::{Connection, Limits, Lost, StreamError};
use weir_wire::time;

/// What the clients send: a few hundred datagrams.
fn message() -> Vec<u8> {
    (0..300_000_u32).map(|n| (n % 253) as u8).collect()
}

fn a_spoiled_path_carries(spoils: Spoils) {
    on_a_core(move |world| async move {
        let (server, address) = world.serve(Limits::default());
        spawn_local(echo(server));
        let dial = world.dial();
        for seed in 1..4 {
            let relay = Relay::new(address, spoils, seed);
            let connection = world.connect(&dial, relay.address).await.unwrap();
            assert!(ask(&connection, &message()).await.unwrap() == message(), "seed {seed}");
        }
    });
}

#[test]
fn every_twentieth_datagram_is_lost() {
    a_spoiled_path_carries(Spoils { lost: 50, ..Spoils::default() });
}

#[test]
fn datagrams_arrive_late() {
    a_spoiled_path_carries(Spoils { late: 200, ..Spoils::default() });
}

#[test]
fn datagrams_arrive_twice() {
    a_spoiled_path_carries(Spoils { doubled: 300, lost: 10, ..Spoils::default() });
}

/// Sends back what each stream brings.
async fn answer(theirs: Connection) -> Result<(), StreamError> {
    while let Ok((mut writer, mut reader)) = poll_fn(|cx| theirs.poll_accept(cx)).await {
        let all = crate::world::read(&mut reader).await?;
        crate::world::write(&mut writer, &all).await?;
        writer.finish()?;
    }
    Ok(())
}

#[test]
fn a_client_that_changes_its_address_keeps_its_connection() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let relay = Relay::new(address, Spoils::default(), 1);
        let dial = world.dial();
        let connection = world.connect(&dial, relay.address).await.unwrap();
        let theirs = server.accept().await;
        let before = theirs.peer();
        spawn_local(answer(theirs.clone()));
        assert_eq!(ask(&connection, b"from home").await.unwrap(), b"from home");
        let moved = relay.rebind(Ipv4Addr::new(127, 0, 0, 2));
        assert!(ask(&connection, &message()).await.unwrap() == message());
        assert_ne!(moved, before);
        assert_eq!(theirs.peer(), moved);
    });
}

/// Otherwise a client could forge the source of a request and be taken for somebody else.
#[test]
fn an_address_that_is_not_proved_is_not_the_clients() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let relay = Relay::new(address, Spoils::default(), 1);
        let dial = world.dial();
        let connection = world.connect(&dial, relay.address).await.unwrap();
        let theirs = server.accept().await;
        let before = theirs.peer();
        relay.cut_back();
        relay.rebind(Ipv4Addr::new(127, 0, 0, 2));
        let (mut writer, _) = poll_fn(|cx| connection.poll_open(cx)).await.unwrap();
        crate::world::write(&mut writer, b"from elsewhere").await.unwrap();
        writer.finish().unwrap();
        let (_, mut reader) = poll_fn(|cx| theirs.poll_accept(cx)).await.unwrap();
        assert_eq!(crate::world::read(&mut reader).await.unwrap(), b"from elsewhere");
        assert_eq!(theirs.peer(), before);
    });
}

/// A phone may go from one network to the other and back. Each time, the server asks for a proof with 1,200 bytes.
#[test]
fn a_client_that_proves_its_addresses_may_move_again_and_again() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let relay = Relay::new(address, Spoils::default(), 1);
        let dial = world.dial();
        let connection = world.connect(&dial, relay.address).await.unwrap();
        let theirs = server.accept().await;
        spawn_local(answer(theirs.clone()));
        // From then on the client looks for no longer datagrams, and sends short ones only.
        assert!(ask(&connection, &message()).await.unwrap() == message());
        // An address that may not be asked for a proof gets no answer for at least three seconds.
        let all_moves = async {
            for n in 2..12 {
                let moved = relay.rebind(Ipv4Addr::new(127, 0, 0, n));
                while theirs.peer() != moved {
                    assert_eq!(ask(&connection, b"again").await.unwrap(), b"again");
                }
            }
        };
        time::timeout(Duration::from_secs(10), all_moves).await.unwrap();
    });
}

/// Each new address gets a datagram of 1,200 bytes, so that a client could direct them at others.
#[test]
fn a_client_cannot_have_many_addresses_asked() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits::default());
        let relay = Relay::new(address, Spoils::default(), 1);
        let dial = world.dial();
        let connection = world.connect(&dial, relay.address).await.unwrap();
        let theirs = server.accept().await;
        relay.cut_back();
        let (before, received) = (server.counts().sent_bytes, server.counts().received_bytes);
        for n in 1..200 {
            relay.rebind(Ipv4Addr::new(127, 0, 1, n));
            let had = server.counts().received;
            connection.ping();
            until(|| server.counts().received > had).await;
        }
        let sent = server.counts().sent_bytes - before;
        // Two datagrams may exceed what the addresses have sent, and one more per 10 seconds; one asks the old address.
        let received = server.counts().received_bytes - received;
        assert!(sent <= 3 * received + 4 * 1200, "{sent} bytes for {received}");
        assert!(sent < 20 * 1200, "{sent} bytes");
        drop(theirs);
    });
}

#[test]
fn a_client_may_be_forbidden_to_change_its_address() {
    on_a_core(|world| async move {
        let idle = Duration::from_millis(400);
        let (server, address) = world.serve(Limits { migration: false, idle, ..Limits::default() });
        let relay = Relay::new(address, Spoils::default(), 1);
        let dial = world.dial();
        let connection = world.connect(&dial, relay.address).await.unwrap();
        let theirs = server.accept().await;
        let before = theirs.peer();
        relay.rebind(Ipv4Addr::new(127, 0, 0, 2));
        let asked = time::timeout(Duration::from_secs(10), ask(&connection, b"hello")).await.unwrap();
        // The server may give up first: it then answers what the client repeats with a stateless reset.
        let StreamError::Lost(lost) = asked.unwrap_err() else { panic!("the stream ended alone") };
        assert!(matches!(lost, Lost::Idle | Lost::Forgotten), "{lost:?}");
        assert_eq!(theirs.peer(), before);
    });
}

#[test]
fn a_server_sends_at_most_three_times_what_an_unproved_address_sent() {
    on_a_core(|world| async move {
        let (server, address) = world.serve(Limits { idle: Duration::from_secs(2), ..Limits::default() });
        let relay = Relay::new(address, Spoils::default(), 1);
        let dial = world.dial();
        relay.cut_back();
        let _connection = dial.connect(&world.client(), relay.address, "localhost").unwrap();
        until(|| relay.to_server() > 0).await;
        relay.cut();
        until(|| server.counts().failed == 1).await; // until then the server repeats its answer
        let (received, sent) = (server.counts().received_bytes, server.counts().sent_bytes);
        assert!(received >= 1200 && sent <= 3 * received, "{sent} bytes for {received}");
    });
}

#[test]
fn a_handshake_that_goes_nowhere_ends() {
    on_a_core(|world| async move {
        let handshake = Duration::from_millis(300);
        let (server, address) = world.serve(Limits { handshake, ..Limits::default() });
        let relay = Relay::new(address, Spoils::default(), 1);
        let dial = world.dial();
        relay.cut_back();
        let _connection = dial.connect(&world.client(), relay.address, "localhost").unwrap();
        until(|| server.connections() == 1).await;
        until(|| server.counts().failed == 1 && server.connections() == 0).await;
    });
}

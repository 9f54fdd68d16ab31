//! Places at a server: peers come before strangers, and busy ones before idle ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use acstor_peer::frame::Hello;
use acstor_peer::{
    ClassWatch, CloseReason, PeerConfig, PeerError, PeerStatus, Security, ServerLimits,
    VersionRange,
};
use acstor_selection::BreakerState;
use acstor_types::ErrorKind;

use crate::support::certificates::Authority;
use crate::support::chunks::{Gated, TestDisk};
use crate::support::scripted::Scripted;
use crate::support::{client, config, get, later, serve, until};

fn limited(security: Security, change: impl FnOnce(&mut ServerLimits)) -> PeerConfig {
    let mut config = config(security);
    change(&mut config.server);
    config
}

/// Connections that never say anything.
async fn strangers(address: &str, count: usize) -> Vec<Scripted> {
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(Scripted::connect(address).await);
    }
    silent
}

#[tokio::test]
async fn test_silent_strangers_keep_no_peer_out() {
    for security in [Security::Plain, Security::Tls(Authority::new().loopback())] {
        let config = limited(security, |limits| limits.connections_max = 4);
        let (server, address) = serve(TestDisk, &config);
        let silent = strangers(&address, 40).await;
        until("they are connected", || server.stats().connections_open == 40).await;
        client(&config).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
        drop(silent);
    }
}

/// More of them than may be: the oldest ones go, and a peer at the same address still gets in.
#[tokio::test]
async fn test_strangers_beyond_the_limit_make_room() {
    let config = limited(Security::Plain, |limits| limits.address_handshakes_max = 8);
    let (server, address) = serve(TestDisk, &config);
    let mut silent = strangers(&address, 20).await;
    for closed in &mut silent[..12] {
        closed.read_to_end().await;
    }
    until("they are counted", || server.stats().closed(CloseReason::TooManyConnections) == 12)
        .await;
    assert_eq!(server.stats().connections_open, 8);
    client(&config).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
}

/// Connections from many addresses that say nothing, kept up: each that is closed is made again.
async fn keep_up(address: String, count: usize) {
    let server: std::net::SocketAddr = address.parse().unwrap();
    let mut silent = tokio::task::JoinSet::new();
    let connect = move |number: usize| async move {
        let source = [127, 0, 1, u8::try_from(1 + number % 60).unwrap()];
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        let mut stream = socket.connect(server).await.unwrap();
        // Until the server closes it, by an end or a reset.
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0]).await;
        number
    };
    for number in 0..count {
        silent.spawn(connect(number));
    }
    while let Some(closed) = silent.join_next().await {
        silent.spawn(connect(closed.unwrap()));
    }
}

/// The reader has no error and the connection that it had, a new one gets in, and the server has no more
/// connections than it may have. `bench.silent_connections` has 10,000 of them, and measures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_reader_beside_many_silent_strangers_notices_nothing() {
    for security in [Security::Plain, Security::Tls(Authority::new().loopback())] {
        let config = limited(security, |limits| {
            limits.handshakes_max = 128;
            limits.address_handshakes_max = 16;
        });
        let (server, address) = serve(TestDisk, &config);
        let reader = client(&config);
        reader.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
        let attack = tokio::spawn(keep_up(address.clone(), 600));
        let displaced = || server.stats().closed(CloseReason::TooManyConnections);
        until("they make room for one another", || displaced() > 600).await;
        for number in 1..200 {
            reader.fetch(&address, get(number), ClassWatch::DEMAND, later()).await.unwrap();
        }
        assert_eq!(reader.stats().peers[0].connects, 1);
        let newcomer = client(&config);
        while newcomer.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.is_err() {
            tokio::task::yield_now().await; // it was displaced within its handshake
        }
        attack.abort();
        let _ = attack.await;
        until("they are gone", || server.stats().connections_open == 2).await;
        assert_eq!(server.stats().accept_errors, 0);
    }
}

/// As in a ring with more hosts than places: nobody is refused while somebody is idle.
#[tokio::test]
async fn test_connection_idle_for_longest_makes_room() {
    let config = limited(Security::Plain, |limits| limits.connections_max = 2);
    let (server, address) = serve(TestDisk, &config);
    let clients: Vec<_> = (0..3).map(|_| client(&config)).collect();
    for (index, client) in clients.iter().enumerate() {
        client.fetch(&address, get(index as u64), ClassWatch::DEMAND, later()).await.unwrap();
    }
    until("the first has gone", || clients[0].stats().peers[0].connections == 0).await;
    until("it is counted", || server.stats().connections_open == 2).await;
    assert_eq!(clients[1].stats().peers[0].connections, 1);
    // It comes back when it needs to, at the cost of the next one, and nobody saw an error.
    clients[0].fetch(&address, get(7), ClassWatch::DEMAND, later()).await.unwrap();
    until("the second has gone", || clients[1].stats().peers[0].connections == 0).await;
    assert_eq!(clients[2].stats().peers[0].connections, 1);
    assert_eq!(server.stats().closed(CloseReason::TooManyConnections), 0);
}

/// A peer that cannot be served takes nobody's place.
#[tokio::test]
async fn test_connection_of_another_version_makes_nobody_go() {
    let config = limited(Security::Plain, |limits| limits.connections_max = 1);
    let (server, address) = serve(TestDisk, &config);
    let peer = client(&config);
    peer.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    let newer = Hello { versions: VersionRange { min: 900, max: 901 }, ..Scripted::hello() };
    for number in 1..=16 {
        let mut stranger = Scripted::connect(&address).await;
        stranger.send(&newer.encode()).await;
        stranger.read_to_end().await;
        let refused = || server.stats().closed(CloseReason::VersionMismatch);
        until("it is counted", || refused() == number).await;
        peer.fetch(&address, get(number), ClassWatch::DEMAND, later()).await.unwrap();
    }
    assert_eq!(server.stats().closed(CloseReason::Idle), 0);
    assert_eq!(server.stats().connections_open, 1);
}

/// A newcomer is refused where all connections are busy, and does not take the server for dead.
#[tokio::test]
async fn test_connect_while_all_are_busy_is_overloaded_and_not_down() {
    let config = limited(Security::Plain, |limits| limits.connections_max = 1);
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let (first, second) = (client(&config), client(&config));
    let busy = tokio::spawn({
        let (first, address) = (first.clone(), address.clone());
        async move { first.fetch(&address, get(0), ClassWatch::DEMAND, later()).await }
    });
    until("it is served", || gated.started() == 1).await;
    for _ in 0..2 {
        let error = second.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
        let refused = PeerStatus::Overloaded;
        assert!(matches!(error, PeerError::Refused { status, .. } if status == refused), "{error}");
        assert_eq!(error.kind(), ErrorKind::Overloaded);
    }
    until("it is counted", || server.stats().closed(CloseReason::TooManyConnections) > 0).await;
    gated.gate.add_permits(2);
    busy.await.unwrap().unwrap();
    while second.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(second.breaker(&address), BreakerState::Closed);
}

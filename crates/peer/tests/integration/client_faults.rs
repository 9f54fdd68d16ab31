//! Peers that stall, lie about sizes, send garbage, close in mid-frame or are not there.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use acstor_peer::frame::{FrameError, FrameKind, Header, Hello};
use acstor_peer::{
    ClassWatch, ClientLimits, CloseReason, PeerConfig, PeerError, PeerServer, PeerStatus, Security,
    VersionRange,
};
use acstor_selection::BreakerState;
use acstor_types::{ChunkSize, ErrorKind};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::support::chunks::{Gated, TestDisk, WrongBytes, content};
use crate::support::scripted::{Scripted, scripted};
use crate::support::{PATIENCE, client, config, get, later, serve, until};

const MILLI: Duration = Duration::from_millis(1);

fn limited(change: impl FnOnce(&mut ClientLimits)) -> PeerConfig {
    let mut config = config(Security::Plain);
    config.client.connections_per_peer_max = 1;
    change(&mut config.client);
    config
}

/// Asserts that the connection ended for `reason` and that the next fetch fails at once.
async fn assert_ends(address: &str, config: &PeerConfig, reason: CloseReason) {
    let mut config = config.clone();
    // Whatever happens until the next fetch: the peer is still down then.
    (config.client.backoff_min, config.client.backoff_max) = (PATIENCE, PATIENCE);
    let client = client(&config);
    let error = client.fetch(address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    match &error {
        PeerError::Disconnected { reason: got, .. } => assert_eq!(*got, reason),
        other => panic!("{other}"),
    }
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(client.stats().closed(reason), 1);
    assert_eq!(client.breaker(address), BreakerState::Open);
    let error = client.fetch(address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Down { .. }), "{error}");
}

#[tokio::test]
async fn test_fetch_peer_stalls_is_given_up() {
    let config = limited(|limits| {
        limits.probe_after = Duration::from_millis(20);
        limits.probe_timeout = Duration::from_millis(20);
    });
    let address = scripted(|mut peer| async move {
        peer.greet().await;
        peer.read_to_end().await;
    })
    .await;
    assert_ends(&address, &config, CloseReason::ProbeTimeout).await;
}

/// A peer that works on a slow request and answers PING keeps its connection.
#[tokio::test]
async fn test_fetch_peer_slow_but_alive_is_waited_for() {
    let config = limited(|limits| {
        limits.probe_after = Duration::from_millis(10);
    });
    let address = scripted(|mut peer| async move {
        peer.greet().await;
        let id = peer.read_get().await;
        for _ in 0..5 {
            let (ping, _) = peer.read_frame().await.unwrap();
            assert_eq!(ping.kind, FrameKind::Ping);
            peer.send(&Header::new(FrameKind::Pong, 0, ping.request_id).encode()).await;
        }
        peer.send(&Header::new(FrameKind::Data, 65_536, id).encode()).await;
        peer.send(&content(0, ChunkSize::DEFAULT)).await;
        peer.read_to_end().await;
    })
    .await;
    let chunk = client(&config).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(chunk, content(0, ChunkSize::DEFAULT));
}

/// A peer that answers PING and nothing else does not hold its requests for ever.
#[tokio::test]
async fn test_fetch_peer_answers_only_pings_is_given_up() {
    let config = limited(|limits| {
        limits.probe_after = Duration::from_millis(10);
        limits.probe_timeout = Duration::from_millis(50);
    });
    let address = scripted(|mut peer| async move {
        peer.greet().await;
        while let Some((header, _)) = peer.read_frame().await {
            if header.kind == FrameKind::Ping {
                peer.send(&Header::new(FrameKind::Pong, 0, 0).encode()).await;
            }
        }
    })
    .await;
    let client = client(&config);
    let give_up = later();
    while client.stats().closed(CloseReason::AnswersOverdue) == 0 {
        // One that comes too late to be sent, or finds the peer down, is asked again.
        let soon = Instant::now() + Duration::from_millis(30);
        client.fetch(&address, get(0), ClassWatch::DEMAND, soon).await.unwrap_err();
        assert!(Instant::now() < give_up, "it was not given up");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn test_fetch_peer_closes_in_mid_frame_is_truncated() {
    for cut in [1, 16, 17, 65_551] {
        let address = scripted(move |mut peer| async move {
            peer.greet().await;
            let id = peer.read_get().await;
            let mut answer = Header::new(FrameKind::Data, 65_536, id).encode().to_vec();
            answer.extend_from_slice(&content(0, ChunkSize::DEFAULT));
            peer.send(&answer[..cut]).await;
        })
        .await;
        assert_ends(&address, &limited(|_| {}), CloseReason::Truncated).await;
    }
}

/// An orderly close loses the request, but the peer is no suspect after it has been of use.
#[tokio::test]
async fn test_fetch_peer_closes_between_frames_is_tried_again() {
    let address = scripted(|mut peer| async move {
        peer.greet().await;
        let id = peer.read_get().await;
        peer.send(&Header::refusal(PeerStatus::NotFound, id).encode()).await;
        peer.read_get().await;
    })
    .await;
    let client = client(&limited(|_| {}));
    for _ in 0..3 {
        let error = client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
        assert!(matches!(error, PeerError::Disconnected { .. }), "{error}");
    }
    assert_eq!(client.stats().closed(CloseReason::PeerClosed), 3);
}

#[tokio::test]
async fn test_fetch_peer_sends_garbage_is_malformed() {
    let reserved = {
        let mut bytes = Header::new(FrameKind::Pong, 0, 0).encode();
        bytes[5] = 0x89;
        bytes
    };
    let cases = [
        (FrameError::Length, Header::new(FrameKind::Data, 65_537, 1).encode()),
        (FrameError::Length, Header::new(FrameKind::Data, u32::MAX, 1).encode()),
        (FrameError::Reserved, reserved),
        (FrameError::Kind, Header::new(FrameKind::Unknown(50), 0, 1).encode()),
        (FrameError::Kind, Header::new(FrameKind::Ping, 0, 1).encode()),
    ];
    for (error, bytes) in cases {
        let address = scripted(move |mut peer| async move {
            peer.greet().await;
            peer.read_get().await;
            peer.send(&bytes).await;
            peer.read_to_end().await;
        })
        .await;
        assert_ends(&address, &limited(|_| {}), CloseReason::Malformed(error)).await;
    }
}

/// A chunk of another size than asked for, and an answer that nobody asked for, end the connection
/// before a byte of them is taken.
#[tokio::test]
async fn test_fetch_peer_answers_what_was_not_asked_is_unexpected() {
    for (size, other_id) in [(4 << 20, 0), (4096, 0), (65_536, 1)] {
        let address = scripted(move |mut peer| async move {
            peer.greet().await;
            let id = peer.read_get().await ^ other_id;
            peer.send(&Header::new(FrameKind::Data, size, id).encode()).await;
            peer.read_to_end().await;
        })
        .await;
        assert_ends(&address, &limited(|_| {}), CloseReason::UnexpectedAnswer).await;
    }
}

#[tokio::test]
async fn test_fetch_peer_answers_twice_is_unexpected() {
    let address = scripted(|mut peer| async move {
        peer.greet().await;
        let id = peer.read_get().await;
        let refusal = Header::refusal(PeerStatus::NotFound, id).encode();
        peer.send(&[refusal, refusal].concat()).await;
        peer.read_to_end().await;
    })
    .await;
    let client = client(&limited(|_| {}));
    let error = client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    until("it is noticed", || client.stats().closed(CloseReason::UnexpectedAnswer) == 1).await;
}

/// Bytes in the smallest portions are the same bytes.
#[tokio::test]
async fn test_fetch_peer_sends_byte_by_byte_is_whole() {
    let small = ChunkSize::new(4096).unwrap();
    let address = scripted(move |mut peer| async move {
        let _ = peer.stream.set_nodelay(true);
        peer.greet().await;
        let gets = [peer.read_get_of_chunk().await, peer.read_get_of_chunk().await];
        let mut answers = Vec::new();
        for (id, index) in gets {
            answers.extend_from_slice(&Header::new(FrameKind::Data, 4096, id).encode());
            answers.extend_from_slice(&content(index, small));
        }
        for byte in answers {
            peer.send(&[byte]).await;
        }
        peer.read_to_end().await;
    })
    .await;
    let client = client(&limited(|_| {}));
    let (first, second) = tokio::join!(
        client.fetch(&address, support::request(0, small), ClassWatch::DEMAND, later()),
        client.fetch(&address, support::request(1, small), ClassWatch::DEMAND, later()),
    );
    assert_eq!(first.unwrap(), content(0, small));
    assert_eq!(second.unwrap(), content(1, small));
}

/// Content is not looked at here: what verifies it is the read path.
#[tokio::test]
async fn test_fetch_peer_lies_is_delivered_unverified() {
    let config = limited(|_| {});
    let (_server, address) = serve(WrongBytes(TestDisk), &config);
    let chunk = client(&config).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    assert!(!get(0).digest.matches(&chunk));
}

#[tokio::test]
async fn test_fetch_nobody_listens_is_down_until_it_is_there() {
    let retrying =
        |after| limited(move |limits| (limits.backoff_min, limits.backoff_max) = (after, after));
    let (patient, hasty) = (retrying(PATIENCE), retrying(Duration::from_millis(1)));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let waiting = client(&patient);
    let error = waiting.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    let text = error.to_string();
    let PeerError::Down { cause, .. } = error else { panic!("{text}") };
    assert!(matches!(*cause, PeerError::Connect { .. }), "{text}");
    assert!(text.contains("is down") && text.contains("refused"), "{text}");
    let attempts = waiting.stats().peers[0].connect_failures;
    waiting.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(waiting.stats().peers[0].connect_failures, attempts, "no attempt while down");

    let client = client(&hasty);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    let listener = std::net::TcpListener::bind(&address).unwrap();
    let _server = PeerServer::start(listener, Arc::new(TestDisk), &hasty).unwrap();
    while client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.breaker(&address), BreakerState::Closed);
}

/// A peer that accepts and closes is down, with attempts ever rarer, and not hammered.
#[tokio::test]
async fn test_fetch_peer_accepts_only_to_close_stays_in_backoff() {
    let config = limited(|limits| limits.backoff_min = Duration::from_millis(5));
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    let address = scripted(move |mut peer| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move { peer.greet().await }
    })
    .await;
    let client = client(&config);
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
        tokio::task::yield_now().await;
    }
    // 5, 10, 20 ... ms, each at least half of that: at most eight fit.
    let accepted = accepted.load(Ordering::SeqCst);
    assert!((1..=9).contains(&accepted), "{accepted}");
}

#[tokio::test]
async fn test_fetch_peer_of_other_version_is_unsupported() {
    let address = scripted(|mut peer| async move {
        peer.read_frame().await;
        let versions = VersionRange { min: 7, max: 9 };
        peer.send(&Hello { versions, ..Scripted::hello() }.encode()).await;
        peer.send(&Header::refusal(PeerStatus::Unsupported, 0).encode()).await;
    })
    .await;
    let error = client(&limited(|_| {}))
        .fetch(&address, get(0), ClassWatch::DEMAND, later())
        .await
        .unwrap_err();
    let PeerError::Down { cause, .. } = error else { panic!("{error}") };
    assert_eq!(cause.kind(), ErrorKind::Unsupported);
    assert!(cause.to_string().contains("speaks protocol versions 7-9, this host 1-1"), "{cause}");
}

#[tokio::test]
async fn test_fetch_peer_never_says_hello_is_down() {
    let config = limited(|limits| limits.connect_timeout = Duration::from_millis(50));
    let address = scripted(|mut peer| async move { peer.read_to_end().await }).await;
    let error =
        client(&config).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(error.to_string().contains("no connection within 50 ms"), "{error}");
}

#[tokio::test]
async fn test_fetch_deadline_passes_late_answer_is_discarded() {
    let config = limited(|_| {});
    let gated = Gated::new(TestDisk);
    let (_server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    let dropped = {
        let fetch = client.fetch(&address, get(0), ClassWatch::DEMAND, later());
        tokio::pin!(fetch);
        tokio::select! {
            outcome = &mut fetch => panic!("{outcome:?}"),
            () = until("it is served", || gated.started() == 1) => {}
        }
        client.stats().peers[0].in_flight
    };
    assert_eq!((dropped, client.stats().peers[0].in_flight), (1, 0));
    gated.gate.add_permits(1);
    until("the answer came", || client.stats().peers[0].late_answers == 1).await;
    gated.gate.add_permits(1);
    let chunk = client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(chunk, content(1, ChunkSize::DEFAULT));
    assert_eq!(client.stats().peers[0].connects, 1);
}

#[tokio::test]
async fn test_fetch_deadline_passes_is_an_error() {
    let config = limited(|_| {});
    let (_server, address) = serve(Gated::new(TestDisk), &config);
    let client = client(&config);
    let began = Instant::now();
    let soon = began + Duration::from_millis(30);
    let error = client.fetch(&address, get(0), ClassWatch::DEMAND, soon).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() < support::PATIENCE);
    assert_eq!(client.stats().peers[0].failed(ErrorKind::Unavailable), 1);
    assert_eq!(client.stats().peers[0].in_flight, 0);
}

#[tokio::test]
async fn test_fetch_beyond_the_slots_waits_or_is_busy() {
    let config = limited(|limits| {
        limits.requests_in_flight_max = 2;
        limits.waiting_max = 1;
    });
    let gated = Gated::new(TestDisk);
    let (_server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    let mut fetches = tokio::task::JoinSet::new();
    for index in 0..3 {
        let (client, address) = (client.clone(), address.clone());
        fetches.spawn(async move {
            client.fetch(&address, get(index), ClassWatch::DEMAND, later()).await
        });
    }
    until("two are served", || gated.started() == 2).await;
    let error = client.fetch(&address, get(9), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.to_string().contains("1 fetches wait"), "{error}");
    assert_eq!(gated.started(), 2);
    gated.gate.add_permits(3);
    for outcome in fetches.join_all().await {
        outcome.unwrap();
    }
}

/// Load opens more connections, up to the limit; without load there is one.
#[tokio::test]
async fn test_fetch_under_load_uses_the_pool() {
    let config = limited(|limits| limits.connections_per_peer_max = 3);
    let gated = Gated::new(TestDisk);
    let (_server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    gated.gate.add_permits(1);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(client.stats().peers[0].connections, 1);
    let mut fetches = tokio::task::JoinSet::new();
    for index in 0..60 {
        let (client, address) = (client.clone(), address.clone());
        fetches.spawn(async move {
            client.fetch(&address, get(index), ClassWatch::DEMAND, later()).await
        });
        until("it is served", || gated.started() > index as usize + 1).await;
    }
    until("the pool is full", || client.stats().peers[0].connections == 3).await;
    gated.gate.add_permits(60);
    for outcome in fetches.join_all().await {
        outcome.unwrap();
    }
    assert_eq!(client.stats().peers[0].connects, 3);
}

#[tokio::test]
async fn test_set_hosts_forgets_a_peer_that_left() {
    let config = limited(|_| {});
    let (server, address) = serve(TestDisk, &config);
    let client = client(&config);
    client.set_hosts([("host-a", address.as_str())]);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    client.set_hosts([("host-b", "127.0.0.1:1")]);
    assert!(client.stats().peers.is_empty());
    until("the connection is closed", || server.stats().connections_open == 0).await;
    assert_eq!(server.stats().closed(CloseReason::PeerClosed), 1);
}

#[tokio::test]
async fn test_shutdown_answers_what_was_sent() {
    let config = limited(|_| {});
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    let fetch = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.fetch(&address, get(1), ClassWatch::DEMAND, later()).await }
    });
    until("it is served", || gated.started() == 1).await;
    client.shutdown();
    let error = client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(matches!(error, PeerError::Shutdown), "{error}");
    gated.gate.add_permits(1);
    fetch.await.unwrap().unwrap();
    until("the connection is closed", || server.stats().connections_open == 0).await;
}

#[tokio::test]
async fn test_drop_client_closes_its_connections() {
    let config = limited(|_| {});
    let (server, address) = serve(TestDisk, &config);
    let client = client(&config);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(server.stats().connections_open, 1);
    drop(client);
    until("the connection is closed", || server.stats().connections_open == 0).await;
}

#[tokio::test]
async fn test_connection_unused_is_closed_by_the_client() {
    let config = limited(|limits| {
        limits.probe_after = Duration::from_millis(5);
        limits.idle_timeout = Duration::from_millis(20);
    });
    let (server, address) = serve(TestDisk, &config);
    let client = client(&config);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    until("the connection is closed", || server.stats().connections_open == 0).await;
    assert_eq!(client.stats().closed(CloseReason::Idle), 1);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
}

fn runtime(has_io: bool) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time();
    if has_io {
        builder.enable_io();
    }
    builder.build().unwrap()
}

/// In a runtime without I/O an attempt to connect panics. It is the trial of a peer that was down.
#[test]
fn test_attempt_that_panics_has_failed_and_the_next_one_is_made() {
    let config = limited(|limits| (limits.backoff_min, limits.backoff_max) = (MILLI, MILLI));
    let (whole, without_io) = (runtime(true), runtime(false));
    let client = client(&config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    whole.block_on(client.fetch(&address, get(0), ClassWatch::DEMAND, later())).unwrap_err();
    let error = without_io.block_on(async {
        loop {
            let hung = Instant::now() + Duration::from_secs(10);
            let error = client.fetch(&address, get(0), ClassWatch::DEMAND, hung).await.unwrap_err();
            let is_late = matches!(error, PeerError::Deadline { .. });
            if is_late || client.stats().peers[0].connect_failures > 1 {
                return error;
            }
            tokio::task::yield_now().await;
        }
    });
    assert!(error.to_string().contains("the attempt ended early"), "{error}");
    assert_eq!(client.breaker(&address), BreakerState::Open);
    whole.block_on(async {
        let listener = std::net::TcpListener::bind(&address).unwrap();
        let _server = PeerServer::start(listener, Arc::new(TestDisk), &config).unwrap();
        while client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(client.breaker(&address), BreakerState::Closed);
}

/// An attempt that a runtime never begins, since it goes down, has failed as well.
#[test]
fn test_attempt_amid_the_end_of_the_runtime_has_failed() {
    let runtime = runtime(true);
    let handle = runtime.handle().clone();
    drop(runtime);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _entered = handle.enter();
        let client = client(&limited(|_| {}));
        let fetch =
            std::pin::pin!(client.fetch("127.0.0.1:1", get(0), ClassWatch::DEMAND, later()));
        let polled = fetch.poll(&mut Context::from_waker(Waker::noop()));
        tell.send(matches!(polled, Poll::Ready(Err(PeerError::Down { .. }))))
    });
    assert!(told.recv_timeout(Duration::from_secs(10)).expect("it waits for itself"));
}

#[test]
fn test_connection_whose_task_is_dropped_leaves_the_pool() {
    let config = limited(|limits| (limits.backoff_min, limits.backoff_max) = (MILLI, MILLI));
    let servers = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_server, address) = servers.block_on(async { serve(TestDisk, &config) });
    let (first, second) = (runtime(true), runtime(true));
    let client = client(&config);
    first.block_on(client.fetch(&address, get(0), ClassWatch::DEMAND, later())).unwrap();
    assert_eq!(client.stats().peers[0].connections, 1);
    drop(first);
    assert_eq!(client.stats().peers[0].connections, 0);
    assert_eq!(client.stats().closed(CloseReason::Shutdown), 1);
    second.block_on(async {
        while client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}

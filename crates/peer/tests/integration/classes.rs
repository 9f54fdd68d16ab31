//! Classes of requests: what guests wait for goes first, on both ends, and what is wanted after all
//! overtakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acstor_peer::frame::{
    CLASS_NONE, FLAGS_CLASS, FrameError, FrameKind, Get, HEADER_LEN, Header, Hello,
};
use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, CloseReason, FEATURE_CLASSES, FEATURES, PeerClient,
    PeerConfig, PeerServer, PeerStatus, Promoter, Security, ServeFuture, ServerLimits,
};
use acstor_types::{ChunkSize, RequestClass};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::support::chunks::{Gated, TestDisk, content};
use crate::support::scripted::{Scripted, scripted};
use crate::support::{PATIENCE, client, config, get, later, request, serve, until};

/// Milliseconds that no request of a test waits unless something hangs.
const DEADLINE_MS: u32 = 60_000;

fn limited(change: impl FnOnce(&mut ServerLimits)) -> PeerConfig {
    let mut config = config(Security::Plain);
    change(&mut config.server);
    config
}

/// A server on which one connection at a time writes, for as long as it likes.
fn one_slot() -> PeerConfig {
    limited(|limits| {
        limits.send_slots_max = 1;
        limits.send_slot_time = PATIENCE;
        limits.preload_interval = PATIENCE;
    })
}

fn get_of(class: RequestClass, id: u64) -> Vec<u8> {
    Get { class, ..Get::new(&get(id), DEADLINE_MS) }.encode(id).to_vec()
}

fn class_of(id: u64, class: impl Into<Option<RequestClass>>) -> [u8; HEADER_LEN] {
    Header::class(class.into(), id).encode()
}

async fn connected(address: &str) -> Scripted {
    let mut peer = Scripted::connect(address).await;
    peer.say_hello().await;
    peer
}

/// Connects a client that asks for more than its socket takes, and does not read.
async fn stalled(server: &PeerServer, address: &str) -> Scripted {
    let before = server.stats().chunks_sent;
    let mut peer = connected(address).await;
    let big = request(1, ChunkSize::new(4 << 20).unwrap());
    peer.send(&Get::new(&big, DEADLINE_MS).encode(1)).await;
    until("it has the slot", || server.stats().chunks_sent > before).await;
    peer
}

fn queued(server: &PeerServer) -> [u64; RequestClass::COUNT] {
    server.stats().egress.queued
}

/// Reads the answer to one request; returns its number.
async fn answered(peer: &mut Scripted) -> u64 {
    let (header, body) = peer.read_frame().await.unwrap();
    assert_eq!(header.kind, FrameKind::Data);
    assert_eq!(body, content(header.request_id, ChunkSize::DEFAULT));
    header.request_id
}

async fn nothing_is_left(server: &PeerServer) {
    until("the permits are back", || server.stats().requests_in_flight == 0).await;
    assert_eq!(server.stats().bytes_in_flight, 0);
    assert_eq!(queued(server), [0; RequestClass::COUNT]);
}

#[tokio::test]
async fn test_demand_behind_queued_ahead_is_sent_first() {
    let (server, address) = serve(TestDisk, &one_slot());
    let mut stalled = stalled(&server, &address).await;
    let mut peer = connected(&address).await;
    for id in 1..=64 {
        peer.send(&get_of(RequestClass::Ahead, id)).await;
    }
    peer.send(&get_of(RequestClass::Preload, 65)).await;
    until("they wait", || queued(&server) == [0, 64, 1]).await;
    peer.send(&get_of(RequestClass::Demand, 66)).await;
    until("it waits", || queued(&server) == [1, 64, 1]).await;
    stalled.read_frame().await.unwrap();
    assert_eq!(answered(&mut peer).await, 66);
    for id in 1..=65 {
        assert_eq!(answered(&mut peer).await, id);
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn test_class_promotes_what_is_queued_and_nothing_else() {
    let (server, address) = serve(TestDisk, &one_slot());
    let mut stalled = stalled(&server, &address).await;
    let mut peer = connected(&address).await;
    for id in 1..=8 {
        peer.send(&get_of(RequestClass::Ahead, id)).await;
    }
    until("they wait", || queued(&server) == [0, 8, 0]).await;
    for frame in [
        class_of(99, RequestClass::Demand), // no such request
        class_of(99, None),
        class_of(5, RequestClass::Demand),
        class_of(5, RequestClass::Demand), // again
        class_of(5, RequestClass::Preload),
        class_of(6, RequestClass::Preload), // less urgent
    ] {
        peer.send(&frame).await;
    }
    until("one is promoted", || queued(&server) == [1, 7, 0]).await;
    stalled.read_frame().await.unwrap();
    for id in [5, 1, 2, 3, 4, 6, 7, 8] {
        assert_eq!(answered(&mut peer).await, id);
    }
    peer.send(&class_of(5, RequestClass::Demand)).await; // answered long ago
    peer.send(&get_of(RequestClass::Demand, 9)).await;
    assert_eq!(answered(&mut peer).await, 9);
    assert_eq!((server.stats().promotions, server.stats().cancels), (1, 0));
    nothing_is_left(&server).await;
}

/// Answers when a guest waits.
struct OnDemand;

impl ChunkServer for OnDemand {
    fn serve(
        &self,
        request: ChunkRequest,
        mut class: ClassWatch,
        deadline: Instant,
    ) -> ServeFuture {
        Box::pin(async move {
            while !class.current().is_demand() {
                class.changed().await;
            }
            TestDisk.serve(request, class, deadline).await
        })
    }
}

/// From the fetch over the wire to whoever gets the chunk, one class after the other.
#[tokio::test]
async fn test_promotion_reaches_the_chunk_server() {
    let config = config(Security::Plain);
    let (server, address) = serve(OnDemand, &config);
    let client = client(&config);
    let promoter = Promoter::new(RequestClass::Preload);
    let class = promoter.watch();
    let fetch = tokio::spawn(async move { client.fetch(&address, get(3), class, later()).await });
    until("it is served", || server.stats().requests_in_flight == 1).await;
    assert!(promoter.promote(RequestClass::Ahead));
    until("it is told", || server.stats().promotions == 1).await;
    assert!(!fetch.is_finished());
    assert!(promoter.promote(RequestClass::Demand));
    assert_eq!(fetch.await.unwrap().unwrap(), content(3, ChunkSize::DEFAULT));
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn test_cancel_frees_what_is_served_and_what_is_queued() {
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &one_slot());
    let refused = |id| Header::refusal(PeerStatus::Expired, id);
    let mut peer = connected(&address).await;
    for (id, class) in RequestClass::ALL.into_iter().enumerate() {
        peer.send(&get_of(class, id as u64)).await;
    }
    until("they are served", || gated.started() == 3).await;
    for id in 0..3 {
        peer.send(&class_of(id, None)).await;
        assert_eq!(peer.read_frame().await.unwrap().0, refused(id));
    }
    until("their work is dropped", || gated.dropped() == 3).await;
    nothing_is_left(&server).await;

    gated.gate.add_permits(3);
    let _stalled = stalled(&server, &address).await;
    for id in 4..6 {
        peer.send(&get_of(RequestClass::Ahead, id)).await;
    }
    until("they wait", || queued(&server) == [0, 2, 0]).await;
    for id in 4..6 {
        peer.send(&class_of(id, None)).await;
        assert_eq!(peer.read_frame().await.unwrap().0, refused(id));
    }
    assert_eq!(queued(&server), [0; RequestClass::COUNT]);
    until("their permits are back", || server.stats().requests_in_flight == 1).await;
    assert_eq!(server.stats().cancels, 5);
    assert_eq!(server.stats().refused(PeerStatus::Expired), 0, "nobody was refused");
}

#[tokio::test]
async fn test_stalled_receiver_costs_others_one_slot_time() {
    let config = limited(|limits| {
        limits.send_slots_max = 1;
        limits.send_slot_time = Duration::from_millis(5);
    });
    let (server, address) = serve(TestDisk, &config);
    let mut stalled = stalled(&server, &address).await;
    // It asks for more, for which it gets no other slot.
    stalled.send(&get_of(RequestClass::Demand, 2)).await;
    let client = client(&config);
    for index in 0..20 {
        client.fetch(&address, get(index), ClassWatch::DEMAND, later()).await.unwrap();
    }
    until("its next answer waits", || queued(&server) == [1, 0, 0]).await;
    assert!(server.stats().egress.overruns >= 1);
    stalled.read_frame().await.unwrap();
    assert_eq!(answered(&mut stalled).await, 2);
    nothing_is_left(&server).await;
}

/// Clients that go while they are served, queued, or write.
#[tokio::test]
async fn test_connections_that_die_leave_nothing() {
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &one_slot());
    gated.gate.add_permits(1);
    let writing = stalled(&server, &address).await;
    let mut queueing = connected(&address).await;
    let mut next = connected(&address).await;
    gated.gate.add_permits(3);
    for id in [1, 2] {
        queueing.send(&get_of(RequestClass::Ahead, id)).await;
    }
    until("they wait", || queued(&server) == [0, 2, 0]).await;
    next.send(&get_of(RequestClass::Ahead, 3)).await;
    until("it waits", || queued(&server) == [0, 3, 0]).await;
    let mut serving = connected(&address).await;
    serving.send(&get_of(RequestClass::Preload, 4)).await;
    until("it is served", || gated.started() == 5).await;
    drop((queueing, serving));
    until("they are gone", || queued(&server) == [0, 1, 0]).await;
    assert_eq!(server.stats().requests_in_flight, 2, "the one that writes, and the next");
    drop(writing);
    assert_eq!(answered(&mut next).await, 3, "its slot is free again");
    nothing_is_left(&server).await;
    gated.gate.add_permits(1);
    let client = client(&config(Security::Plain));
    client.fetch(&address, get(5), ClassWatch::DEMAND, later()).await.unwrap();
}

#[tokio::test]
async fn test_ahead_takes_half_of_a_connection_and_leaves_the_rest_to_demand() {
    let config = limited(|limits| limits.connection_requests_max = 4);
    let gated = Gated::new(TestDisk);
    let (server, address) = serve(gated.clone(), &config);
    let mut peer = connected(&address).await;
    for (id, class) in [(1, RequestClass::Ahead), (2, RequestClass::Preload)] {
        peer.send(&get_of(class, id)).await;
    }
    until("they are served", || gated.started() == 2).await;
    peer.send(&get_of(RequestClass::Ahead, 3)).await;
    let refusal = peer.read_frame().await.unwrap().0;
    assert_eq!(refusal, Header::refusal(PeerStatus::Overloaded, 3));
    peer.send(&get_of(RequestClass::Demand, 4)).await;
    until("it is served", || gated.started() == 3).await;
    peer.send(&class_of(1, RequestClass::Demand)).await;
    peer.send(&get_of(RequestClass::Ahead, 5)).await;
    until("there is room", || gated.started() == 4).await;
    gated.gate.add_permits(4);
    for _ in 0..4 {
        answered(&mut peer).await;
    }
    nothing_is_left(&server).await;
}

/// A client of an older release: it has no classes, and nothing that it sends is taken for one.
#[tokio::test]
async fn test_client_without_the_feature_has_no_classes() {
    let config = config(Security::Plain);
    let (server, address) = serve(TestDisk, &config);
    let old = Hello { features: FEATURES & !FEATURE_CLASSES, ..Scripted::hello() };
    let mut peer = Scripted::connect(&address).await;
    peer.send(&old.encode()).await;
    peer.read_frame().await.unwrap();
    peer.send(&get_of(RequestClass::Demand, 1)).await;
    assert_eq!(answered(&mut peer).await, 1);
    peer.send(&class_of(1, None)).await;
    let unsupported = Header::refusal(PeerStatus::Unsupported, 1);
    assert_eq!(peer.read_frame().await.unwrap().0, unsupported);
    peer.send(&get_of(RequestClass::Ahead, 2)).await;
    peer.read_to_end().await;
    let reason = CloseReason::Malformed(FrameError::Reserved);
    until("it is counted", || server.stats().closed(reason) == 1).await;
}

/// Frames that a scripted server gets, with the number of the connection, in order.
type Frames = mpsc::UnboundedReceiver<(usize, Header)>;

/// Starts a server of `features` that answers a GET when a CLASS says demand, or at once where it is one.
async fn recording(features: u64) -> (String, Frames) {
    let (frames, received) = mpsc::unbounded_channel();
    let connections = Arc::new(AtomicUsize::new(0));
    let address = scripted(move |mut peer: Scripted| {
        let number = connections.fetch_add(1, Ordering::SeqCst);
        let frames = frames.clone();
        async move {
            peer.read_frame().await.unwrap();
            peer.send(&Hello { features, ..Scripted::hello() }.encode()).await;
            while let Some((header, _)) = peer.read_frame().await {
                frames.send((number, header)).unwrap();
                let is_demand = match header.kind {
                    FrameKind::Get => header.flags & FLAGS_CLASS == 0,
                    _ => header.new_class() == Some(RequestClass::Demand),
                };
                if is_demand {
                    let chunk = content(1, ChunkSize::DEFAULT);
                    let header =
                        Header::new(FrameKind::Data, chunk.len() as u32, header.request_id);
                    peer.send(&[&header.encode()[..], &chunk].concat()).await;
                }
            }
        }
    })
    .await;
    (address, received)
}

fn begin(
    client: &PeerClient,
    address: &str,
    class: ClassWatch,
) -> tokio::task::JoinHandle<bytes::Bytes> {
    let (client, address) = (client.clone(), address.to_owned());
    tokio::spawn(async move { client.fetch(&address, get(1), class, later()).await.unwrap() })
}

#[tokio::test]
async fn test_fetch_tells_its_class_and_each_change_of_it() {
    let (address, mut frames) = recording(FEATURES).await;
    let client = client(&config(Security::Plain));
    let promoter = Promoter::new(RequestClass::Ahead);
    let promoted = begin(&client, &address, promoter.watch());
    let (background, asked) = frames.recv().await.unwrap();
    assert_eq!((asked.kind, asked.flags), (FrameKind::Get, 0b010));

    // What a guest waits for goes another way; what is promoted stays where it is.
    begin(&client, &address, ClassWatch::DEMAND).await.unwrap();
    let (demand, header) = frames.recv().await.unwrap();
    assert_eq!((header.kind, header.flags), (FrameKind::Get, 0));
    assert_ne!(demand, background);
    promoter.promote(RequestClass::Demand);
    promoted.await.unwrap();
    let told = Header::class(Some(RequestClass::Demand), asked.request_id);
    assert_eq!(frames.recv().await.unwrap(), (background, told));

    let dropped = begin(&client, &address, ClassWatch::constant(RequestClass::Preload));
    let (connection, asked) = frames.recv().await.unwrap();
    assert_eq!((connection, asked.flags), (background, 0b100));
    dropped.abort();
    let (_, told) = frames.recv().await.unwrap();
    assert_eq!((told.kind, told.flags), (FrameKind::Class, CLASS_NONE));
    assert_eq!(told.request_id, asked.request_id);
    assert_eq!(client.stats().peers[0].connections, 2);
}

#[tokio::test]
async fn test_fetch_from_a_server_without_the_feature_tells_no_class() {
    let (address, mut frames) = recording(FEATURES & !FEATURE_CLASSES).await;
    let client = client(&config(Security::Plain));
    let promoter = Promoter::new(RequestClass::Ahead);
    begin(&client, &address, promoter.watch()).await.unwrap();
    assert_eq!(frames.recv().await.unwrap().1.flags, 0);
    begin(&client, &address, promoter.watch()).abort();
    let chunk = begin(&client, &address, ClassWatch::constant(RequestClass::Preload));
    assert_eq!(chunk.await.unwrap(), content(1, ChunkSize::DEFAULT));
    while let Ok((_, header)) = frames.try_recv() {
        assert_eq!((header.kind, header.flags), (FrameKind::Get, 0));
    }
}

#[tokio::test]
async fn test_latency_is_that_of_what_guests_wait_for() {
    let config = config(Security::Plain);
    let (_server, address) = serve(TestDisk, &config);
    let client = client(&config);
    for index in 0..40 {
        let class = ClassWatch::constant(RequestClass::Ahead);
        client.fetch(&address, get(index), class, later()).await.unwrap();
    }
    assert_eq!(client.latency_p99(&address), None);
    for index in 0..40 {
        client.fetch(&address, get(index), ClassWatch::DEMAND, later()).await.unwrap();
    }
    assert!(client.latency_p99(&address).is_some());
}

/// Fetches ahead fill their own slots only, and one that a guest wants moves over before it is sent.
#[tokio::test]
async fn test_fetch_promoted_while_it_waits_for_a_slot_takes_one_of_demand() {
    let mut config = config(Security::Plain);
    config.client.requests_in_flight_max = 4;
    let gated = Gated::new(TestDisk);
    let (_server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    let promoter = Promoter::new(RequestClass::Ahead);
    let ahead: Vec<_> = (0..2)
        .map(|_| begin(&client, &address, ClassWatch::constant(RequestClass::Ahead)))
        .collect();
    until("the slots are taken", || gated.started() == 2).await;
    let waiting = begin(&client, &address, promoter.watch());
    let demand = begin(&client, &address, ClassWatch::DEMAND);
    until("it has a slot of its own", || gated.started() == 3).await;
    promoter.promote(RequestClass::Demand);
    until("it need not wait", || gated.started() == 4).await;
    gated.gate.add_permits(4);
    for fetch in ahead.into_iter().chain([waiting, demand]) {
        assert_eq!(fetch.await.unwrap(), content(1, ChunkSize::DEFAULT));
    }
}

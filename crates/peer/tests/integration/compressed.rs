//! Compressed answers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use acstor_peer::frame::{
    COMPRESSED_PREFIX_LEN, FLAG_COMPRESSED_WELCOME, FrameKind, Get, Header, Hello,
    compressed_len_max,
};
use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, CloseReason, CompressionStats, FEATURE_HOLDS,
    PeerClient, PeerError, PeerStatus, Security, ServeFuture,
};
use acstor_types::{ChunkSize, Digest, DiskId, ErrorKind};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::support::certificates::Authority;
use crate::support::chunks::Gated;
use crate::support::scripted::{Scripted, scripted};
use crate::support::{client, config, later, serve, until};

/// Its chunks are noise but for a part of zeros: all of chunk 0, five eighths of those with an even
/// index, nothing of the others.
#[derive(Clone, Copy)]
struct MixedDisk;

fn content(index: u64, chunk_size: ChunkSize) -> Bytes {
    let mut state = index + 1;
    let mut chunk: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(chunk_size.bytes())
    .collect();
    let zeros = match index {
        0 => chunk_size.bytes(),
        _ if index.is_multiple_of(2) => chunk_size.bytes() / 8 * 5,
        _ => 0,
    };
    chunk[..zeros].fill(0);
    chunk.into()
}

impl ChunkServer for MixedDisk {
    fn serve(&self, request: ChunkRequest, _class: ClassWatch, _deadline: Instant) -> ServeFuture {
        let chunk = content(request.chunk_index, request.chunk_size);
        let is_ours = request.digest == Digest::of(&chunk);
        Box::pin(async move { if is_ours { Ok(chunk) } else { Err(PeerStatus::NotFound) } })
    }
}

fn sized(index: u64, chunk_size: ChunkSize) -> ChunkRequest {
    ChunkRequest {
        digest: Digest::of(&content(index, chunk_size)),
        disk_id: DiskId::from_bytes([7; 16]),
        chunk_index: index,
        chunk_size,
        accepts_compressed: true,
    }
}

/// Asks for a chunk of the default size; a compressed answer is welcome.
fn welcome(index: u64) -> ChunkRequest {
    sized(index, ChunkSize::DEFAULT)
}

/// Passes connections on to `server` and counts what the server says on them.
async fn counting_relay(server: String) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((asking, _)) = listener.accept().await {
            let answering = TcpStream::connect(&server).await.unwrap();
            let (mut from_client, mut to_client) = asking.into_split();
            let (mut from_server, mut to_server) = answering.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(len) = from_server.read(&mut buffer).await {
                    counter.fetch_add(len as u64, Ordering::SeqCst);
                    if len == 0 || to_client.write_all(&buffer[..len]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, count)
}

/// Fetches the chunks at a time and compares them; returns the bytes that came over the wire.
async fn wire_bytes(security: Security, indexes: &[u64], is_welcome: bool) -> u64 {
    let config = config(security);
    let (server, address) = serve(MixedDisk, &config);
    let (address, count) = counting_relay(address).await;
    let client = client(&config);
    let mut fetches = tokio::task::JoinSet::new();
    for index in indexes.iter().copied() {
        let (client, address) = (client.clone(), address.clone());
        let request = ChunkRequest { accepts_compressed: is_welcome, ..welcome(index) };
        fetches.spawn(async move {
            let chunk = client.fetch(&address, request, ClassWatch::DEMAND, later()).await.unwrap();
            assert!(chunk == content(index, ChunkSize::DEFAULT), "chunk {index}");
        });
    }
    fetches.join_all().await;
    let (got, stats) = (client.stats(), server.stats());
    let peer = &got.peers[0];
    let raw = indexes.len() as u64 * ChunkSize::DEFAULT.bytes() as u64;
    assert_eq!((peer.chunks, peer.bytes), (indexes.len() as u64, raw));
    assert_eq!((stats.chunks_sent, stats.bytes_sent), (indexes.len() as u64, raw));
    assert_eq!(got.bytes_saved, stats.bytes_saved);
    assert_eq!(got.compressed_chunks, stats.compression.compressed);
    until("the permits are back", || server.stats().requests_in_flight == 0).await;
    assert_eq!(server.stats().bytes_in_flight, 0);
    count.load(Ordering::SeqCst)
}

const COMPRESSIBLE: [u64; 16] = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32];

async fn compressible_content_halves_the_bytes(security: Security) {
    let plain = wire_bytes(security.clone(), &COMPRESSIBLE, false).await;
    let compressed = wire_bytes(security, &COMPRESSIBLE, true).await;
    assert!(compressed * 2 < plain, "{compressed} for {plain} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_compressed_plain_halves_the_bytes_on_the_wire() {
    compressible_content_halves_the_bytes(Security::Plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_compressed_tls_halves_the_bytes_on_the_wire() {
    compressible_content_halves_the_bytes(Security::Tls(Authority::new().loopback())).await;
}

#[tokio::test]
async fn test_incompressible_goes_out_as_it_is() {
    let asked = wire_bytes(Security::Plain, &[1, 3, 5, 7, 9], true).await;
    let unasked = wire_bytes(Security::Plain, &[1, 3, 5, 7, 9], false).await;
    assert_eq!(asked, unasked);
}

#[tokio::test]
async fn test_compressed_every_chunk_size_and_what_became_of_it() {
    let config = config(Security::Plain);
    let (server, address) = serve(MixedDisk, &config);
    let client = client(&config);
    for bits in 12..=22 {
        let size = ChunkSize::new(1 << bits).unwrap();
        for index in 0..4 {
            let chunk = client
                .fetch(&address, sized(index, size), ClassWatch::DEMAND, later())
                .await
                .unwrap();
            assert!(chunk == content(index, size), "{index} of {size:?}");
        }
    }
    let became = server.stats().compression;
    let CompressionStats { compressed, incompressible, busy, kept, bytes, .. } = became;
    assert_eq!((compressed, incompressible, busy, kept), (22, 22, 0, 0));
    assert_eq!(bytes, (12..=22).map(|bits| 4 << bits).sum::<u64>());
    let plain = ChunkRequest { accepts_compressed: false, ..welcome(2) };
    client.fetch(&address, plain, ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(server.stats().compression, became, "nobody asked for it");
}

#[tokio::test]
async fn test_compressed_once_for_all_who_ask() {
    let config = config(Security::Plain);
    let (server, address) = serve(MixedDisk, &config);
    for asked in 0..3 {
        let client = client(&config);
        let fetch = client.fetch(&address, welcome(2), ClassWatch::DEMAND, later());
        assert!(fetch.await.unwrap() == content(2, ChunkSize::DEFAULT));
        let stats = client.stats();
        assert_eq!((stats.compressed_chunks, stats.compressible_bytes), (1, 65_536));
        let became = server.stats().compression;
        assert_eq!((became.compressed, became.kept), (1, asked));
    }
    server.forget(&[welcome(2).digest]);
    assert_eq!(server.stats().compression.kept_bytes, 0);
}

#[tokio::test]
async fn test_compressed_of_a_server_that_is_not_to_compress_goes_out_as_it_is() {
    let mut config = config(Security::Plain);
    config.server.compressions_max = 0;
    let (server, address) = serve(MixedDisk, &config);
    let chunk =
        client(&config).fetch(&address, welcome(2), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(chunk, content(2, ChunkSize::DEFAULT));
    assert_eq!(server.stats().compression.busy, 1);
    assert_eq!(server.stats().bytes_saved, 0);
}

/// Of an answer that comes later too.
#[tokio::test]
async fn test_compressed_after_a_wait() {
    let config = config(Security::Plain);
    let gated = Gated::new(MixedDisk);
    let (server, address) = serve(gated.clone(), &config);
    let client = client(&config);
    let fetch = client.fetch(&address, welcome(4), ClassWatch::DEMAND, later());
    let open = async {
        until("it is served", || gated.started() == 1).await;
        gated.gate.add_permits(1);
    };
    let (chunk, ()) = tokio::join!(fetch, open);
    assert_eq!(chunk.unwrap(), content(4, ChunkSize::DEFAULT));
    assert_eq!(server.stats().compression.compressed, 1);
}

/// The connection goes on answering while a chunk is compressed.
#[tokio::test]
async fn test_compressed_holds_up_no_other_answer() {
    let config = config(Security::Plain);
    let (_server, address) = serve(MixedDisk, &config);
    let mut peer = Scripted::connect(&address).await;
    peer.say_hello().await;
    let big = sized(2, ChunkSize::new(4 << 20).unwrap());
    let small = ChunkRequest { accepts_compressed: false, ..welcome(3) };
    let asked = [Get::new(&big, 30_000).encode(1), Get::new(&small, 30_000).encode(2)];
    peer.send(&asked.concat()).await;
    let (first, _) = peer.read_frame().await.unwrap();
    assert_eq!((first.kind, first.request_id), (FrameKind::Data, 2));
    let (second, _) = peer.read_frame().await.unwrap();
    assert_eq!((second.kind, second.request_id), (FrameKind::Compressed, 1));
}

/// A server of an older release sees a GET as it knows it.
#[tokio::test]
async fn test_compressed_older_server_gets_a_plain_get() {
    let address = scripted(|mut peer| async move {
        peer.read_frame().await.unwrap();
        peer.send(&Hello { features: FEATURE_HOLDS, ..Scripted::hello() }.encode()).await;
        let (get, _) = peer.read_frame().await.unwrap();
        assert_eq!((get.kind, get.flags), (FrameKind::Get, 0));
        let chunk = content(2, ChunkSize::DEFAULT);
        peer.send(&Header::new(FrameKind::Data, chunk.len() as u32, get.request_id).encode()).await;
        peer.send(&chunk).await;
        // An answer that this server cannot give is not taken from it either.
        let (get, _) = peer.read_frame().await.unwrap();
        peer.send(&Header::new(FrameKind::Compressed, 1000, get.request_id).encode()).await;
        peer.read_to_end().await;
    })
    .await;
    let client = client(&config(Security::Plain));
    let chunk = client.fetch(&address, welcome(2), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(chunk, content(2, ChunkSize::DEFAULT));
    let error = client.fetch(&address, welcome(2), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(is_unexpected(&error), "{error}");
}

/// A client of an older release never sees another answer than DATA.
#[tokio::test]
async fn test_compressed_older_client_gets_data() {
    let (_server, address) = serve(MixedDisk, &config(Security::Plain));
    let mut peer = Scripted::connect(&address).await;
    peer.send(&Hello { features: 0, ..Scripted::hello() }.encode()).await;
    assert_eq!(peer.read_frame().await.unwrap().0.kind, FrameKind::Hello);
    let plain = ChunkRequest { accepts_compressed: false, ..welcome(2) };
    peer.send(&Get::new(&plain, 30_000).encode(9)).await;
    let (header, body) = peer.read_frame().await.unwrap();
    assert_eq!((header.kind, header.request_id), (FrameKind::Data, 9));
    assert_eq!(body, content(2, ChunkSize::DEFAULT));
}

#[tokio::test]
async fn test_get_with_other_flags_ends_the_connection() {
    let (server, address) = serve(MixedDisk, &config(Security::Plain));
    let get = Get::new(&welcome(2), 30_000).encode(1);
    assert_eq!(get[5], FLAG_COMPRESSED_WELCOME);
    let ping = Header::new(FrameKind::Ping, 0, 0).encode();
    for (frame, flags) in [(&get[..], 6), (&get, 9), (&get, 0x80), (&ping, 1)] {
        let mut frame = frame.to_vec();
        frame[5] = flags;
        let mut peer = Scripted::connect(&address).await;
        peer.say_hello().await;
        peer.send(&frame).await;
        peer.read_to_end().await;
    }
    until("all are closed", || server.stats().connections_open == 0).await;
    let reserved = CloseReason::Malformed(acstor_peer::frame::FrameError::Reserved);
    assert_eq!(server.stats().closed(reserved), 4);
}

fn is_unexpected(error: &PeerError) -> bool {
    matches!(error, PeerError::Disconnected { reason: CloseReason::UnexpectedAnswer, .. })
}

/// Answers each GET on each connection with the next of `bodies` as a COMPRESSED.
async fn answering(bodies: Vec<Vec<u8>>) -> String {
    scripted(move |mut peer| {
        let bodies = bodies.clone();
        async move {
            peer.greet().await;
            for body in bodies {
                let id = peer.read_get().await;
                let header = Header::new(FrameKind::Compressed, body.len() as u32, id);
                peer.send(&[&header.encode()[..], &body].concat()).await;
            }
            peer.read_to_end().await;
        }
    })
    .await
}

fn body(raw_len: usize, block: &[u8]) -> Vec<u8> {
    [&(raw_len as u32).to_le_bytes()[..], block].concat()
}

/// Each is an error of its own fetch; the connection lives, since its frames are whole.
#[tokio::test]
async fn test_compressed_lying_and_damaged_answers_are_corrupt() {
    let size = ChunkSize::DEFAULT.bytes();
    let right = lz4_flex::block::compress(&content(2, ChunkSize::DEFAULT));
    let longer = lz4_flex::block::compress(&vec![0; size * 2]);
    let shorter = lz4_flex::block::compress(&vec![0; size - 1]);
    let bad = vec![
        body(size - 1, &right),
        body(size + 1, &right),
        body(0, &right),
        body(u32::MAX as usize, &right),
        body(size, &right[..right.len() - 1]),
        body(size, &right[..1]),
        body(size, &longer),
        body(size, &shorter),
        body(size, &[0xff; 1000]),
        // A match that reaches before the chunk.
        body(size, &[0x1f, b'a', 9, 0, 255, 255, 10, 0]),
    ];
    let count = bad.len();
    let address = answering([bad, vec![body(size, &right)]].concat()).await;
    let client = client(&config(Security::Plain));
    for number in 0..count {
        let error =
            client.fetch(&address, welcome(2), ClassWatch::DEMAND, later()).await.unwrap_err();
        assert!(matches!(error, PeerError::Corrupt { .. }), "{number}: {error}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let chunk = client.fetch(&address, welcome(2), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(chunk, content(2, ChunkSize::DEFAULT));
    let all = client.stats();
    let stats = &all.peers[0];
    assert_eq!((stats.connects, stats.failed(ErrorKind::Corrupt)), (1, count as u64));
    assert_eq!(all.compressed_chunks, 1);
}

/// The buffer is reserved for what was asked for: a longer answer is refused by its header.
#[tokio::test]
async fn test_compressed_answer_of_an_impossible_length_ends_the_connection() {
    let size = ChunkSize::DEFAULT.bytes();
    for len in [compressed_len_max(size) + 1, size, 4 << 20, COMPRESSED_PREFIX_LEN, 0] {
        let address = scripted(move |mut peer| async move {
            peer.greet().await;
            let id = peer.read_get().await;
            let header = Header::new(FrameKind::Compressed, len as u32, id);
            peer.send(&header.encode()).await;
            peer.read_to_end().await;
        })
        .await;
        let client: PeerClient = client(&config(Security::Plain));
        let error =
            client.fetch(&address, welcome(2), ClassWatch::DEMAND, later()).await.unwrap_err();
        let is_malformed =
            matches!(error, PeerError::Disconnected { reason: CloseReason::Malformed(_), .. });
        assert!(is_unexpected(&error) || is_malformed, "{len}: {error}");
    }
}

#[tokio::test]
async fn test_compressed_answer_that_nobody_welcomed_ends_the_connection() {
    let right = lz4_flex::block::compress(&content(2, ChunkSize::DEFAULT));
    let address = answering(vec![body(ChunkSize::DEFAULT.bytes(), &right)]).await;
    let client = client(&config(Security::Plain));
    let plain = ChunkRequest { accepts_compressed: false, ..welcome(2) };
    let error = client.fetch(&address, plain, ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(is_unexpected(&error), "{error}");
}

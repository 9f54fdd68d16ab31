//! A peer server whose client sends anything at all after HELLO: the connection ends, and nothing
//! stays in flight.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use acstor_peer::frame::Hello;
use acstor_peer::{
    ChunkRequest, ChunkServer, ClassWatch, FEATURES, PeerConfig, PeerServer, PeerStatus, Security,
    ServeFuture, VersionRange,
};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};

/// Longest time that a connection may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers at once, later, or not, by the chunk's index.
struct Varied;

impl ChunkServer for Varied {
    fn serve(&self, request: ChunkRequest, _class: ClassWatch, _deadline: Instant) -> ServeFuture {
        Box::pin(async move {
            match request.chunk_index % 3 {
                0 => return Err(PeerStatus::NotFound),
                1 => tokio::task::yield_now().await,
                _ => {}
            }
            Ok(Bytes::from(vec![0; request.chunk_size.bytes()]))
        })
    }
}

static SERVER: LazyLock<(Runtime, PeerServer)> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let context = runtime.enter();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let config = PeerConfig::new(Security::Plain);
    let server = PeerServer::start(listener, Arc::new(Varied), &config).expect("a server");
    drop(context);
    (runtime, server)
});

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    let (runtime, server) = &*SERVER;
    runtime.block_on(async {
        let mut stream = TcpStream::connect(server.local_addr()).await.expect("a connection");
        let hello = Hello {
            versions: VersionRange::OURS,
            chunk_size_max: 4 << 20,
            features: FEATURES,
            requests_in_flight_max: 1,
            idle_timeout_ms: 0,
        };
        let _ = stream.write_all(&hello.encode()).await;
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answers = Vec::new();
        let ended = timeout(PATIENCE, stream.read_to_end(&mut answers)).await;
        assert!(ended.is_ok(), "the connection did not end");
        let idle = async {
            while server.stats().connections_open > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, idle).await.expect("the server's side did not end");
        let stats = server.stats();
        assert_eq!((stats.requests_in_flight, stats.bytes_in_flight), (0, 0));
    });
}

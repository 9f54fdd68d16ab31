//! A peer client whose server answers anything at all: the fetch ends by its deadline, with exactly
//! as many bytes as it asked for or an error, compressed answers included.

use std::sync::LazyLock;
use std::time::Duration;

use acstor_peer::frame::{FrameKind, GET_BODY_LEN, HEADER_LEN, HELLO_BODY_LEN_MIN, Header};
use acstor_peer::{ChunkRequest, ClassWatch, PeerClient, PeerConfig, Security};
use acstor_types::{ChunkSize, Digest, DiskId, RequestClass};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};

/// Longest time that a fetch may take; the server closes long before.
const DEADLINE: Duration = Duration::from_secs(60);

static SERVER: LazyLock<(Runtime, TcpListener, String)> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    (runtime, listener, address)
});

/// The id of a connection's first request.
const FIRST_REQUEST: u64 = 1 << 32;

/// Behaviour of the server.
#[derive(Clone, Copy, PartialEq)]
enum Say {
    /// Anything, in place of its HELLO.
    AtOnce,
    /// Anything in place of the answer.
    AfterGet,
    /// A compressed answer of anything.
    Compressed,
}

/// Sends `bytes` to the next client, after it has said HELLO and, but for [`Say::AtOnce`], asked.
async fn answer(listener: &TcpListener, bytes: &[u8], say: Say) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    let mut hello = [0; HEADER_LEN + HELLO_BODY_LEN_MIN];
    stream.read_exact(&mut hello).await?;
    let mut rest = bytes;
    if say != Say::AtOnce {
        stream.write_all(&hello).await?;
        stream.read_exact(&mut [0; HEADER_LEN + GET_BODY_LEN]).await?;
        if say == Say::Compressed {
            let header = Header::new(FrameKind::Compressed, bytes.len() as u32, FIRST_REQUEST);
            stream.write_all(&header.encode()).await?;
        }
    } else if bytes.len() > hello.len() {
        let (first, then) = bytes.split_at(hello.len());
        stream.write_all(first).await?;
        rest = then;
    }
    stream.write_all(rest).await?;
    stream.shutdown().await
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_last() else { return };
    let (runtime, listener, address) = &*SERVER;
    runtime.block_on(async {
        let client = PeerClient::new(&PeerConfig::new(Security::Plain)).expect("a client");
        let request = ChunkRequest {
            digest: Digest::from_bytes([1; 32]),
            disk_id: DiskId::from_bytes([2; 16]),
            chunk_index: 3,
            chunk_size: ChunkSize::new(4096).expect("a chunk size"),
            accepts_compressed: mode % 3 != 0,
        };
        let deadline = Instant::now() + DEADLINE;
        let class = match mode & 0x80 {
            0 => RequestClass::Demand,
            _ => RequestClass::Ahead,
        };
        let class = ClassWatch::constant(class);
        let fetch = timeout(2 * DEADLINE, client.fetch(address, request, class, deadline));
        let say = match mode % 3 {
            0 => Say::AtOnce,
            1 => Say::AfterGet,
            _ => Say::Compressed,
        };
        let (fetched, _) = tokio::join!(fetch, answer(listener, bytes, say));
        if let Ok(chunk) = fetched.expect("the fetch ends by its deadline") {
            assert_eq!(chunk.len(), 4096);
        }
    });
}

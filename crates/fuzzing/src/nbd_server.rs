//! An NBD server whose client sends anything at all, from the greeting or from transmission on: the
//! connection ends, and nothing stays in flight.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use acstor_nbd::protocol::constants::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, OPT_EXTENDED_HEADERS, OPT_GO, OPT_SET_META_CONTEXT,
    OPT_STRUCTURED_REPLY, OPTION_MAGIC,
};
use acstor_nbd::{Export, MemoryBudget, NbdServer, ServerConfig, bind_unix};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

#[path = "../../nbd/tests/support/memory_device.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod memory_device;

/// Longest time that a connection may take to end.
const PATIENCE: Duration = Duration::from_secs(60);
const SIZE: u64 = 1 << 20;

struct Served {
    runtime: Runtime,
    server: NbdServer,
    memory: Arc<MemoryBudget>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("disk.sock");
    let device = memory_device::MemoryDevice::new(SIZE, SIZE);
    let export = Arc::new(Export::new("disk", Arc::new(device)).expect("an export"));
    let memory = MemoryBudget::new(64 << 20);
    let listener = bind_unix(&path, 0o600).expect("a socket");
    let config = ServerConfig::new(Arc::clone(&memory));
    let server = NbdServer::start(listener, export, config, runtime.handle()).expect("a server");
    Served { runtime, server, memory, path, _directory: directory }
});

/// Returns what a client says before transmission, by the first byte of the input.
fn preamble(choice: u8) -> Vec<u8> {
    let mut bytes = (CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES).to_be_bytes().to_vec();
    let mut option = |code: u32, data: &[u8]| {
        bytes.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes.extend_from_slice(&code.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
    };
    match choice % 4 {
        0 => return Vec::new(),
        1 => {}
        2 => option(OPT_STRUCTURED_REPLY, &[]),
        _ => option(OPT_EXTENDED_HEADERS, &[]),
    }
    let query = b"\0\0\0\0\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\x0cacstor:dirty";
    option(OPT_SET_META_CONTEXT, query);
    option(OPT_GO, &[0; 6]);
    bytes
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    let served = &*SERVED;
    served.runtime.block_on(async {
        let stream = UnixStream::connect(&served.path).await.expect("a connection");
        let (mut receiving, mut sending) = stream.into_split();
        let talk = async {
            let _ = sending.write_all(&preamble(*choice)).await;
            let _ = sending.write_all(bytes).await;
            let _ = sending.shutdown().await;
        };
        let mut answers = Vec::new();
        let listen = async {
            let _ = receiving.read_to_end(&mut answers).await;
        };
        timeout(PATIENCE, async { tokio::join!(talk, listen) }).await.expect("it did not end");
        let idle = async {
            while served.server.stats().connections_open > 0 || served.memory.bytes_borrowed() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, idle).await.expect("the server's side did not end");
        assert_eq!(served.server.stats().requests_waiting, 0);
    });
}

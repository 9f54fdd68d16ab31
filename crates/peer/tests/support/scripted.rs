//! A TCP server that does what a test says, byte by byte: the faults that no correct server has.

use std::future::Future;

use acstor_peer::frame::{GET_BODY_LEN, Get, HEADER_LEN, Header, Hello};
use acstor_peer::{FEATURES, VersionRange};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts a server that runs `script` on every connection; returns its address.
pub async fn scripted<F, Fut>(script: F) -> String
where
    F: Fn(Scripted) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = script.clone();
            tokio::spawn(async move { script(Scripted { stream }).await });
        }
    });
    address
}

/// One connection of a scripted server, or of a scripted client.
pub struct Scripted {
    pub stream: TcpStream,
}

impl Scripted {
    /// Connects as a client that says what the test wants.
    pub async fn connect(address: &str) -> Scripted {
        Scripted { stream: TcpStream::connect(address).await.unwrap() }
    }

    /// A HELLO as this build sends it.
    pub fn hello() -> Hello {
        Hello {
            versions: VersionRange::OURS,
            chunk_size_max: 4 << 20,
            features: FEATURES,
            requests_in_flight_max: 256,
            idle_timeout_ms: 0,
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        // The other side may have closed already, which the test finds out where it matters.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads the client's HELLO and answers with ours.
    pub async fn greet(&mut self) {
        self.read_frame().await.unwrap();
        self.send(&Scripted::hello().encode()).await;
    }

    /// Says HELLO and reads the server's.
    pub async fn say_hello(&mut self) {
        self.send(&Scripted::hello().encode()).await;
        let (header, body) = self.read_frame().await.unwrap();
        assert_eq!(header.kind, acstor_peer::frame::FrameKind::Hello);
        Hello::decode(&body).unwrap();
    }

    /// Reads a frame, or `None` at the end of the stream.
    pub async fn read_frame(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut head = [0; HEADER_LEN];
        self.stream.read_exact(&mut head).await.ok()?;
        let header = Header::decode(&head).unwrap();
        let mut body = vec![0; header.body_len as usize];
        self.stream.read_exact(&mut body).await.ok()?;
        Some((header, body))
    }

    /// Reads a GET; returns its request id.
    pub async fn read_get(&mut self) -> u64 {
        self.read_get_of_chunk().await.0
    }

    /// Reads a GET; returns its request id and the chunk's index.
    pub async fn read_get_of_chunk(&mut self) -> (u64, u64) {
        let (header, body) = self.read_frame().await.unwrap();
        let get = Get::decode(body.first_chunk::<GET_BODY_LEN>().unwrap(), header.flags);
        (header.request_id, get.chunk_index)
    }

    /// Waits until the other side closes; what it still sends is dropped.
    pub async fn read_to_end(&mut self) {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest).await;
    }
}

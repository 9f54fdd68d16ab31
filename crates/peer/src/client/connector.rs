//! The client's side of connecting: TCP, TLS, HELLO.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use acstor_net::{Identity, Shown, Socket, Stream, TlsFault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::connection_state::{ConnectionEvent, ConnectionState, InvalidTransition};
use crate::frame::{FrameError, FrameKind, HEADER_LEN, HELLO_BODY_LEN_MAX, Header, Hello};
use crate::{FEATURES, PeerError, PeerStatus, VersionRange};

const CLOSED_BEFORE_HELLO: &str =
    "it closed the connection before HELLO; is tls_enabled the same on both hosts?";

/// Target of a connection.
pub(super) struct Target<'a> {
    /// The peer as the ring writes it, for errors.
    pub(super) address: &'a str,
    pub(super) socket: SocketAddr,
    /// The peer's name in the ring, which its certificate may hold instead of the address.
    pub(super) host_name: Option<String>,
    /// Certificate to show and authorities to check by; `None` where TLS is off.
    pub(super) identity: Option<Arc<Identity>>,
    /// Most requests that this client will have in flight on the connection.
    pub(super) requests_in_flight_max: usize,
}

/// A connection on which both sides said HELLO.
pub(super) struct Greeted {
    pub(super) stream: Stream,
    pub(super) state: ConnectionState,
    pub(super) hello: Hello,
    /// Identity that the peer showed, with TLS.
    pub(super) shown: Option<Shown>,
}

impl Target<'_> {
    /// Connects; the caller bounds the time.
    pub(super) async fn connect(&self) -> Result<Greeted, PeerError> {
        let mut state = ConnectionState::Connecting;
        let tcp = TcpStream::connect(self.socket).await.map_err(|error| self.unreachable(error))?;
        let _ = tcp.set_nodelay(true); // only speed depends on it
        state = self.advance(state, ConnectionEvent::Connected)?;
        let (mut stream, shown) = self.secure(tcp).await?;
        state = self.advance(state, ConnectionEvent::Secured)?;
        let hello = self.greet(&mut stream).await?;
        state = self.advance(state, ConnectionEvent::Greeted)?;
        Ok(Greeted { stream, state, hello, shown })
    }

    async fn secure(&self, tcp: TcpStream) -> Result<(Stream, Option<Shown>), PeerError> {
        let Some(identity) = &self.identity else {
            return Ok((Stream::Plain(Socket::Tcp(tcp)), None));
        };
        let (config, name) = identity.client(self.socket.ip(), self.host_name.as_deref());
        let connected = TlsConnector::from(config).connect(name, Socket::Tcp(tcp)).await;
        let stream = connected.map_err(|error| self.failed(error))?;
        let shown = Shown::on(stream.get_ref().1, Arc::clone(identity));
        Ok((Stream::Tls(Box::new(TlsStream::Client(stream))), Some(shown)))
    }

    /// Exchanges HELLOs. In TLS 1.3 the client is done first: that the server refuses its certificate
    /// shows only here.
    async fn greet(&self, stream: &mut Stream) -> Result<Hello, PeerError> {
        let ours = Hello {
            versions: VersionRange::OURS,
            chunk_size_max: acstor_types::limits::CHUNK_SIZE_MAX,
            features: FEATURES,
            requests_in_flight_max: self.requests_in_flight_max as u32,
            idle_timeout_ms: 0,
        };
        stream.write_all(&ours.encode()).await.map_err(|error| self.failed(error))?;
        stream.flush().await.map_err(|error| self.failed(error))?;
        let (header, body) = self.read_frame(stream).await?;
        let theirs = match header.kind {
            FrameKind::Hello => Hello::decode(&body).map_err(|error| self.protocol_error(error))?,
            FrameKind::Status => {
                let status = header.status.unwrap_or(PeerStatus::Internal);
                return Err(PeerError::Refused { address: self.address.to_owned(), status });
            }
            _ => return Err(self.protocol_error(FrameError::Kind)),
        };
        if VersionRange::OURS.agree(theirs.versions).is_none() {
            return Err(PeerError::Version {
                address: self.address.to_owned(),
                ours: VersionRange::OURS,
                theirs: theirs.versions,
            });
        }
        Ok(theirs)
    }

    async fn read_frame(&self, stream: &mut Stream) -> Result<(Header, Vec<u8>), PeerError> {
        let mut head = [0; HEADER_LEN];
        stream.read_exact(&mut head).await.map_err(|error| self.failed(error))?;
        let header = Header::decode(&head).map_err(|error| self.protocol_error(error))?;
        if header.body_len as usize > HELLO_BODY_LEN_MAX {
            return Err(self.protocol_error(FrameError::Length));
        }
        let mut body = vec![0; header.body_len as usize];
        stream.read_exact(&mut body).await.map_err(|error| self.failed(error))?;
        Ok((header, body))
    }

    /// The error of a socket that was connected.
    fn failed(&self, error: io::Error) -> PeerError {
        match self.identity.as_ref().and_then(|_| TlsFault::of(&error)) {
            Some(fault) => PeerError::Tls { address: self.address.to_owned(), fault },
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.unreachable(io::Error::new(error.kind(), CLOSED_BEFORE_HELLO))
            }
            None => self.unreachable(error),
        }
    }

    fn unreachable(&self, error: io::Error) -> PeerError {
        PeerError::Connect { address: self.address.to_owned(), cause: Arc::new(error) }
    }

    fn protocol_error(&self, error: FrameError) -> PeerError {
        self.unreachable(io::Error::other(error))
    }

    fn advance(
        &self,
        state: ConnectionState,
        event: ConnectionEvent,
    ) -> Result<ConnectionState, PeerError> {
        state
            .after(event)
            .map_err(|error: InvalidTransition| self.unreachable(io::Error::other(error)))
    }
}

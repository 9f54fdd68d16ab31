//! The server's side of TLS and HELLO.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use acstor_net::{Shown, Socket, Stream, TlsFault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::Shared;
use super::admission::Budget;
use super::credentials::Credentials;
use super::handshakes::Handshake;
use super::places::Place;
use crate::connection_state::{ConnectionEvent, ConnectionState};
use crate::frame::{FrameError, FrameKind, HEADER_LEN, Header, Hello};
use crate::{CloseReason, FEATURES, PeerStatus, VersionRange};

/// A connection on which both sides said HELLO.
pub(super) struct Greeted {
    pub(super) stream: Stream,
    pub(super) state: ConnectionState,
    pub(super) place: Place,
    /// The client's host.
    pub(super) host: IpAddr,
    /// Features that both sides know.
    pub(super) features: u64,
}

/// Takes a connection through TLS and HELLO, or says why it ended. Where the server is full, and all are
/// busy, the client is told so: it learns a reason instead of seeing a closed socket.
pub(super) async fn greet(
    shared: &Shared,
    tcp: TcpStream,
    mut handshake: Handshake,
) -> Result<Greeted, CloseReason> {
    let limit = shared.limits.handshake_timeout;
    let steps = async {
        let _ = tcp.set_nodelay(true); // only speed depends on it
        // One that is gone by now will hardly say HELLO.
        let host = tcp.peer_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
        let mut state = ConnectionState::Securing;
        let (mut stream, credentials) = secure(shared, tcp).await?;
        state = advance(state, ConnectionEvent::Secured)?;
        let theirs = read_hello(&mut stream).await?;
        let ours = hello(shared).encode();
        // Before it takes anybody's place.
        if VersionRange::OURS.agree(theirs.versions).is_none() {
            let status = Header::refusal(PeerStatus::Unsupported, 0).encode();
            let last_words = [&ours[..], &status].concat();
            return Err(say_and_close(&mut stream, &last_words, CloseReason::VersionMismatch).await);
        }
        let limits = &shared.limits;
        let budget = Budget::new(limits.connection_requests_max, limits.connection_bytes_max);
        let Some(place) = shared.places.enter(budget, credentials, shared.clock.now()) else {
            let status = Header::refusal(PeerStatus::Overloaded, 0).encode();
            return Err(say_and_close(&mut stream, &status, CloseReason::TooManyConnections).await);
        };
        stream.limit_unsent(limits.unsent_bytes_max);
        stream.write_all(&ours).await.map_err(|_| CloseReason::Io)?;
        stream.flush().await.map_err(|_| CloseReason::Io)?;
        state = advance(state, ConnectionEvent::Greeted)?;
        Ok(Greeted { stream, state, place, host, features: FEATURES & theirs.features })
    };
    tokio::select! {
        greeted = shared.clock.timeout(limit, steps) => {
            greeted.unwrap_or(Err(CloseReason::HandshakeTimeout))
        }
        () = handshake.displaced() => Err(CloseReason::TooManyConnections),
    }
}

async fn secure(
    shared: &Shared,
    tcp: TcpStream,
) -> Result<(Stream, Option<Credentials>), CloseReason> {
    let Some(tls) = &shared.tls else {
        return Ok((Stream::Plain(Socket::Tcp(tcp)), None));
    };
    let peer = tcp.peer_addr().ok();
    let identity = tls.current();
    let acceptor = TlsAcceptor::from(identity.server());
    match acceptor.accept(Socket::Tcp(tcp)).await {
        Ok(stream) => {
            let credentials = Credentials::new(peer, Shown::on(stream.get_ref().1, identity));
            Ok((Stream::Tls(Box::new(TlsStream::Server(stream))), Some(credentials)))
        }
        Err(error) => {
            let fault = TlsFault::of(&error).unwrap_or_else(|| TlsFault::Other(error.to_string()));
            tracing::info!(?peer, %fault, "TLS with a connecting peer failed");
            Err(CloseReason::TlsFailed)
        }
    }
}

async fn read_hello(stream: &mut Stream) -> Result<Hello, CloseReason> {
    let mut head = [0; HEADER_LEN];
    read_all(stream, &mut head).await?;
    let header = Header::decode(&head).map_err(CloseReason::Malformed)?;
    if header.kind != FrameKind::Hello {
        return Err(CloseReason::Malformed(FrameError::Kind));
    }
    let mut body = [0; crate::frame::HELLO_BODY_LEN_MAX];
    let body = &mut body[..header.body_len as usize];
    read_all(stream, body).await?;
    Hello::decode(body).map_err(CloseReason::Malformed)
}

async fn read_all(stream: &mut Stream, buffer: &mut [u8]) -> Result<(), CloseReason> {
    match stream.read_exact(buffer).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(CloseReason::Truncated),
        Err(_) => Err(CloseReason::Io),
    }
}

/// Sends the last bytes of a connection that ends for `reason`.
async fn say_and_close(stream: &mut Stream, bytes: &[u8], reason: CloseReason) -> CloseReason {
    // The client may be gone already; the reason is the same.
    if stream.write_all(bytes).await.is_ok() {
        let _ = stream.shutdown().await;
    }
    reason
}

fn hello(shared: &Shared) -> Hello {
    let idle = shared.limits.idle_timeout.as_millis();
    Hello {
        versions: VersionRange::OURS,
        chunk_size_max: acstor_types::limits::CHUNK_SIZE_MAX,
        features: FEATURES,
        requests_in_flight_max: shared.limits.connection_requests_max as u32,
        idle_timeout_ms: u32::try_from(idle).unwrap_or(u32::MAX),
    }
}

fn advance(state: ConnectionState, event: ConnectionEvent) -> Result<ConnectionState, CloseReason> {
    state.after(event).map_err(|error| {
        tracing::error!(%error, "a server connection took a transition that does not exist");
        CloseReason::Shutdown
    })
}

//! The fixed newstyle handshake: who is there, which export, which extensions.
//!
//! One message at a time, never reading beyond it, so that what follows the last option is left to
//! the transmission. What is kept of a client before it chose the export is one option's data; its
//! length is checked before, and the caller bounds the time.

mod meta_context;
mod negotiation;

use std::io;
use std::sync::Arc;

use acstor_net::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::CloseReason;
use crate::connection_state::{ConnectionEvent, ConnectionState};
use crate::protocol::constants::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, INIT_MAGIC,
    OPT_ABORT, OPT_EXPORT_NAME, OPT_STARTTLS, OPTION_MAGIC, REP_ERR_INVALID, REP_ERR_POLICY,
    REP_ERR_TLS_REQD, REP_ERR_TOO_BIG,
};
use crate::protocol::{
    NAME_LEN_MAX, OPTION_DATA_MAX, OPTION_HEADER_LEN, OptionHeader, OptionReply, ReplyShape,
};
use crate::server::Shared;

pub(crate) use meta_context::{Context, Contexts};
use negotiation::{Negotiation, Step};

/// Options of one handshake; real clients send fewer than ten.
const OPTIONS_MAX: usize = 64;
/// Longest data of an option that is skipped to refuse it in an orderly way.
const SKIP_MAX: u32 = 1 << 20;
/// Zero bytes behind the answer to `OPT_EXPORT_NAME`.
const EXPORT_NAME_PADDING: usize = 124;

/// Result of a handshake: the stream and the agreed options.
pub(crate) struct Agreed {
    pub(crate) stream: Stream,
    pub(crate) state: ConnectionState,
    pub(crate) shape: ReplyShape,
    pub(crate) contexts: Contexts,
}

/// The handshake of one connection.
pub(crate) struct Handshake {
    shared: Arc<Shared>,
    stream: Stream,
    state: ConnectionState,
    wants_no_zeroes: bool,
}

impl Handshake {
    pub(crate) fn new(shared: Arc<Shared>, stream: Stream) -> Handshake {
        Handshake { shared, stream, state: ConnectionState::Greeting, wants_no_zeroes: false }
    }

    /// Takes the connection to transmission, or says why it ended.
    pub(crate) async fn run(mut self) -> Result<Agreed, CloseReason> {
        self.greet().await?;
        let mut negotiation = Negotiation::default();
        for _ in 0..OPTIONS_MAX {
            let header = self.read_header().await?;
            match self.option(header, &mut negotiation).await? {
                Step::Stay(reply) => self.send(reply.as_bytes()).await?,
                Step::Begin(answer) => {
                    // A write of a client that is gone may still be under way; one that it repeats
                    // here must not be overtaken by it.
                    self.shared.export.late_responses().none_left().await;
                    self.send(&answer).await?;
                    self.advance(ConnectionEvent::Chosen)?;
                    return Ok(Agreed {
                        stream: self.stream,
                        state: self.state,
                        shape: negotiation.shape,
                        contexts: negotiation.contexts,
                    });
                }
            }
        }
        Err(CloseReason::HandshakeTimeout)
    }

    async fn greet(&mut self) -> Result<(), CloseReason> {
        let flags = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
        let mut greeting = [0; 18];
        greeting[..8].copy_from_slice(&INIT_MAGIC.to_be_bytes());
        greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        greeting[16..].copy_from_slice(&flags.to_be_bytes());
        self.send(&greeting).await?;
        let mut flags = [0; 4];
        self.read(&mut flags).await?;
        let flags = u32::from_be_bytes(flags);
        // Unknown flags end the connection; without the first one options could not be refused.
        if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0
            || flags & CLIENT_FIXED_NEWSTYLE == 0
        {
            return Err(CloseReason::Malformed);
        }
        self.wants_no_zeroes = flags & CLIENT_NO_ZEROES != 0;
        self.advance(ConnectionEvent::Greeted)
    }

    async fn read_header(&mut self) -> Result<OptionHeader, CloseReason> {
        let mut header = [0; OPTION_HEADER_LEN];
        match self.read(&mut header[..1]).await {
            // Clients that only look leave without a word.
            Err(CloseReason::Truncated) => return Err(CloseReason::ClientClosed),
            other => other?,
        }
        self.read(&mut header[1..]).await?;
        OptionHeader::decode(&header).ok_or(CloseReason::Malformed)
    }

    async fn option(
        &mut self,
        header: OptionHeader,
        negotiation: &mut Negotiation,
    ) -> Result<Step, CloseReason> {
        let reply = OptionReply::new(header.code);
        let must_secure = self.shared.tls.is_some() && !self.stream.is_tls();
        if header.code == OPT_EXPORT_NAME {
            return self.export_name(header, negotiation, must_secure).await;
        }
        if header.len > OPTION_DATA_MAX {
            self.skip(header.len).await?;
            return Ok(Step::Stay(reply.error(REP_ERR_TOO_BIG, "the data is too long")));
        }
        let mut data = vec![0; header.len as usize];
        self.read(&mut data).await?;
        match header.code {
            OPT_ABORT => {
                // The client may be gone already; the outcome is the same.
                let _ = self.send(reply.ack().as_bytes()).await;
                let _ = self.stream.shutdown().await;
                Err(CloseReason::Disconnected)
            }
            OPT_STARTTLS => self.start_tls(reply, &data, negotiation).await,
            _ if must_secure => Ok(Step::Stay(reply.error(REP_ERR_TLS_REQD, "use TLS first"))),
            code => Ok(negotiation.answer(code, &data, &self.shared)),
        }
    }

    /// The one option that cannot be refused but by closing.
    async fn export_name(
        &mut self,
        header: OptionHeader,
        negotiation: &mut Negotiation,
        must_secure: bool,
    ) -> Result<Step, CloseReason> {
        if header.len as usize > NAME_LEN_MAX {
            return Err(CloseReason::HandshakeRefused);
        }
        let mut name = vec![0; header.len as usize];
        self.read(&mut name).await?;
        let export = &self.shared.export;
        if must_secure || !self.shared.is_called(&name) {
            return Err(CloseReason::HandshakeRefused);
        }
        let flags = export.flags(negotiation.shape, negotiation.contexts.any());
        let mut answer = Vec::with_capacity(10 + EXPORT_NAME_PADDING);
        answer.extend_from_slice(&export.device().size_bytes().to_be_bytes());
        answer.extend_from_slice(&flags.to_be_bytes());
        if !self.wants_no_zeroes {
            answer.resize(answer.len() + EXPORT_NAME_PADDING, 0);
        }
        Ok(Step::Begin(answer))
    }

    async fn start_tls(
        &mut self,
        reply: OptionReply,
        data: &[u8],
        negotiation: &mut Negotiation,
    ) -> Result<Step, CloseReason> {
        let Some(tls) = &self.shared.tls else {
            return Ok(Step::Stay(reply.error(REP_ERR_POLICY, "this server has no TLS")));
        };
        if !data.is_empty() || self.stream.is_tls() {
            return Ok(Step::Stay(reply.error(REP_ERR_INVALID, "TLS is up, or data is given")));
        }
        let acceptor = TlsAcceptor::from(tls.config());
        self.send(reply.ack().as_bytes()).await?;
        self.advance(ConnectionEvent::TlsAccepted)?;
        self.secure(acceptor).await?;
        self.advance(ConnectionEvent::Secured)?;
        // What was agreed in the clear does not count.
        *negotiation = Negotiation::default();
        Ok(Step::Stay(OptionReply::new(OPT_STARTTLS)))
    }

    async fn secure(&mut self, acceptor: TlsAcceptor) -> Result<(), CloseReason> {
        // The stream moves into TLS; a closed pair stands in for it meanwhile.
        let (placeholder, _) = tokio::net::UnixStream::pair().map_err(|_| CloseReason::Io)?;
        let placeholder = Stream::Plain(acstor_net::Socket::Unix(placeholder));
        let Stream::Plain(socket) = std::mem::replace(&mut self.stream, placeholder) else {
            return Err(CloseReason::TlsFailed);
        };
        match acceptor.accept(socket).await {
            Ok(stream) => {
                self.stream = Stream::Tls(Box::new(TlsStream::Server(stream)));
                Ok(())
            }
            Err(error) => {
                tracing::info!(%error, "TLS with an NBD client failed");
                Err(CloseReason::TlsFailed)
            }
        }
    }

    async fn skip(&mut self, len: u32) -> Result<(), CloseReason> {
        if len > SKIP_MAX {
            return Err(CloseReason::Malformed);
        }
        let mut left = len as usize;
        let mut scratch = [0; 4096];
        while left > 0 {
            let piece = left.min(scratch.len());
            self.read(&mut scratch[..piece]).await?;
            left -= piece;
        }
        Ok(())
    }

    async fn read(&mut self, buffer: &mut [u8]) -> Result<(), CloseReason> {
        match self.stream.read_exact(buffer).await {
            Ok(_) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                ) =>
            {
                Err(CloseReason::Truncated)
            }
            Err(_) => Err(CloseReason::Io),
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        let outcome = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match outcome.await {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => Err(CloseReason::ClientClosed),
            Err(_) => Err(CloseReason::Io),
        }
    }

    fn advance(&mut self, event: ConnectionEvent) -> Result<(), CloseReason> {
        match self.state.after(event) {
            Ok(state) => {
                self.state = state;
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "an NBD connection took a transition that does not exist");
                Err(CloseReason::Aborted)
            }
        }
    }
}

/// Returns whether an error only says that the other side closed.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

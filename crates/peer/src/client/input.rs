//! Receives answers: payloads go from the socket straight into a buffer of their own size.
//!
//! The receive that completes a payload also asks for what follows it, so that a busy connection needs
//! one system call per chunk and no copy of it.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use acstor_net::Stream;

use super::buffers::BufferPool;
use super::pending::{Answer, PendingTable};
use crate::compression::WireChunk;
use crate::frame::{FrameError, FrameKind, HEADER_LEN, Header, ToldLoad};
use crate::{CloseReason, FEATURE_LOAD, PeerStatus};

/// Bytes taken beyond a payload: some headers, and at most this much of the next payload is copied.
const STAGING_CAPACITY: usize = 512;

/// Something that came from the server.
pub(super) enum Event {
    /// The answer to a request, with the load that it told.
    Answer(u64, Answer, ToldLoad),
    /// The answer to a PING, with the load that it told.
    Pong(ToldLoad),
    /// No more requests, please.
    Goodbye,
}

/// An answer of which a part came.
struct Payload {
    request_id: u64,
    kind: FrameKind,
    bytes: Vec<u8>,
    len: usize,
    load: ToldLoad,
}

impl Payload {
    fn missing(&self) -> usize {
        self.len - self.bytes.len()
    }
}

/// The receiving half of a connection.
pub(super) struct Input {
    /// Bytes after the last payload that are not looked at yet.
    staging: Vec<u8>,
    payload: Option<Payload>,
    /// Bytes received since the beginning.
    received: u64,
    buffers: Arc<BufferPool>,
    /// Features that both sides know.
    features: u64,
}

impl Input {
    pub(super) fn new(buffers: Arc<BufferPool>, features: u64) -> Input {
        let staging = Vec::with_capacity(STAGING_CAPACITY);
        Input { staging, payload: None, received: 0, buffers, features }
    }

    /// Bytes received since the beginning.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the next event; `pending` says which answers are expected and how large they are.
    pub(super) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        pending: &PendingTable,
    ) -> Poll<Result<Event, CloseReason>> {
        loop {
            if let Some(event) = self.take_event(pending)? {
                return Poll::Ready(Ok(event));
            }
            ready!(self.poll_receive(cx, stream))?;
        }
    }

    /// Returns an event that can be had from the bytes at hand.
    fn take_event(&mut self, pending: &PendingTable) -> Result<Option<Event>, CloseReason> {
        if let Some(payload) = self.payload.take_if(|payload| payload.missing() == 0) {
            let bytes = self.buffers.share(payload.bytes);
            let answer = match payload.kind {
                FrameKind::Compressed => WireChunk::Compressed(bytes),
                _ => WireChunk::Plain(bytes),
            };
            return Ok(Some(Event::Answer(payload.request_id, Ok(answer), payload.load)));
        }
        if self.payload.is_some() {
            return Ok(None);
        }
        let Some(head) = self.staging.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = Header::decode(head).map_err(CloseReason::Malformed)?;
        self.staging.drain(..HEADER_LEN);
        if header.load != ToldLoad::default() && self.features & FEATURE_LOAD == 0 {
            return Err(CloseReason::Malformed(FrameError::Reserved));
        }
        match header.kind {
            FrameKind::Data
            | FrameKind::Held
            | FrameKind::Compressed
            | FrameKind::Joined
            | FrameKind::Hinted
            | FrameKind::Grouped => {
                self.begin_payload(&header, pending)?;
                self.take_event(pending)
            }
            FrameKind::Status => {
                let status = header.status.unwrap_or(PeerStatus::Internal);
                if pending.get(header.request_id).is_none() {
                    return Err(CloseReason::UnexpectedAnswer);
                }
                Ok(Some(Event::Answer(header.request_id, Err(status), header.load)))
            }
            FrameKind::Pong => Ok(Some(Event::Pong(header.load))),
            FrameKind::Goodbye => Ok(Some(Event::Goodbye)),
            FrameKind::Hello
            | FrameKind::Ping
            | FrameKind::Get
            | FrameKind::Holds
            | FrameKind::Class
            | FrameKind::Join
            | FrameKind::Hint
            | FrameKind::Group
            | FrameKind::Unknown(_) => Err(CloseReason::Malformed(FrameError::Kind)),
        }
    }

    /// Reserves the buffer of an answer, after its size was found to be one that may come.
    fn begin_payload(
        &mut self,
        header: &Header,
        pending: &PendingTable,
    ) -> Result<(), CloseReason> {
        let asked = pending.get(header.request_id);
        let asked = asked.filter(|pending| pending.allows(header.kind, header.body_len));
        let Some(pending) = asked else { return Err(CloseReason::UnexpectedAnswer) };
        let len = header.body_len as usize;
        // What is compressed gets a buffer as long as the chunk: those can be used again.
        let mut bytes = self.buffers.take(pending.expected.1 as usize);
        let at_hand = self.staging.len().min(len);
        bytes.extend_from_slice(&self.staging[..at_hand]);
        self.staging.drain(..at_hand);
        let Header { kind, request_id, load, .. } = *header;
        self.payload = Some(Payload { request_id, kind, bytes, len, load });
        Ok(())
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<Result<(), CloseReason>> {
        let missing = self.payload.as_ref().map_or(0, Payload::missing);
        let first: &mut [MaybeUninit<u8>] = match &mut self.payload {
            Some(payload) => &mut payload.bytes.spare_capacity_mut()[..missing],
            None => &mut [],
        };
        let second = self.staging.spare_capacity_mut();
        let len = match ready!(stream.poll_receive(cx, first, second)) {
            Ok(0) => return Poll::Ready(Err(self.end_of_stream())),
            Ok(len) => len,
            Err(error) => return Poll::Ready(Err(self.socket_failed(&error))),
        };
        self.received += len as u64;
        let to_payload = len.min(missing);
        if let Some(payload) = &mut self.payload {
            // SAFETY: poll_receive initialised the first `to_payload` bytes of the spare capacity.
            unsafe { payload.bytes.set_len(payload.bytes.len() + to_payload) };
        }
        // SAFETY: poll_receive initialised the first `len - to_payload` bytes of the spare capacity.
        unsafe { self.staging.set_len(self.staging.len() + len - to_payload) };
        Poll::Ready(Ok(()))
    }

    fn end_of_stream(&self) -> CloseReason {
        if self.payload.is_some() || !self.staging.is_empty() {
            CloseReason::Truncated
        } else {
            CloseReason::PeerClosed
        }
    }

    fn socket_failed(&self, error: &io::Error) -> CloseReason {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => self.end_of_stream(),
            io::ErrorKind::InvalidData => CloseReason::TlsFailed,
            _ => CloseReason::Io,
        }
    }
}

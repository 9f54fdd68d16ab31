//! The frames that wait to be written, and vectored writes of many of them at once.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use acstor_net::Stream;
use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::admission::Permit;
use crate::PeerStatus;
use crate::compression::WireChunk;
use crate::frame::{FrameKind, HEADER_LEN, Header, ToldLoad};

/// Pieces handed to the kernel with one call: headers and payloads of 32 frames.
const SLICES_MAX: usize = 64;

/// A frame in the queue. Its permit is held until its last byte is written, so that a peer that
/// does not read uses up its own budget.
struct Outgoing {
    header: [u8; HEADER_LEN],
    payload: Bytes,
    _permit: Option<Permit>,
}

impl Outgoing {
    fn len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }
}

/// The frames that wait to be written.
#[derive(Default)]
pub(super) struct Output {
    frames: VecDeque<Outgoing>,
    /// Bytes of the first frame that are written.
    written: usize,
    /// True if the stream may hold bytes that it has not given to the socket.
    unflushed: bool,
}

impl Output {
    pub(super) fn push_chunk(
        &mut self,
        request_id: u64,
        chunk: WireChunk,
        (permit, load): (Permit, ToldLoad),
    ) {
        let (kind, payload) = match chunk {
            WireChunk::Plain(chunk) => (FrameKind::Data, chunk),
            WireChunk::Compressed(body) => (FrameKind::Compressed, body),
        };
        let header = Header::new(kind, payload.len() as u32, request_id);
        let header = Header { load, ..header }.encode();
        self.frames.push_back(Outgoing { header, payload, _permit: Some(permit) });
    }

    pub(super) fn push_held(
        &mut self,
        request_id: u64,
        held: Vec<u8>,
        (permit, load): (Permit, ToldLoad),
    ) {
        let header = Header::new(FrameKind::Held, held.len() as u32, request_id);
        let header = Header { load, ..header }.encode();
        self.frames.push_back(Outgoing { header, payload: held.into(), _permit: Some(permit) });
    }

    /// Answers with a body that tells no load.
    pub(super) fn push_small(
        &mut self,
        kind: FrameKind,
        request_id: u64,
        body: Vec<u8>,
        permit: Permit,
    ) {
        let header = Header::new(kind, body.len() as u32, request_id).encode();
        self.frames.push_back(Outgoing { header, payload: body.into(), _permit: Some(permit) });
    }

    pub(super) fn push_status(&mut self, request_id: u64, status: PeerStatus) {
        self.push_header(Header::refusal(status, request_id));
    }

    pub(super) fn push_header(&mut self, header: Header) {
        let header = header.encode();
        self.frames.push_back(Outgoing { header, payload: Bytes::new(), _permit: None });
    }

    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && !self.unflushed
    }

    /// Writes what the stream takes; returns the number of frames completed, or `Pending` when the
    /// stream takes no more and frames are left.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<io::Result<usize>> {
        let mut completed = 0;
        while !self.frames.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.gather(&mut slices);
            match stream.poll_send(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(len)) => {
                    self.unflushed = true;
                    completed += self.advance(len);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if completed > 0 => return Poll::Ready(Ok(completed)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.unflushed {
            match Pin::new(stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if completed == 0 => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(Ok(completed))
    }

    /// Fills `slices` with the unwritten pieces of the first frames; returns how many there are.
    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        let mut skip = self.written;
        for frame in &self.frames {
            for piece in [&frame.header[..], &frame.payload[..]] {
                let skipped = skip.min(piece.len());
                skip -= skipped;
                if skipped < piece.len() {
                    slices[count] = IoSlice::new(&piece[skipped..]);
                    count += 1;
                    if count == SLICES_MAX {
                        return count;
                    }
                }
            }
        }
        count
    }

    /// Notes that `len` more bytes are written; returns the number of frames completed.
    fn advance(&mut self, len: usize) -> usize {
        let mut completed = 0;
        self.written += len;
        while let Some(first) = self.frames.front() {
            if self.written < first.len() {
                break;
            }
            self.written -= first.len();
            self.frames.pop_front();
            completed += 1;
        }
        completed
    }
}

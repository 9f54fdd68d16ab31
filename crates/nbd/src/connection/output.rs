//! The answers that wait to be sent, and system calls that send many of them at once.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use acstor_net::Stream;
use acstor_overlay::Piece;
use acstor_readpath::Segment;
use tokio::io::AsyncWrite;

use super::Request;
use crate::protocol::Head;
use crate::residency;

/// Pieces handed to the kernel with one call.
const PIECES_MAX: usize = 128;
/// Zeros for answers that must spell them out. Never written, so it takes one page of memory.
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
const ZEROS_BYTES: usize = 256 << 10;

/// The end of an answer.
#[derive(Debug)]
pub(super) struct ReplyEnd {
    pub(super) request: Request,
    pub(super) is_error: bool,
}

#[derive(Debug)]
enum Part {
    Head(Head),
    Piece(Piece),
    End(ReplyEnd),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Head(head) => head.as_bytes().len(),
            Part::Piece(piece) => piece.len(),
            Part::End(_) => 0,
        }
    }
}

/// Reason for which an answer cannot be sent as it is.
#[derive(Debug)]
pub(super) enum SendError {
    /// Memory has no more what is to be sent next: it must be read another way.
    Lost,
    /// The kernel found no page behind something that is mapped.
    Fault,
    /// The stream's.
    Stream(io::Error),
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> SendError {
        match error.raw_os_error() {
            Some(libc::EFAULT) => SendError::Fault,
            _ => SendError::Stream(error),
        }
    }
}

/// The answers that wait to be sent.
#[derive(Default)]
pub(super) struct Output {
    parts: VecDeque<Part>,
    /// Bytes of the first part that are sent.
    sent: usize,
    /// True if the stream may hold bytes that it has not given to the socket.
    unflushed: bool,
    /// Some of it has waited, for the client or for the disk: memory may have lost what it had of it.
    is_delayed: bool,
}

impl Output {
    pub(super) fn push_head(&mut self, head: Head) {
        self.parts.push_back(Part::Head(head));
    }

    pub(super) fn push_piece(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.parts.push_back(Part::Piece(piece));
        }
    }

    pub(super) fn push_end(&mut self, end: ReplyEnd) {
        self.parts.push_back(Part::End(end));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.unflushed
    }

    /// Sends what the stream takes; returns the number of bytes, or `Pending` when it takes none.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<Result<usize, SendError>> {
        let mut total = 0;
        loop {
            let mut pieces = [EMPTY; PIECES_MAX];
            let count = self.gather(&mut pieces);
            if count == 0 {
                if self.is_front_lost() {
                    return Poll::Ready(Err(SendError::Lost));
                }
                self.is_delayed = false;
                break;
            }
            // SAFETY: the parts keep the memory alive over the call. On a TLS stream no part is a
            // mapping: reads are copied for it.
            match unsafe { stream.poll_send_pieces(cx, &pieces[..count]) } {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(SendError::Stream(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Ok(len)) => {
                    self.unflushed = stream.is_tls();
                    self.sent += len;
                    total += len;
                    self.drop_sent();
                    // Answers that are sent whole free room for requests: let the caller know.
                    if matches!(self.parts.front(), Some(Part::End(_))) {
                        break;
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    self.is_delayed = true;
                    return if total > 0 { Poll::Ready(Ok(total)) } else { Poll::Pending };
                }
            }
        }
        if self.unflushed {
            match Pin::new(stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending if total == 0 => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(Ok(total))
    }

    /// Returns the next answer that was sent whole.
    pub(super) fn next_ended(&mut self) -> Option<ReplyEnd> {
        self.drop_sent();
        match self.parts.pop_front() {
            Some(Part::End(end)) => Some(end),
            Some(part) => {
                self.parts.push_front(part);
                None
            }
            None => None,
        }
    }

    /// Notes that pieces have waited since somebody looked whether memory has them.
    pub(super) fn note_delay(&mut self) {
        self.is_delayed = true;
    }

    /// Tells the store that a chunk is gone that it takes for being in memory. Which of the answers has
    /// it is not known, so each is looked at again before it is sent.
    pub(super) fn note_fault(&mut self) {
        self.is_delayed = true;
        residency::note_fault(self.parts.iter().filter_map(|part| match part {
            Part::Piece(piece) => Some(piece),
            Part::Head(_) | Part::End(_) => None,
        }));
    }

    /// Takes the pieces of the first answer, to be read another way. Nothing may be sent until
    /// [`Output::put_first_answer`] has brought them back.
    pub(super) fn take_first_answer(&mut self) -> Vec<Piece> {
        let placeholder = |piece: &Piece| Piece::Base(Segment::Zeros(piece.len()));
        self.first_answer().map(|piece| std::mem::replace(piece, placeholder(piece))).collect()
    }

    /// Gives the first answer its pieces back, in their order and of the same lengths.
    pub(super) fn put_first_answer(&mut self, pieces: Vec<Piece>) {
        self.is_delayed = true;
        for (place, piece) in self.first_answer().zip(pieces) {
            debug_assert_eq!(place.len(), piece.len());
            *place = piece;
        }
    }

    fn first_answer(&mut self) -> impl Iterator<Item = &mut Piece> {
        let parts = self.parts.iter_mut().take_while(|part| !matches!(part, Part::End(_)));
        parts.filter_map(|part| match part {
            Part::Piece(piece) => Some(piece),
            Part::Head(_) | Part::End(_) => None,
        })
    }

    /// Drops the parts at the front that are sent, up to the end of an answer.
    fn drop_sent(&mut self) {
        while let Some(part) = self.parts.front() {
            if matches!(part, Part::End(_)) || self.sent < part.len() {
                break;
            }
            self.sent -= part.len();
            self.parts.pop_front();
        }
    }

    /// Returns whether the kernel would have to read a piece anew, which nobody would compare.
    fn is_lost(&self, piece: &Piece) -> bool {
        self.is_delayed && residency::is_in_file(piece) && !residency::is_at_hand(piece)
    }

    fn is_front_lost(&self) -> bool {
        let mut pieces = self.parts.iter().filter_map(|part| match part {
            Part::Piece(piece) => Some(piece),
            Part::Head(_) | Part::End(_) => None,
        });
        pieces.next().is_some_and(|piece| self.is_lost(piece))
    }

    /// Fills `pieces` with what is to be sent next; returns how many there are.
    fn gather(&self, pieces: &mut [libc::iovec; PIECES_MAX]) -> usize {
        let mut count = 0;
        let mut skip = self.sent;
        for part in &self.parts {
            match part {
                Part::Head(head) => push(pieces, &mut count, head.as_bytes(), &mut skip),
                Part::End(_) => {}
                Part::Piece(Piece::Base(Segment::Bytes(bytes))) => {
                    push(pieces, &mut count, bytes, &mut skip);
                }
                Part::Piece(Piece::Base(Segment::Zeros(len))) => {
                    push_zeros(pieces, &mut count, *len, &mut skip);
                }
                Part::Piece(piece) if self.is_lost(piece) => break,
                Part::Piece(piece) => {
                    if let Some((start, len)) = residency::mapped(piece) {
                        push_raw(pieces, &mut count, start, len, &mut skip);
                    }
                }
            }
            if count == PIECES_MAX {
                break;
            }
        }
        count
    }
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn push(pieces: &mut [libc::iovec], count: &mut usize, bytes: &[u8], skip: &mut usize) {
    push_raw(pieces, count, bytes.as_ptr(), bytes.len(), skip);
}

fn push_zeros(pieces: &mut [libc::iovec], count: &mut usize, len: usize, skip: &mut usize) {
    let mut left = len;
    while left > 0 && *count < pieces.len() {
        let piece = left.min(ZEROS_BYTES);
        push(pieces, count, &ZEROS[..piece], skip);
        left -= piece;
    }
}

/// Adds a range to `pieces`, without the first `skip` bytes. There is room for one.
fn push_raw(
    pieces: &mut [libc::iovec],
    count: &mut usize,
    start: *const u8,
    len: usize,
    skip: &mut usize,
) {
    let skipped = (*skip).min(len);
    *skip -= skipped;
    if skipped < len {
        let start = start.wrapping_add(skipped).cast_mut().cast();
        pieces[*count] = libc::iovec { iov_base: start, iov_len: len - skipped };
        *count += 1;
    }
}

//! Received bytes that are not handled yet, and the progress of the request at hand.

use std::mem::MaybeUninit;

use bytes::BytesMut;

use super::Request;
use crate::protocol::Refusal;

/// Bytes of requests received with one call.
const INPUT_CAPACITY: usize = 64 << 10;

/// Bytes received at most behind a long payload: the next header, and little of the next payload, which
/// would have to be copied from here.
const BEHIND_LONG_PAYLOAD: usize = 4 << 10;
/// A payload from which on copying it costs more than receiving in more calls.
const LONG_PAYLOAD: usize = 32 << 10;

/// Bytes received; those before `handled` are done with.
pub(super) struct Input {
    bytes: Vec<u8>,
    handled: usize,
    /// True if the last payload was a long one; the next is then likely to be one too.
    is_narrow: bool,
}

impl Input {
    pub(super) fn new() -> Input {
        Input { bytes: Vec::with_capacity(INPUT_CAPACITY), handled: 0, is_narrow: false }
    }

    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.handled..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.handled == self.bytes.len()
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.handled += len;
    }

    /// Moves what is pending, at most a part of a header, to the front.
    pub(super) fn compact(&mut self) {
        self.bytes.drain(..self.handled);
        self.handled = 0;
    }

    /// Takes note of a payload of `len` bytes, or of a request without one.
    pub(super) fn note_payload(&mut self, len: usize) {
        self.is_narrow = len >= LONG_PAYLOAD;
    }

    /// Returns the memory into which the next bytes go.
    pub(super) fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = self.bytes.spare_capacity_mut();
        let len = if self.is_narrow { room.len().min(BEHIND_LONG_PAYLOAD) } else { room.len() };
        &mut room[..len]
    }

    /// # Safety
    /// The first `len` bytes of the room are initialised.
    pub(super) unsafe fn received(&mut self, len: usize) {
        debug_assert!(len <= self.bytes.capacity() - self.bytes.len());
        // SAFETY: the caller initialised them.
        unsafe { self.bytes.set_len(self.bytes.len() + len) };
    }
}

/// Progress of the request at hand.
pub(super) enum Stage {
    /// Its header is awaited.
    Header,
    /// It waits for room and for its turn by the export's rates.
    Admission {
        request: Request,
        /// True if it was counted against the rates.
        is_charged: bool,
    },
    /// Its payload is awaited, `len` bytes.
    Payload { request: Request, payload: BytesMut, len: usize },
    /// It is refused; the rest of its payload is skipped, then the answer is given.
    Skipping { request: Request, refusal: Refusal, left: u64 },
}

impl Stage {
    /// Room for what is missing of a payload.
    pub(super) fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        match self {
            Stage::Payload { payload, len, .. } => {
                let missing = *len - payload.len();
                &mut payload.spare_capacity_mut()[..missing]
            }
            _ => &mut [],
        }
    }

    /// Takes note of `len` received bytes, or as many as belong to the payload; returns how many.
    ///
    /// # Safety
    /// The first `len` bytes of the room are initialised, or all of it when `len` is more.
    pub(super) unsafe fn received(&mut self, len: usize) -> usize {
        match self {
            Stage::Payload { payload, len: whole, .. } => {
                let taken = len.min(*whole - payload.len());
                // SAFETY: the caller initialised them.
                unsafe { payload.set_len(payload.len() + taken) };
                taken
            }
            _ => 0,
        }
    }
}

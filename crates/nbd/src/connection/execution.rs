//! Carrying requests out, and their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};

use acstor_overlay::{BlockDevice, DeviceError, DeviceErrorKind, Done, Piece, TryRead, ZeroHow};
use acstor_readpath::Segment;
use bytes::Bytes;

use super::output::ReplyEnd;
use super::spare_payload::SparePayload;
use super::status_reply::{self, Question};
use super::waiting::Outcome;
use super::{Connection, Request, read_reply};
use crate::CloseReason;
use crate::handshake::Context;
use crate::protocol::{
    Command, Errno, Refusal, ReplyShape, ReplyTo, StatusFilter, check_status_range,
};
use crate::residency;
use crate::server::Shared;
use crate::stats::add;

/// Longest text of an error, bytes.
const MESSAGE_LEN_MAX: usize = 1024;

impl Connection {
    /// Carries out a request whose payload is there. The device is called here and now, so that it
    /// sees the requests in their order; only the outcome may come later.
    pub(super) fn execute(
        &mut self,
        cx: &mut TaskContext<'_>,
        request: Request,
        payload: Bytes,
    ) -> Result<(), CloseReason> {
        let device = Arc::clone(self.shared.export.device());
        match request.command {
            Command::Read { offset, len, .. } => self.read(cx, &request, offset, len),
            Command::BlockStatus { .. } => {
                self.prepare_status(&request, &*device, payload);
                Ok(())
            }
            Command::Nothing | Command::Disconnect => {
                self.push_done(&request);
                Ok(())
            }
            Command::Write { offset, fua, .. } => {
                let held = SparePayload::hold(&payload);
                let done = device.write(offset, payload, fua);
                self.spare.put_back(held);
                self.finish(cx, &request, done)
            }
            Command::WriteZeroes { offset, len, fua, may_unmap, only_fast } => {
                let how = ZeroHow { fua, may_unmap, only_fast };
                self.finish(cx, &request, device.write_zeroes(offset, len, how))
            }
            Command::Trim { offset, len, fua } => {
                self.finish(cx, &request, device.trim(offset, len, fua))
            }
            Command::Flush => self.finish(cx, &request, device.flush()),
            Command::Cache { offset, len } => {
                self.finish(cx, &request, device.prefetch(offset, len))
            }
        }
    }

    /// Answers the requests that waited and are done.
    pub(super) fn collect_answers(
        &mut self,
        cx: &mut TaskContext<'_>,
    ) -> Result<bool, CloseReason> {
        let mut progressed = false;
        while let Some((request, outcome)) = self.waiting.poll_next(cx) {
            progressed = true;
            match outcome {
                Outcome::Pieces(pieces) => {
                    self.output.note_delay();
                    self.push_read(&request, pieces)?;
                }
                Outcome::Prepared(payload) => {
                    let device = Arc::clone(self.shared.export.device());
                    self.block_status(&request, &*device, &payload);
                }
                Outcome::Done(outcome) => self.push_outcome(&request, outcome)?,
                Outcome::Failed => {
                    let message = "the data plane failed; its log says why";
                    self.push_refusal(&request, Refusal { errno: Errno::Io, message });
                }
            }
        }
        Ok(progressed)
    }

    fn read(
        &mut self,
        cx: &mut TaskContext<'_>,
        request: &Request,
        offset: u64,
        len: usize,
    ) -> Result<(), CloseReason> {
        if let Some(usage) = &self.usage {
            usage.arrived(offset, len);
        }
        let must_copy = self.stream.is_tls();
        let pieces = match self.shared.export.device().try_read(offset, len) {
            Ok(TryRead::Ready(pieces)) if is_at_hand(&pieces, must_copy) => {
                return self.push_read(request, Ok(pieces));
            }
            Ok(TryRead::Ready(pieces)) => Some(pieces),
            Ok(TryRead::WouldWait) => None,
            Err(error) => return self.push_read(request, Err(error)),
        };
        let shared = Arc::clone(&self.shared);
        let mut outcome = Box::pin(async move {
            Outcome::Pieces(fetch(&shared, pieces, offset, len, must_copy).await)
        });
        match outcome.as_mut().poll(cx) {
            Poll::Ready(Outcome::Pieces(pieces)) => self.push_read(request, pieces),
            Poll::Ready(_) => Ok(()),
            Poll::Pending => {
                self.waiting.spawn(*request, self.lease.loan(), outcome);
                Ok(())
            }
        }
    }

    /// Answers now, or once the device is done.
    fn finish(
        &mut self,
        cx: &mut TaskContext<'_>,
        request: &Request,
        done: Done<()>,
    ) -> Result<(), CloseReason> {
        let (mut future, is_applied) = match done {
            Done::Now(outcome) => return self.push_outcome(request, outcome),
            Done::Later(future) => (future, false),
            Done::Applied(future) => (future, true),
        };
        if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
            return self.push_outcome(request, outcome);
        }
        let outcome = async move { Outcome::Done(future.await) };
        if is_applied {
            // An answer may take as long as an outage of the origin: its bytes are not here then.
            self.lease.give_back(request.memory);
            self.waiting.spawn_applied(Request { memory: 0, ..*request }, outcome);
        } else {
            self.waiting.spawn(*request, self.lease.loan(), outcome);
        }
        Ok(())
    }

    /// Answers a question about a range, now or once the device knows.
    fn prepare_status(&mut self, request: &Request, device: &dyn BlockDevice, payload: Bytes) {
        let Command::BlockStatus { offset, len, is_one, is_filtered } = request.command else {
            return;
        };
        let filter = if is_filtered { StatusFilter::decode(&payload) } else { None };
        let len = filter.map_or(len, |filter| filter.length);
        let max = status_reply::extents_max(is_one);
        let asks = self.contexts.iter().any(|context| context == Context::Allocation);
        let preparing = if asks { device.prepare_extents(offset, len, max) } else { None };
        let Some(preparing) = preparing else {
            return self.block_status(request, device, &payload);
        };
        let outcome = async move {
            if let Err(error) = preparing.await {
                tracing::debug!(%error, offset, len, "what is not known counts as data");
            }
            Outcome::Prepared(payload)
        };
        self.waiting.spawn(*request, self.lease.loan(), outcome);
    }

    fn block_status(&mut self, request: &Request, device: &dyn BlockDevice, payload: &[u8]) {
        let Command::BlockStatus { offset, mut len, is_one, is_filtered } = request.command else {
            return;
        };
        let mut contexts = self.contexts;
        if is_filtered {
            let filter = StatusFilter::decode(payload);
            let wanted = filter.and_then(|filter| {
                len = filter.length;
                contexts.filter(&filter.contexts)
            });
            let Some(wanted) = wanted.filter(|wanted| wanted.any()) else {
                let message = "no list of selected contexts";
                return self.push_refusal(request, Refusal { errno: Errno::Invalid, message });
            };
            if let Err(refusal) = check_status_range(offset, len, &self.rules()) {
                return self.push_refusal(request, refusal);
            }
            contexts = wanted;
        }
        let is_extended = self.shape == ReplyShape::Extended;
        let question = Question { offset, len, is_one, is_extended };
        let to = ReplyTo::new(self.shape, &request.header);
        let mut contexts = contexts.iter().peekable();
        while let Some(context) = contexts.next() {
            let extents = status_reply::extents(device, question, context);
            let chunk = to.status(context.id(), &extents, contexts.peek().is_none());
            self.output.push_piece(Piece::Base(Segment::Bytes(Bytes::from(chunk))));
        }
        self.output.push_end(ReplyEnd { request: *request, is_error: false });
    }

    fn push_read(
        &mut self,
        request: &Request,
        pieces: Result<Vec<Piece>, DeviceError>,
    ) -> Result<(), CloseReason> {
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) => return self.push_error(request, &error),
        };
        let Command::Read { offset, len, is_whole } = request.command else { return Ok(()) };
        if pieces.iter().map(Piece::len).sum::<usize>() != len {
            tracing::error!(offset, len, "a device returned another number of bytes");
            let message = "the device returned another number of bytes";
            self.push_refusal(request, Refusal { errno: Errno::Io, message });
            return Ok(());
        }
        let to = ReplyTo::new(self.shape, &request.header);
        read_reply::push(&mut self.output, to, offset, pieces, is_whole);
        self.output.push_end(ReplyEnd { request: *request, is_error: false });
        Ok(())
    }

    fn push_outcome(
        &mut self,
        request: &Request,
        outcome: Result<(), DeviceError>,
    ) -> Result<(), CloseReason> {
        match outcome {
            Ok(()) => {
                self.push_done(request);
                Ok(())
            }
            Err(error) => self.push_error(request, &error),
        }
    }

    fn push_done(&mut self, request: &Request) {
        let to = ReplyTo::new(self.shape, &request.header);
        self.output.push_head(to.done());
        self.output.push_end(ReplyEnd { request: *request, is_error: false });
    }

    fn push_error(&mut self, request: &Request, error: &DeviceError) -> Result<(), CloseReason> {
        // The guest would see ESHUTDOWN as a broken disk; a client that is cut off asks the next
        // process again.
        let is_leaving = self.is_draining() || self.shared.is_stopping.load(Ordering::Acquire);
        if error.kind == DeviceErrorKind::Shutdown && is_leaving {
            return Err(CloseReason::DeviceClosed);
        }
        // Counted; a device that fails would fill the log.
        tracing::debug!(%error, "an NBD request failed");
        self.push_failure(request, Errno::from(error), &error.message);
        Ok(())
    }

    pub(super) fn push_refusal(&mut self, request: &Request, refusal: Refusal) {
        self.push_failure(request, refusal.errno, refusal.message);
    }

    fn push_failure(&mut self, request: &Request, errno: Errno, message: &str) {
        let to = ReplyTo::new(self.shape, &request.header);
        let mut len = message.len().min(MESSAGE_LEN_MAX);
        while !message.is_char_boundary(len) {
            len -= 1;
        }
        self.output.push_head(to.error(errno, len as u16));
        if to.shape != ReplyShape::Simple {
            let text = Bytes::copy_from_slice(&message.as_bytes()[..len]);
            self.output.push_piece(Piece::Base(Segment::Bytes(text)));
        }
        self.output.push_end(ReplyEnd { request: *request, is_error: true });
    }
}

/// Returns whether pieces can be sent now without waiting for the disk.
fn is_at_hand(pieces: &[Piece], must_copy: bool) -> bool {
    if must_copy {
        !pieces.iter().any(residency::is_in_file)
    } else {
        residency::is_resident(pieces)
    }
}

/// Brings the bytes of a read to memory, from `pieces` if the device had them. Twice: reading a
/// damaged chunk drops it from the store, and the second time its bytes come from elsewhere.
async fn fetch(
    shared: &Shared,
    pieces: Option<Vec<Piece>>,
    offset: u64,
    len: usize,
    must_copy: bool,
) -> Result<Vec<Piece>, DeviceError> {
    let device = shared.export.device();
    let mut at_hand = pieces;
    let mut fault = None;
    for _ in 0..2 {
        let pieces = match at_hand.take() {
            Some(pieces) => pieces,
            None => device.read(offset, len).await?,
        };
        match shared.page_reader.bring(pieces, must_copy, &shared.counters).await {
            Ok(pieces) => return Ok(pieces),
            Err(error) => fault = Some(error),
        }
        add(&shared.counters.mapped_faults, 1);
    }
    let reason = fault.map_or_else(String::new, |error| format!(": {error}"));
    let message = format!("{len} bytes at {offset} cannot be read from this host's disk{reason}");
    Err(DeviceError::new(DeviceErrorKind::Io, message))
}

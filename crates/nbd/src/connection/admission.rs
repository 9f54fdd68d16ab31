//! From received bytes to requests that may be carried out: checks, limits, payloads.

use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;

use super::input::Stage;
use super::{Connection, Request, status_reply};
use crate::CloseReason;
use crate::config::PAYLOAD_MAX;
use crate::protocol::constants::{
    CMD_BLOCK_STATUS, CMD_CACHE, CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES,
};
use crate::protocol::{Command, Refusal, RequestHeader};
use crate::stats::{CommandKind, add};

/// Requests looked at before answers are written: bounds the time to the first answer of a burst.
const REQUESTS_PER_ROUND: usize = 16;
/// Longest payload that is skipped to refuse its request in an orderly way.
const SKIP_MAX: u64 = 2 * PAYLOAD_MAX as u64;

/// Result of one step.
enum Progress {
    /// A request was handled.
    Handled,
    /// The request at hand came further.
    Further,
    /// More bytes, more room or more time are needed.
    Blocked,
}

impl Connection {
    /// Handles what the input holds; returns whether anything was done.
    pub(super) fn handle_input(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut handled = 0;
        let mut progressed = false;
        let mut arrived = None;
        while handled < REQUESTS_PER_ROUND && !self.is_draining() {
            let progress = match &self.stage {
                Stage::Header => {
                    let arrived = *arrived.get_or_insert_with(Instant::now);
                    self.take_header(arrived)?
                }
                Stage::Admission { .. } => self.admit(cx)?,
                Stage::Payload { .. } => self.take_payload(cx)?,
                Stage::Skipping { .. } => self.skip_payload(),
            };
            match progress {
                Progress::Handled => handled += 1,
                Progress::Further => {}
                Progress::Blocked => break,
            }
            progressed = true;
        }
        self.note_partial(progressed);
        Ok(progressed)
    }

    /// Keeps the instant since when a part of a request waits for its rest.
    fn note_partial(&mut self, progressed: bool) {
        let is_partial = match self.stage {
            Stage::Header => !self.input.is_empty(),
            Stage::Payload { .. } | Stage::Skipping { .. } => true,
            Stage::Admission { .. } => false, // it waits for us
        };
        self.clock.partial = match (is_partial, self.clock.partial) {
            (true, Some(since)) if !progressed => Some(since),
            (true, _) => Some(Instant::now()),
            (false, _) => None,
        };
    }

    fn take_header(&mut self, arrived: Instant) -> Result<Progress, CloseReason> {
        let header = match RequestHeader::decode(self.input.pending(), self.style) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(Progress::Blocked),
            Err(error) => {
                tracing::debug!(%error, "an NBD client is out of step");
                return Err(CloseReason::Malformed);
            }
        };
        self.input.consume(self.style.request_len());
        self.in_flight += 1;
        let checked = Command::check(&header, &self.rules());
        let command = checked.unwrap_or(Command::Nothing);
        let kind = kind_of(header.command);
        let memory = memory_of(&command);
        let request = Request { header, command, kind, arrived, memory };
        match checked {
            Err(refusal) => self.refuse_unread(Request { memory: 0, ..request }, refusal),
            Ok(Command::Disconnect) => {
                self.in_flight -= 1;
                self.begin_drain(CloseReason::Disconnected);
                Ok(Progress::Handled)
            }
            Ok(_) => {
                self.stage = Stage::Admission { request, is_charged: false };
                Ok(Progress::Further)
            }
        }
    }

    /// Refuses a request whose payload is still to come, if it has one.
    fn refuse_unread(
        &mut self,
        request: Request,
        refusal: Refusal,
    ) -> Result<Progress, CloseReason> {
        let left = request.header.payload_len(self.style);
        if left > SKIP_MAX {
            return Err(CloseReason::Malformed);
        }
        self.stage = Stage::Skipping { request, refusal, left };
        Ok(Progress::Further)
    }

    fn skip_payload(&mut self) -> Progress {
        let Stage::Skipping { request, refusal, left } = &mut self.stage else {
            return Progress::Blocked;
        };
        let skipped = self.input.pending().len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        self.input.consume(skipped);
        *left -= skipped as u64;
        if *left > 0 {
            return if skipped > 0 { Progress::Further } else { Progress::Blocked };
        }
        let (request, refusal) = (*request, *refusal);
        self.stage = Stage::Header;
        self.push_refusal(&request, refusal);
        Progress::Handled
    }

    /// Begins the request at hand once the rates and the limits allow it.
    fn admit(&mut self, cx: &mut Context<'_>) -> Result<Progress, CloseReason> {
        let Stage::Admission { request, is_charged } = &mut self.stage else {
            return Ok(Progress::Blocked);
        };
        let request = *request;
        if !*is_charged {
            *is_charged = true;
            let now = request.arrived;
            self.clock.throttled = match request.command {
                Command::Flush | Command::Nothing | Command::BlockStatus { .. } => None,
                _ => self.shared.export.meter().charge(now, request.moved_bytes()),
            };
            if self.clock.throttled.is_some() {
                add(&self.shared.counters.throttled, 1);
            }
        }
        if self.clock.throttled.is_some() {
            return Ok(Progress::Blocked);
        }
        let config = &self.shared.config;
        // These end with answers of this connection, whose sending wakes it up.
        let is_full = self.in_flight > config.connection_requests_max
            || (self.lease.used() > 0
                && self.lease.used() + request.memory > config.connection_bytes_max);
        if is_full || self.lease.poll_take(cx, request.memory) == Poll::Pending {
            return Ok(Progress::Blocked);
        }
        let payload_len = request.header.payload_len(self.style);
        self.input.note_payload(payload_len as usize); // checked: not above the longest payload
        if payload_len == 0 {
            self.stage = Stage::Header;
            self.execute(cx, request, Bytes::new())?;
            return Ok(Progress::Handled);
        }
        let len = payload_len as usize;
        self.stage = Stage::Payload { request, payload: self.spare.take(len), len };
        Ok(Progress::Further)
    }

    fn take_payload(&mut self, cx: &mut Context<'_>) -> Result<Progress, CloseReason> {
        let Stage::Payload { request, payload, len } = &mut self.stage else {
            return Ok(Progress::Blocked);
        };
        let taken = self.input.pending().len().min(*len - payload.len());
        payload.extend_from_slice(&self.input.pending()[..taken]);
        self.input.consume(taken);
        if payload.len() < *len {
            return Ok(if taken > 0 { Progress::Further } else { Progress::Blocked });
        }
        let (request, payload) = (*request, std::mem::take(payload));
        self.stage = Stage::Header;
        self.execute(cx, request, payload.freeze())?;
        Ok(Progress::Handled)
    }
}

fn kind_of(command: u16) -> CommandKind {
    match command {
        CMD_READ => CommandKind::Read,
        CMD_WRITE => CommandKind::Write,
        CMD_FLUSH => CommandKind::Flush,
        CMD_TRIM => CommandKind::Trim,
        CMD_WRITE_ZEROES => CommandKind::WriteZeroes,
        CMD_CACHE => CommandKind::Cache,
        CMD_BLOCK_STATUS => CommandKind::BlockStatus,
        _ => CommandKind::Other,
    }
}

/// Bytes that a request and its answer take at most.
fn memory_of(command: &Command) -> u64 {
    match command {
        Command::Read { len, .. } | Command::Write { len, .. } => *len as u64,
        Command::BlockStatus { .. } => status_reply::MEMORY,
        _ => 0,
    }
}

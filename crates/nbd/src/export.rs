//! Exports: devices served under a name.

use std::sync::Arc;

use acstor_overlay::{BlockDevice, SECTOR_BYTES};

use crate::config::PAYLOAD_MAX;
use crate::late_responses::LateResponses;
use crate::protocol::constants::{
    FLAG_BLOCK_STATUS_PAYLOAD, FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_READ_ONLY,
    FLAG_SEND_CACHE, FLAG_SEND_DF, FLAG_SEND_FAST_ZERO, FLAG_SEND_FLUSH, FLAG_SEND_FUA,
    FLAG_SEND_TRIM, FLAG_SEND_WRITE_ZEROES,
};
use crate::protocol::{HeaderStyle, NAME_LEN_MAX, ReplyShape};
use crate::rate_limit::RateMeter;
use crate::{NbdError, RateLimits};

/// Size at and above which aligned requests are efficient, bytes.
const PREFERRED_BLOCK: u32 = 4096;

/// A device under a name.
pub struct Export {
    name: String,
    description: String,
    device: Arc<dyn BlockDevice>,
    is_read_only: bool,
    meter: RateMeter,
    /// Of all servers of it, one after the other: what the one before cut off may still be under way.
    late_responses: Arc<LateResponses>,
}

impl Export {
    /// Serves `device` as `name`, 1 to 4096 bytes without NUL. Clients that name no
    /// export get it too, unless the server has a token.
    ///
    /// # Errors
    /// [`NbdError::Export`] for such a name, or for a size that is no multiple of 512.
    pub fn new(name: &str, device: Arc<dyn BlockDevice>) -> Result<Export, NbdError> {
        let fault = |problem: String| NbdError::Export { name: name.to_owned(), problem };
        if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains('\0') {
            return Err(fault("a name has 1 to 4096 bytes, none of them 0".to_owned()));
        }
        let size_bytes = device.size_bytes();
        if !size_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(fault(format!("{size_bytes} bytes are no multiple of {SECTOR_BYTES}")));
        }
        Ok(Export {
            name: name.to_owned(),
            description: String::new(),
            device,
            is_read_only: false,
            meter: RateMeter::default(),
            late_responses: LateResponses::new(),
        })
    }

    /// Gives it a description for people, cut to 4096 bytes.
    #[must_use]
    pub fn with_description(mut self, text: &str) -> Export {
        let mut end = text.len().min(NAME_LEN_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.description = text[..end].to_owned();
        self
    }

    /// Refuses writes, whatever the device would do.
    #[must_use]
    pub fn read_only(mut self) -> Export {
        self.is_read_only = true;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the device that is served.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only || self.device.is_read_only()
    }

    /// The rates in force.
    pub fn limits(&self) -> RateLimits {
        self.meter.limits()
    }

    /// Changes the rates from the next request on; 0 counts as 1.
    pub fn set_limits(&self, limits: RateLimits) {
        self.meter.set_limits(limits);
    }

    pub(crate) fn meter(&self) -> &RateMeter {
        &self.meter
    }

    pub(crate) fn late_responses(&self) -> &Arc<LateResponses> {
        &self.late_responses
    }

    /// Minimum and preferred block and longest payload, bytes.
    pub(crate) fn block_sizes(&self) -> (u32, u32, u32) {
        (SECTOR_BYTES as u32, PREFERRED_BLOCK, PAYLOAD_MAX)
    }

    /// The transmission flags for a client that negotiated `shape`.
    pub(crate) fn flags(&self, shape: ReplyShape, has_contexts: bool) -> u16 {
        let mut flags = FLAG_HAS_FLAGS
            | FLAG_SEND_FLUSH
            | FLAG_SEND_FUA
            | FLAG_CAN_MULTI_CONN
            | FLAG_SEND_CACHE;
        if self.is_read_only() {
            flags |= FLAG_READ_ONLY;
        } else {
            flags |= FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO;
        }
        if shape != ReplyShape::Simple {
            flags |= FLAG_SEND_DF;
        }
        if shape == ReplyShape::Extended && has_contexts {
            flags |= FLAG_BLOCK_STATUS_PAYLOAD;
        }
        flags
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the headers that go with a shape of answers.
pub(crate) const fn style_of(shape: ReplyShape) -> HeaderStyle {
    match shape {
        ReplyShape::Extended => HeaderStyle::Extended,
        ReplyShape::Simple | ReplyShape::Structured => HeaderStyle::Compact,
    }
}

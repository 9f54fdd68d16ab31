//! Requests: what a client sends in transmission.

use super::constants::{CMD_FLAG_PAYLOAD_LEN, CMD_WRITE, EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC};
use super::reader::Reader;

/// Bytes of a compact request's header.
pub const COMPACT_REQUEST_LEN: usize = 28;
/// Bytes of an extended request's header.
pub const EXTENDED_REQUEST_LEN: usize = 32;

/// Form of headers that a client and the server agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderStyle {
    /// 32-bit lengths.
    Compact,
    /// 64-bit lengths, the `EXTENDED_HEADERS` extension.
    Extended,
}

impl HeaderStyle {
    /// Bytes of a request's header.
    pub const fn request_len(self) -> usize {
        match self {
            HeaderStyle::Compact => COMPACT_REQUEST_LEN,
            HeaderStyle::Extended => EXTENDED_REQUEST_LEN,
        }
    }
}

/// Bytes that are no request: the two sides are out of step, so that the connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request begins with 0x{magic:08x}")]
pub struct RequestFault {
    /// Number that came in place of the magic.
    pub magic: u32,
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags of the command.
    pub flags: u16,
    /// Number of the command.
    pub command: u16,
    /// Chosen by the client, repeated in the answer.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range or of the payload.
    pub length: u64,
}

impl RequestHeader {
    /// Decodes the header at the begin of `bytes`; `None` when not all of it came yet.
    ///
    /// # Errors
    /// [`RequestFault`], as soon as the magic is there and wrong.
    pub fn decode(bytes: &[u8], style: HeaderStyle) -> Result<Option<RequestHeader>, RequestFault> {
        let mut reader = Reader(bytes);
        let Some(magic) = reader.u32() else { return Ok(None) };
        let wanted = match style {
            HeaderStyle::Compact => REQUEST_MAGIC,
            HeaderStyle::Extended => EXTENDED_REQUEST_MAGIC,
        };
        if magic != wanted {
            return Err(RequestFault { magic });
        }
        Ok(Self::decode_rest(&mut reader, style))
    }

    fn decode_rest(reader: &mut Reader<'_>, style: HeaderStyle) -> Option<RequestHeader> {
        Some(RequestHeader {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: match style {
                HeaderStyle::Compact => reader.u32()?.into(),
                HeaderStyle::Extended => reader.u64()?,
            },
        })
    }

    /// Encodes the header, as a client does. A length that compact headers cannot hold is cut.
    pub fn encode(&self, style: HeaderStyle) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(style.request_len());
        let magic = match style {
            HeaderStyle::Compact => REQUEST_MAGIC,
            HeaderStyle::Extended => EXTENDED_REQUEST_MAGIC,
        };
        bytes.extend_from_slice(&magic.to_be_bytes());
        bytes.extend_from_slice(&self.flags.to_be_bytes());
        bytes.extend_from_slice(&self.command.to_be_bytes());
        bytes.extend_from_slice(&self.cookie.to_be_bytes());
        bytes.extend_from_slice(&self.offset.to_be_bytes());
        match style {
            HeaderStyle::Compact => bytes.extend_from_slice(&(self.length as u32).to_be_bytes()),
            HeaderStyle::Extended => bytes.extend_from_slice(&self.length.to_be_bytes()),
        }
        bytes
    }

    /// Bytes that follow the header. A write has a payload even without the flag that the extension
    /// demands: QEMU's client never sets it.
    pub const fn payload_len(&self, style: HeaderStyle) -> u64 {
        let has_payload = self.command == CMD_WRITE
            || match style {
                HeaderStyle::Compact => false,
                HeaderStyle::Extended => self.flags & CMD_FLAG_PAYLOAD_LEN != 0,
            };
        if has_payload { self.length } else { 0 }
    }
}

/// The payload of an extended `CMD_BLOCK_STATUS`: the range and the contexts that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFilter {
    /// Bytes of the range.
    pub length: u64,
    /// Ids of the contexts.
    pub contexts: Vec<u32>,
}

impl StatusFilter {
    /// Longest payload that is looked at: every context there is, and some more.
    pub const LEN_MAX: u64 = 8 + 4 * 16;

    /// Decodes the payload; `None` when its length is impossible or an id comes twice.
    pub fn decode(payload: &[u8]) -> Option<StatusFilter> {
        let mut reader = Reader(payload);
        let length = reader.u64()?;
        let mut contexts = Vec::new();
        while reader.len() > 0 {
            let id = reader.u32()?;
            if contexts.contains(&id) {
                return None;
            }
            contexts.push(id);
        }
        Some(StatusFilter { length, contexts })
    }
}

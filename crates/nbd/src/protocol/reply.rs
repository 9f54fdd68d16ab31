//! Answers to requests: headers of simple replies and of structured and extended chunks.

use super::constants::{
    EXTENDED_REPLY_MAGIC, REPLY_FLAG_DONE, REPLY_TYPE_BLOCK_STATUS, REPLY_TYPE_BLOCK_STATUS_EXT,
    REPLY_TYPE_ERROR, REPLY_TYPE_NONE, REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_OFFSET_HOLE,
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};
use super::{Errno, RequestHeader};

/// Form of answers that a client and the server agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyShape {
    /// One header, then the bytes of a read.
    Simple,
    /// Chunks with 32-bit lengths.
    Structured,
    /// Chunks with 64-bit lengths and the offset of the request.
    Extended,
}

/// Longest header with the fixed part of its payload, bytes.
const HEAD_LEN_MAX: usize = 48;

/// A header and the fixed part of its payload.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEAD_LEN_MAX],
    len: u8,
}

impl Head {
    const fn new() -> Head {
        Head { bytes: [0; HEAD_LEN_MAX], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    /// The bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// One extent of a status answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, not 0.
    pub len: u64,
    /// Flags of the context.
    pub flags: u32,
}

/// Fields that an answer repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// Shape of the answers that are in use.
    pub shape: ReplyShape,
    /// The request's cookie.
    pub cookie: u64,
    /// The request's offset.
    pub offset: u64,
}

impl ReplyTo {
    /// The answer to `request`.
    pub const fn new(shape: ReplyShape, request: &RequestHeader) -> ReplyTo {
        ReplyTo { shape, cookie: request.cookie, offset: request.offset }
    }

    /// A simple reply's header; with no error, the bytes of a read follow.
    pub fn simple(&self, errno: u32) -> Head {
        let mut head = Head::new();
        head.push(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        head.push(&errno.to_be_bytes());
        head.push(&self.cookie.to_be_bytes());
        head
    }

    /// Success without content.
    pub fn done(&self) -> Head {
        match self.shape {
            ReplyShape::Simple => self.simple(0),
            _ => self.chunk(REPLY_FLAG_DONE, REPLY_TYPE_NONE, 0),
        }
    }

    /// An error; `message_len` bytes of text follow, except in a simple reply, which has none.
    pub fn error(&self, errno: Errno, message_len: u16) -> Head {
        if self.shape == ReplyShape::Simple {
            return self.simple(errno.code());
        }
        let mut head = self.chunk(REPLY_FLAG_DONE, REPLY_TYPE_ERROR, 6 + u64::from(message_len));
        head.push(&errno.code().to_be_bytes());
        head.push(&message_len.to_be_bytes());
        head
    }

    /// A chunk of `len` bytes of the export from `offset` on, which follow. Not for simple replies.
    pub fn data(&self, offset: u64, len: u32, is_last: bool) -> Head {
        let mut head = self.chunk(last_flag(is_last), REPLY_TYPE_OFFSET_DATA, 8 + u64::from(len));
        head.push(&offset.to_be_bytes());
        head
    }

    /// A chunk that stands for `len` zero bytes of the export from `offset` on. Not for simple
    /// replies.
    pub fn hole(&self, offset: u64, len: u32, is_last: bool) -> Head {
        let mut head = self.chunk(last_flag(is_last), REPLY_TYPE_OFFSET_HOLE, 12);
        head.push(&offset.to_be_bytes());
        head.push(&len.to_be_bytes());
        head
    }

    /// A chunk with the extents of a context, whole. Not for simple replies.
    pub fn status(&self, context: u32, extents: &[Extent], is_last: bool) -> Vec<u8> {
        let count = extents.len();
        let (kind, len) = match self.shape {
            ReplyShape::Extended => (REPLY_TYPE_BLOCK_STATUS_EXT, 8 + 16 * count),
            _ => (REPLY_TYPE_BLOCK_STATUS, 4 + 8 * count),
        };
        let head = self.chunk(last_flag(is_last), kind, len as u64);
        let mut bytes = Vec::with_capacity(head.as_bytes().len() + len);
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(&context.to_be_bytes());
        if self.shape == ReplyShape::Extended {
            bytes.extend_from_slice(&(count as u32).to_be_bytes());
            for extent in extents {
                bytes.extend_from_slice(&extent.len.to_be_bytes());
                bytes.extend_from_slice(&u64::from(extent.flags).to_be_bytes());
            }
        } else {
            for extent in extents {
                bytes.extend_from_slice(&(extent.len as u32).to_be_bytes());
                bytes.extend_from_slice(&extent.flags.to_be_bytes());
            }
        }
        bytes
    }

    fn chunk(&self, flags: u16, kind: u16, len: u64) -> Head {
        let is_extended = self.shape == ReplyShape::Extended;
        let magic = if is_extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        let mut head = Head::new();
        head.push(&magic.to_be_bytes());
        head.push(&flags.to_be_bytes());
        head.push(&kind.to_be_bytes());
        head.push(&self.cookie.to_be_bytes());
        if is_extended {
            head.push(&self.offset.to_be_bytes());
            head.push(&len.to_be_bytes());
        } else {
            head.push(&(len as u32).to_be_bytes());
        }
        head
    }
}

fn last_flag(is_last: bool) -> u16 {
    if is_last { REPLY_FLAG_DONE } else { 0 }
}

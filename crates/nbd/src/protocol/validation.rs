//! Validation of requests: every flag, size and offset is checked here against the export.

use super::constants::{
    CMD_BLOCK_STATUS, CMD_CACHE, CMD_DISC, CMD_FLAG_DF, CMD_FLAG_FAST_ZERO, CMD_FLAG_FUA,
    CMD_FLAG_NO_HOLE, CMD_FLAG_PAYLOAD_LEN, CMD_FLAG_REQ_ONE, CMD_FLUSH, CMD_READ, CMD_RESIZE,
    CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES,
};
use super::{Errno, HeaderStyle, RequestHeader, StatusFilter};

/// Properties of an export that a request is validated against.
#[derive(Clone, Copy, Debug)]
pub struct ExportRules {
    /// Size of the export now, bytes.
    pub size_bytes: u64,
    /// True if writes are refused.
    pub is_read_only: bool,
    /// Offsets and lengths are multiples of this; a power of two.
    pub minimum_block: u32,
    /// Longest payload of a request or an answer, bytes.
    pub maximum_payload: u32,
    /// True if answers are chunks (structured or extended).
    pub has_chunks: bool,
    /// True if the client selected metadata contexts.
    pub has_contexts: bool,
    /// The headers in use.
    pub style: HeaderStyle,
}

/// A request that may be carried out. Lengths are bytes and never 0, ranges lie inside the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
        /// True if the answer must be one chunk.
        is_whole: bool,
    },
    /// Write the payload.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
        /// True if it must be durable before the answer.
        fua: bool,
    },
    /// Write zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// True if it must be durable before the answer.
        fua: bool,
        /// True if a hole will do.
        may_unmap: bool,
        /// True if it must fail when it is not faster than writing.
        only_fast: bool,
    },
    /// Discard.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// True if it must be durable before the answer.
        fua: bool,
    },
    /// Make durable what was acknowledged.
    Flush,
    /// Bring near.
    Cache {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Tell the status of a range.
    BlockStatus {
        /// First byte.
        offset: u64,
        /// Bytes; with a payload, the payload says.
        len: u64,
        /// True if one extent is wanted.
        is_one: bool,
        /// True if a [`StatusFilter`] follows.
        is_filtered: bool,
    },
    /// Nothing to do, such as a read of no bytes.
    Nothing,
    /// Answer what is due and close.
    Disconnect,
}

/// A request that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error.
    pub errno: Errno,
    /// Reason, for people.
    pub message: &'static str,
}

const fn refuse(errno: Errno, message: &'static str) -> Refusal {
    Refusal { errno, message }
}

impl Command {
    /// Checks a request.
    ///
    /// # Errors
    /// [`Refusal`] with what the protocol wants to be answered.
    pub fn check(header: &RequestHeader, rules: &ExportRules) -> Result<Command, Refusal> {
        check_flags(header, rules)?;
        let fua = header.flags & CMD_FLAG_FUA != 0;
        let (offset, len) = (header.offset, header.length);
        match header.command {
            CMD_READ => check_read(header, rules),
            CMD_WRITE => {
                check_payload(len, rules)?;
                check_write(header, rules)?;
                let len = len as usize; // at most the longest payload, which is 32 bits
                Ok(nothing_or(len == 0, Command::Write { offset, len, fua }))
            }
            CMD_WRITE_ZEROES => {
                check_write(header, rules)?;
                let may_unmap = header.flags & CMD_FLAG_NO_HOLE == 0;
                let only_fast = header.flags & CMD_FLAG_FAST_ZERO != 0;
                let command = Command::WriteZeroes { offset, len, fua, may_unmap, only_fast };
                Ok(nothing_or(len == 0, command))
            }
            CMD_TRIM => {
                check_read_only(rules)?;
                check_range(offset, len, rules, Errno::Invalid)?;
                Ok(nothing_or(len == 0, Command::Trim { offset, len, fua }))
            }
            CMD_CACHE => {
                check_range(offset, len, rules, Errno::Invalid)?;
                Ok(nothing_or(len == 0, Command::Cache { offset, len }))
            }
            CMD_FLUSH if offset != 0 || len != 0 => {
                Err(refuse(Errno::Invalid, "a flush with an offset or a length"))
            }
            CMD_FLUSH => Ok(Command::Flush),
            CMD_BLOCK_STATUS => check_status(header, rules),
            CMD_DISC => Ok(Command::Disconnect),
            CMD_RESIZE => Err(refuse(Errno::Perm, "the size belongs to the control plane")),
            _ => Err(refuse(Errno::Invalid, "unknown command")),
        }
    }
}

fn nothing_or(is_nothing: bool, command: Command) -> Command {
    if is_nothing { Command::Nothing } else { command }
}

/// Refuses flags that the command does not have. FUA is allowed on every command.
fn check_flags(header: &RequestHeader, rules: &ExportRules) -> Result<(), Refusal> {
    let is_extended = rules.style == HeaderStyle::Extended;
    let mut allowed = CMD_FLAG_FUA;
    match header.command {
        CMD_READ if rules.has_chunks => allowed |= CMD_FLAG_DF,
        CMD_WRITE if is_extended => allowed |= CMD_FLAG_PAYLOAD_LEN,
        CMD_WRITE_ZEROES => allowed |= CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO,
        CMD_BLOCK_STATUS if is_extended => allowed |= CMD_FLAG_REQ_ONE | CMD_FLAG_PAYLOAD_LEN,
        CMD_BLOCK_STATUS => allowed |= CMD_FLAG_REQ_ONE,
        CMD_DISC => return Ok(()), // cannot be answered
        _ => {}
    }
    if header.flags & !allowed != 0 {
        return Err(refuse(Errno::Invalid, "a flag that the command does not have"));
    }
    Ok(())
}

fn check_read(header: &RequestHeader, rules: &ExportRules) -> Result<Command, Refusal> {
    check_range(header.offset, header.length, rules, Errno::Invalid)?;
    if header.length > u64::from(rules.maximum_payload) {
        let errno = if rules.has_chunks { Errno::Overflow } else { Errno::Invalid };
        return Err(refuse(errno, "a read longer than the longest payload"));
    }
    let is_whole = header.flags & CMD_FLAG_DF != 0;
    let len = header.length as usize; // at most the longest payload, which is 32 bits
    Ok(nothing_or(len == 0, Command::Read { offset: header.offset, len, is_whole }))
}

fn check_write(header: &RequestHeader, rules: &ExportRules) -> Result<(), Refusal> {
    check_read_only(rules)?;
    check_range(header.offset, header.length, rules, Errno::NoSpace)
}

fn check_status(header: &RequestHeader, rules: &ExportRules) -> Result<Command, Refusal> {
    if !rules.has_contexts {
        return Err(refuse(Errno::Invalid, "no metadata context was selected"));
    }
    let is_filtered = header.flags & CMD_FLAG_PAYLOAD_LEN != 0;
    let is_one = header.flags & CMD_FLAG_REQ_ONE != 0;
    let (offset, len) = (header.offset, header.length);
    if is_filtered {
        if !(8..=StatusFilter::LEN_MAX).contains(&len) {
            return Err(refuse(Errno::Invalid, "a list of contexts of impossible length"));
        }
    } else {
        check_status_range(offset, len, rules)?;
    }
    Ok(Command::BlockStatus { offset, len, is_one, is_filtered })
}

/// Checks the range of a `CMD_BLOCK_STATUS`, wherever it came from.
pub(crate) fn check_status_range(
    offset: u64,
    len: u64,
    rules: &ExportRules,
) -> Result<(), Refusal> {
    if len == 0 {
        return Err(refuse(Errno::Invalid, "the status of no bytes"));
    }
    check_range(offset, len, rules, Errno::Invalid)
}

fn check_payload(len: u64, rules: &ExportRules) -> Result<(), Refusal> {
    if len > u64::from(rules.maximum_payload) {
        return Err(refuse(Errno::Invalid, "a payload longer than the longest payload"));
    }
    Ok(())
}

fn check_read_only(rules: &ExportRules) -> Result<(), Refusal> {
    if rules.is_read_only {
        return Err(refuse(Errno::Perm, "the export is read-only"));
    }
    Ok(())
}

fn check_range(offset: u64, len: u64, rules: &ExportRules, beyond: Errno) -> Result<(), Refusal> {
    if offset.checked_add(len).is_none_or(|end| end > rules.size_bytes) {
        return Err(refuse(beyond, "beyond the end of the export"));
    }
    if (offset | len) & u64::from(rules.minimum_block - 1) != 0 {
        return Err(refuse(Errno::Invalid, "not a multiple of the minimum block size"));
    }
    Ok(())
}

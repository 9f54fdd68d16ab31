//! A request of the kernel, checked and taken apart.
//!
//! The kernel is trusted less than it could be: lengths, names and counts are checked, so that a
//! kernel bug or an unknown version gives an error for one request and never a crash. Nothing is
//! allocated here.

use acstor_readpath::Reader;
use zerocopy::FromBytes;

use crate::limits;
use crate::wire::abi::{self, opcode};

/// Kind of an open, by the flags of open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener {
    /// True if it reads past the page cache.
    pub is_direct: bool,
    /// False if it is no guest, so that nothing is to be learnt of its reads: one that copies or compares
    /// all of an image says so with `O_NOATIME`, which needs root.
    pub is_recorded: bool,
}

impl Opener {
    /// Returns the kind that flags of open(2) say.
    pub(crate) fn of(flags: u32) -> Opener {
        Opener {
            is_direct: flags & libc::O_DIRECT as u32 != 0,
            is_recorded: flags & libc::O_NOATIME as u32 == 0,
        }
    }
}

/// Defect of a message that is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Fewer bytes than a header has, or than the header says.
    #[error("{got} bytes where the header says {said}")]
    Length {
        /// Bytes received.
        got: usize,
        /// Length field of the header; 0 when even that is cut.
        said: usize,
    },
    /// The body is too short for its opcode, or a count in it is wrong.
    #[error("opcode {opcode}: the body is cut or damaged")]
    Body {
        /// The opcode.
        opcode: u32,
    },
    /// A name without its end, empty, too long, or with a slash.
    #[error("opcode {opcode}: the name is damaged")]
    Name {
        /// The opcode.
        opcode: u32,
    },
}

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Number of the request, to be repeated in the answer unchanged, bit 63 included.
    pub unique: u64,
    /// Inode that is meant.
    pub inode: u64,
    /// Thread that waits, 0 when none does.
    pub pid: u32,
    /// Raw number of the operation.
    pub opcode: u32,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Header that every request has.
    pub header: RequestHeader,
    /// Operation that is asked for.
    pub operation: Operation<'a>,
}

/// Inodes and how many lookups of each the kernel forgets.
#[derive(Clone, Copy, Debug)]
pub struct ForgetList<'a>(&'a [u8]);

impl ForgetList<'_> {
    /// Pairs of inode and number of lookups.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0
            .chunks_exact(size_of::<abi::ForgetOne>())
            .filter_map(|bytes| abi::ForgetOne::read_from_bytes(bytes).ok())
            .map(|one| (one.nodeid, one.nlookup))
    }
}

/// Attributes that a SETATTR changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Change {
    /// chmod.
    pub mode: bool,
    /// chown or chgrp.
    pub owner: bool,
    /// truncate.
    pub size: bool,
    /// utimens.
    pub times: bool,
}

/// Operation of a request, with its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Agreement on version and flags.
    Init {
        /// Major version of the kernel.
        major: u32,
        /// Minor version of the kernel.
        minor: u32,
        /// Read-ahead that the kernel proposes, bytes.
        max_readahead: u32,
        /// Capabilities of the kernel, `flags2` in the upper half.
        flags: u64,
    },
    /// Name to inode.
    Lookup {
        /// The name, without its final zero.
        name: &'a [u8],
    },
    /// The kernel dropped its inode; no answer.
    Forget {
        /// Lookups taken back.
        lookups: u64,
    },
    /// Several of them; no answer.
    BatchForget(ForgetList<'a>),
    /// stat.
    GetAttr,
    /// chmod, chown, truncate, utimens.
    SetAttr(Change),
    /// open.
    Open {
        /// Flags of open(2), without `O_CREAT`, `O_EXCL`, `O_TRUNC`.
        flags: u32,
    },
    /// read.
    Read {
        /// Handle that the open gave.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        size: u32,
        /// Kind of the open that it reads by.
        opener: Opener,
        /// The reader, as far as it can be told.
        reader: Reader,
    },
    /// The last close of an open file.
    Release {
        /// Handle that the open gave.
        handle: u64,
        /// Kind of the open that it ends.
        opener: Opener,
    },
    /// opendir.
    OpenDir,
    /// readdir.
    ReadDir {
        /// Cookie of the last entry seen, or 0.
        offset: u64,
        /// Room for the answer, bytes.
        size: u32,
        /// True if attributes are wanted with the names (READDIRPLUS).
        plus: bool,
    },
    /// closedir.
    ReleaseDir,
    /// statfs.
    StatFs,
    /// `SEEK_DATA` and `SEEK_HOLE`.
    Lseek {
        /// Start of the search, bytes.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    },
    /// access; the kernel checks permissions by itself and does not send it.
    Access {
        /// Rights asked for.
        mask: u32,
    },
    /// A signal came while the thread waits for this request; no answer.
    Interrupt {
        /// Number of the request that is waited for.
        unique: u64,
    },
    /// The end of the connection.
    Destroy,
    /// Anything that would change the file system.
    Modify,
    /// Anything else.
    Unsupported,
}

impl<'a> Request<'a> {
    /// Takes a message apart.
    ///
    /// # Errors
    /// The header where it could be read (so that an error can be sent back), and what is wrong.
    pub fn parse(message: &'a [u8]) -> Result<Request<'a>, (Option<RequestHeader>, ParseError)> {
        let got = message.len();
        let Ok((raw, body)) = abi::InHeader::read_from_prefix(message) else {
            return Err((None, ParseError::Length { got, said: 0 }));
        };
        let header = RequestHeader {
            unique: raw.unique,
            inode: raw.nodeid,
            pid: raw.pid,
            opcode: raw.opcode,
        };
        let said = raw.len as usize;
        if said != got {
            return Err((Some(header), ParseError::Length { got, said }));
        }
        match parse_operation(raw.opcode, body) {
            Ok(operation) => Ok(Request { header, operation }),
            Err(error) => Err((Some(header), error)),
        }
    }
}

/// Returns whether the kernel waits for an answer to this opcode.
pub(crate) fn wants_answer(opcode: u32) -> bool {
    !matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT)
}

fn parse_operation(code: u32, body: &[u8]) -> Result<Operation<'_>, ParseError> {
    Ok(match code {
        opcode::INIT => init(body)?,
        opcode::LOOKUP => Operation::Lookup { name: name(code, body)? },
        opcode::FORGET => Operation::Forget { lookups: take::<abi::ForgetIn>(code, body)?.nlookup },
        opcode::BATCH_FORGET => Operation::BatchForget(forget_list(body)?),
        opcode::GETATTR => Operation::GetAttr,
        opcode::SETATTR => Operation::SetAttr(change(take::<abi::SetAttrIn>(code, body)?.valid)),
        opcode::OPEN => Operation::Open { flags: take::<abi::OpenIn>(code, body)?.flags },
        opcode::READ => {
            let read: abi::ReadIn = take(code, body)?;
            let (handle, offset) = (read.fh, read.offset);
            let (opener, reader) = (Opener::of(read.flags), reader(&read));
            Operation::Read { handle, offset, size: read.size, opener, reader }
        }
        opcode::RELEASE => {
            let release: abi::ReleaseIn = take(code, body)?;
            Operation::Release { handle: release.fh, opener: Opener::of(release.flags) }
        }
        opcode::OPENDIR => Operation::OpenDir,
        opcode::READDIR | opcode::READDIRPLUS => {
            let read: abi::ReadIn = take(code, body)?;
            let plus = code == opcode::READDIRPLUS;
            Operation::ReadDir { offset: read.offset, size: read.size, plus }
        }
        opcode::RELEASEDIR => Operation::ReleaseDir,
        opcode::STATFS => Operation::StatFs,
        opcode::LSEEK => {
            let seek: abi::LseekIn = take(code, body)?;
            Operation::Lseek { offset: seek.offset, whence: seek.whence }
        }
        opcode::ACCESS => Operation::Access { mask: take::<abi::AccessIn>(code, body)?.mask },
        opcode::INTERRUPT => {
            Operation::Interrupt { unique: take::<abi::InterruptIn>(code, body)?.unique }
        }
        opcode::DESTROY => Operation::Destroy,
        opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::WRITE
        | opcode::CREATE
        | opcode::FALLOCATE
        | opcode::TMPFILE => Operation::Modify,
        _ => Operation::Unsupported,
    })
}

/// The reader, as the kernel tells it: only reads past the page cache name the process.
fn reader(read: &abi::ReadIn) -> Reader {
    if !Opener::of(read.flags).is_direct {
        return Reader::Cached;
    }
    let is_named = read.read_flags & abi::READ_LOCK_OWNER != 0;
    Reader::Direct(if is_named { read.lock_owner } else { 0 })
}

/// Takes the fixed part of a body; a newer kernel may append fields.
fn take<T: FromBytes>(opcode: u32, body: &[u8]) -> Result<T, ParseError> {
    match T::read_from_prefix(body) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(ParseError::Body { opcode }),
    }
}

fn init(body: &[u8]) -> Result<Operation<'_>, ParseError> {
    let first: abi::InitIn = take(opcode::INIT, body)?;
    let extended = u64::from(first.flags) & abi::init::INIT_EXT != 0;
    let rest = body.get(size_of::<abi::InitIn>()..).unwrap_or_default();
    let flags2 = match abi::InitInExt::read_from_prefix(rest) {
        Ok((more, _)) if extended => more.flags2,
        _ => 0,
    };
    Ok(Operation::Init {
        major: first.major,
        minor: first.minor,
        max_readahead: first.max_readahead,
        flags: u64::from(first.flags) | u64::from(flags2) << 32,
    })
}

fn name(opcode: u32, body: &[u8]) -> Result<&[u8], ParseError> {
    let wrong = ParseError::Name { opcode };
    let end = body.iter().position(|&byte| byte == 0).ok_or(wrong)?;
    let name = &body[..end];
    if name.is_empty() || name.len() > limits::NAME_MAX || name.contains(&b'/') {
        return Err(wrong);
    }
    Ok(name)
}

fn forget_list(body: &[u8]) -> Result<ForgetList<'_>, ParseError> {
    let wrong = ParseError::Body { opcode: opcode::BATCH_FORGET };
    let (head, list) = abi::BatchForgetIn::read_from_prefix(body).map_err(|_| wrong)?;
    let bytes = (head.count as usize).checked_mul(size_of::<abi::ForgetOne>()).ok_or(wrong)?;
    Ok(ForgetList(list.get(..bytes).ok_or(wrong)?))
}

fn change(valid: u32) -> Change {
    use abi::fattr::{ATIME, ATIME_NOW, GID, MODE, MTIME, MTIME_NOW, SIZE, UID};
    Change {
        mode: valid & MODE != 0,
        owner: valid & (UID | GID) != 0,
        size: valid & SIZE != 0,
        times: valid & (ATIME | MTIME | ATIME_NOW | MTIME_NOW) != 0,
    }
}

#[cfg(test)]
mod tests;

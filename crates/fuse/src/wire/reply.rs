//! The bodies of answers: attributes, entries, directories.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zerocopy::IntoBytes;

use crate::file::File;
use crate::limits::{ATTRIBUTES_VALID, NO_ENTRY_VALID};
use crate::wire::abi;
use crate::wire::inode::ROOT_INODE;

/// Unit of `st_blocks`, bytes.
const SECTOR_BYTES: u64 = 512;
const BLOCK_BYTES: u32 = 4096;

/// Mode of a file, and of the directory, for owner and group, or for everybody.
fn modes(reader_group: Option<u32>) -> (u32, u32) {
    let (file, directory) = if reader_group.is_some() { (0o440, 0o550) } else { (0o444, 0o555) };
    (libc::S_IFREG | file, libc::S_IFDIR | directory)
}

/// Returns the attributes of a file. Its mtime is now, so that Nova's image cache manager, which
/// ages its base images by `st_mtime`, never takes an image for one that has been unused for a day.
/// Its ctime never changes: GNU tar takes a changed ctime for a file that was written while it
/// read.
///
/// `reader_group`: as in [`crate::FuseConfig`].
pub(crate) fn file_attributes(
    file: &File,
    cached_bytes: u64,
    reader_group: Option<u32>,
) -> abi::Attr {
    let size = file.view.size_bytes();
    // GNU tar takes a file without blocks for one hole, whatever it contains.
    let blocks = cached_bytes.div_ceil(SECTOR_BYTES).max(u64::from(size > 0));
    at_now(abi::Attr {
        ino: file.key.inode,
        size,
        blocks,
        mode: modes(reader_group).0,
        gid: reader_group.unwrap_or(0),
        nlink: 1,
        blksize: BLOCK_BYTES,
        ..Default::default()
    })
}

/// Returns the attributes of the root directory.
pub(crate) fn root_attributes(reader_group: Option<u32>) -> abi::Attr {
    at_now(abi::Attr {
        ino: ROOT_INODE,
        mode: modes(reader_group).1,
        gid: reader_group.unwrap_or(0),
        nlink: 2,
        blksize: BLOCK_BYTES,
        ..Default::default()
    })
}

fn at_now(attributes: abi::Attr) -> abi::Attr {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, nanoseconds) = (now.as_secs(), now.subsec_nanos());
    abi::Attr {
        atime: seconds,
        mtime: seconds,
        atimensec: nanoseconds,
        mtimensec: nanoseconds,
        ..attributes
    }
}

/// The answer to GETATTR and SETATTR.
pub(crate) fn attr_out(attr: abi::Attr) -> abi::AttrOut {
    abi::AttrOut {
        attr_valid: ATTRIBUTES_VALID.as_secs(),
        attr_valid_nsec: ATTRIBUTES_VALID.subsec_nanos(),
        dummy: 0,
        attr,
    }
}

/// The answer to LOOKUP of a file, and a file's part of READDIRPLUS.
pub(crate) fn entry_out(
    file: &File,
    cached_bytes: Option<u64>,
    reader_group: Option<u32>,
) -> abi::EntryOut {
    // Attributes with an unknown number of blocks are not to be kept.
    let attr_valid = if cached_bytes.is_some() { ATTRIBUTES_VALID } else { Duration::ZERO };
    abi::EntryOut {
        nodeid: file.key.inode,
        generation: u64::from(file.key.generation),
        entry_valid: ATTRIBUTES_VALID.as_secs(),
        attr_valid: attr_valid.as_secs(),
        entry_valid_nsec: ATTRIBUTES_VALID.subsec_nanos(),
        attr_valid_nsec: attr_valid.subsec_nanos(),
        attr: file_attributes(file, cached_bytes.unwrap_or(0), reader_group),
    }
}

/// The answer to LOOKUP of a name that does not exist: inode 0, to be remembered for a moment.
pub(crate) fn no_entry_out() -> abi::EntryOut {
    abi::EntryOut {
        entry_valid: NO_ENTRY_VALID.as_secs(),
        entry_valid_nsec: NO_ENTRY_VALID.subsec_nanos(),
        ..Default::default()
    }
}

/// An answer to READDIR or READDIRPLUS that grows up to the room the caller has.
#[derive(Debug)]
pub(crate) struct DirectoryWriter {
    bytes: Vec<u8>,
    room: usize,
    plus: bool,
    reader_group: Option<u32>,
}

impl DirectoryWriter {
    pub(crate) fn new(room: usize, plus: bool, reader_group: Option<u32>) -> DirectoryWriter {
        DirectoryWriter { bytes: Vec::with_capacity(room), room, plus, reader_group }
    }

    /// Adds `.` or `..`; returns whether there was room. The kernel looks neither of them up.
    pub(crate) fn push_dot(&mut self, name: &[u8], cookie: u64) -> bool {
        let kind = libc::S_IFDIR >> 12;
        self.push(abi::EntryOut::default(), ROOT_INODE, name, cookie, kind)
    }

    /// Adds a file; returns whether there was room. With READDIRPLUS that is a lookup.
    pub(crate) fn push_file(&mut self, file: &File) -> bool {
        let entry = if self.plus {
            entry_out(file, file.cached_bytes_known(), self.reader_group)
        } else {
            abi::EntryOut::default()
        };
        let kind = libc::S_IFREG >> 12;
        let inode = file.key.inode;
        self.push(entry, inode, file.name.as_bytes(), inode, kind)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push(
        &mut self,
        entry: abi::EntryOut,
        ino: u64,
        name: &[u8],
        cookie: u64,
        kind: u32,
    ) -> bool {
        let head = if self.plus { size_of::<abi::EntryOut>() } else { 0 };
        let length = (size_of::<abi::Dirent>() + name.len()).next_multiple_of(8);
        if self.bytes.len() + head + length > self.room {
            return false;
        }
        if self.plus {
            self.bytes.extend_from_slice(entry.as_bytes());
        }
        let end = self.bytes.len() + length;
        let dirent = abi::Dirent { ino, off: cookie, namelen: name.len() as u32, kind };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

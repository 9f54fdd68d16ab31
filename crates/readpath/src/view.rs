//! Interface of a disk to its front end: its size, its bytes as segments, its holes.

pub(crate) mod attachment;
pub(crate) mod attachments;
pub(crate) mod deduplication;
pub(crate) mod disk;
pub(crate) mod disk_manifest;
pub(crate) mod disk_map;
pub(crate) mod disk_shape;
pub(crate) mod disk_view;
pub(crate) mod extents;
pub(crate) mod manifest_health;
pub(crate) mod manifest_loads;
pub(crate) mod manifest_source;
pub(crate) mod offered_view;
pub(crate) mod page_reads;
pub(crate) mod waiting_reads;
pub(crate) mod wanted_chunks;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use acstor_store::ChunkGuard;
use bytes::Bytes;

use crate::ReadError;
use crate::ahead::disk_boots::DiskBoots;

/// A piece of an answer; the pieces of a read, in order, are exactly the bytes asked for.
#[derive(Debug)]
pub enum Segment {
    /// This many zero bytes.
    Zeros(usize),
    /// A range of a chunk in the mapped slot file, in memory a moment ago. Only the kernel may read the
    /// mapping (writev, sendmsg): a file truncated under it gives EFAULT there and SIGBUS in user
    /// space.
    Mapped {
        /// Keeps the slot from being reused.
        chunk: ChunkGuard,
        /// First byte of the chunk that belongs to the answer.
        start: usize,
        /// Number of bytes.
        len: usize,
    },
    /// Verified bytes in memory.
    Bytes(Bytes),
}

impl Segment {
    /// Number of bytes that the segment stands for.
    pub fn len(&self) -> usize {
        match self {
            Segment::Zeros(len) | Segment::Mapped { len, .. } => *len,
            Segment::Bytes(bytes) => bytes.len(),
        }
    }

    /// Returns whether the segment stands for no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `target`, as long as the segment, with its bytes; those of a mapped chunk are read from the
    /// file and compared, which may wait for the disk.
    ///
    /// # Errors
    /// The kernel's, when a mapped chunk cannot be read; the store drops it then.
    pub fn read_to(&self, target: &mut [u8]) -> io::Result<()> {
        match self {
            Segment::Zeros(_) => target.fill(0),
            Segment::Mapped { chunk, start, .. } => return chunk.read_at(*start, target),
            Segment::Bytes(source) => target.copy_from_slice(source),
        }
        Ok(())
    }
}

/// Kind of extent that `lseek` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// The next byte that may be other than zero.
    Data,
    /// The next byte of a hole; the end of the disk is one.
    Hole,
}

/// The outcome of a read that must not wait.
#[derive(Debug)]
pub enum TryRead {
    /// Every byte was at hand.
    Ready(Vec<Segment>),
    /// Something must be read from the disk, fetched or read from the origin: use
    /// [`BlockView::read`].
    WouldWait,
}

/// A read of a view that may wait for peers and the origin.
pub type ReadFuture = Pin<Box<dyn Future<Output = Result<Vec<Segment>, ReadError>> + Send>>;

/// Preparation of a view before it can be read at once.
pub type PrepareFuture = Pin<Box<dyn Future<Output = Result<(), ReadError>> + Send>>;

/// Callback at the end of a read that was started: with the bytes, or with `None` where it is to be
/// begun anew by [`BlockView::read`].
pub type ReadDone = Box<dyn FnOnce(Option<Vec<Segment>>) + Send>;

/// A disk as a front end (FUSE, NBD) sees it.
///
/// The caller guarantees nothing about offsets: a read past the end is cut, one that starts there
/// is empty. The implementation must return exactly the bytes of the disk or an error, and must
/// answer or fail by the deadline that it was configured with.
pub trait BlockView: Send + Sync + 'static {
    /// Size of the disk, bytes; never changes.
    fn size_bytes(&self) -> u64;

    /// Notes that somebody opened the disk: a guest may be about to boot from it.
    fn opened(&self) {}

    /// Notes that a handle that was opened is closed.
    fn closed(&self) {}

    /// Returns the same disk for a reader that is no guest, such as one that copies all of it: nothing is
    /// learnt from its reads, neither of boots nor of streams. `None`: nothing is learnt here anyway.
    fn unrecorded(&self) -> Option<Arc<dyn BlockView>> {
        None
    }

    /// Returns the recorder that is to be told of every handle of the disk and of its reads as they arrive;
    /// `None`: nobody wants to know.
    fn boots(&self) -> Option<Arc<DiskBoots>> {
        None
    }

    /// Returns what is to be waited for before the first read of a disk that was opened; `None`: nothing.
    /// A view that was not prepared can be read all the same: the read then waits for it.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the preparation to whoever else waits for it.
    fn prepare(&self) -> Option<PrepareFuture> {
        None
    }

    /// Returns the bytes when all of them are in this host's memory; never waits, neither for a disk
    /// nor for a network.
    ///
    /// # Errors
    /// [`ReadError`] when the bytes cannot be had at all.
    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError>;

    /// Returns the bytes, from wherever they can be had before the deadline.
    ///
    /// # Cancel safety
    /// Dropping the future abandons this read only; a fetch that others wait for goes on.
    fn read(&self, offset: u64, len: usize) -> ReadFuture;

    /// Starts a read that needs one read of this host's disk and nothing else; any other is not begun, as
    /// one that the disk does not give in time. `done` is called once, by this thread or by one that
    /// reads the disk: it is not to wait. No task has to be woken for it, which costs as much as all
    /// else about a read of 4 KiB.
    fn start_read(&self, _offset: u64, _len: usize, done: ReadDone) {
        done(None);
    }

    /// Returns the offset of the next extent of `kind` at or after `offset`, or `None` when there
    /// is none before the end (for [`ExtentKind::Hole`] the end itself is the answer).
    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64>;

    /// Returns what is to be waited for before [`BlockView::next_extent`] knows the answer; `None`: nothing.
    /// One that is asked all the same takes for data what it does not know.
    fn prepare_extent(&self, _offset: u64, _kind: ExtentKind) -> Option<PrepareFuture> {
        None
    }

    /// Returns how many bytes of the disk this host's chunk store holds, for `st_blocks`.
    fn cached_bytes(&self) -> u64;
}

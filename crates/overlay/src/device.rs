//! Interface of a writable disk to its front end (NBD).
//!
//! Must never: answer a write or a flush before it is as durable as the disk's durability says,
//! wait for a network in [`BlockDevice::try_read`], or let a request reach past the end.

use std::future::Future;
use std::pin::Pin;

use acstor_readpath::Segment;
use acstor_types::ErrorKind;
use bytes::Bytes;

use crate::LogPiece;

/// Bytes that offsets and lengths of requests are multiples of.
pub const SECTOR_BYTES: u64 = 512;

/// A piece of an answer; the pieces of a read, in order, are exactly the bytes asked for.
#[derive(Debug)]
pub enum Piece {
    /// From the manifest under the overlay, or zeros.
    Base(Segment),
    /// From the local log.
    Log(LogPiece),
}

impl Piece {
    /// Number of bytes that the piece stands for.
    pub fn len(&self) -> usize {
        match self {
            Piece::Base(segment) => segment.len(),
            Piece::Log(piece) => piece.len(),
        }
    }

    /// Returns whether the piece stands for no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The outcome of a read that must not wait.
#[derive(Debug)]
pub enum TryRead {
    /// Every byte was at hand.
    Ready(Vec<Piece>),
    /// Something must be fetched: use [`BlockDevice::read`].
    WouldWait,
}

/// A request that waits.
pub type DeviceFuture<T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + Send>>;

/// The outcome of a request that may have to wait.
#[must_use]
pub enum Done<T> {
    /// Nothing had to wait.
    Now(Result<T, DeviceError>),
    /// The request has been started; dropping the future abandons the answer, not the request.
    Later(DeviceFuture<T>),
    /// The request has taken effect, and holds nothing of its payload any more; only its answer,
    /// that it is as durable as it is to be, comes later.
    Applied(DeviceFuture<T>),
}

impl<T> Done<T> {
    /// Waits for the outcome.
    ///
    /// # Errors
    /// The request's.
    pub async fn outcome(self) -> Result<T, DeviceError> {
        match self {
            Done::Now(result) => result,
            Done::Later(future) | Done::Applied(future) => future.await,
        }
    }
}

/// Options of zeroing a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroHow {
    /// Acknowledge when durable, as a flush would make it.
    pub fua: bool,
    /// The range may become a hole (it always takes no space here).
    pub may_unmap: bool,
    /// Fail rather than write zeros one by one (never necessary here).
    pub only_fast: bool,
}

/// Distinction that [`BlockDevice::extents`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentQuery {
    /// Holes and zeros against data.
    Allocation,
    /// Clean parts apart from dirty ones, which the origin does not have yet.
    Dirty,
}

/// A run of a disk of which one thing is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceExtent {
    /// Length, bytes.
    pub len: u64,
    /// Nothing is stored for it, neither here nor in the manifest.
    pub is_hole: bool,
    /// Reads as zeros.
    pub is_zero: bool,
    /// Written, and not yet on the origin.
    pub is_dirty: bool,
}

/// Kind of a failure, as far as a front end can report it to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceErrorKind {
    /// The bytes cannot be read or kept (EIO).
    Io,
    /// The overlay's quota or its file system is full (ENOSPC).
    NoSpace,
    /// Past the end, or not a multiple of [`SECTOR_BYTES`] (EINVAL).
    Invalid,
    /// The disk may not be written (EPERM).
    ReadOnly,
    /// Another host has become the owner (EIO).
    Fenced,
    /// The disk is being closed (ESHUTDOWN).
    Shutdown,
}

/// Failure of a request of a disk.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct DeviceError {
    /// Kind that a front end tells its client.
    pub kind: DeviceErrorKind,
    /// Text for an operator: what failed, on what, what to do.
    pub message: String,
}

impl DeviceError {
    /// An error of `kind`.
    pub fn new(kind: DeviceErrorKind, message: impl Into<String>) -> DeviceError {
        DeviceError { kind, message: message.into() }
    }

    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self.kind {
            DeviceErrorKind::Io | DeviceErrorKind::Shutdown => ErrorKind::Unavailable,
            DeviceErrorKind::NoSpace => ErrorKind::Exhausted,
            DeviceErrorKind::Invalid | DeviceErrorKind::ReadOnly => ErrorKind::Invalid,
            DeviceErrorKind::Fenced => ErrorKind::Fenced,
        }
    }
}

/// The use of a disk by one client, from its first request on; dropping it ends the use.
pub trait DeviceUse: Send + Sync {
    /// Notes that a read of the client arrived. Never waits.
    fn arrived(&self, offset: u64, len: usize);
}

/// A writable disk as a front end sees it.
///
/// Any number of connections may call it at once. Offsets and lengths are bytes, multiples of
/// [`SECTOR_BYTES`], and end inside the disk; anything else is [`DeviceErrorKind::Invalid`]. Two
/// requests under way at the same time on the same bytes may take effect in either order.
pub trait BlockDevice: Send + Sync + 'static {
    /// Size of the disk, bytes; may grow.
    fn size_bytes(&self) -> u64;

    /// Returns whether every write is refused.
    fn is_read_only(&self) -> bool;

    /// Notes that a client is about to use the disk: a guest may be about to boot from it. Returns what is to be
    /// told of its reads as they arrive; `None`: nobody wants to know. Never waits. `client`: its number, of
    /// which no other client of this process has the same.
    fn opened(&self, _client: u64) -> Option<Box<dyn DeviceUse>> {
        None
    }

    /// Returns the bytes when all of them are on this host; never waits for a network.
    ///
    /// # Errors
    /// [`DeviceError`] when the bytes cannot be had at all.
    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError>;

    /// Returns the bytes, from wherever they can be had before the deadline of the read path.
    fn read(&self, offset: u64, len: usize) -> DeviceFuture<Vec<Piece>>;

    /// Writes; `fua`: durable, as after a flush, when it is acknowledged.
    fn write(&self, offset: u64, data: Bytes, fua: bool) -> Done<()>;

    /// Makes a range read as zeros.
    fn write_zeroes(&self, offset: u64, len: u64, how: ZeroHow) -> Done<()>;

    /// Gives a range up; it reads as zeros from now on.
    fn trim(&self, offset: u64, len: u64, fua: bool) -> Done<()>;

    /// Makes every write that was acknowledged, on whatever connection, durable.
    fn flush(&self) -> Done<()>;

    /// Returns at least one and at most `max` extents that cover the range from its start on.
    fn extents(&self, offset: u64, len: u64, what: ExtentQuery, max: usize) -> Vec<DeviceExtent>;

    /// Brings what [`BlockDevice::extents`] needs to tell holes from data, of at most `max` extents of a
    /// range: without, what is not known counts as data. `None`: it is here.
    fn prepare_extents(&self, _offset: u64, _len: u64, _max: usize) -> Option<DeviceFuture<()>> {
        None
    }

    /// Brings a range to this host; nothing is promised.
    fn prefetch(&self, offset: u64, len: u64) -> Done<()>;
}

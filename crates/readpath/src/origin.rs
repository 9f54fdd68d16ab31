//! The seam to the origin.

pub(crate) mod moved_packs;
pub(crate) mod origin_health;
pub(crate) mod origin_lanes;
pub(crate) mod origin_pool;
pub(crate) mod origin_queue;
pub(crate) mod posix_pack_reader;
pub(crate) mod stored_place;

use acstor_types::{Digest, ErrorKind, PackId};
use bytes::BytesMut;

/// A range of a pack, and the buffer for it: the stored bytes of a chunk, or what lies between two
/// chunks and is read to be thrown away.
#[derive(Debug)]
pub struct OriginRange {
    /// Offset in the pack, bytes.
    pub offset: u64,
    /// Filled completely by a successful read; its length is the length of the range.
    pub buffer: BytesMut,
    /// Position of the origin's member that filled it; 0 where the origin is one store.
    pub member: u8,
}

impl OriginRange {
    /// A range of `len` bytes at `offset`.
    pub fn new(offset: u64, len: usize) -> OriginRange {
        OriginRange { offset, buffer: BytesMut::zeroed(len), member: 0 }
    }
}

/// Reason for which the origin did not give the bytes.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginError {
    /// The pack is not there, and the origin is.
    #[error("pack {pack} is not in the origin")]
    NotFound {
        /// The pack.
        pack: String,
    },
    /// The pack ends before the range does.
    #[error("pack {pack} ends before byte {end}: it is damaged or another object")]
    ShortRead {
        /// The pack.
        pack: String,
        /// First byte after the range.
        end: u64,
    },
    /// The list of a pack's moved chunks is damaged, or of a later release.
    #[error("pack {pack} was moved, and where to is not readable: {cause}")]
    DamagedMove {
        /// The pack.
        pack: String,
        /// The defect.
        cause: String,
    },
    /// Members of the origin that answer do not have the pack, or have it damaged; others cannot be asked.
    #[error("pack {pack} is in no member that answers, and not all do: {cause}")]
    Undecided {
        /// The pack.
        pack: String,
        /// The members that cannot be asked, and why.
        cause: String,
    },
    /// The origin cannot be reached or fails; it may answer later.
    #[error("the origin does not answer for pack {pack}: {cause}")]
    Unavailable {
        /// The pack.
        pack: String,
        /// The driver's own text.
        cause: String,
    },
    /// The origin, or the queue in front of it, refuses because of load.
    #[error("the origin is overloaded: {0}")]
    Overloaded(&'static str),
    /// A fault of the driver.
    #[error("fault of the origin driver: {0}")]
    Internal(String),
}

impl OriginError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OriginError::NotFound { .. } => ErrorKind::NotFound,
            OriginError::ShortRead { .. } | OriginError::DamagedMove { .. } => ErrorKind::Corrupt,
            OriginError::Undecided { .. } | OriginError::Unavailable { .. } => {
                ErrorKind::Unavailable
            }
            OriginError::Overloaded(_) => ErrorKind::Overloaded,
            OriginError::Internal(_) => ErrorKind::Internal,
        }
    }
}

/// Object of which a range is read elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredObject {
    /// A pack.
    Pack(PackId),
    /// A manifest.
    Manifest(Digest),
}

/// The central store that everything can be re-read from.
///
/// The caller guarantees that `ranges` is not empty, and that each range starts where the one
/// before ends: together they are one run of chunks of one pack and the gaps between them, at most
/// `origin_run_max_bytes` long. The caller verifies the content. The implementation must fill every
/// buffer completely or return an error, and should return within the origin's own timeout: a
/// thread of the origin pool waits for it.
pub trait OriginSource: Send + Sync + 'static {
    /// Reads one run.
    ///
    /// # Errors
    /// [`OriginError`]; the buffers' content is then undefined and is thrown away.
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError>;

    /// Reads a range of a manifest; its pages are verified by the caller.
    ///
    /// # Errors
    /// [`OriginError`], which names the manifest as it would a pack; the buffer's content is then undefined
    /// and is thrown away.
    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError>;

    /// Fills `buffer` with the bytes at `offset` of the object that says where the chunks of a pack
    /// were moved to, `moved/<pack>`.
    ///
    /// # Errors
    /// [`OriginError::NotFound`] when there is none, as in an origin that nobody compacts.
    fn read_moved(
        &self,
        pack: &PackId,
        _offset: u64,
        _buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        Err(OriginError::NotFound { pack: pack.0.to_string() })
    }

    /// Reads a range, whose bytes were refused, from members of the origin other than the one that gave
    /// it (`range.member`), until `is_sound` accepts the bytes; `false`: nobody else has sound ones, as
    /// where the origin is one store. `is_sound` may take the buffer.
    ///
    /// # Errors
    /// [`OriginError`] where another member may have them and cannot be asked.
    fn read_elsewhere(
        &self,
        _object: &StoredObject,
        _range: &mut OriginRange,
        _is_sound: &mut dyn FnMut(&mut OriginRange) -> bool,
    ) -> Result<bool, OriginError> {
        Ok(false)
    }
}

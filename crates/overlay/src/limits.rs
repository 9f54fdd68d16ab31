//! Named maxima. A value from disk, network or a guest is compared with these before anything is
//! allocated.

use acstor_types::limits;

/// Longest read that is answered, bytes.
pub const READ_BYTES_MAX: usize = 64 << 20;
/// Most payload of one record of the local log, bytes; a longer write becomes several records.
pub const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Smallest segment of the local log, bytes; a record takes at most a quarter of a segment.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Largest segment of the local log, bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Fewest segments that a quota must allow: the head, the next one, one for reclaiming.
pub const SEGMENTS_MIN: u64 = 4;
/// Length of a local log, as a multiple of its live content, from which it is compacted.
pub(crate) const COMPACTION_FACTOR: u64 = 2;
/// Segments beyond [`COMPACTION_FACTOR`] times the live content from which a local log is
/// compacted.
pub(crate) const COMPACTION_SEGMENTS: u64 = 4;
/// Most extents of a checkpoint (6 GiB of it); a log that has more folds or stays unsaved.
pub const CHECKPOINT_EXTENTS_MAX: u64 = 256 << 20;
/// Extents that a checkpoint copies per turn of the lock, about a millisecond.
pub(crate) const CHECKPOINT_STEP: usize = 32 << 10;
/// Most bytes of one local log that the kernel was not asked to write, whatever memory there is.
pub(crate) const WRITEBACK_BYTES_MAX: u64 = 1 << 30;
/// Bytes of one local log that the kernel need not be asked to write, however little memory there
/// is.
pub(crate) const WRITEBACK_BYTES_MIN: u64 = 64 << 20;
/// Bytes of segments of one local log that are dead and kept: what a writer goes over again while
/// its pages are in memory. As many may be dead before a checkpoint says so.
pub(crate) const KEPT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of records between two checkpoints of a log with few extents: what is dead by then was never
/// written to the disk.
pub(crate) const CHECKPOINT_BYTES: u64 = 1 << 30;
/// Bytes of records after which another checkpoint is due once the newest is some seconds old.
pub(crate) const CHECKPOINT_LATE_BYTES: u64 = 256 << 20;
/// Bytes of records for each byte of the newest checkpoint before the next one: what checkpoints add
/// to what is written is a share of it, however many extents there are.
pub(crate) const CHECKPOINT_SHARE: u64 = 8;
/// Most bytes of records between two checkpoints, which is what a recovery may have to read.
pub(crate) const CHECKPOINT_APART_MAX: u64 = 4 << 30;
/// Most payload of one log object, as stored, bytes.
pub const LOG_OBJECT_BYTES_MAX: usize = 8 << 20;
/// Most records of one log object.
pub const LOG_OBJECT_RECORDS_MAX: u32 = 1 << 17;
/// Most payload of one record of a log object before compression, bytes.
pub const LOG_RECORD_BYTES_MAX: usize = 1 << 20;
/// Most extents of a volume's map, about 700 MB with what is dirty of it: writes then wait for a fold,
/// which takes what the manifest holds out of it, and is due from a quarter of them on.
pub const EXTENTS_MAX: usize = 8 << 20;
/// Most regions of one volume.
pub const REGIONS_MAX: usize = 64;
/// Most groups of equal durability of one volume.
pub const GROUPS_MAX: usize = 16;
/// Most log ranges that a volume's record may list.
pub const LOG_RANGES_MAX: usize = 4096;
/// Largest record of a volume in the origin, bytes.
pub const VOLUME_RECORD_BYTES_MAX: usize = 1 << 20;
/// Objects over which a push is spread that nobody waits for.
pub(crate) const PACED_OBJECTS: u64 = 32;
/// Smallest object of a push that nobody waits for, bytes.
pub(crate) const PACED_OBJECT_BYTES_MIN: usize = 256 << 10;
/// Bytes that other groups may still have to push when a moment of all of them is cut: as much as a
/// write that waits for the origin may have to wait for.
pub(crate) const MOMENT_BYTES: u64 = 1 << 20;
/// Chunks that a fold reads and hashes before it stores them, bytes.
pub(crate) const FOLD_BATCH_BYTES: usize = 32 << 20;
/// Packs over which a fold is spread.
pub(crate) const FOLD_PACKS: usize = 16;
/// Smallest pack of a fold but for the last, bytes.
pub(crate) const FOLD_PACK_BYTES_MIN: usize = 1 << 20;
/// Pages of the manifests below a volume up to which a fold looks through them for chunks that it need not
/// store: those of some 20 GiB of data, read in tens of milliseconds.
pub(crate) const FOLD_SEARCH_PAGES_MAX: u64 = 4096;
/// Largest manifest that a fold makes, bytes: what hosts and the repository read, of either format
/// (`SIZE_MAX` of `acstor/repository/disk_manifest.py`).
pub(crate) const FOLD_MANIFEST_BYTES_MAX: u64 =
    limits::MANIFEST_CHUNKS_MAX * 40 + limits::MANIFEST_PACKS_MAX as u64 * 32 + 96;
/// Bytes of the manifest that each log object pays for: with fewer objects, a fold waits.
pub(crate) const FOLD_MANIFEST_BYTES_PER_OBJECT: u64 = 16 << 10;
/// Objects from which every volume is folded.
pub(crate) const FOLD_OBJECTS_MAX: u64 = 65_536;

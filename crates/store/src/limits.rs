//! Named maxima of the chunk store.

/// Fewest slots of a store; a smaller capacity is refused.
pub const SLOTS_MIN: u32 = 8;
/// Most slots of a store (64 TiB of 64 KiB chunks).
pub const SLOTS_MAX: u32 = 1 << 30;
/// Share of the slots that may be pinned, per cent: the rest stays evictable, so that a host with
/// many images attached still caches what its guests read.
pub const PINNED_PERCENT_MAX: u32 = 25;
/// Most bytes that one step of `insert_many` writes before it publishes what it wrote.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Most buffers of one vectored write (Linux's `IOV_MAX`).
pub const WRITE_PARTS_MAX: usize = 1024;
/// Most digests of a sketch.
pub const SKETCH_MAX: usize = 256;
/// Most bytes of memory for the checksums of pages. Those of a chunk of 64 KiB take 75: enough for the
/// 220 GiB that were inserted or hashed last.
pub const PAGE_SUMS_BYTES_MAX: usize = 256 << 20;
/// Bytes before a read that are in memory where it is taken for a sequential one.
pub const SEQUENTIAL_BYTES: usize = 16 << 10;
/// Records read by one system call when a store is scanned.
pub const SCAN_RECORDS: usize = 16 << 10;
/// Successful inserts after which a slot whose write failed is tried again.
pub const SUSPECT_RETRY_INTERVAL: u32 = 64;
/// Bytes written after which the kernel is asked to start writing them to the disk, and how those
/// before them fared.
pub const WRITEBACK_BYTES: u64 = 1 << 20;

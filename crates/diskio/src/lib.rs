//! Files on this host's disk, as the chunk store and the local logs of volumes use them.
//!
//! Over an open file: reservation of disk space, reads and writes at offsets, write-back in steps,
//! what the page cache has of it, and its lock. Each owner of files has its own seam over them, at
//! which its tests put in a disk that fails.

mod file_lock;
mod page_cache;
mod positioned;
mod reservation;
pub mod residency;
mod writeback;

pub use file_lock::FileLock;
pub use page_cache::{forget_pages, read_direct};
pub use positioned::{read_cached, write_all_at};
pub use reservation::{DiskSpace, preallocate, space};
pub use writeback::{finish_writeback, start_writeback};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

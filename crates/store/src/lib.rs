//! The chunk store: digests held on one host's disk.
//!
//! A preallocated data file of fixed slots, a file of one record per slot, a superblock; the index
//! is in memory and rebuilt from the records when the store is opened. Nothing is synced: what was
//! published survives a kill of the process because the page cache does, and what a power cut
//! leaves behind is found out by hashing a slot the first time it is read after a restart. Wrong
//! bytes on disk are a miss and a metric, never an answer. Layouts: [`STORE_VERSION`] and
//! `reference/formats/chunk-store`.

mod config;
mod core;
mod directory;
mod discard;
mod disk;
mod error;
pub mod eviction;
mod format;
mod free_slots;
mod guard;
mod index;
mod insert;
pub mod limits;
mod page_sums;
mod pages;
mod pins;
mod recovery;
mod sketch;
mod slot_state;
mod stats;
mod store;
mod writeback;

pub use config::{EvictionKind, ParseEvictionError, StoreConfig};
pub use discard::Discarded;
pub use disk::{Disk, HostDisk, SlotFile};
pub use error::StoreError;
pub use format::STORE_VERSION;
pub use guard::ChunkGuard;
pub use sketch::Sketch;
pub use stats::StoreStats;
pub use store::{ChunkStore, Cursor, Inserted, Look};

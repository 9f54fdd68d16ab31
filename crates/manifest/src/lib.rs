//! Manifests of format 2: chunk index to stored chunk, for one immutable disk state, by the page.
//!
//! What a manifest costs follows the data of its disk, not the disk's size, and none of it has to be
//! in memory: a look-up reads a directory, a map and an entry, each a page of 4 KiB that is verified
//! alone against a Merkle tree whose root is in the header, whose digest is the manifest's name.
//!
//! ```text
//! header | summary: packs, used bytes | page index | directories | maps | entries
//! ```
//!
//! Described in `reference/formats/manifest-v2`. Nothing here reads a file, waits, or knows who asks:
//! pages come from a [`PageSource`] (verified) over [`RawPages`] (as a disk or a network has them),
//! and a manifest that is built goes to whatever `std::io` traits its caller has.
//!
//! * [`Header`], [`verify_page`]: what a name vouches for.
//! * [`Reader`]: one manifest. [`Stack`]: a delta on its bases; look-up, [`Stack::next_data`],
//!   [`Stack::next_hole`], entries in the order of the disk.
//! * [`Summary`]: all packs and what is used of them, without an entry.
//! * [`Builder`], [`merge`], [`levels_to_merge`]: new manifests, and their depth.
//! * [`PageCache`], [`CachedPages`], [`VerifiedPages`]: one bounded cache for all manifests.
//!
//! # Decisions
//!
//! * *Usage in bytes, not in numbers of chunks.* An entry says where in its pack a chunk lies, not
//!   which one of the pack's it is, and there is no room for both. Runs of bytes follow from entries
//!   alone, so a merge needs no pack's table, a check can compare, and what is unique or shared is
//!   counted in stored bytes at once. Price: 8 bytes a run where a bitmap takes one bit a chunk.
//! * *Ordinals cannot lie.* The header has the first ordinal of each directory, a directory those of
//!   its spans and how many data chunks each has. So any directory page shows by itself that no two
//!   chunks share an entry, and a map page has no ordinal at all.
//! * *The form of a page is checked once*, when its digest is: whoever holds a [`Page`] knows it.
//! * *Only three counts of pages are stored*, all else follows: what is not said twice cannot differ.
//! * *Entries come last in the file and first when it is built*, so that one read of the beginning has
//!   everything else. The builder therefore keeps what precedes them in memory, and the entries alone
//!   on a spool.

mod cache;
mod error;
mod format;
pub mod limits;
mod page;
mod read;
mod write;

pub use cache::cached_pages::{CachedPages, PageError};
pub use cache::page_cache::{PageCache, PageCacheStats};
pub use cache::verified_pages::VerifiedPages;
pub use error::ManifestError;
pub use format::entry::Entry;
pub use format::header::{Header, KNOWN_FEATURES, MANIFEST_VERSION, Salt};
pub use format::index::{Parent, verify_page};
pub use format::layout;
pub use format::layout::{Counts, PageKind, Sections};
pub use format::summary::{Pack, PackRecord, Summary};
pub use page::{PAGE_LEN, Page, PageBytes, PageSource, RawBytes, RawPages};
pub use read::content_name::ContentName;
pub use read::entries::{DataChunk, Entries};
pub use read::extents::DataRuns;
pub use read::reader::{Found, Reader};
pub use read::stack::{Chunk, Stack};
pub use write::builder::{Base, BuildError, Builder, Disk};
pub use write::built::Built;
pub use write::levels::{delta_pages, levels_to_merge};
pub use write::merge::{Change, MergeError, MergedDisk, merge};

//! The read path: store, peers and origin behind one verified read.
//!
//! A [`ReadPath`] gives each attached disk a [`BlockView`]. A read of a chunk is answered by the
//! manifest (zero), this host's [`LocalStore`], a peer that the ring names ([`PeerSource`]) or the
//! origin ([`OriginSource`]), in that order; whatever came over a wire or from the origin is
//! verified before anyone sees it. The same read path answers peers (`acstor_peer::ChunkServer`).
//!
//! `doc/source/contributor/read-path.rst` follows one read through the modules.
//!
//! Must never: wait for a network in [`BlockView::try_read`], retry without a bound, return bytes
//! that were not verified, or let a source that fails take the others with it.

mod attachment;
mod attempt;
mod boot_recorder;
mod compression_wish;
mod config;
mod counts;
mod deduplication;
mod disk;
mod disk_view;
mod error;
mod extents;
mod flight;
mod ghost;
mod inserter;
mod jitter;
mod kept_chunks;
mod latency;
mod ledger;
pub mod limits;
mod local;
mod manifest_source;
pub mod metric_names;
mod metrics;
mod obtain;
mod offered_view;
mod origin;
mod origin_health;
mod origin_lanes;
mod origin_pool;
mod origin_queue;
mod outcome;
mod peer_client;
mod peer_health;
mod peer_latencies;
mod peers;
mod pins;
mod placement;
mod posix_pack_reader;
mod prefetch;
mod preload;
mod preload_metrics;
mod readpath;
mod recent;
mod round;
mod runtime_metrics;
#[cfg(test)]
mod scenarios;
mod serve;
mod slow_looks;
mod source_delay;
mod sources;
mod sources_now;
mod steering;
mod store_health;
mod store_reader;
mod streams;
mod tier;
mod token_bucket;
mod view;
mod waiting_reads;
mod wanted_chunks;
mod working_sets;

pub use acstor_store::residency;
pub use boot_recorder::WorkingSet;
pub use config::{Keep, PlacementRule, ReadPathConfig};
pub use counts::{ReadCounts, TierCount};
pub use deduplication::Walk;
pub use error::{ReadError, ReadPathError};
pub use local::{
    HostStore, InsertOutcome, LocalChunk, LocalError, LocalLook, LocalStore, LocalUsage,
};
pub use manifest_source::{ManifestFault, ManifestFile, ManifestSource};
pub use origin::{OriginError, OriginRange, OriginSource};
pub use peer_latencies::PeerLatency;
pub use peers::{HoldsFuture, NO_HINT, PeerFuture, PeerSource};
pub use pins::PinReport;
pub use posix_pack_reader::{OPEN_PACKS_MAX, PosixPackReader};
pub use preload::{PreloadEstimate, PreloadState, PreloadStatus, PreloadWhat, PreloadWish};
pub use readpath::{ManifestState, ReadPath, Seams};
pub use tier::Tier;
pub use view::{BlockView, ExtentKind, PrepareFuture, ReadDone, ReadFuture, Segment, TryRead};
pub use wanted_chunks::Coverage;

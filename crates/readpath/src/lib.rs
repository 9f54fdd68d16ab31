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

mod ahead;
mod config;
mod error;
mod exchange;
mod fetch;
mod keeping;
pub mod limits;
mod observe;
mod origin;
mod pages;
mod preload;
mod readpath;
#[cfg(test)]
mod scenarios;
mod seams;
mod steering;
mod view;

pub use acstor_selection::CompressionCost;
/// The numbers by which compression is judged.
pub mod compression_limits {
    pub use acstor_selection::limits::{
        COMPRESSION_CPU_IDLE_MIN, COMPRESSION_RATIO_UNSEEN, COMPRESSION_TIME_UNSEEN,
    };
}
pub use acstor_selection::Prefer;
pub use acstor_selection::exchange::{Neighbourhood, Order};
pub use ahead::boot_profiles::{boot_profile_len_max, encode_order};
pub use ahead::boot_recorder::WorkingSet;
pub use ahead::disk_boots::{DiskBoots, Reader};
pub use ahead::finished_boots::RecordedBoot;
pub use config::{Keep, PlacementRule, ReadPathConfig};
pub use error::{ReadError, ReadPathError};
pub use fetch::local::{
    HostStore, InsertOutcome, LocalChunk, LocalError, LocalLook, LocalStore, LocalUsage,
};
pub use fetch::tier::Tier;
pub use keeping::held_chunks::HeldChunks;
pub use keeping::pins::PinReport;
pub use observe::counts::{ReadCounts, TierCount};
pub use observe::metric_names;
pub use origin::posix_pack_reader::{OPEN_PACKS_MAX, PosixPackReader};
pub use origin::{OriginError, OriginRange, OriginSource, StoredObject};
pub use preload::{
    FedChunk, FeedFuture, FeedRequest, PreloadEstimate, PreloadFeed, PreloadRequest, PreloadState,
    PreloadStatus, PreloadWhat,
};
pub use readpath::ReadPath;
pub use seams::Seams;
pub use steering::peer_latencies::PeerLatency;
pub use steering::peers::{HoldsFuture, NO_HINT, PeerFuture, PeerSource};
pub use view::attachments::ManifestState;
pub use view::deduplication::Walk;
pub use view::disk_manifest::{DiskManifest, LocalPages, PageFile, PagedManifest, PagedReader};
pub use view::disk_shape::DiskShape;
pub use view::manifest_source::{ManifestFault, ManifestFile, ManifestSource};
pub use view::wanted_chunks::Coverage;
pub use view::{BlockView, ExtentKind, PrepareFuture, ReadDone, ReadFuture, Segment, TryRead};

//! Whole read paths in paused time: hosts in memory, a network and an origin that can fail.

mod booting;
mod deduplicating;
mod image;
mod keeping;
mod link;
mod loading;
mod local_disk;
mod manifest_turns;
mod memory_store;
mod model;
mod network;
mod offering;
mod origin_faults;
mod origin_returns;
mod origin_shares;
mod peer_faults;
mod pinning;
mod prefetching;
mod preloading;
mod remapping;
mod selecting;
mod serving;
mod standing_still;
mod test_origin;
mod viewing;
mod world;

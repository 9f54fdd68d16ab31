//! Whole read paths in paused time: hosts in memory, a network and an origin that can fail.

mod booting;
mod deduplicating;
mod image;
mod keeping;
mod link;
mod loading;
mod memory_store;
mod model;
mod network;
mod origin_faults;
mod peer_faults;
mod pinning;
mod prefetching;
mod preloading;
mod remapping;
mod serving;
mod test_origin;
mod viewing;
mod world;

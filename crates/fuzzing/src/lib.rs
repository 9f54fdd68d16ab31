//! Fuzz targets: one module for each decoder and each end of a protocol, with the properties that
//! must hold for any bytes at all.
//!
//! Two drive it. `tools/fuzz` builds it with coverage instrumentation (`fuzz/`), for as long as one
//! likes; the tests of this crate mutate the golden files at random, the same in every run. For tests
//! only: nothing here is linked into the product.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a broken promise is told"
)]

pub mod fuse_requests;
pub mod manifest;
pub mod manifest_pages;
pub mod moved_pack;
pub mod multicast;
pub mod mutations;
pub mod nbd_protocol;
pub mod nbd_server;
pub mod pack_header;
pub mod pack_table;
pub mod peer_client;
pub mod peer_frames;
pub mod peer_server;
pub mod rados_head;
pub mod ring;
pub mod store_records;
pub mod stored_chunk;

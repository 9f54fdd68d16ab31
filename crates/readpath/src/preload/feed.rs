//! Chunks that come to a preload by themselves, before it fetches what is missing.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use acstor_types::{Digest, DiskId};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::PreloadRequest;

/// A chunk that came and was verified: its index, its digest, its content.
pub type FedChunk = (u64, Digest, Bytes);

/// Future of a feed that has ended.
pub type FeedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Chunks that a preload misses.
#[derive(Debug)]
pub struct FeedRequest {
    /// The disk.
    pub disk: DiskId,
    /// The preload's request.
    pub request: PreloadRequest,
    /// Chunks that are missing, with the digests of the manifest.
    pub missing: HashMap<u64, Digest>,
}

/// Feed of preloads: a group that hears one sender.
pub trait PreloadFeed: Send + Sync + 'static {
    /// Passes chunks on until nothing more is to be had; a chunk for which there is no room is dropped, and
    /// fetched. The implementation has verified each chunk, and ends by itself.
    fn feed(&self, request: FeedRequest, chunks: mpsc::Sender<FedChunk>) -> FeedFuture;
}

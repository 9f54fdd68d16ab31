//! Compresses chunks for peers that welcome it, beside the connections.
//!
//! LZ4 of 64 KiB takes about 0.1 ms, of 4 MiB some milliseconds: too long for a connection's task, where
//! every other answer would wait behind it, and for the runtime's threads. So it is done on tokio's
//! blocking threads, a few chunks at a time; a bounded number of bytes waits for its turn, and what is
//! beyond goes out as it is: compression can make an answer smaller, it never refuses one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::stats::add;
use crate::ServerLimits;
use crate::compression::{self, WireChunk};

/// Compression of answers, bounded in the chunks at a time and in the bytes that wait.
pub(super) struct Compressor {
    /// One permit per chunk that is being compressed.
    running: Arc<Semaphore>,
    /// One permit per byte that waits or is being compressed.
    waiting: Arc<Semaphore>,
    scratch: Arc<Mutex<Vec<Vec<u8>>>>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    compressed: AtomicU64,
    incompressible: AtomicU64,
    busy: AtomicU64,
}

/// Results of answers that the requester accepts compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// Chunks that were compressed.
    pub compressed: u64,
    /// Chunks that went out as they are: compression would have saved less than an eighth.
    pub incompressible: u64,
    /// Chunks that went out as they are: too much waited to be compressed already.
    pub busy: u64,
}

impl Compressor {
    pub(super) fn new(limits: &ServerLimits) -> Compressor {
        Compressor {
            running: Arc::new(Semaphore::new(limits.compressions_max)),
            waiting: Arc::new(Semaphore::new(match limits.compressions_max {
                0 => 0,
                _ => limits.compression_bytes_max as usize,
            })),
            scratch: Arc::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the chunk compressed, or as it is where that is not worth it or too much waits.
    ///
    /// # Cancel safety
    /// Dropping the future frees what waits; a compression that runs ends by itself and counts until then.
    pub(super) async fn offer(&self, chunk: Bytes) -> WireChunk {
        let Some(permits) = self.turn(chunk.len()).await else {
            add(&self.counters.busy, 1);
            return WireChunk::Plain(chunk);
        };
        let (content, free) = (chunk.clone(), Arc::clone(&self.scratch));
        let work = tokio::task::spawn_blocking(move || {
            let _permits = permits;
            let mut scratch = free.lock().pop().unwrap_or_default();
            let body = compression::compress(&content, &mut scratch);
            // As many as there are compressions at a time.
            free.lock().push(scratch);
            body
        });
        match work.await {
            Ok(Some(body)) => {
                add(&self.counters.compressed, 1);
                WireChunk::Compressed(body)
            }
            Ok(None) => {
                add(&self.counters.incompressible, 1);
                WireChunk::Plain(chunk)
            }
            Err(failure) => {
                tracing::error!(%failure, "compressing a chunk failed");
                WireChunk::Plain(chunk)
            }
        }
    }

    async fn turn(&self, bytes: usize) -> Option<[OwnedSemaphorePermit; 2]> {
        let bytes = u32::try_from(bytes).ok()?;
        let waiting = Arc::clone(&self.waiting).try_acquire_many_owned(bytes).ok()?;
        let running = Arc::clone(&self.running).acquire_owned().await.ok()?;
        Some([waiting, running])
    }

    pub(super) fn stats(&self) -> CompressionStats {
        let get = |counter: &AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        let Counters { compressed, incompressible, busy } = &self.counters;
        CompressionStats {
            compressed: get(compressed),
            incompressible: get(incompressible),
            busy: get(busy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressor(compressions_max: usize, compression_bytes_max: u64) -> Compressor {
        Compressor::new(&ServerLimits {
            compressions_max,
            compression_bytes_max,
            ..ServerLimits::default()
        })
    }

    #[tokio::test]
    async fn test_offer_beyond_the_bytes_that_may_wait_goes_out_as_it_is() {
        let compressor = compressor(1, 4 << 20);
        let chunk = Bytes::from(vec![0; 4 << 20]);
        let held = compressor.turn(1).await.unwrap();
        assert_eq!(compressor.offer(chunk.clone()).await, WireChunk::Plain(chunk.clone()));
        assert_eq!(compressor.stats(), CompressionStats { busy: 1, ..CompressionStats::default() });
        drop(held);
        assert!(matches!(compressor.offer(chunk).await, WireChunk::Compressed(_)));
    }

    #[tokio::test]
    async fn test_offer_waits_for_its_turn() {
        let compressor = compressor(1, 4 << 20);
        let held = compressor.turn(1).await.unwrap();
        let chunk = Bytes::from(vec![7; 65_536]);
        let mut offer = Box::pin(compressor.offer(chunk));
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(offer.as_mut().poll(cx).is_pending()))
                .await
        );
        drop(held);
        assert!(matches!(offer.await, WireChunk::Compressed(_)));
        assert_eq!(compressor.scratch.lock().len(), 1);
        assert_eq!(compressor.waiting.available_permits(), 4 << 20);
    }

    #[tokio::test]
    async fn test_offer_without_compressions_goes_out_as_it_is() {
        let compressor = compressor(0, 4 << 20);
        let chunk = Bytes::from(vec![0; 4096]);
        assert_eq!(compressor.offer(chunk.clone()).await, WireChunk::Plain(chunk));
    }
}

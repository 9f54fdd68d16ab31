//! Compresses chunks for peers that welcome it, beside the connections.
//!
//! LZ4 of 64 KiB takes about 0.1 ms, of 4 MiB some milliseconds: too long for a connection's task, where
//! every other answer would wait behind it, and for the runtime's threads. So it is done on tokio's
//! blocking threads, a few chunks at a time; a bounded number of bytes waits for its turn, and what is
//! beyond goes out as it is: compression can make an answer smaller, it never refuses one. What was compressed
//! is kept for the next who ask for it (`compressed_forms`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::compressed_forms::CompressedForms;
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
    forms: Arc<CompressedForms>,
    /// True while the host's processors have no time for it.
    is_cpu_busy: AtomicBool,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    compressed: AtomicU64,
    incompressible: AtomicU64,
    busy: AtomicU64,
    kept: AtomicU64,
    cpu_busy: AtomicU64,
    nanos: AtomicU64,
    bytes: AtomicU64,
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
    /// Chunks that were compressed for somebody before.
    pub kept: u64,
    /// Chunks that went out as they are: the host's processors had no time.
    pub cpu_busy: u64,
    /// Time that compressing took, on one processor.
    pub time: Duration,
    /// Bytes that were to be compressed in that time.
    pub bytes: u64,
    /// Bytes of compressed forms that are kept.
    pub kept_bytes: u64,
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
            forms: Arc::new(CompressedForms::new(limits.compressed_forms_bytes_max)),
            is_cpu_busy: AtomicBool::new(false),
            counters: Arc::default(),
        }
    }

    /// Compresses nothing from now on, or does again: what is kept is sent all the same.
    pub(super) fn set_cpu_busy(&self, is_busy: bool) {
        self.is_cpu_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Forgets the compressed forms of some chunks.
    pub(super) fn forget(&self, digests: &[Digest]) {
        self.forms.forget(digests);
    }

    /// Returns the chunk compressed, or as it is where that is not worth it, too much waits or the processors
    /// are busy.
    ///
    /// # Cancel safety
    /// Dropping the future frees what waits; a compression that runs ends by itself and counts until then.
    pub(super) async fn offer(&self, digest: Digest, chunk: Bytes) -> WireChunk {
        match self.forms.get(&digest) {
            Some(Some(body)) => {
                add(&self.counters.kept, 1);
                return WireChunk::Compressed(body);
            }
            Some(None) => {
                add(&self.counters.incompressible, 1);
                return WireChunk::Plain(chunk);
            }
            None if self.is_cpu_busy.load(Ordering::Relaxed) => {
                add(&self.counters.cpu_busy, 1);
                return WireChunk::Plain(chunk);
            }
            None => {}
        }
        let Some(permits) = self.turn(chunk.len()).await else {
            add(&self.counters.busy, 1);
            return WireChunk::Plain(chunk);
        };
        let (content, free) = (chunk.clone(), Arc::clone(&self.scratch));
        let (forms, counters) = (Arc::clone(&self.forms), Arc::clone(&self.counters));
        let work = tokio::task::spawn_blocking(move || {
            let _permits = permits;
            let mut scratch = free.lock().pop().unwrap_or_default();
            let begun = Instant::now();
            let body = compression::compress(&content, &mut scratch);
            counters.note(begun.elapsed(), content.len());
            // What the requester will find wrong is not to outlive its cause.
            if digest.matches(&content) {
                forms.insert(digest, body.clone());
            }
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
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { compressed, incompressible, busy, kept, cpu_busy, nanos, bytes } =
            &*self.counters;
        CompressionStats {
            compressed: get(compressed),
            incompressible: get(incompressible),
            busy: get(busy),
            kept: get(kept),
            cpu_busy: get(cpu_busy),
            time: Duration::from_nanos(get(nanos)),
            bytes: get(bytes),
            kept_bytes: self.forms.bytes(),
        }
    }
}

impl Counters {
    /// Notes that a chunk took so long to be compressed.
    fn note(&self, time: Duration, bytes: usize) {
        add(&self.nanos, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        add(&self.bytes, bytes as u64);
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
        assert_eq!(
            compressor.offer(Digest::of(&chunk), chunk.clone()).await,
            WireChunk::Plain(chunk.clone())
        );
        assert_eq!(compressor.stats(), CompressionStats { busy: 1, ..CompressionStats::default() });
        drop(held);
        assert!(matches!(
            compressor.offer(Digest::of(&chunk), chunk).await,
            WireChunk::Compressed(_)
        ));
    }

    #[tokio::test]
    async fn test_offer_waits_for_its_turn() {
        let compressor = compressor(1, 4 << 20);
        let held = compressor.turn(1).await.unwrap();
        let chunk = Bytes::from(vec![7; 65_536]);
        let mut offer = Box::pin(compressor.offer(Digest::of(&chunk), chunk));
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
    async fn test_offer_compresses_a_chunk_once_while_the_processors_have_time() {
        let compressor = compressor(1, 4 << 20);
        let (chunk, other) = (Bytes::from(vec![7; 65_536]), Bytes::from(vec![8; 65_536]));
        let digest = Digest::of(&chunk);
        let first = compressor.offer(digest, chunk.clone()).await;
        assert!(matches!(first, WireChunk::Compressed(_)));
        compressor.set_cpu_busy(true);
        assert_eq!(compressor.offer(digest, chunk.clone()).await, first);
        let plain = compressor.offer(Digest::of(&other), other.clone()).await;
        assert_eq!(plain, WireChunk::Plain(other));
        let stats = compressor.stats();
        assert_eq!((stats.compressed, stats.kept, stats.cpu_busy), (1, 1, 1));
        assert_eq!(stats.bytes, 65_536);
        assert!(stats.time > Duration::ZERO && stats.kept_bytes > 0);
        compressor.set_cpu_busy(false);
        compressor.forget(&[digest]);
        compressor.offer(digest, chunk).await;
        assert_eq!(compressor.stats().compressed, 2);
    }

    #[tokio::test]
    async fn test_offer_keeps_no_form_of_content_that_is_not_what_was_asked_for() {
        let compressor = compressor(1, 4 << 20);
        compressor.offer(Digest::of(b"other"), Bytes::from(vec![7; 65_536])).await;
        assert_eq!(compressor.stats().kept_bytes, 0);
    }

    #[tokio::test]
    async fn test_offer_without_compressions_goes_out_as_it_is() {
        let compressor = compressor(0, 4 << 20);
        let chunk = Bytes::from(vec![0; 4096]);
        assert_eq!(
            compressor.offer(Digest::of(&chunk), chunk.clone()).await,
            WireChunk::Plain(chunk)
        );
    }
}

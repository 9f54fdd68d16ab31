//! Chunk servers: a correct one, and wrappers that each have one fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_peer::{ChunkRequest, ChunkServer, ClassWatch, PeerStatus, ServeFuture};
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The content of chunk `index` of the test disk.
pub fn content(index: u64, chunk_size: ChunkSize) -> Bytes {
    let word = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(chunk_size.bytes()).collect::<Vec<u8>>().into()
}

/// Answers every request at once, correctly; refuses digests that are not of its disk.
#[derive(Clone, Copy)]
pub struct TestDisk;

impl ChunkServer for TestDisk {
    fn serve(&self, request: ChunkRequest, _class: ClassWatch, _deadline: Instant) -> ServeFuture {
        let chunk = content(request.chunk_index, request.chunk_size);
        let is_ours = request.digest == Digest::of(&chunk);
        Box::pin(async move { if is_ours { Ok(chunk) } else { Err(PeerStatus::NotFound) } })
    }
}

/// Answers only as the test hands out permits, and counts what it was asked and what was dropped.
pub struct Gated<S> {
    inner: Arc<S>,
    pub gate: Arc<Semaphore>,
    pub started: Arc<AtomicUsize>,
    pub dropped: Arc<AtomicUsize>,
}

impl<S> Clone for Gated<S> {
    fn clone(&self) -> Gated<S> {
        Gated {
            inner: Arc::clone(&self.inner),
            gate: Arc::clone(&self.gate),
            started: Arc::clone(&self.started),
            dropped: Arc::clone(&self.dropped),
        }
    }
}

impl<S: ChunkServer> Gated<S> {
    pub fn new(inner: S) -> Gated<S> {
        Gated {
            inner: Arc::new(inner),
            gate: Arc::new(Semaphore::new(0)),
            started: Arc::default(),
            dropped: Arc::default(),
        }
    }

    pub fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<S: ChunkServer> ChunkServer for Gated<S> {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        let Gated { inner, gate, started, dropped } = self.clone();
        started.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let _counted = CountDrop(dropped);
            gate.acquire().await.map_err(|_| PeerStatus::ShuttingDown)?.forget();
            inner.serve(request, class, deadline).await
        })
    }
}

/// Flips one bit of every chunk.
pub struct WrongBytes<S>(pub S);

impl<S: ChunkServer> ChunkServer for WrongBytes<S> {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        let answer = self.0.serve(request, class, deadline);
        Box::pin(async move {
            let mut chunk = answer.await?.to_vec();
            chunk[0] ^= 1;
            Ok(chunk.into())
        })
    }
}

/// Answers one byte too few.
pub struct WrongSize<S>(pub S);

impl<S: ChunkServer> ChunkServer for WrongSize<S> {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        let answer = self.0.serve(request, class, deadline);
        Box::pin(async move {
            let chunk = answer.await?;
            Ok(chunk.slice(1..))
        })
    }
}

/// Panics while it serves odd chunks, after a wait.
pub struct Panicking<S>(pub S);

impl<S: ChunkServer> ChunkServer for Panicking<S> {
    fn serve(&self, request: ChunkRequest, class: ClassWatch, deadline: Instant) -> ServeFuture {
        let answer = self.0.serve(request, class, deadline);
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(request.chunk_index.is_multiple_of(2), "this panic is part of a test");
            answer.await
        })
    }
}

/// Answers every request with one status.
pub struct Refusing(pub PeerStatus);

impl ChunkServer for Refusing {
    fn serve(&self, _request: ChunkRequest, _class: ClassWatch, _deadline: Instant) -> ServeFuture {
        let status = self.0;
        Box::pin(async move { Err(status) })
    }
}

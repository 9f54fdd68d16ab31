//! Disks whose every byte follows from its offset, so that any reader can check any read.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs::File;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acstor_readpath::{
    BlockView, ExtentKind, PrepareFuture, ReadError, ReadFuture, Segment, TryRead,
};
use acstor_store::{ChunkStore, Inserted, Look};
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;

pub const CHUNK: u64 = 64 << 10;
/// Distance of two chunks that are holes, in chunks.
const HOLE_EVERY: u64 = 8;
const HOLE_AT: u64 = 5;

pub fn is_hole(chunk: u64) -> bool {
    chunk % HOLE_EVERY == HOLE_AT
}

fn word(seed: u64, index: u64) -> [u8; 8] {
    // SplitMix64.
    let mut z = seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Fills `buffer` with what a disk of this seed has at `offset`.
pub fn fill(seed: u64, offset: u64, buffer: &mut [u8]) {
    let mut at = offset;
    let end = offset + buffer.len() as u64;
    while at < end {
        let stop = end.min((at / 8 + 1) * 8);
        let target = &mut buffer[(at - offset) as usize..(stop - offset) as usize];
        if is_hole(at / CHUNK) {
            target.fill(0);
        } else {
            let skip = (at % 8) as usize;
            target.copy_from_slice(&word(seed, at / 8)[skip..skip + target.len()]);
        }
        at = stop;
    }
}

/// The first byte of `bytes`, read at `offset`, that is wrong.
pub fn first_wrong(seed: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let mut expected = vec![0; bytes.len()];
    fill(seed, offset, &mut expected);
    if bytes == expected {
        return None;
    }
    bytes.iter().zip(&expected).position(|(a, b)| a != b).map(|at| offset + at as u64)
}

/// Behaviour of a view; changed while it serves.
#[derive(Debug, Default)]
pub struct Knobs {
    /// One read in this many must wait; 0: none.
    pub wait_every: AtomicU64,
    /// Delay of such a read.
    pub delay_ms: AtomicU64,
    /// Delay of the view at an open.
    pub prepare_ms: AtomicU64,
    /// True if waiting reads never end.
    pub hang: AtomicBool,
    /// True if reads fail.
    pub fail: AtomicBool,
    /// True if reads panic.
    pub panic: AtomicBool,
    /// True if reads return one byte less than asked for.
    pub short: AtomicBool,
    /// Bytes of which `st_blocks` is made.
    pub cached: AtomicU64,
    /// The file to cut to no bytes between the next look at the store and its answer.
    pub cut: Mutex<Option<File>>,
    /// Reads that reached the view.
    pub reads: AtomicU64,
    /// Opens that the view was told of.
    pub boots: AtomicU64,
    /// Times that a view of which nothing is learnt was asked for.
    pub unrecorded: AtomicU64,
}

/// A disk of computed content, from memory or from a chunk store.
#[derive(Clone)]
pub struct PatternView {
    seed: u64,
    size: u64,
    store: Option<(ChunkStore, Arc<Vec<Digest>>)>,
    pub knobs: Arc<Knobs>,
}

impl PatternView {
    pub fn new(seed: u64, size: u64) -> PatternView {
        PatternView { seed, size, store: None, knobs: Arc::default() }
    }

    /// The same with its chunks in a store, so that answers come from the mapped file.
    pub fn in_store(seed: u64, size: u64, store: ChunkStore) -> PatternView {
        let mut digests = Vec::new();
        for chunk in 0..ChunkSize::DEFAULT.count_for(size) {
            let mut content = vec![0; CHUNK as usize];
            fill(seed, chunk * CHUNK, &mut content);
            let digest = Digest::of(&content);
            if !is_hole(chunk) {
                let inserted = store.insert(&digest, &content).expect("store");
                assert!(inserted != Inserted::Refused, "the store is too small");
            }
            digests.push(digest);
        }
        PatternView { seed, size, store: Some((store, Arc::new(digests))), knobs: Arc::default() }
    }

    fn range(&self, offset: u64, len: usize) -> std::ops::Range<u64> {
        let start = offset.min(self.size);
        start..start + (self.size - start).min(len as u64)
    }

    /// The segments of a range; `None` where one is on the disk only and `read_disk` is off.
    fn segments(&self, offset: u64, len: usize, read_disk: bool) -> Option<Vec<Segment>> {
        let range = self.range(offset, len);
        let (mut at, end) = (range.start, range.end);
        let mut segments = Vec::new();
        while at < end {
            let stop = end.min((at / CHUNK + 1) * CHUNK);
            segments.push(self.segment(at, (stop - at) as usize, read_disk)?);
            at = stop;
        }
        if self.knobs.short.load(Ordering::Relaxed) {
            segments.pop();
        }
        Some(segments)
    }

    fn segment(&self, at: u64, len: usize, read_disk: bool) -> Option<Segment> {
        let chunk = at / CHUNK;
        if is_hole(chunk) {
            return Some(Segment::Zeros(len));
        }
        let start = (at % CHUNK) as usize;
        if let Some((store, digests)) = &self.store {
            let digest = &digests[chunk as usize];
            match store.look(digest, start, len) {
                Look::Memory(chunk) => return Some(Segment::Mapped { chunk, start, len }),
                Look::Copy(bytes) => return Some(Segment::Bytes(bytes)),
                Look::Disk(_) if !read_disk => return None,
                Look::Disk(part) => {
                    if let Some(bytes) = store.read(digest, &part) {
                        let start = start - part.start;
                        return Some(Segment::Bytes(bytes.slice(start..start + len)));
                    }
                }
                Look::Absent => {}
            }
        }
        let mut bytes = vec![0; len];
        fill(self.seed, at, &mut bytes);
        Some(Segment::Bytes(Bytes::from(bytes)))
    }
}

impl BlockView for PatternView {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn prepare(&self) -> Option<PrepareFuture> {
        let delay = Duration::from_millis(self.knobs.prepare_ms.load(Ordering::Relaxed));
        if delay.is_zero() {
            return None;
        }
        Some(Box::pin(async move {
            tokio::time::sleep(delay).await;
            Ok(())
        }))
    }

    fn opened(&self) {
        self.knobs.boots.fetch_add(1, Ordering::Relaxed);
    }

    fn unrecorded(&self) -> Option<Arc<dyn BlockView>> {
        self.knobs.unrecorded.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(self.clone()))
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        let number = self.knobs.reads.fetch_add(1, Ordering::Relaxed);
        assert!(!self.knobs.panic.load(Ordering::Relaxed), "asked to panic");
        let every = self.knobs.wait_every.load(Ordering::Relaxed);
        if every != 0 && number.is_multiple_of(every) {
            return Ok(TryRead::WouldWait);
        }
        if self.knobs.fail.load(Ordering::Relaxed) {
            return Err(ReadError::Deadline(1));
        }
        let segments = self.segments(offset, len, false);
        if let Some(file) = self.knobs.cut.lock().unwrap().take() {
            file.set_len(0).unwrap();
        }
        Ok(segments.map_or(TryRead::WouldWait, TryRead::Ready))
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let (knobs, view) = (self.knobs.clone(), self.clone());
        Box::pin(async move {
            let delay = Duration::from_millis(knobs.delay_ms.load(Ordering::Relaxed));
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            while knobs.hang.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(!knobs.panic.load(Ordering::Relaxed), "asked to panic");
            if knobs.fail.load(Ordering::Relaxed) {
                return Err(ReadError::Deadline(1));
            }
            let segments = match view.segments(offset, len, false) {
                Some(segments) => Some(segments),
                // As the read path does: the disk is waited for by threads that do nothing else.
                None => tokio::task::spawn_blocking(move || view.segments(offset, len, true))
                    .await
                    .expect("reading"),
            };
            Ok(segments.expect("every source was asked"))
        }) as Pin<Box<_>>
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        let mut at = offset;
        while at < self.size {
            if is_hole(at / CHUNK) == (kind == ExtentKind::Hole) {
                return Some(at);
            }
            at = (at / CHUNK + 1) * CHUNK;
        }
        (kind == ExtentKind::Hole).then_some(self.size)
    }

    fn cached_bytes(&self) -> u64 {
        self.knobs.cached.load(Ordering::Relaxed)
    }
}

//! Recorder of the chunks that guests read while a disk boots.
//!
//! A boot begins when a handle is opened; its window lasts a fixed time from the last open on, so
//! that the opens of one boot (Nova's inspection, QEMU) are one. A read costs one load while no
//! window is open, and one load and at most one relaxed OR per chunk while one is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::limits;

/// Chunks of one block of bits: 4 KiB of them.
const BLOCK_CHUNKS: u64 = 1 << 15;

/// Bits of neighbouring chunks, so that what nobody reads costs next to nothing.
type Block = [AtomicU64; (BLOCK_CHUNKS / 64) as usize];

/// Recorder of the chunks that boots of one disk read on this host since the process started.
#[derive(Debug)]
pub(crate) struct BootRecorder {
    chunk_count: u64,
    /// True if a window is open.
    is_open: AtomicBool,
    /// One bit per chunk, by the block; made when the first boot begins, each block when one of its chunks
    /// is read.
    read: OnceLock<Box<[OnceLock<Box<Block>>]>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    boots: u64,
    open_until: Option<Instant>,
    /// True if somebody is going to close the window.
    is_watched: bool,
}

/// Chunks that boots of a disk have read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingSet {
    /// Boots since the process started.
    pub boots: u64,
    /// Chunks of the disk.
    pub chunk_count: u64,
    /// Bit `i % 8`, least significant first, of byte `i / 8` is chunk `i`.
    pub bitmap: Vec<u8>,
}

/// Length of the bitmap of so many chunks, bytes.
pub(crate) fn bitmap_len(chunk_count: u64) -> u64 {
    chunk_count.div_ceil(8)
}

impl BootRecorder {
    pub(crate) fn new(chunk_count: u64) -> BootRecorder {
        BootRecorder {
            chunk_count,
            is_open: AtomicBool::new(false),
            read: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Notes that a handle was opened; returns whether that began a boot, and whether the caller
    /// must see to it that [`BootRecorder::close_when_over`] runs.
    pub(crate) fn opened(&self, window: Duration) -> (bool, bool) {
        if self.chunk_count > limits::WORKING_SET_CHUNKS_MAX {
            return (false, false);
        }
        let now = Instant::now();
        self.read.get_or_init(|| {
            (0..self.chunk_count.div_ceil(BLOCK_CHUNKS)).map(|_| OnceLock::new()).collect()
        });
        let mut state = self.state.lock();
        let is_boot = state.open_until.is_none_or(|until| now >= until);
        state.boots += u64::from(is_boot);
        state.open_until = Some(now + window);
        self.is_open.store(true, Ordering::Relaxed);
        (is_boot, !std::mem::replace(&mut state.is_watched, true))
    }

    /// Closes the window when its time is over.
    pub(crate) async fn close_when_over(&self) {
        loop {
            let until = {
                let mut state = self.state.lock();
                match state.open_until {
                    Some(until) if Instant::now() < until => until,
                    _ => {
                        state.is_watched = false;
                        self.is_open.store(false, Ordering::Relaxed);
                        return;
                    }
                }
            };
            sleep_until(until).await;
        }
    }

    /// Notes a read of the chunks from `first` to `last`.
    #[inline]
    pub(crate) fn note(&self, first: u64, last: u64) {
        if self.is_open.load(Ordering::Relaxed) {
            self.record(first, last);
        }
    }

    fn record(&self, first: u64, last: u64) {
        let Some(read) = self.read.get() else { return };
        for index in first..last.saturating_add(1).min(self.chunk_count) {
            let Some(block) = read.get((index / BLOCK_CHUNKS) as usize) else { return };
            let block = block.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))));
            let word = &block[(index % BLOCK_CHUNKS / 64) as usize];
            let bit = 1 << (index % 64);
            // Most chunks are read several times in a row: a line that is not written stays shared.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Returns the recorded chunks; `None` for a disk of too many chunks.
    pub(crate) fn working_set(&self) -> Option<WorkingSet> {
        if self.chunk_count > limits::WORKING_SET_CHUNKS_MAX {
            return None;
        }
        let mut bitmap = vec![0; bitmap_len(self.chunk_count) as usize];
        let blocks = self.read.get().map(|blocks| &**blocks).unwrap_or_default();
        for (block, bits) in blocks.iter().zip(bitmap.chunks_mut((BLOCK_CHUNKS / 8) as usize)) {
            let Some(block) = block.get() else { continue };
            let bytes = block.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
            bits.iter_mut().zip(bytes).for_each(|(bits, read)| *bits = read);
        }
        Some(WorkingSet { boots: self.state.lock().boots, chunk_count: self.chunk_count, bitmap })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(120);

    fn chunks(recorder: &BootRecorder) -> Vec<u64> {
        let set = recorder.working_set().unwrap();
        (0..set.chunk_count)
            .filter(|index| set.bitmap[*index as usize / 8] >> (index % 8) & 1 == 1)
            .collect()
    }

    /// Opens as the front end does.
    fn open(recorder: &Arc<BootRecorder>) {
        if let (_, true) = recorder.opened(WINDOW) {
            let watched = recorder.clone();
            tokio::spawn(async move { watched.close_when_over().await });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn test_only_reads_within_the_window_count() {
        let recorder = Arc::new(BootRecorder::new(100));
        recorder.note(1, 1);
        assert_eq!(recorder.working_set().unwrap().boots, 0);
        assert_eq!(recorder.working_set().unwrap().bitmap, vec![0; 13]);
        open(&recorder);
        recorder.note(2, 4);
        recorder.note(99, 99);
        tokio::time::sleep(WINDOW + Duration::from_millis(2)).await;
        recorder.note(50, 60);
        assert_eq!(chunks(&recorder), [2, 3, 4, 99]);
    }

    #[tokio::test(start_paused = true)]
    async fn test_opens_within_a_window_are_one_boot_and_prolong_it() {
        let recorder = Arc::new(BootRecorder::new(100));
        for chunk in 0..3 {
            open(&recorder);
            recorder.note(chunk, chunk);
            advance(WINDOW - Duration::from_secs(1)).await;
        }
        recorder.note(3, 3);
        assert_eq!(recorder.working_set().unwrap().boots, 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        recorder.note(4, 4);
        open(&recorder);
        recorder.note(5, 5);
        assert_eq!(recorder.working_set().unwrap().boots, 2);
        assert_eq!(chunks(&recorder), [0, 1, 2, 3, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn test_disk_of_too_many_chunks_is_not_recorded() {
        let recorder = BootRecorder::new(limits::WORKING_SET_CHUNKS_MAX + 1);
        assert_eq!(recorder.opened(WINDOW), (false, false));
        recorder.note(0, 1);
        assert_eq!(recorder.working_set(), None);
    }

    proptest! {
        #[test]
        fn test_record_sets_exactly_the_chunks_of_the_reads(
            count in 1_u64..300, reads in prop::collection::vec((0_u64..320, 0_u64..40), 0..20),
        ) {
            let recorder = BootRecorder::new(count);
            recorder.opened(WINDOW);
            let mut expected = std::collections::BTreeSet::new();
            for (first, more) in reads {
                let last = (first + more).min(count - 1);
                recorder.note(first, last);
                expected.extend(first..=last);
            }
            prop_assert_eq!(chunks(&recorder), expected.into_iter().collect::<Vec<_>>());
        }
    }
}

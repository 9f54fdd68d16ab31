//! Recorder of the chunks that guests read while a disk boots.
//!
//! Which reads are those of a boot is [`super::disk_boots`]' business. A read of one costs one load and at
//! most one relaxed OR per chunk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::chunk_spans::{self, SPAN_BYTES, SPAN_CHUNKS, Span};
use crate::limits;

/// Spans of one group: 4 KiB of pointers.
const GROUP_SPANS: u64 = 1 << 8;

/// Chunks of one group.
const GROUP_CHUNKS: u64 = GROUP_SPANS * SPAN_CHUNKS;

/// Bits of neighbouring chunks, so that what nobody reads costs next to nothing.
type Bits = [AtomicU64; SPAN_BYTES / 8];

/// Neighbouring spans, each made when one of its chunks is read.
type Group = [OnceLock<Box<Bits>>; GROUP_SPANS as usize];

/// Recorder of the chunks that boots of one disk read on this host since the process started.
#[derive(Debug)]
pub(crate) struct BootRecorder {
    chunk_count: u64,
    /// One bit per chunk, by the span; made when the first boot begins, each group when one of its chunks
    /// is read.
    read: OnceLock<Box<[OnceLock<Box<Group>>]>>,
    /// Spans that were made; never more than [`limits::WORKING_SET_SPANS_MAX`], whatever guests read.
    spans: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    boots: u64,
    /// End of the time in which an open is one of the same boot.
    same_until: Option<Instant>,
}

/// Chunks that boots of a disk have read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingSet {
    /// Boots since the process started.
    pub boots: u64,
    /// Chunks of the disk.
    pub chunk_count: u64,
    /// Bit `i % 8`, least significant first, of byte `i / 8` is chunk `i`; of a disk of more than
    /// [`limits::WORKING_SET_BITMAP_CHUNKS_MAX`] chunks the form by span.
    pub bitmap: Vec<u8>,
}

impl BootRecorder {
    pub(crate) fn new(chunk_count: u64) -> BootRecorder {
        BootRecorder {
            chunk_count,
            read: OnceLock::new(),
            spans: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Notes that a handle was opened; returns whether that began a boot. Opens less than `window` apart
    /// are those of one boot (Nova's inspection, QEMU).
    pub(crate) fn opened(&self, window: Duration) -> bool {
        if self.chunk_count > limits::WORKING_SET_CHUNKS_MAX {
            return false;
        }
        let now = Instant::now();
        self.read.get_or_init(|| {
            (0..self.chunk_count.div_ceil(GROUP_CHUNKS)).map(|_| OnceLock::new()).collect()
        });
        let mut state = self.state.lock();
        let is_boot = state.same_until.is_none_or(|until| now >= until);
        state.boots += u64::from(is_boot);
        state.same_until = Some(now + window);
        is_boot
    }

    /// Notes a read of the chunks from `first` to `last` by a guest that boots.
    pub(crate) fn record(&self, first: u64, last: u64) {
        for index in first..last.saturating_add(1).min(self.chunk_count) {
            let Some(bits) = self.bits(index) else { continue };
            let word = &bits[(index % SPAN_CHUNKS / 64) as usize];
            let bit = 1 << (index % 64);
            // Most chunks are read several times in a row: a line that is not written stays shared.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Returns the bits of the span of a chunk; `None` where as many spans as may be are made.
    fn bits(&self, index: u64) -> Option<&Bits> {
        let group = self.read.get()?.get((index / GROUP_CHUNKS) as usize)?;
        let at = (index % GROUP_CHUNKS / SPAN_CHUNKS) as usize;
        if let Some(bits) = group.get().and_then(|group| group[at].get()) {
            return Some(bits);
        }
        // Counted before it is made, so that several threads never make more than allowed together.
        let count = |spans| (spans < limits::WORKING_SET_SPANS_MAX).then_some(spans + 1);
        self.spans.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).ok()?;
        let mut is_made = false;
        let group = group.get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        let bits = group[at].get_or_init(|| {
            is_made = true;
            Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
        });
        if !is_made {
            self.spans.fetch_sub(1, Ordering::Relaxed);
        }
        Some(bits)
    }

    /// The spans with a chunk that was read, ascending.
    fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let groups = self.read.get().map(|groups| &**groups).unwrap_or_default();
        let groups = (0_u64..).zip(groups).filter_map(|(at, group)| Some((at, group.get()?)));
        groups.flat_map(|(at, group)| {
            let spans = (at * GROUP_SPANS..).zip(group.iter());
            spans.filter_map(|(number, bits)| Some((number as u32, bytes_of(bits.get()?))))
        })
    }

    /// Returns the recorded chunks; `None` for a disk of too many chunks.
    pub(crate) fn working_set(&self) -> Option<WorkingSet> {
        if self.chunk_count > limits::WORKING_SET_CHUNKS_MAX {
            return None;
        }
        let bitmap = chunk_spans::encode(self.chunk_count, self.spans());
        Some(WorkingSet { boots: self.state.lock().boots, chunk_count: self.chunk_count, bitmap })
    }

    /// Bytes that the recorder has allocated.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        let groups = self.read.get().map(|groups| &**groups).unwrap_or_default();
        let made = groups.iter().filter(|group| group.get().is_some()).count();
        size_of_val(groups)
            + made * size_of::<Group>()
            + self.spans.load(Ordering::Relaxed) * size_of::<Bits>()
    }
}

fn bytes_of(bits: &Bits) -> [u8; SPAN_BYTES] {
    let mut bytes = [0; SPAN_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(bits) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(120);

    fn chunks(recorder: &BootRecorder) -> Vec<u64> {
        let set = recorder.working_set().unwrap();
        chunk_spans::indexes(set.chunk_count, &set.bitmap).unwrap().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn test_reads_of_boots_are_in_the_set() {
        let recorder = BootRecorder::new(100);
        recorder.record(1, 1);
        assert_eq!(recorder.working_set().unwrap().boots, 0);
        assert_eq!(recorder.working_set().unwrap().bitmap, vec![0; 13]);
        recorder.opened(WINDOW);
        recorder.record(2, 4);
        recorder.record(99, 99);
        assert_eq!(chunks(&recorder), [2, 3, 4, 99]);
    }

    #[tokio::test(start_paused = true)]
    async fn test_opens_within_a_window_are_one_boot() {
        let recorder = BootRecorder::new(100);
        for number in 0..3 {
            assert_eq!(recorder.opened(WINDOW), number == 0);
            advance(WINDOW - Duration::from_secs(1)).await;
        }
        advance(Duration::from_secs(2)).await;
        assert!(recorder.opened(WINDOW));
        assert_eq!(recorder.working_set().unwrap().boots, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn test_disk_of_too_many_chunks_is_not_recorded() {
        let recorder = BootRecorder::new(limits::WORKING_SET_CHUNKS_MAX + 1);
        assert!(!recorder.opened(WINDOW));
        recorder.record(0, 1);
        assert_eq!(recorder.working_set(), None);
    }

    /// Chunks that are far from each other.
    fn scattered(count: u64, chunk_count: u64) -> Vec<u64> {
        (0..count).map(|number| number * (chunk_count / count) + number % 7).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn test_memory_follows_what_is_read_and_not_the_size_of_the_disk() {
        // 2 GiB and 64 TiB in chunks of 64 KiB: as many chunks each, all over the disk.
        for (chunk_count, expected) in [(1 << 15, 8 << 10), (1 << 30, 6 << 20)] {
            let recorder = BootRecorder::new(chunk_count);
            assert_eq!(recorder.memory_bytes(), 0);
            recorder.opened(WINDOW);
            assert!(recorder.memory_bytes() <= 16 << 10, "{}", recorder.memory_bytes());
            let read = scattered(4000, chunk_count);
            read.iter().for_each(|chunk| recorder.record(*chunk, *chunk));
            assert_eq!(chunks(&recorder), read);
            let found = recorder.memory_bytes();
            assert!(found > expected / 2 && found <= expected + (16 << 10), "{found} bytes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn test_memory_and_set_of_a_disk_that_is_read_everywhere_are_bounded() {
        let recorder = BootRecorder::new(1 << 30);
        recorder.opened(WINDOW);
        let spans = (0_u64..1 << 18).map(|number| number * SPAN_CHUNKS);
        spans.clone().for_each(|chunk| recorder.record(chunk, chunk));
        let most = limits::WORKING_SET_SPANS_MAX;
        assert_eq!(chunks(&recorder), spans.take(most).collect::<Vec<_>>());
        assert!(recorder.memory_bytes() < 13 << 20);
        // What has its span is recorded all the same.
        recorder.record(5, 6);
        assert_eq!(chunks(&recorder)[..3], [0, 5, 6]);
        assert_eq!(chunks(&recorder).len(), most + 2);
    }

    proptest! {
        #[test]
        fn test_record_sets_exactly_the_chunks_of_the_reads(
            count in prop_oneof![1_u64..300, Just((1 << 26) + 1), (1_u64 << 30) - 300..=1 << 30],
            reads in prop::collection::vec((0_u64..320, 0_u64..40, any::<bool>()), 0..20),
        ) {
            let recorder = BootRecorder::new(count);
            recorder.opened(WINDOW);
            let mut expected = std::collections::BTreeSet::new();
            for (first, more, is_at_the_end) in reads {
                let first = if is_at_the_end { count.saturating_sub(first) } else { first };
                let last = (first + more).min(count - 1);
                recorder.record(first, last);
                expected.extend(first..=last);
            }
            prop_assert_eq!(chunks(&recorder), expected.into_iter().collect::<Vec<_>>());
        }
    }
}

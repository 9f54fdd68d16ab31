//! Finding sequential readers of a disk, and how far ahead of each to fetch.
//!
//! Several guests read one disk at once, so several streams are followed. A stream is prefetched
//! only after [`limits::STREAM_START_BYTES`] and while it is dense (three quarters of what it passes
//! is read: a guest that reads here and there in one region is no stream), and never farther ahead
//! than a quarter of what was read of it: a stream that ends costs at most a quarter of its length.
//!
//! Source: the idea of Linux on-demand read-ahead (Wu et al., OLS 2007). Differs: it follows
//! streams without a file handle, grows with the stream's length, and works on chunks.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::fetch::flight::Flight;
use crate::limits;

/// The streams of one disk.
#[derive(Debug)]
pub(crate) struct StreamTable {
    streams: Mutex<Vec<Stream>>,
    /// Streams that are being prefetched: only then does a read that hits have to look here.
    active: AtomicUsize,
    next_id: AtomicU64,
    window_max: u64,
    chunk: u64,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    /// Begin of the stream.
    start: u64,
    /// Place at which the next read is expected.
    next: u64,
    /// Bytes read between the two.
    read: u64,
    /// First chunk that has not been prefetched.
    ahead: u64,
    /// Reads of this disk since this stream moved.
    idle: u32,
    /// Chunks prefetched that the stream has not reached.
    issued: VecDeque<(u64, Weak<Flight>)>,
}

/// Consequences of a read for the prefetch.
#[derive(Debug, Default)]
pub(crate) struct StreamUpdate {
    /// Chunks to prefetch now, and for which stream.
    pub(crate) order: Option<(u64, Range<u64>)>,
    /// Prefetched chunks that were reached.
    pub(crate) used: usize,
    /// Prefetched chunks of streams that were given up.
    pub(crate) wasted: Vec<Weak<Flight>>,
}

/// Reads without progress after which a stream is given up.
const IDLE_MAX: u32 = 256;

impl StreamTable {
    pub(crate) fn new(window_max: usize, chunk: usize) -> StreamTable {
        StreamTable {
            streams: Mutex::default(),
            active: AtomicUsize::new(0),
            next_id: AtomicU64::new(0),
            window_max: window_max as u64,
            chunk: chunk as u64,
        }
    }

    /// Notes a read that hit; does nothing, and takes no lock, unless a stream is being
    /// prefetched, and never waits for the lock.
    pub(crate) fn note_hit(&self, offset: u64, len: usize) -> StreamUpdate {
        if self.active.load(Ordering::Relaxed) == 0 {
            return StreamUpdate::default();
        }
        match self.streams.try_lock() {
            Some(mut streams) => self.note(&mut streams, offset, len as u64, false),
            None => StreamUpdate::default(),
        }
    }

    /// Notes a read that had to wait.
    pub(crate) fn note_miss(&self, offset: u64, len: usize) -> StreamUpdate {
        if self.window_max == 0 {
            return StreamUpdate::default();
        }
        self.note(&mut self.streams.lock(), offset, len as u64, true)
    }

    fn note(
        &self,
        streams: &mut Vec<Stream>,
        offset: u64,
        len: u64,
        may_begin: bool,
    ) -> StreamUpdate {
        let mut update = StreamUpdate::default();
        let slack = len.clamp(limits::STREAM_SLACK_MIN, limits::STREAM_SLACK_MAX);
        // Twice as far behind as ahead: a read that was overtaken by its successor.
        let found = streams
            .iter()
            .position(|stream| offset + 2 * slack >= stream.next && offset <= stream.next + slack);
        for stream in streams.iter_mut() {
            stream.idle += 1;
        }
        match found {
            Some(position) => self.advance(&mut streams[position], offset, len, &mut update),
            None if may_begin => self.begin(streams, offset, len, &mut update),
            None => {}
        }
        streams.retain_mut(|stream| {
            let is_kept = stream.idle <= IDLE_MAX;
            if !is_kept {
                update.wasted.extend(stream.issued.drain(..).map(|(_, flight)| flight));
            }
            is_kept
        });
        let active = streams.iter().filter(|stream| stream.ahead > 0).count();
        self.active.store(active, Ordering::Relaxed);
        update
    }

    fn advance(&self, stream: &mut Stream, offset: u64, len: u64, update: &mut StreamUpdate) {
        // A read that was overtaken by its successor fills the gap that it left.
        stream.read += len;
        stream.idle = 0;
        stream.next = stream.next.max(offset + len);
        stream.read = stream.read.min(stream.next - stream.start);
        let reached = stream.next.div_ceil(self.chunk);
        while stream.issued.front().is_some_and(|(chunk, _)| *chunk < reached) {
            stream.issued.pop_front();
            update.used += 1;
        }
        let passed = stream.next - stream.start;
        if stream.read < limits::STREAM_START_BYTES || stream.read < passed / 4 * 3 {
            if passed >= 2 * limits::STREAM_START_BYTES && stream.read < passed / 2 {
                // No stream after all; it may become one from here on.
                (stream.start, stream.read) = (offset, len);
            }
            return;
        }
        let window = (stream.read / limits::STREAM_WINDOW_DIVISOR).min(self.window_max);
        let until = reached + window / self.chunk;
        let from = stream.ahead.max(reached);
        // Half a window at a time, so that neighbours leave the origin together.
        if until >= from + (window / self.chunk).div_ceil(2).max(1) {
            stream.ahead = until;
            update.order = Some((stream.id, from..until));
        }
    }

    fn begin(&self, streams: &mut Vec<Stream>, offset: u64, len: u64, update: &mut StreamUpdate) {
        if streams.len() >= limits::STREAMS_PER_DISK {
            let oldest = streams.iter().enumerate().max_by_key(|(_, stream)| stream.idle);
            if let Some((position, _)) = oldest {
                let stream = streams.swap_remove(position);
                update.wasted.extend(stream.issued.into_iter().map(|(_, flight)| flight));
            }
        }
        streams.push(Stream {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            start: offset,
            next: offset + len,
            read: len,
            ahead: 0,
            idle: 0,
            issued: VecDeque::new(),
        });
    }

    /// Notes what was prefetched for a stream; returns it where the stream is gone already.
    pub(crate) fn issued(
        &self,
        stream: u64,
        chunks: Vec<(u64, Weak<Flight>)>,
    ) -> Vec<Weak<Flight>> {
        let mut streams = self.streams.lock();
        match streams.iter_mut().find(|candidate| candidate.id == stream) {
            Some(stream) => {
                stream.issued.extend(chunks);
                Vec::new()
            }
            None => chunks.into_iter().map(|(_, flight)| flight).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: usize = 65_536;
    const MIB: u64 = 1 << 20;

    fn table() -> StreamTable {
        StreamTable::new(4 << 20, CHUNK)
    }

    #[test]
    fn test_note_sequential_reads_grow_the_window() {
        let table = table();
        let mut ordered = Vec::new();
        for read in 0..64u64 {
            let update = table.note_miss(read * MIB, MIB as usize);
            if let Some((_, range)) = update.order {
                assert!(range.start >= (read + 1) * 16, "never what was read");
                ordered.push(range.end - range.start);
            }
        }
        assert_eq!(ordered.first(), Some(&8), "a quarter of the first two MiB");
        assert!(ordered.iter().max().unwrap() >= &32);
        assert!(ordered.iter().all(|len| *len <= 64));
    }

    #[test]
    fn test_note_two_interleaved_streams_are_both_followed() {
        let table = table();
        let mut orders = [0, 0];
        for read in 0..32u64 {
            for (stream, base) in [0, 1 << 35].into_iter().enumerate() {
                let update = table.note_miss(base + read * MIB, MIB as usize);
                orders[stream] += usize::from(update.order.is_some());
            }
        }
        assert!(orders.iter().all(|count| *count > 4), "{orders:?}");
    }

    #[test]
    fn test_note_hit_without_an_active_stream_does_nothing() {
        let table = table();
        for read in 0..64u64 {
            assert!(table.note_hit(read * MIB, MIB as usize).order.is_none());
        }
        assert!(table.streams.lock().is_empty());
    }

    #[test]
    fn test_note_random_reads_give_the_stream_up() {
        let table = table();
        let mut issued = 0;
        for read in 0..16u64 {
            let update = table.note_miss(read * MIB, MIB as usize);
            if let Some((stream, range)) = update.order {
                issued += (range.end - range.start) as usize;
                let chunks = range.map(|chunk| (chunk, Weak::new())).collect();
                assert!(table.issued(stream, chunks).is_empty());
            }
            issued -= update.used;
        }
        assert!(issued > 0);
        let mut wasted = 0;
        for read in 0..20u64 {
            let update = table.note_miss((1 << 40) + read * (64 << 20), 4096);
            wasted += update.wasted.len();
        }
        assert_eq!(wasted, issued);
        assert_eq!(table.active.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn test_note_reads_out_of_order_are_one_stream() {
        let table = table();
        let mut orders = 0;
        for pair in 0..16u64 {
            for read in [2 * pair + 1, 2 * pair] {
                orders += usize::from(table.note_miss(read * MIB, MIB as usize).order.is_some());
            }
        }
        assert!(orders > 4, "{orders}");
        assert_eq!(table.streams.lock().len(), 1);
    }

    #[test]
    fn test_note_scattered_reads_of_one_region_are_no_stream() {
        let table = table();
        let mut position = 1u64;
        for _ in 0..5000 {
            position = position.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (position >> 33) % (8 * MIB) / 4096 * 4096;
            assert!(table.note_miss(offset, 4096).order.is_none());
        }
    }

    proptest! {
        /// The bytes ordered ahead of any reader are at most a quarter of those that it read in
        /// sequence.
        #[test]
        fn proptest_waste_is_bounded(reads in proptest::collection::vec((0u64..1 << 30, 1u64..40), 1..30)) {
            let table = table();
            let (mut read_bytes, mut ordered) = (0, 0);
            for (start, count) in reads {
                for number in 0..count {
                    let update = table.note_miss(start + number * 131_072, 131_072);
                    read_bytes += 131_072;
                    ordered += update.order.map_or(0, |(_, range)| range.end - range.start);
                }
            }
            // Each byte ordered was either reached later or is part of a quarter of its stream.
            prop_assert!(ordered * CHUNK as u64 <= read_bytes + read_bytes / 4);
        }
    }
}

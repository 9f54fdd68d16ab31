//! Checksums of the pages of chunks that were hashed: with them one page is read from the disk, and
//! known to be right, without the rest of its chunk.
//!
//! A sum is made of content whose digest was just found right, so it says what the page has to be,
//! whatever the disk has meanwhile. 32 bits: a page that rotted, or that the disk confused with
//! another one, passes once in four thousand million times. The seed is another one each time the
//! store is opened, so that nobody can make two pages that pass for each other.
//!
//! The memory is bounded. Slots share sets of [`WAYS`] entries; in a full set the oldest entry leaves.
//! A chunk without sums is read and hashed whole, which makes them again.

use acstor_diskio::PAGE_BYTES;
use acstor_types::{ChunkSize, Digest};
use parking_lot::RwLock;
use twox_hash::XxHash3_64;

/// Entries of a set. With as many sets as `slots / WAYS` none ever leaves: neighbours differ.
const WAYS: usize = 8;

/// The sums of the chunks that were hashed lately.
#[derive(Debug)]
pub(crate) struct PageSums {
    sets: Box<[RwLock<Set>]>,
    pages_per_chunk: usize,
    seed: u64,
}

#[derive(Debug, Default)]
struct Set {
    /// Of which digest each entry is; 0: of none.
    tags: [u64; WAYS],
    /// The entry that is written next.
    next: usize,
    /// The entries one after the other; none until the first one is written.
    sums: Box<[u32]>,
}

impl Set {
    fn find(&self, tag: u64) -> Option<usize> {
        self.tags.iter().position(|other| *other == tag)
    }
}

impl PageSums {
    /// For a store of `slot_count` slots, in `bytes_max` bytes at most.
    pub(crate) fn new(
        slot_count: u32,
        chunk_size: ChunkSize,
        bytes_max: usize,
        seed: u64,
    ) -> PageSums {
        let pages_per_chunk = chunk_size.bytes() / PAGE_BYTES;
        let set_bytes = size_of::<RwLock<Set>>() + WAYS * pages_per_chunk * size_of::<u32>();
        let sets = (slot_count as usize).div_ceil(WAYS).min(bytes_max / set_bytes).max(1);
        let sets = std::iter::repeat_with(RwLock::default).take(sets).collect();
        PageSums { sets, pages_per_chunk, seed }
    }

    /// Remembers the sums of the chunk of a slot, whose digest was just found right.
    pub(crate) fn note(&self, slot: u32, digest: &Digest, content: &[u8]) {
        let tag = tag(digest);
        let set = self.set(slot);
        if set.read().find(tag).is_some() {
            return;
        }
        let sums: Vec<u32> = content.chunks_exact(PAGE_BYTES).map(|page| self.sum(page)).collect();
        let mut set = set.write();
        let set = &mut *set;
        if set.sums.is_empty() {
            set.sums = vec![0; WAYS * self.pages_per_chunk].into_boxed_slice();
        }
        let entry = set.find(tag).unwrap_or_else(|| {
            let entry = set.next;
            set.next = (entry + 1) % WAYS;
            entry
        });
        set.tags[entry] = tag;
        set.sums[entry * self.pages_per_chunk..][..self.pages_per_chunk].copy_from_slice(&sums);
    }

    /// Returns whether the sums of the chunk of a slot are known.
    pub(crate) fn has(&self, slot: u32, digest: &Digest) -> bool {
        self.set(slot).read().find(tag(digest)).is_some()
    }

    /// Returns whether `content` is what whole pages of the chunk of a slot have from the byte at
    /// `start` on; `None` where that is not known.
    pub(crate) fn are_right(
        &self,
        slot: u32,
        digest: &Digest,
        start: usize,
        content: &[u8],
    ) -> Option<bool> {
        debug_assert!(start.is_multiple_of(PAGE_BYTES) && content.len().is_multiple_of(PAGE_BYTES));
        let set = self.set(slot).read();
        let entry = set.find(tag(digest))?;
        let first = entry * self.pages_per_chunk + start / PAGE_BYTES;
        let mut pages = content.chunks_exact(PAGE_BYTES).zip(&set.sums[first..]);
        Some(pages.all(|(page, sum)| self.sum(page) == *sum))
    }

    fn set(&self, slot: u32) -> &RwLock<Set> {
        &self.sets[slot as usize % self.sets.len()]
    }

    fn sum(&self, page: &[u8]) -> u32 {
        XxHash3_64::oneshot_with_seed(self.seed, page) as u32
    }
}

/// Returns the tag by which an entry knows a digest; never 0. The last bytes of scoped digests are
/// no hash.
fn tag(digest: &Digest) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.as_bytes()[14..22]);
    u64::from_ne_bytes(bytes) | 1
}

#[cfg(test)]
mod tests {
    use acstor_testkit::SeededChunks;

    use super::*;

    const SIZE: ChunkSize = ChunkSize::DEFAULT;

    fn sums(slot_count: u32, bytes_max: usize) -> PageSums {
        PageSums::new(slot_count, SIZE, bytes_max, 7)
    }

    #[test]
    fn test_each_page_is_compared_with_its_own_sum() {
        let sums = sums(64, usize::MAX);
        let (digest, content) = SeededChunks::new(1, SIZE).chunk(0);
        assert_eq!(sums.are_right(9, &digest, 0, &content), None);
        sums.note(9, &digest, &content);
        assert!(sums.has(9, &digest));
        assert_eq!(sums.are_right(9, &digest, 0, &content), Some(true));
        let page = &content[3 * PAGE_BYTES..4 * PAGE_BYTES];
        assert_eq!(sums.are_right(9, &digest, 3 * PAGE_BYTES, page), Some(true));
        assert_eq!(sums.are_right(9, &digest, 4 * PAGE_BYTES, page), Some(false), "another's");
        for bit in [0, 77, PAGE_BYTES * 8 - 1] {
            let mut rotten = page.to_vec();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sums.are_right(9, &digest, 3 * PAGE_BYTES, &rotten), Some(false));
        }
        assert_eq!(sums.are_right(9, &digest, 3 * PAGE_BYTES, &[0; PAGE_BYTES]), Some(false));
    }

    #[test]
    fn test_the_chunk_that_had_the_slot_before_is_not_taken_for_the_new_one() {
        let sums = sums(64, usize::MAX);
        let chunks = SeededChunks::new(1, SIZE);
        let (old, new) = (chunks.chunk(0), chunks.chunk(1));
        sums.note(9, &old.0, &old.1);
        assert_eq!(sums.are_right(9, &new.0, 0, &old.1), None);
        sums.note(9, &new.0, &new.1);
        assert_eq!(sums.are_right(9, &new.0, 0, &old.1), Some(false));
        assert_eq!(sums.are_right(9, &new.0, 0, &new.1), Some(true));
    }

    #[test]
    fn test_none_leaves_where_there_is_room_for_all() {
        let sums = sums(100, usize::MAX);
        let chunks = SeededChunks::new(2, SIZE).chunks(0..100);
        for (slot, (digest, content)) in (0..).zip(&chunks) {
            sums.note(slot, digest, content);
        }
        for (slot, (digest, content)) in (0..).zip(&chunks) {
            assert_eq!(sums.are_right(slot, digest, 0, content), Some(true), "{slot}");
        }
    }

    #[test]
    fn test_the_oldest_leave_where_the_memory_is_full() {
        let set_bytes = size_of::<RwLock<Set>>() + WAYS * SIZE.bytes() / PAGE_BYTES * 4;
        let sums = sums(100, 4 * set_bytes + set_bytes / 2);
        assert_eq!(sums.sets.len(), 4);
        let chunks = SeededChunks::new(2, SIZE).chunks(0..100);
        for (slot, (digest, content)) in (0..).zip(&chunks) {
            sums.note(slot, digest, content);
            sums.note(slot, digest, content);
        }
        let kept: Vec<bool> =
            (0..).zip(&chunks).map(|(slot, (digest, _))| sums.has(slot, digest)).collect();
        assert_eq!(kept, [vec![false; 100 - 4 * WAYS], vec![true; 4 * WAYS]].concat());
    }
}

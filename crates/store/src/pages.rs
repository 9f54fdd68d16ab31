//! Reading pages of a chunk without the rest of it: where memory is shorter than the store, a guest's
//! 4 KiB are then 4 KiB of the disk.
//!
//! Only pages whose sums are known, and each is compared with its sum at each read: what the kernel
//! brought to memory beside a page, for whatever reason, is never taken for right.

use std::ops::Range;

use acstor_diskio::PAGE_BYTES;
use acstor_types::Digest;
use bytes::Bytes;

use crate::core::{Core, Place};
use crate::limits;
use crate::slot_state::Phase;

impl Core {
    /// Returns the place of `len` bytes from `start` on of a chunk that is not verified; no I/O.
    /// The caller has a guard on the slot.
    pub(crate) fn place_pages(
        &self,
        slot: u32,
        digest: &Digest,
        start: usize,
        len: usize,
    ) -> Place {
        let chunk = 0..self.chunk_bytes();
        let pages = pages_of(start, len);
        if pages.end > chunk.end || pages == chunk || !self.page_sums.has(slot, digest) {
            return Place::Disk(chunk);
        }
        if !self.is_resident(slot, pages.start, pages.len()) {
            return Place::Disk(self.with_what_follows(slot, pages));
        }
        if self.is_resident(slot, 0, chunk.end) {
            return Place::Disk(chunk); // hashed once, it is verified and needs no copies
        }
        let mut content = vec![0; pages.len()];
        let offset = self.directory.geometry.slot_offset(slot) + pages.start as u64;
        let is_right = self.directory.slots.try_read_at(&mut content, offset)
            && self.page_sums.are_right(slot, digest, pages.start, &content) == Some(true);
        if !is_right {
            return Place::Disk(pages); // whoever reads it finds out why
        }
        self.touch(slot);
        Place::Copy(Bytes::from(content).slice(start - pages.start..start - pages.start + len))
    }

    /// Adds the rest of the chunk where the pages before are in memory: who reads page by page from the
    /// start on is to wait for the disk a few times per chunk, not for each page.
    fn with_what_follows(&self, slot: u32, pages: Range<usize>) -> Range<usize> {
        let before = limits::SEQUENTIAL_BYTES;
        let is_sequential =
            pages.start >= before && self.is_resident(slot, pages.start - before, before);
        if is_sequential { pages.start..self.chunk_bytes() } else { pages }
    }

    /// Reads a part of a chunk, from the disk where it is not in memory; `None` when it is lost.
    pub(crate) fn read_range(&self, digest: &Digest, range: &Range<usize>) -> Option<Bytes> {
        let (slot, _) = self.find(digest)?;
        let content = self
            .read_pages(slot, digest, range)
            .or_else(|| Some(self.read_whole(slot, digest)?.slice(range.clone())));
        if content.is_some() {
            self.touch(slot);
        }
        self.release(slot);
        content
    }

    fn read_whole(&self, slot: u32, digest: &Digest) -> Option<Bytes> {
        let mut content = vec![0; self.chunk_bytes()];
        self.read_verified(slot, digest, &mut content).ok()?;
        Some(Bytes::from(content))
    }

    /// Reads the pages of a part and compares them with their sums; `None` where those are not known,
    /// and where the chunk is to be read whole because something is wrong.
    fn read_pages(&self, slot: u32, digest: &Digest, range: &Range<usize>) -> Option<Bytes> {
        let pages = pages_of(range.start, range.len());
        if pages.len() >= self.chunk_bytes() || !self.page_sums.has(slot, digest) {
            return None;
        }
        let mut content = vec![0; pages.len()];
        let is_at_hand = self.states.phase(slot) == Phase::Verified
            && self.try_read(slot, pages.start, &mut content);
        if !is_at_hand {
            let offset = self.directory.geometry.slot_offset(slot) + pages.start as u64;
            self.directory.slots.read_exact_at(&mut content, offset).ok()?;
            if self.page_sums.are_right(slot, digest, pages.start, &content) != Some(true) {
                return None;
            }
            self.counters.compared.add(1);
        }
        let skip = range.start - pages.start;
        Some(Bytes::from(content).slice(skip..skip + range.len()))
    }
}

/// The pages that have `len` bytes from `start` on.
fn pages_of(start: usize, len: usize) -> Range<usize> {
    start - start % PAGE_BYTES..(start + len).next_multiple_of(PAGE_BYTES)
}

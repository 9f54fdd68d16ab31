//! A bounded cache of verified pages, of any number of manifests.
//!
//! Shards, each with a lock of its own, its share of the room and a clock hand: a page that was used
//! since the hand last passed stays. A look-up holds one shard's lock while it finds the page.

use acstor_types::Digest;
use hashbrown::HashTable;
use parking_lot::Mutex;

use crate::{PAGE_LEN, Page};

const SHARDS: usize = 16;
/// An odd number with bits all over: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    manifest: Digest,
    page: u32,
}

impl Key {
    /// Names of manifests are uniform already; neighbouring pages must not meet.
    fn hash(&self) -> u64 {
        let mixed = (self.manifest.prefix_u64() ^ u64::from(self.page)).wrapping_mul(SPREAD);
        mixed ^ mixed >> 32
    }
}

struct Slot {
    key: Key,
    page: Page,
    was_used: bool,
}

#[derive(Default)]
struct Shard {
    /// Slot of each key.
    index: HashTable<u32>,
    slots: Vec<Slot>,
    hand: usize,
    stats: PageCacheStats,
}

/// Counts of a cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCacheStats {
    /// Pages that are in it now.
    pub pages: u64,
    /// Look-ups that found their page.
    pub hits: u64,
    /// Look-ups that did not, by whoever then read it.
    pub misses: u64,
    /// Pages that left for others.
    pub evictions: u64,
}

/// The cache.
pub struct PageCache {
    shards: Box<[Mutex<Shard>]>,
    /// Most pages of a shard.
    shard_pages: usize,
}

impl PageCache {
    /// Capacity where nobody chose one, bytes (16 MiB).
    pub const DEFAULT_BYTES: usize = 16 << 20;

    /// Makes an empty cache of at most `capacity_bytes` of pages, at least 16 pages; memory is taken
    /// as pages come.
    pub fn new(capacity_bytes: usize) -> PageCache {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        PageCache { shards, shard_pages: (capacity_bytes / PAGE_LEN / SHARDS).max(1) }
    }

    /// Returns a page of a manifest, when it is here.
    pub fn get(&self, manifest: &Digest, page: u32) -> Option<Page> {
        self.look_up(manifest, page, 1)
    }

    /// As [`PageCache::get`], but counts no miss: for whoever has the page brought where it is not here,
    /// which counts one.
    pub(crate) fn find(&self, manifest: &Digest, page: u32) -> Option<Page> {
        self.look_up(manifest, page, 0)
    }

    fn look_up(&self, manifest: &Digest, page: u32, misses: u64) -> Option<Page> {
        let key = Key { manifest: *manifest, page };
        let hash = key.hash();
        let mut shard = self.shard(hash).lock();
        let Shard { index, slots, stats, .. } = &mut *shard;
        let found = index.find(hash, |slot| slots[*slot as usize].key == key).copied();
        let Some(slot) = found.and_then(|slot| slots.get_mut(slot as usize)) else {
            stats.misses += misses;
            return None;
        };
        stats.hits += 1;
        slot.was_used = true;
        Some(slot.page.clone())
    }

    /// Keeps a page of a manifest; one that has not been used for long leaves when there is no room.
    pub fn insert(&self, manifest: &Digest, page: u32, content: Page) {
        let key = Key { manifest: *manifest, page };
        let hash = key.hash();
        // Freed after the lock is.
        let _replaced = self.shard(hash).lock().insert(key, hash, content, self.shard_pages);
    }

    /// Counts of all shards.
    pub fn stats(&self) -> PageCacheStats {
        let mut sum = PageCacheStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            sum.pages += shard.slots.len() as u64;
            sum.hits += shard.stats.hits;
            sum.misses += shard.stats.misses;
            sum.evictions += shard.stats.evictions;
        }
        sum
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The table takes the lowest and the highest bits.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}

impl Default for PageCache {
    fn default() -> PageCache {
        PageCache::new(PageCache::DEFAULT_BYTES)
    }
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Shard {
    fn insert(&mut self, key: Key, hash: u64, page: Page, most: usize) -> Option<Page> {
        let Shard { index, slots, .. } = self;
        if let Some(slot) = index.find(hash, |slot| slots[*slot as usize].key == key) {
            return Some(std::mem::replace(&mut slots[*slot as usize].page, page));
        }
        // A page has to be used once more before it survives a pass of the hand.
        let new = Slot { key, page, was_used: false };
        let (number, old) = if slots.len() < most {
            slots.push(new);
            (slots.len() - 1, None)
        } else {
            let number = self.victim();
            let old = std::mem::replace(&mut self.slots[number], new);
            self.stats.evictions += 1;
            let is_it = |slot: &u32| *slot as usize == number;
            if let Ok(entry) = self.index.find_entry(old.key.hash(), is_it) {
                entry.remove();
            }
            (number, Some(old.page))
        };
        let slots = &self.slots;
        let hash_of = |slot: &u32| slots[*slot as usize].key.hash();
        self.index.insert_unique(hash, number as u32, hash_of);
        old
    }

    /// Moves the hand to the next page that was not used since it last passed.
    fn victim(&mut self) -> usize {
        loop {
            let number = self.hand;
            self.hand = (number + 1) % self.slots.len();
            let slot = &mut self.slots[number];
            if !std::mem::take(&mut slot.was_used) {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn page(content: u8) -> Page {
        Page::of_verified(Arc::new([content; PAGE_LEN]))
    }

    #[test]
    fn test_pages_are_told_apart_by_manifest_and_number() {
        let cache = PageCache::new(1 << 20);
        let [one, other] = [b"one", b"two"].map(|name| Digest::of(name));
        cache.insert(&one, 1, page(1));
        cache.insert(&one, 2, page(2));
        cache.insert(&other, 1, page(3));
        assert_eq!(cache.get(&one, 1).unwrap().as_bytes()[0], 1);
        assert_eq!(cache.get(&one, 2).unwrap().as_bytes()[0], 2);
        assert_eq!(cache.get(&other, 1).unwrap().as_bytes()[0], 3);
        assert!(cache.get(&other, 2).is_none());
        let stats = cache.stats();
        assert_eq!((stats.pages, stats.hits, stats.misses, stats.evictions), (3, 3, 1, 0));
    }

    #[test]
    fn test_room_is_bounded() {
        let cache = PageCache::new(64 * PAGE_LEN);
        let name = Digest::of(b"manifest");
        for number in 0..10_000 {
            cache.insert(&name, number, page(number as u8));
            assert_eq!(cache.get(&name, number).unwrap().as_bytes()[0], number as u8);
        }
        let stats = cache.stats();
        assert_eq!(stats.pages, 64);
        assert_eq!(stats.evictions, 10_000 - 64);
        let found = (0..10_000).filter(|number| cache.get(&name, *number).is_some()).count();
        assert_eq!(found, 64);
    }

    #[test]
    fn test_pages_in_use_survive_a_scan() {
        let cache = PageCache::new(64 * PAGE_LEN);
        let (hot, cold) = (Digest::of(b"hot"), Digest::of(b"cold"));
        let mut reloads = 0;
        for number in 0..5_000 {
            if cache.get(&hot, 7).is_none() {
                reloads += 1;
                cache.insert(&hot, 7, page(7));
            }
            cache.insert(&cold, number, page(0));
        }
        assert_eq!(reloads, 1);
    }

    #[test]
    fn test_same_page_takes_one_slot() {
        let cache = PageCache::new(1 << 20);
        let name = Digest::of(b"manifest");
        cache.insert(&name, 1, page(1));
        cache.insert(&name, 1, page(1));
        assert_eq!(cache.stats().pages, 1);
    }
}

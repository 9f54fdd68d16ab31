//! Model of a chunk store: content that it may and must hold, whatever its eviction policy.

use std::collections::{HashMap, HashSet};

use acstor_types::Digest;
use bytes::Bytes;

/// A model of a cache of chunks: it knows bounds, since which chunk leaves is the policy's affair.
///
/// * `must`: chunks that a read has to find;
/// * `may`: chunks that a read may find, a superset of `must`; a chunk outside of it is a phantom.
///
/// Each method that observes the store panics when what it sees is impossible.
#[derive(Debug, Default)]
pub struct StoreModel {
    slots: usize,
    contents: HashMap<Digest, Bytes>,
    must: HashSet<Digest>,
    may: HashSet<Digest>,
    pins: HashMap<Digest, u32>,
}

impl StoreModel {
    /// Returns the model of an empty store of `slots` slots.
    pub fn new(slots: usize) -> StoreModel {
        StoreModel { slots, ..StoreModel::default() }
    }

    /// A chunk was published; `evicted`: other chunks left for it. Those in `guarded` cannot have.
    pub fn inserted(
        &mut self,
        digest: Digest,
        content: Bytes,
        evicted: u64,
        guarded: &HashSet<Digest>,
    ) {
        self.contents.insert(digest, content);
        if evicted > 0 {
            let pins = &self.pins;
            self.must.retain(|other| pins.contains_key(other) || guarded.contains(other));
        }
        self.must.insert(digest);
        self.may.insert(digest);
        assert!(self.must.len() <= self.slots, "more chunks than slots");
    }

    /// An insert answered that the chunk is there.
    pub fn found_present(&self, digest: &Digest) {
        assert!(self.may.contains(digest), "{digest} is present but was never published");
    }

    /// An insert was refused while `protected` chunks were pinned or guarded and the disk was good.
    pub fn refused(&self, protected: usize) {
        assert!(protected >= self.slots, "refused with {protected} of {} protected", self.slots);
    }

    /// An insert met a disk error: the chunk may be there or not, others that no pin keeps may
    /// have left.
    pub fn insert_failed(&mut self, digest: Digest, content: Bytes) {
        self.contents.insert(digest, content);
        self.may.insert(digest);
        self.must.retain(|other| self.pins.contains_key(other) && *other != digest);
    }

    /// A read found `content`, or nothing.
    pub fn read(&mut self, digest: &Digest, content: Option<&[u8]>) {
        match content {
            Some(content) => {
                assert!(self.may.contains(digest), "phantom {digest}");
                assert_eq!(self.contents[digest], content, "wrong bytes for {digest}");
                self.must.insert(*digest);
            }
            None => {
                assert!(!self.must.contains(digest), "{digest} was published and is lost");
                self.may.remove(digest);
            }
        }
    }

    /// A read hit a disk error: the chunk is gone.
    pub fn read_failed(&mut self, digest: &Digest) {
        self.must.remove(digest);
    }

    /// A digest was pinned.
    pub fn pinned(&mut self, digest: Digest) {
        *self.pins.entry(digest).or_default() += 1;
    }

    /// A pin was taken back.
    pub fn unpinned(&mut self, digest: &Digest) {
        if let Some(count) = self.pins.get_mut(digest) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(digest);
            }
        }
    }

    /// The store was closed or killed and opened again: pins are gone, chunks are not. After a
    /// write that failed (`records_return`), a record that could not be blanked may be back.
    pub fn reopened(&mut self, records_return: bool) {
        self.pins.clear();
        if records_return {
            self.may.extend(self.contents.keys());
        }
    }

    /// The digests that are pinned.
    pub fn pins(&self) -> impl Iterator<Item = &Digest> {
        self.pins.keys()
    }

    /// The chunks that the store must hold.
    pub fn must_hold(&self) -> &HashSet<Digest> {
        &self.must
    }

    /// Compares what the store lists with what it may and must hold.
    pub fn lists(&self, listed: &HashSet<Digest>) {
        assert!(listed.is_subset(&self.may), "phantoms listed");
        assert!(self.must.is_subset(listed), "published chunks not listed");
        assert!(listed.len() <= self.slots, "more chunks listed than slots");
    }
}

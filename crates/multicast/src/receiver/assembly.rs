//! Chunks in parts, in bounded memory.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::ShardLayout;
use crate::limits::SHARD_LEN;

/// Outcome of a shard.
#[derive(Debug, PartialEq, Eq)]
pub enum Shard {
    /// Others of its chunk are missing.
    Kept,
    /// There already, or of no place that there is.
    Useless,
    /// The chunk is whole: put together, not verified; true if parity was needed.
    Whole(Bytes, bool),
}

#[derive(Debug)]
struct Part {
    shards: Box<[Option<Bytes>]>,
    present: usize,
}

/// Chunks of which parts have come.
///
/// Holds as many as its bytes allow, each counted as if it were whole; beyond, the one that began first is given
/// up, since the sender has moved on from it.
#[derive(Debug)]
pub struct Assembly {
    layout: ShardLayout,
    chunks_max: usize,
    parts: HashMap<u64, Part>,
    /// Chunks in the order of their first shards; some may be whole by now.
    order: VecDeque<u64>,
    given_up: u64,
}

impl Assembly {
    /// Returns an empty one that holds at most `bytes_max`, and always one chunk.
    pub fn new(layout: ShardLayout, bytes_max: usize) -> Assembly {
        let chunks_max = (bytes_max / (layout.total() * SHARD_LEN)).max(1);
        Assembly { layout, chunks_max, parts: HashMap::new(), order: VecDeque::new(), given_up: 0 }
    }

    /// Chunks given up because others needed the memory.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Chunks of which parts are held.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes a shard of a chunk that is wanted.
    pub fn insert(&mut self, chunk: u64, shard: u16, bytes: Bytes) -> Shard {
        let place = usize::from(shard);
        if place >= self.layout.total() || bytes.len() != SHARD_LEN {
            return Shard::Useless;
        }
        if !self.parts.contains_key(&chunk) {
            self.make_room();
            self.order.push_back(chunk);
        }
        let total = self.layout.total();
        let part = self
            .parts
            .entry(chunk)
            .or_insert_with(|| Part { shards: vec![None; total].into(), present: 0 });
        if part.shards[place].is_some() {
            return Shard::Useless;
        }
        part.shards[place] = Some(bytes);
        part.present += 1;
        if part.present < self.layout.data() {
            return Shard::Kept;
        }
        let needs_parity = part.shards[..self.layout.data()].iter().any(Option::is_none);
        match self.layout.join(&part.shards) {
            Ok(whole) => {
                self.forget(chunk);
                Shard::Whole(whole, needs_parity)
            }
            // As many as data shards always suffice.
            Err(_) => Shard::Kept,
        }
    }

    /// Drops the parts of a chunk.
    pub fn forget(&mut self, chunk: u64) {
        if self.parts.remove(&chunk).is_some() {
            self.order.retain(|begun| *begun != chunk);
        }
    }

    fn make_room(&mut self) {
        while self.parts.len() >= self.chunks_max {
            let Some(oldest) = self.order.pop_front() else { return };
            self.given_up += u64::from(self.parts.remove(&oldest).is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::ChunkSize;

    use super::*;

    fn layout() -> ShardLayout {
        ShardLayout::new(ChunkSize::new(4_096).unwrap(), true)
    }

    fn shards(byte: u8) -> Vec<Bytes> {
        layout().split(&[byte; 4_096]).unwrap()
    }

    #[test]
    fn test_insert_any_order_and_doubles_give_the_chunk() {
        let mut assembly = Assembly::new(layout(), 1 << 20);
        let sent = shards(7);
        assert_eq!(assembly.insert(1, 2, sent[2].clone()), Shard::Kept);
        assert_eq!(assembly.insert(1, 2, sent[2].clone()), Shard::Useless);
        assert_eq!(assembly.insert(1, 3, sent[3].clone()), Shard::Kept);
        let whole = Shard::Whole(vec![7; 4_096].into(), true);
        assert_eq!(assembly.insert(1, 0, sent[0].clone()), whole);
        assert!(assembly.is_empty());
    }

    #[test]
    fn test_insert_what_does_not_exist_is_useless() {
        let mut assembly = Assembly::new(layout(), 1 << 20);
        assert_eq!(assembly.insert(1, 4, shards(1)[0].clone()), Shard::Useless);
        assert_eq!(assembly.insert(1, 0, Bytes::from_static(b"short")), Shard::Useless);
        assert!(assembly.is_empty());
    }

    #[test]
    fn test_insert_memory_is_bounded_and_the_oldest_is_given_up() {
        let mut assembly = Assembly::new(layout(), 3 * 4 * SHARD_LEN);
        for chunk in 0..100 {
            assert_eq!(assembly.insert(chunk, 0, shards(1)[0].clone()), Shard::Kept);
            assert!(assembly.len() <= 3 && assembly.order.len() <= 3);
        }
        assert_eq!(assembly.given_up(), 97);
        assert_eq!(assembly.insert(99, 1, shards(1)[1].clone()), Shard::Kept);
        assert!(matches!(assembly.insert(99, 2, shards(1)[2].clone()), Shard::Whole(..)));
    }
}

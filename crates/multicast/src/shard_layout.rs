//! Division of a chunk into the packets that carry it, and its parity packets.

use acstor_types::ChunkSize;
use bytes::Bytes;

use crate::limits::{PARITY_GROUP, PARITY_PER_GROUP, SHARD_LEN};

/// Shards from which no chunk can be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("parity: {0}")]
pub struct ParityError(#[from] reed_solomon_simd::Error);

/// Division of every chunk of a size into shards of [`SHARD_LEN`] bytes: those of its content, the last filled
/// up with zeros, and then those of its parity.
///
/// Parity is a Reed-Solomon code over GF(2^16): any [`ShardLayout::data`] shards give the chunk. Source: Leopard
/// (Lin, Al-Naffouri, Han, Chung, IEEE Trans. Inf. Theory 2016), by `reed-solomon-simd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLayout {
    chunk_size: usize,
    data: usize,
    parity: usize,
}

impl ShardLayout {
    /// Returns the division of chunks of a size; without parity where there is to be none.
    pub fn new(chunk_size: ChunkSize, has_parity: bool) -> ShardLayout {
        let chunk_size = chunk_size.bytes();
        let data = chunk_size.div_ceil(SHARD_LEN);
        let parity = match has_parity {
            true => (data * PARITY_PER_GROUP).div_ceil(PARITY_GROUP),
            false => 0,
        };
        ShardLayout { chunk_size, data, parity }
    }

    /// Bytes of a chunk.
    pub fn chunk_size(&self) -> usize {
        self.chunk_size
    }

    /// Shards of content, which come first.
    pub fn data(&self) -> usize {
        self.data
    }

    /// All shards; at most 3,188, those of a chunk of 4 MiB.
    pub fn total(&self) -> usize {
        self.data + self.parity
    }

    /// Returns whether lost packets can be made up for.
    pub fn has_parity(&self) -> bool {
        self.parity > 0
    }

    /// Returns a shard of content, 0-based.
    fn data_shard(&self, chunk: &[u8], shard: usize) -> Bytes {
        let begin = (shard * SHARD_LEN).min(chunk.len());
        let end = (begin + SHARD_LEN).min(chunk.len());
        let mut bytes = chunk[begin..end].to_vec();
        bytes.resize(SHARD_LEN, 0);
        bytes.into()
    }

    /// Returns all shards of a chunk of [`ShardLayout::chunk_size`] bytes.
    ///
    /// # Errors
    /// [`ParityError`] when the code cannot have that many shards, which no chunk size leads to.
    pub fn split(&self, chunk: &[u8]) -> Result<Vec<Bytes>, ParityError> {
        let mut shards: Vec<Bytes> = (0..self.data).map(|i| self.data_shard(chunk, i)).collect();
        if self.parity > 0 {
            let parity = reed_solomon_simd::encode(self.data, self.parity, &shards)?;
            shards.extend(parity.into_iter().map(Bytes::from));
        }
        Ok(shards)
    }

    /// Returns the chunk that shards are of, by their places; [`ShardLayout::data`] of them are needed.
    ///
    /// # Errors
    /// [`ParityError`] when too few are there.
    pub fn join(&self, shards: &[Option<Bytes>]) -> Result<Bytes, ParityError> {
        let (data, parity) = shards.split_at(self.data.min(shards.len()));
        let present = |part: &[Option<Bytes>]| -> Vec<(usize, Bytes)> {
            let shards = part.iter().enumerate();
            shards.filter_map(|(place, shard)| Some((place, shard.clone()?))).collect()
        };
        let restored = match data.iter().all(Option::is_some) && data.len() == self.data {
            true => Default::default(),
            false => {
                let (data, parity) = (present(data), present(parity));
                reed_solomon_simd::decode(self.data, self.parity, data, parity)?
            }
        };
        let mut chunk = Vec::with_capacity(self.data * SHARD_LEN);
        for (place, shard) in data.iter().enumerate() {
            match (shard, restored.get(&place)) {
                (Some(shard), _) => chunk.extend_from_slice(shard),
                (None, Some(shard)) => chunk.extend_from_slice(shard),
                (None, None) => chunk.resize((place + 1) * SHARD_LEN, 0),
            }
        }
        chunk.truncate(self.chunk_size);
        Ok(chunk.into())
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::Digest;
    use acstor_types::limits::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN};
    use proptest::prelude::*;

    use super::*;

    fn layout(chunk_size: u32) -> ShardLayout {
        ShardLayout::new(ChunkSize::new(chunk_size).unwrap(), true)
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    #[test]
    fn test_new_has_three_parity_shards_per_64_kib() {
        let counts = |size| (layout(size).data(), layout(size).total());
        assert_eq!(counts(CHUNK_SIZE_MIN), (3, 4));
        assert_eq!(counts(65_536), (47, 50));
        assert_eq!(counts(CHUNK_SIZE_MAX), (2_996, 3_188));
        let bare = ShardLayout::new(ChunkSize::new(65_536).unwrap(), false);
        assert_eq!((bare.total(), bare.has_parity()), (47, false));
    }

    /// Parity is on the wire: another code is another version of the protocol.
    #[test]
    fn test_split_parity_version_requires_update() {
        let shards = layout(65_536).split(&content(65_536)).unwrap();
        let digest = Digest::of(&shards[47..].concat());
        assert_eq!(
            digest.to_string(),
            "07073637d500ae1f5873d4c16d21491282b93ac5fff58f313ff46f186c70fea4"
        );
    }

    #[test]
    fn test_split_without_parity_joins_again() {
        let bare = ShardLayout::new(ChunkSize::new(65_536).unwrap(), false);
        let chunk = content(65_536);
        let mut shards: Vec<_> = bare.split(&chunk).unwrap().into_iter().map(Some).collect();
        assert_eq!(bare.join(&shards).unwrap(), chunk);
        shards[7] = None;
        assert!(bare.join(&shards).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn test_join_any_data_many_shards_gives_the_chunk(
            lost in prop::collection::btree_set(0_usize..50, 0..5),
        ) {
            let layout = layout(65_536);
            let chunk = content(65_536);
            let mut shards: Vec<_> = layout.split(&chunk).unwrap().into_iter().map(Some).collect();
            lost.iter().for_each(|place| shards[*place] = None);
            let in_content = lost.iter().filter(|place| **place < 47).count();
            match layout.join(&shards) {
                Ok(joined) => prop_assert_eq!(joined, chunk),
                Err(_) => prop_assert!(lost.len() > 3 && in_content > 0),
            }
        }
    }
}

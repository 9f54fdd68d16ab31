//! The size of a chunk.

use crate::limits;

/// Size of every chunk of one disk: a power of two from 4 KiB to 4 MiB.
///
/// The last chunk of a disk is padded with zeros to this size before it is named, so every chunk
/// of a disk, in a pack, on the wire and in the chunk store has exactly this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkSize(u32);

impl ChunkSize {
    /// The size where the operator chose none: 64 KiB.
    pub const DEFAULT: ChunkSize = ChunkSize(limits::CHUNK_SIZE_DEFAULT);

    /// Returns the chunk size of `bytes` bytes, or `None` when it is no power of two in range.
    pub const fn new(bytes: u32) -> Option<ChunkSize> {
        if bytes.is_power_of_two()
            && bytes >= limits::CHUNK_SIZE_MIN
            && bytes <= limits::CHUNK_SIZE_MAX
        {
            Some(ChunkSize(bytes))
        } else {
            None
        }
    }

    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Size in bytes, as the formats store it.
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// Returns the index of the chunk that holds the byte at `offset`.
    pub const fn index_of(self, offset: u64) -> u64 {
        offset >> self.0.trailing_zeros()
    }

    /// Returns the number of chunks of a disk of `size_bytes` bytes.
    pub const fn count_for(self, size_bytes: u64) -> u64 {
        size_bytes.div_ceil(self.0 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::ChunkSize;

    #[test]
    fn accepts_powers_of_two_in_range_only() {
        for (bytes, ok) in [
            (0, false),
            (2 << 10, false),
            (4 << 10, true),
            (65_536, true),
            (65_537, false),
            (4 << 20, true),
            (8 << 20, false),
        ] {
            assert_eq!(ChunkSize::new(bytes).is_some(), ok, "{bytes}");
        }
    }

    #[test]
    fn counts_a_partial_last_chunk() {
        let size = ChunkSize::DEFAULT;
        assert_eq!(size.count_for(0), 0);
        assert_eq!(size.count_for(1), 1);
        assert_eq!(size.count_for(65_536), 1);
        assert_eq!(size.count_for(65_537), 2);
        assert_eq!(size.index_of(65_535), 0);
        assert_eq!(size.index_of(65_536), 1);
    }
}

//! Profiles of boots: the chunks that boots of an image read, in order of first touch.

use std::error::Error;
use std::fmt::{self, Display, Formatter};

use crate::limits;

/// One kind of boot of an image, as it was learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootKind {
    /// Indexes of the chunks, in order of first touch, each once.
    pub chunks: Vec<u32>,
    /// Boots that it stands for, in any unit. Where nothing else decides, the heaviest kind leads.
    pub weight: u32,
}

/// Reason for which kinds of boot are no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootProfileError {
    /// More kinds than a profile has.
    Kinds(usize),
    /// More chunks than a kind has.
    Chunks(usize),
    /// A chunk that a kind names twice.
    Repeated(u32),
}

impl Display for BootProfileError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            BootProfileError::Kinds(count) => {
                let most = limits::READ_AHEAD_KINDS_MAX;
                write!(f, "boot profile of {count} kinds: {most} are the most")
            }
            BootProfileError::Chunks(count) => {
                let most = limits::READ_AHEAD_KIND_CHUNKS_MAX;
                write!(f, "kind of boot with {count} chunks: {most} are the most")
            }
            BootProfileError::Repeated(chunk) => {
                write!(f, "kind of boot that names chunk {chunk} twice: it is damaged")
            }
        }
    }
}

impl Error for BootProfileError {}

/// Rank of a chunk that a kind does not name.
const NO_RANK: u32 = u32::MAX;

/// One kind, over the numbers that a profile gives its chunks.
#[derive(Clone, Debug)]
pub(super) struct RankedKind {
    /// Number of the chunk at each rank.
    pub(super) numbers: Box<[u32]>,
    /// Rank of each number.
    ranks: Box<[u32]>,
}

impl RankedKind {
    fn new(chunks: &[u32], all: &[u32]) -> Result<RankedKind, BootProfileError> {
        let mut ranks = vec![NO_RANK; all.len()].into_boxed_slice();
        let mut numbers = Vec::with_capacity(chunks.len());
        for (rank, chunk) in (0..).zip(chunks) {
            let Ok(number) = all.binary_search(chunk) else { continue };
            if ranks[number] != NO_RANK {
                return Err(BootProfileError::Repeated(*chunk));
            }
            ranks[number] = rank;
            numbers.push(number as u32);
        }
        Ok(RankedKind { numbers: numbers.into_boxed_slice(), ranks })
    }

    pub(super) fn rank(&self, number: u32) -> Option<u32> {
        self.ranks.get(number as usize).copied().filter(|rank| *rank != NO_RANK)
    }
}

/// The kinds of boot of one image, the heaviest first. Immutable; shared by all handles of the image.
///
/// Takes 4 bytes per chunk, and 8 more per chunk and kind: 10 KB for the 815 chunks that a small Linux
/// image with one kind of boot reads.
#[derive(Clone, Debug)]
pub struct BootProfile {
    /// The chunks of all kinds, ascending: the place of a chunk is its number.
    chunks: Box<[u32]>,
    pub(super) kinds: Box<[RankedKind]>,
}

impl BootProfile {
    /// A profile of these kinds; those without chunks are left out.
    ///
    /// # Errors
    /// [`BootProfileError`].
    pub fn new(mut kinds: Vec<BootKind>) -> Result<BootProfile, BootProfileError> {
        if kinds.len() > limits::READ_AHEAD_KINDS_MAX {
            return Err(BootProfileError::Kinds(kinds.len()));
        }
        let longest = kinds.iter().map(|kind| kind.chunks.len()).max().unwrap_or(0);
        if longest > limits::READ_AHEAD_KIND_CHUNKS_MAX {
            return Err(BootProfileError::Chunks(longest));
        }
        kinds.retain(|kind| !kind.chunks.is_empty());
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.weight));
        let mut chunks: Vec<u32> = kinds.iter().flat_map(|kind| &kind.chunks).copied().collect();
        chunks.sort_unstable();
        chunks.dedup();
        let ranked = kinds.iter().map(|kind| RankedKind::new(&kind.chunks, &chunks));
        Ok(BootProfile { kinds: ranked.collect::<Result<_, _>>()?, chunks: chunks.into() })
    }

    /// Chunks of all kinds together.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Returns whether no kind names a chunk.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Number of kinds.
    pub fn kind_count(&self) -> usize {
        self.kinds.len()
    }

    /// The chunks of a kind, in order of first touch; none where there is no such kind. The heaviest kind
    /// is kind 0.
    pub fn chunks(&self, kind: usize) -> impl Iterator<Item = u32> + '_ {
        let numbers = self.kinds.get(kind).into_iter().flat_map(|kind| kind.numbers.iter());
        numbers.map(|number| self.chunk(*number))
    }

    /// Rank of a chunk in a kind.
    pub fn rank(&self, kind: usize, chunk: u32) -> Option<u32> {
        self.kinds.get(kind)?.rank(self.number(chunk)?)
    }

    pub(super) fn number(&self, chunk: u32) -> Option<u32> {
        Some(self.chunks.binary_search(&chunk).ok()? as u32)
    }

    pub(super) fn chunk(&self, number: u32) -> u32 {
        self.chunks[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(chunks: &[u32], weight: u32) -> BootKind {
        BootKind { chunks: chunks.to_vec(), weight }
    }

    #[test]
    fn test_new_has_the_heaviest_kind_first_and_ranks_by_first_touch() {
        let profile =
            BootProfile::new(vec![kind(&[7, 3], 1), kind(&[], 9), kind(&[9, 7, 1], 5)]).unwrap();
        assert_eq!(profile.kind_count(), 2);
        assert_eq!(profile.chunks(0).collect::<Vec<_>>(), [9, 7, 1]);
        assert_eq!(profile.len(), 4);
        assert_eq!((profile.rank(0, 7), profile.rank(1, 7)), (Some(1), Some(0)));
        assert_eq!(
            (profile.rank(0, 3), profile.rank(0, 8), profile.rank(5, 9)),
            (None, None, None)
        );
        assert_eq!(profile.chunks(5).count(), 0);
    }

    #[test]
    fn test_new_refuses_what_is_no_profile() {
        let many = vec![kind(&[1], 1); limits::READ_AHEAD_KINDS_MAX + 1];
        assert_eq!(BootProfile::new(many).unwrap_err(), BootProfileError::Kinds(4));
        let error = BootProfile::new(vec![kind(&[1, 2, 1], 1)]).unwrap_err();
        assert!(error.to_string().contains("chunk 1 twice"), "{error}");
        let long: Vec<u32> = (0..=limits::READ_AHEAD_KIND_CHUNKS_MAX as u32).collect();
        assert!(matches!(BootProfile::new(vec![kind(&long, 1)]), Err(BootProfileError::Chunks(_))));
        assert!(BootProfile::new(Vec::new()).unwrap().is_empty());
    }
}

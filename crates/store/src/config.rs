//! Configuration of a store: its place, its size, its eviction policy.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use acstor_types::ChunkSize;

/// Configuration of a chunk store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Directory of the store's files; created when absent.
    pub path: PathBuf,
    /// Most bytes that all files of the store take together.
    pub capacity_bytes: u64,
    /// Size of every chunk; a store of another chunk size is emptied when it is opened.
    pub chunk_size: ChunkSize,
    /// Policy that chooses the chunk that leaves when a slot is needed.
    pub eviction: EvictionKind,
}

/// The eviction policies; each is one file under `eviction/`, which names its source and limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EvictionKind {
    /// S3-FIFO: scan-resistant, a hit takes no lock.
    #[default]
    S3Fifo,
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// Least frequently used.
    Lfu,
}

/// A text that names no eviction policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown eviction policy {0:?}: use s3fifo, fifo, lru or lfu")]
pub struct ParseEvictionError(String);

impl EvictionKind {
    /// Every policy, for comparisons and tests.
    pub const ALL: [EvictionKind; 4] =
        [EvictionKind::S3Fifo, EvictionKind::Fifo, EvictionKind::Lru, EvictionKind::Lfu];

    /// Returns the name that the configuration and the metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            EvictionKind::S3Fifo => "s3fifo",
            EvictionKind::Fifo => "fifo",
            EvictionKind::Lru => "lru",
            EvictionKind::Lfu => "lfu",
        }
    }
}

impl fmt::Display for EvictionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EvictionKind {
    type Err = ParseEvictionError;

    fn from_str(text: &str) -> Result<EvictionKind, ParseEvictionError> {
        EvictionKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| ParseEvictionError(text.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::EvictionKind;

    #[test]
    fn names_round_trip() {
        for kind in EvictionKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "arc".parse::<EvictionKind>().unwrap_err();
        assert!(error.to_string().contains("s3fifo"), "{error}");
    }
}

//! Chunks that a host is asked for by their digests: whether it has them, and to have them no more.

use std::path::Path;

use acstor_readpath::HeldChunks;
use acstor_types::{Digest, DiskId};
use serde_json::{Value, json};

use super::{Host, HostError, bounded_file};

/// Most digests of a file: 1 MiB of them.
pub const DIGESTS_MAX: usize = 1 << 15;

impl Host {
    /// Returns the chunks of an attached disk that the chunk store holds.
    ///
    /// # Errors
    /// [`HostError::ReadPath`].
    pub fn held_chunks(&self, disk: DiskId) -> Result<HeldChunks, HostError> {
        Ok(self.parts.read_path.held_chunks(&disk)?)
    }

    /// Counts the chunks on this host of those whose digests a file has.
    ///
    /// # Errors
    /// [`HostError`] when the file is none of digests.
    pub fn count_chunks(&self, path: &Path) -> Result<Value, HostError> {
        let digests = read_digests(path)?;
        let held = self.parts.read_path.count_here(&digests);
        Ok(json!({"asked": digests.len(), "held": held}))
    }

    /// Takes the chunks from this host whose digests a file has.
    ///
    /// # Errors
    /// [`HostError`] when the file is none of digests, or the disk fails.
    pub fn discard_chunks(&self, path: &Path) -> Result<Value, HostError> {
        let digests = read_digests(path)?;
        let read_path = &self.parts.read_path;
        let held = read_path.count_here(&digests);
        let discarded = read_path.discard(&digests)?;
        if let Some(peers) = &self.parts.serving.lock().peers {
            peers.forget(&digests);
        }
        tracing::debug!(dropped = discarded.dropped, busy = discarded.busy, "chunks discarded");
        let left = read_path.count_here(&digests);
        Ok(json!({"asked": digests.len(), "held": held, "left": left}))
    }
}

fn read_digests(path: &Path) -> Result<Vec<Digest>, HostError> {
    let bytes = bounded_file::read(path, (DIGESTS_MAX * Digest::LEN) as u64)?;
    let (digests, rest) = bytes.as_chunks::<{ Digest::LEN }>();
    if !rest.is_empty() {
        return Err(HostError::Argument {
            name: "digests",
            value: format!("{} bytes", bytes.len()),
            allowed: "32 bytes for each",
        });
    }
    Ok(digests.iter().map(|digest| Digest::from_bytes(*digest)).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn digests_of(content: &[u8]) -> Result<Vec<Digest>, HostError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        read_digests(file.path())
    }

    #[test]
    fn test_file_of_digests_is_read_and_any_other_refused() {
        assert_eq!(digests_of(&[]).unwrap(), []);
        let one = Digest::of(b"one");
        let found = digests_of(&[*one.as_bytes(), [0; 32]].concat()).unwrap();
        assert_eq!(found, [one, Digest::from_bytes([0; 32])]);
        assert!(matches!(digests_of(&[0; 33]), Err(HostError::Argument { .. })));
        let long = vec![0; (DIGESTS_MAX + 1) * Digest::LEN];
        assert!(matches!(digests_of(&long), Err(HostError::TooLong { .. })));
    }
}

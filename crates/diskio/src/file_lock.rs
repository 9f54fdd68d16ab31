use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// An exclusive `flock(2)` of a file, held until this is dropped.
///
/// It is given up by name, not by closing the file: a process that another thread starts has a copy
/// of each open file between its `fork` and its `exec`, and the lock lives as long as any copy.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks `file`, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` when it is locked through another opening of the file, by this or another
    /// process; else the kernel's error.
    pub fn try_exclusive(file: File) -> io::Result<FileLock> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(FileLock(file))
    }

    /// The locked file.
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A failure leaves what closing does: the lock goes with the last copy of the file.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn second_opening_is_refused_until_the_first_is_dropped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = FileLock::try_exclusive(file.reopen().unwrap()).unwrap();
        let error = FileLock::try_exclusive(file.reopen().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        FileLock::try_exclusive(file.reopen().unwrap()).unwrap();
    }

    #[test]
    fn copy_that_a_child_has_does_not_prolong_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = FileLock::try_exclusive(file.reopen().unwrap()).unwrap();
        let copy = lock.file().try_clone().unwrap(); // as fork(2) makes one
        drop(lock);
        FileLock::try_exclusive(file.reopen().unwrap()).unwrap();
        drop(copy);
    }
}

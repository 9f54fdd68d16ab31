//! Size of the log that lies in the origin over the manifest.

use std::sync::atomic::{AtomicU64, Ordering};

/// Part of the log that the next owner may have to read before it serves.
const REPLAY_BYTES: u64 = 8 << 20;
/// Objects of the log that it may have to read.
const REPLAY_OBJECTS: u64 = 128;

/// Log objects over the manifest, as the volume counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSize {
    pub bytes: u64,
    pub objects: u64,
}

/// The log objects over the manifest: a push adds some, a fold takes some away.
#[derive(Debug, Default)]
pub(crate) struct OriginLogSize {
    bytes: AtomicU64,
    objects: AtomicU64,
}

impl OriginLogSize {
    pub(crate) fn new(size: LogSize) -> OriginLogSize {
        OriginLogSize { bytes: size.bytes.into(), objects: size.objects.into() }
    }

    pub(crate) fn get(&self) -> LogSize {
        LogSize {
            bytes: self.bytes.load(Ordering::Relaxed),
            objects: self.objects.load(Ordering::Relaxed),
        }
    }

    /// Replaces the bytes by what is known better.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, size: LogSize) {
        self.bytes.fetch_add(size.bytes, Ordering::Relaxed);
        self.objects.fetch_add(size.objects, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, size: LogSize) {
        self.bytes.fetch_sub(size.bytes, Ordering::Relaxed);
        self.objects.fetch_sub(size.objects, Ordering::Relaxed);
    }

    /// Returns whether another host would read for more than a moment to replay the log over the
    /// manifest.
    pub(crate) fn is_long(&self) -> bool {
        let size = self.get();
        size.bytes > REPLAY_BYTES || size.objects > REPLAY_OBJECTS
    }
}

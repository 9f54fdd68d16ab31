//! Counters of the front end.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one session since this process serves it; gauges end in `_now`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct FuseStats { $($(#[$doc])* pub $name: u64,)* }

        impl FuseStats {
            /// Name and value of each counter, for metrics.
            pub fn pairs(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> FuseStats {
                FuseStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Requests read from the device.
    requests,
    /// LOOKUPs.
    lookups,
    /// GETATTRs.
    getattrs,
    /// OPENs that succeeded.
    opens,
    /// OPENs and LSEEKs that waited for the manifest of the disk.
    prepare_waits,
    /// OPENs and LSEEKs that failed because it could not be read.
    prepare_errors,
    /// READs.
    reads,
    /// Bytes of answered READs.
    read_bytes,
    /// READs answered at once from this host's memory.
    read_hits,
    /// READs that waited for the disk, peers or the origin.
    read_waits,
    /// READs that wait now.
    read_waiting_now,
    /// READs answered with an errno.
    read_errors,
    /// READs that the view did not answer by the answer deadline.
    read_deadlines,
    /// READs refused because too many wait.
    read_refused,
    /// READs of inodes or handles that this process does not know.
    read_unknown,
    /// READs whose view returned another number of bytes than the disk has there.
    read_miscounted,
    /// READs that the kernel failed because mapped bytes left memory while it copied them, and could not
    /// be had again.
    mapped_faults,
    /// READs given up because the reader was killed.
    read_killed,
    /// Answers that nobody waited for any more.
    unwanted,
    /// Answers that the kernel refused, or had to fail while copying them.
    refused,
    /// Messages that were no valid request.
    malformed,
    /// Requests that made this program panic; answered EIO.
    panics,
    /// Requests that would change the file system; refused.
    modifications_refused,
    /// Requests of a kind that is not supported (ENOSYS; the kernel asks once per kind).
    unsupported,
    /// utimens calls, taken as hints to prefetch.
    prefetch_hints,
}

/// Adds one.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

//! Descriptors and mappings that the local logs of a process may take together.
//!
//! Each segment is an open file, and mapped. A process without descriptors can accept no client and
//! open no image, and one without mappings cannot even allocate; local logs leave both a share. A log
//! that gets no descriptor for another segment has no room, which guests are told as such; a segment
//! that is not mapped is read by calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::process::{Resource, getrlimit};

/// Descriptors of a process that says no limit.
const FILES_MAX: u64 = 1 << 20;
/// Mappings for segments: half of what Linux allows a process unless told otherwise
/// (`vm.max_map_count`, 65,530).
const MAPPINGS_MAX: u64 = 32 << 10;

/// A number of things, of which some are taken.
#[derive(Debug)]
struct Pool {
    free: AtomicU64,
}

impl Pool {
    fn new(count: u64) -> Arc<Pool> {
        Arc::new(Pool { free: AtomicU64::new(count) })
    }

    fn take(self: &Arc<Pool>) -> Option<Taken> {
        let take_one = |free: u64| free.checked_sub(1);
        self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take_one).ok()?;
        Some(Taken(Arc::clone(self)))
    }
}

/// One of a pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Pool>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::AcqRel);
    }
}

/// Budget of descriptors and mappings for the local logs of a process.
#[derive(Clone, Debug)]
pub(crate) struct FileBudget {
    files: Arc<Pool>,
    mappings: Arc<Pool>,
}

impl FileBudget {
    pub(crate) fn new(files: u64, mappings: u64) -> FileBudget {
        FileBudget { files: Pool::new(files), mappings: Pool::new(mappings) }
    }

    /// The one of this process: three quarters of its descriptors.
    pub(crate) fn of_process() -> FileBudget {
        static BUDGET: LazyLock<FileBudget> = LazyLock::new(|| {
            let files = getrlimit(Resource::Nofile).current.unwrap_or(FILES_MAX).min(FILES_MAX);
            FileBudget::new(files / 4 * 3, MAPPINGS_MAX)
        });
        BUDGET.clone()
    }

    /// A descriptor for a segment; `None`: there are no more.
    pub(crate) fn file(&self) -> Option<Taken> {
        self.files.take()
    }

    /// A mapping of a segment; `None`: there are no more.
    pub(crate) fn mapping(&self) -> Option<Taken> {
        self.mappings.take()
    }
}

//! Callbacks from the front end into its host process.

use std::fmt;
use std::sync::Arc;

use acstor_types::DiskId;

/// Called on a FUSE thread; must return at once and never touch the mount.
type DiskHook = Arc<dyn Fn(DiskId) + Send + Sync>;

/// Optional calls into the host process.
#[derive(Clone, Default)]
pub struct FuseHooks {
    pub(crate) prefetch: Option<DiskHook>,
}

impl FuseHooks {
    /// Calls `hook` whenever somebody sets the times of a file: Nova does so when it is about to
    /// use a base image, so it is a hint to prefetch. The hook runs on a FUSE thread, must return
    /// at once and must never touch the mount.
    #[must_use]
    pub fn on_prefetch_hint(mut self, hook: impl Fn(DiskId) + Send + Sync + 'static) -> FuseHooks {
        self.prefetch = Some(Arc::new(hook));
        self
    }
}

impl fmt::Debug for FuseHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseHooks").field("prefetch", &self.prefetch.is_some()).finish()
    }
}

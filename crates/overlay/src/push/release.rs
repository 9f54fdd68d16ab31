//! Giving a volume back: nearly all of it while requests go on, the rest while they wait.
//!
//! While requests wait a release does what it must: it syncs and pushes what was written last. All
//! that takes the disk's time comes before that or is left out. Compaction ends what it is at and begins
//! nothing more, the local log is synced, and no checkpoint is written behind the last push: who opens
//! the log again scans what follows the one before.

use std::time::Duration;

use crate::core::Core;
use crate::{OverlayError, PushPoint, Volume};

/// Longest time for which a release holds writes: it ends before, or gives them back itself.
const FREEZE_MAX: Duration = Duration::from_secs(3600);

/// A volume of which little is left to be pushed. Requests go on until [`Release::finish`]; dropped
/// before, the volume goes on as it was.
pub struct Release<'a> {
    volume: &'a Volume,
    _quiet: Quiet<'a>,
}

/// As long as it lives compaction begins nothing that takes long.
struct Quiet<'a>(&'a Core);

impl Quiet<'_> {
    /// Blocks until compaction has ended what it is at.
    fn begin(core: &Core) -> Quiet<'_> {
        core.compaction.begin_quiet(&core.log);
        Quiet(core)
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.load.hold_back.converge(None);
        self.0.compaction.end_quiet();
    }
}

impl Volume {
    /// Pushes, while requests go on, until [`Release::finish`] makes them wait for a moment only.
    /// Blocks.
    ///
    /// # Errors
    /// As [`Volume::push_now`]; [`OverlayError::Corrupt`] while the origin lacks what is damaged here.
    pub fn prepare_release(&self) -> Result<Release<'_>, OverlayError> {
        let core = &*self.core;
        // Whatever comes of it, writers are held back no longer.
        core.push_ahead().inspect_err(|_| core.load.hold_back.converge(None))?;
        let quiet = Quiet::begin(core);
        // What was written while compaction ended.
        core.push_ahead()?;
        // Before requests wait for it: what cannot be pushed is not given up.
        core.check_delivered()?;
        let synced = core.log.sync(core.log.appended());
        synced.map_err(|error| OverlayError::Unavailable(error.to_string()))?;
        Ok(Release { volume: self, _quiet: quiet })
    }

    /// Prepares a release and finishes it: see [`Release::finish`].
    ///
    /// # Errors
    /// As [`Volume::push_now`].
    pub fn release(&self) -> Result<PushPoint, OverlayError> {
        self.prepare_release()?.finish()
    }
}

impl Release<'_> {
    /// Makes writes wait, pushes everything, and closes the volume; the caller then gives the
    /// ownership up in the record. After an error the volume is open as before. Blocks.
    ///
    /// # Errors
    /// As [`Volume::push_now`].
    pub fn finish(self) -> Result<PushPoint, OverlayError> {
        let volume = self.volume;
        volume.freeze(FREEZE_MAX)?;
        match volume.push_now() {
            Ok(point) => {
                volume.close_released();
                Ok(point)
            }
            Err(error) => {
                volume.core.load.hold_back.converge(None);
                volume.thaw();
                Err(error)
            }
        }
    }
}

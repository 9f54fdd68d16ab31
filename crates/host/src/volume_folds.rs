//! Folding volumes, sealing epochs, and what overlays are configured with.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use acstor_overlay::{
    Announce, FoldHow, LogPosition, OriginSink, OverlayError, Sealed, VolumeConfig,
};
use acstor_types::{DedupScope, Digest, DiskId};
use bytes::Bytes;

use super::{Host, HostError};

/// Result of a fold, with what a caller needs to install it.
pub struct FoldMade {
    /// The manifest's bytes.
    pub content: Bytes,
    /// Name of the manifest.
    pub digest: Digest,
    /// The last log object that it holds.
    pub until: LogPosition,
}

impl Host {
    /// Stops the owner of an epoch.
    ///
    /// # Errors
    /// [`HostError::Overlay`] when the origin does not answer.
    pub fn volume_seal(
        &self,
        volume: DiskId,
        epoch: u32,
        first: u64,
        sink: &dyn OriginSink,
    ) -> Result<Sealed, HostError> {
        Ok(acstor_overlay::seal(sink, volume, epoch, first)?)
    }

    /// Stores what was pushed as packs and a manifest, for the caller to install; what it stores
    /// is spread over a time, and kept in the chunk store. `scope`: of the names of new chunks;
    /// `is_paged`: whether the first manifest of a volume is of format 2.
    ///
    /// # Errors
    /// [`HostError::Overlay`]; the fold is given up then.
    pub fn volume_fold(
        &self,
        volume: DiskId,
        spread: Duration,
        scope: Option<DedupScope>,
        is_paged: bool,
        announce: &mut Announce<'_>,
    ) -> Result<Option<FoldMade>, HostError> {
        let owned = self.owned_volume(volume)?;
        let keep = |digest: &Digest, content: &Bytes| {
            self.parts.read_path.keep(*digest, content.clone());
        };
        let how = FoldHow { spread, keep: &keep, scope, is_paged };
        let folded = owned.overlay.fold(announce, &how);
        let folded = folded.inspect_err(|error| {
            if matches!(error, OverlayError::Base(_)) {
                owned.is_base_damaged.store(true, Ordering::Release);
            }
        })?;
        let made = folded.as_ref().map(|folded| FoldMade {
            content: folded.content.clone(),
            digest: folded.digest,
            until: folded.until,
        });
        *owned.folded.lock() = folded;
        Ok(made)
    }

    /// Has folds of a volume given up, or no longer.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`], [`HostError::VolumeNotOwned`].
    pub fn volume_set_fold_unwanted(
        &self,
        volume: DiskId,
        is_unwanted: bool,
    ) -> Result<(), HostError> {
        self.owned_volume(volume)?.overlay.set_fold_unwanted(is_unwanted);
        Ok(())
    }

    /// Settings of the overlay of a volume whose local log is in `directory`.
    pub(super) fn volume_config(&self, directory: &Path, reserve_bytes: u64) -> VolumeConfig {
        let settings = &self.parts.settings;
        let given = |value: u64| (value > 0).then_some(value);
        VolumeConfig {
            directory: directory.to_owned(),
            quota_bytes: settings.volumes_quota_bytes,
            reserve_bytes,
            segment_bytes: settings.volumes_segment_bytes,
            push_rate: given(settings.volumes_push_bytes_per_s),
            io_timeout: (settings.volumes_io_timeout_ms > 0)
                .then(|| Duration::from_millis(settings.volumes_io_timeout_ms)),
            chunk_size: self.parts.chunk_size,
        }
    }
}

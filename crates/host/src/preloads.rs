//! Working sets, boot profiles and preloads, in the words of the stubs.

use std::path::Path;
use std::time::UNIX_EPOCH;

use acstor_readpath::{
    PreloadRequest, PreloadStatus, PreloadWhat, RecordedBoot, WorkingSet, boot_profile_len_max,
};
use acstor_types::DiskId;
use serde_json::{Value, json};

use super::{Host, HostError, bounded_file};

/// Parses the word with which a caller says what to preload.
pub fn parse_what(what: &str) -> Result<PreloadWhat, HostError> {
    PreloadWhat::parse(what).ok_or_else(|| HostError::Argument {
        name: "what",
        value: what.to_owned(),
        allowed: "working-set or full",
    })
}

impl Host {
    /// Returns the chunks that boots of an image read on this host.
    ///
    /// # Errors
    /// [`HostError::ReadPath`].
    pub fn working_set(&self, disk: DiskId) -> Result<WorkingSet, HostError> {
        Ok(self.parts.read_path.working_set(&disk)?)
    }

    /// Takes over what boots read, from a file as [`WorkingSet::bitmap`] has it.
    ///
    /// # Errors
    /// [`HostError`]; what was set before stays.
    pub fn set_working_set(&self, disk: DiskId, path: &Path) -> Result<(), HostError> {
        let len = self.parts.read_path.working_set_len_max(&disk)?;
        // One byte more, so that a file that is too long is told by its wrong length.
        let bitmap = bounded_file::read(path, len + 1)?;
        Ok(self.parts.read_path.set_working_set(&disk, &bitmap)?)
    }

    /// Forgets the boots up to a number, and returns the next that guests of this host made.
    pub fn recorded_boots(&self, acknowledged: u64) -> Vec<RecordedBoot> {
        self.parts.read_path.recorded_boots(acknowledged)
    }

    /// Takes over in which orders boots read, from a file as `reference/formats/rank-list` has it.
    ///
    /// # Errors
    /// [`HostError`]; what was set before stays.
    pub fn set_boot_profile(&self, disk: DiskId, path: &Path) -> Result<(), HostError> {
        let orders = bounded_file::read(path, boot_profile_len_max())?;
        self.parts.read_path.set_boot_profile(&disk, &orders)?;
        self.inherit_news(disk);
        Ok(())
    }

    /// Returns the share of each working set that is here.
    pub fn coverage(&self) -> Vec<Value> {
        let covered = self.parts.read_path.coverage();
        covered
            .into_iter()
            .map(|(disk, coverage)| {
                json!({
                    "image": disk.to_string(),
                    "wanted_chunks": coverage.wanted_chunks,
                    "present_chunks": coverage.present_chunks,
                })
            })
            .collect()
    }

    /// Starts a preload.
    ///
    /// # Errors
    /// [`HostError::ReadPath`].
    pub fn preload_start(&self, disk: DiskId, request: PreloadRequest) -> Result<Value, HostError> {
        Ok(describe(&self.parts.read_path.preload_start(&disk, request)?))
    }

    /// The newest preload of each image that had one.
    pub fn preload_status(&self) -> Vec<Value> {
        self.parts.read_path.preload_status().iter().map(describe).collect()
    }

    /// Stops a preload.
    ///
    /// # Errors
    /// [`HostError::ReadPath`].
    pub fn preload_stop(&self, disk: DiskId) -> Result<(), HostError> {
        Ok(self.parts.read_path.preload_stop(&disk)?)
    }

    /// Returns the bytes that a preload would bring, and the room for it.
    ///
    /// # Errors
    /// [`HostError::ReadPath`].
    pub fn preload_estimate(&self, disk: DiskId, what: PreloadWhat) -> Result<Value, HostError> {
        let estimate = self.parts.read_path.preload_estimate(&disk, what)?;
        Ok(json!({
            "total_bytes": estimate.total_bytes,
            "missing_bytes": estimate.missing_bytes,
            "free_bytes": estimate.free_bytes,
            "evictable_bytes": estimate.evictable_bytes,
            "pinnable_bytes": estimate.pinnable_bytes,
        }))
    }
}

fn describe(status: &PreloadStatus) -> Value {
    let started_at = status.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "image": status.disk.to_string(),
        "what": status.request.what.as_str(),
        "pin": status.request.pin,
        "state": status.state.as_str(),
        "is_hint": status.is_hint,
        "total_bytes": status.total_bytes,
        "present_bytes": status.present_bytes,
        "fetched_bytes": status.fetched_bytes,
        "remaining_bytes": status.remaining_bytes,
        "rate_bytes_per_s": status.request.rate_bytes_per_s,
        "recent_bytes_per_s": status.recent_bytes_per_s,
        "started_at": started_at.as_secs_f64(),
        "error": status.error,
    })
}

//! Going on with the log of an epoch that this host closed, in a new epoch.
//!
//! The caller knows from the volume's record that nobody owned the volume in between. Everything
//! that travels is on the origin; what does not (class `none`) is in this log alone.

use std::io;
use std::path::Path;

use acstor_types::DiskId;

use crate::OverlayError;
use crate::segments::checkpoint::rewrite_checkpoint;
use crate::segments::disk::{HostDirectory, LogDisk};
use crate::segments::recovery::find_checkpoint;

/// Makes a closed log the log of a later epoch; done again it changes nothing. Returns whether
/// there is a log. Blocks.
///
/// # Errors
/// [`OverlayError::Locked`] when the directory is in use, [`OverlayError::Invalid`] when the log is
/// of another volume or epoch, [`OverlayError::Corrupt`], [`OverlayError::Io`].
pub fn adopt_log(
    directory: &Path,
    volume: DiskId,
    closed: u32,
    epoch: u32,
) -> Result<bool, OverlayError> {
    let path = directory.display();
    let disk = HostDirectory::open(directory).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OverlayError::Locked(path.to_string()),
        _ => OverlayError::io(format!("open the local log {path}"), error),
    })?;
    adopt_on(&disk, volume, closed, epoch)
}

fn adopt_on(
    disk: &dyn LogDisk,
    volume: DiskId,
    closed: u32,
    epoch: u32,
) -> Result<bool, OverlayError> {
    let Some(mut checkpoint) = find_checkpoint(disk)? else { return Ok(false) };
    let header = checkpoint.header;
    if header.volume != volume || ![closed, epoch].contains(&header.epoch) {
        return Err(OverlayError::Invalid(format!(
            "the local log is of volume {}, epoch {}, and not of {volume}, epoch {closed}",
            header.volume, header.epoch
        )));
    }
    if header.epoch != epoch {
        checkpoint.header.epoch = epoch;
        rewrite_checkpoint(disk, &checkpoint)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use acstor_types::ChunkSize;
    use bytes::Bytes;
    use tempfile::TempDir;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::scenarios::memory_origin::MemoryOrigin;
    use crate::{BlockDevice, Durability, LogRange, Opening, Volume, VolumeConfig};

    const VOLUME: DiskId = DiskId::from_bytes([7; 16]);
    const SIZE: u64 = 8 << 20;
    const NONE_FROM: u64 = 1 << 20;

    struct Host {
        runtime: Runtime,
        origin: MemoryOrigin,
        directory: TempDir,
    }

    impl Host {
        fn new() -> Host {
            let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
            Host { runtime, origin: MemoryOrigin::default(), directory }
        }

        fn log(&self) -> PathBuf {
            self.directory.path().join("log")
        }

        fn open(&self, epoch: u32, next: u64, logs: Vec<LogRange>) -> Arc<Volume> {
            let config = VolumeConfig {
                directory: self.log(),
                quota_bytes: 16 << 20,
                reserve_bytes: 0,
                segment_bytes: 1 << 20,
                push_rate: None,
                io_timeout: None,
                chunk_size: ChunkSize::DEFAULT,
            };
            let durability = Durability::parse(&format!(
                r#"{{"default":"write-back","period_s":3600.0,
                "regions":[{{"class":"none","first":{NONE_FROM},"last":{SIZE}}}]}}"#
            ));
            let opening = Opening {
                volume: VOLUME,
                epoch,
                next,
                size_bytes: SIZE,
                manifest: None,
                logs,
                durability: durability.unwrap(),
            };
            let (sink, handle) = (Arc::new(self.origin.clone()), self.runtime.handle().clone());
            Volume::open(config, opening, None, sink, handle).unwrap()
        }

        fn write(&self, volume: &Volume, offset: u64, byte: u8) {
            let done = volume.write(offset, Bytes::from(vec![byte; 4096]), true);
            self.runtime.block_on(done.outcome()).unwrap();
        }

        /// Writes to both regions and gives the volume back; returns its log in the origin.
        fn release(&self) -> LogRange {
            let volume = self.open(1, 100, Vec::new());
            self.write(&volume, 0, 1);
            self.write(&volume, NONE_FROM, 2);
            let last = volume.release().unwrap().sequence;
            LogRange { volume: VOLUME, epoch: 1, first: 100, last }
        }
    }

    #[test]
    fn log_that_was_closed_goes_on_in_a_later_epoch_with_all_that_it_has() {
        let host = Host::new();
        let range = host.release();
        let next = range.last + 2; // the seal of epoch 1 is in between
        for _ in 0..2 {
            assert!(adopt_log(&host.log(), VOLUME, 1, 2).unwrap());
        }
        let volume = host.open(2, next, vec![range]);
        assert_eq!(volume.core.read_bytes(0, 4096).unwrap(), [1; 4096]);
        assert_eq!(volume.core.read_bytes(NONE_FROM, 4096).unwrap(), [2; 4096]);
        assert_eq!(volume.status().dirty_bytes, 0, "the origin has what travels");
        host.write(&volume, 4096, 3);
        assert_eq!(volume.push_now().unwrap().sequence, next);
        volume.close();
        drop(volume);
        let volume = host.open(2, next, vec![range]);
        assert_eq!(volume.core.read_bytes(NONE_FROM, 4096).unwrap(), [2; 4096]);
        assert_eq!(volume.core.read_bytes(4096, 4096).unwrap(), [3; 4096]);
    }

    #[test]
    fn only_the_log_that_is_meant_is_adopted() {
        let host = Host::new();
        assert!(!adopt_log(&host.log(), VOLUME, 1, 2).unwrap(), "there is none");
        host.release();
        let other = DiskId::from_bytes([8; 16]);
        for (volume, closed) in [(other, 1), (VOLUME, 3)] {
            let refused = adopt_log(&host.log(), volume, closed, 4);
            assert!(matches!(refused, Err(OverlayError::Invalid(_))), "{refused:?}");
        }
        let volume = host.open(1, 100, Vec::new());
        let refused = adopt_log(&host.log(), VOLUME, 1, 2);
        assert!(matches!(refused, Err(OverlayError::Locked(_))), "{refused:?}");
        assert_eq!(volume.core.read_bytes(NONE_FROM, 4096).unwrap(), [2; 4096]);
    }
}

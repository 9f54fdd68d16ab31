//! The first sectors of a volume, which its owner reads for a standby.

use std::io;
use std::time::Duration;

use acstor_overlay::{BlockDevice, Piece};
use acstor_readpath::Segment;
use acstor_types::DiskId;
use bytes::Bytes;

use super::head_reads::{HEAD_BYTES, Look};
use super::{Host, HostError};

/// Longest wait for what the owner must fetch first: a standby asks again.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

impl Host {
    /// Begins a look at the owner's content for reads that wait at this standby.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`].
    pub fn volume_begin_head(&self, volume: DiskId) -> Result<Option<Look>, HostError> {
        Ok(self.volume(volume)?.device.begin_head())
    }

    /// Answers the reads that came before a look was begun.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`].
    pub fn volume_answer_head(
        &self,
        volume: DiskId,
        look: Look,
        content: Vec<u8>,
    ) -> Result<(), HostError> {
        self.volume(volume)?.device.answer_head(look, Bytes::from(content));
        Ok(())
    }

    /// Has reads of the first sectors wait for the volume, as all others.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`].
    pub fn volume_give_up_head(&self, volume: DiskId) -> Result<(), HostError> {
        self.volume(volume)?.device.give_up_head();
        Ok(())
    }

    /// Reads the first sectors of a volume that this host owns; blocks.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`], [`HostError::VolumeNotOwned`]; [`HostError::System`] when it
    /// cannot be read, or not in time.
    pub fn volume_read_head(&self, volume: DiskId) -> Result<Vec<u8>, HostError> {
        let overlay = self.owned_volume(volume)?.overlay.clone();
        let len = overlay.size_bytes().min(HEAD_BYTES) as usize;
        let reading = async { tokio::time::timeout(READ_TIMEOUT, overlay.read(0, len)).await };
        let pieces = match self.handle.block_on(reading) {
            Ok(Ok(pieces)) => pieces,
            Ok(Err(error)) => return Err(HostError::System(io::Error::other(error))),
            Err(_) => return Err(HostError::System(io::ErrorKind::TimedOut.into())),
        };
        content(&pieces, len).map_err(HostError::System)
    }
}

/// Copies `len` bytes of an answer, each file's compared with its checksum.
fn content(pieces: &[Piece], len: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; len];
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.len();
        let target = content.get_mut(at..end).ok_or(io::ErrorKind::InvalidData)?;
        match piece {
            Piece::Base(Segment::Zeros(_)) => {}
            Piece::Base(Segment::Bytes(bytes)) => target.copy_from_slice(bytes),
            Piece::Base(Segment::Mapped { chunk, start, .. }) => chunk.read_at(*start, target)?,
            Piece::Log(log) => log.read_at(0, target)?,
        }
        at = end;
    }
    if at < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(content) }
}

//! Ending an epoch: the first free slot of its log is occupied, so that its owner finds out.
//!
//! An owner stores its objects one after the other, each only if its slot is free. Whoever takes
//! the volume over puts a SEAL into the first free slot; what lies before it is what the old owner
//! may have acknowledged, and nothing can follow.

use std::collections::BTreeSet;

use acstor_types::{Digest, DiskId};
use bytes::Bytes;

use crate::push::origin_log::{
    LOG_OBJECT_SIZE_MAX, LogObjectInfo, ObjectBody, log_key, log_object_info, log_prefix,
    sequence_of,
};
use crate::{OriginSink, OverlayError};

/// End of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Last object that counts: the end of the last complete batch; `None` when there is none.
    pub last: Option<u64>,
    /// Slot of the SEAL.
    pub seal: u64,
}

/// Ends the epoch whose first slot that matters is `first`. Safe to repeat, and to be done by two
/// hosts at once: both find the same end.
///
/// # Errors
/// [`OverlayError::Origin`] when the origin does not answer, [`OverlayError::Corrupt`] when an
/// object of the log is none.
pub fn seal(
    sink: &dyn OriginSink,
    volume: DiskId,
    epoch: u32,
    first: u64,
) -> Result<Sealed, OverlayError> {
    let mut slot = first_free(sink, volume, epoch, first)?;
    if slot > first && info_at(sink, volume, epoch, slot - 1)?.is_seal {
        slot -= 1;
    } else {
        loop {
            let key = log_key(volume, epoch, slot);
            if sink.put_if_absent(&key, &seal_object(volume, epoch, slot))? {
                break;
            }
            if info_at(sink, volume, epoch, slot)?.is_seal {
                break;
            }
            slot += 1;
        }
    }
    let mut last = slot;
    while last > first {
        if !info_at(sink, volume, epoch, last - 1)?.has_more {
            return Ok(Sealed { last: Some(last - 1), seal: slot });
        }
        last -= 1;
    }
    Ok(Sealed { last: None, seal: slot })
}

/// Returns the slot after the last one that is occupied, `first` at least. Never one in a gap: what
/// was there has been folded and collected, and nobody reads that slot again.
pub(crate) fn first_free(
    sink: &dyn OriginSink,
    volume: DiskId,
    epoch: u32,
    first: u64,
) -> Result<u64, OverlayError> {
    let keys = sink.list(&log_prefix(volume, epoch))?;
    let last = keys.iter().filter_map(|key| sequence_of(key)).max();
    Ok(last.map_or(first, |last| first.max(last + 1)))
}

/// Returns what the object in a slot that is taken says of itself.
pub(crate) fn info_at(
    sink: &dyn OriginSink,
    volume: DiskId,
    epoch: u32,
    slot: u64,
) -> Result<LogObjectInfo, OverlayError> {
    let key = log_key(volume, epoch, slot);
    let bytes = object_at(sink, &key)?;
    let info = log_object_info(&bytes)
        .map_err(|error| OverlayError::Corrupt(format!("{key} in the origin: {error}")))?;
    if (info.volume, info.epoch, info.sequence) != (volume, epoch, slot) {
        return Err(OverlayError::Corrupt(format!("{key} in the origin is another object")));
    }
    Ok(info)
}

/// Batches that have a beginning and no end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenBatches {
    /// The last object is a SEAL.
    pub is_sealed: bool,
    /// The last object is one of a preempting batch that goes on.
    pub is_preempting: bool,
    /// Slots of the batch that goes on.
    pub main: BTreeSet<u64>,
}

/// Looks from `end` (exclusive) back for batches that do not end before it. A preempting batch has
/// no gap, so this reads the objects of the batch that goes on, those that preempt it, and one more.
pub(crate) fn open_batches(
    sink: &dyn OriginSink,
    volume: DiskId,
    epoch: u32,
    first: u64,
    end: u64,
) -> Result<OpenBatches, OverlayError> {
    let mut open = OpenBatches::default();
    for slot in (first..end).rev() {
        let info = info_at(sink, volume, epoch, slot)?;
        if slot + 1 == end {
            open.is_sealed = info.is_seal;
            open.is_preempting = info.is_preempting && info.has_more;
        }
        match (info.is_preempting, info.has_more) {
            (false, false) => break,
            (false, true) => drop(open.main.insert(slot)),
            (true, _) => {}
        }
    }
    Ok(open)
}

/// Returns a log object that must be there.
pub(crate) fn object_at(sink: &dyn OriginSink, key: &str) -> Result<Bytes, OverlayError> {
    let bytes = sink.get(key, LOG_OBJECT_SIZE_MAX)?;
    bytes.ok_or_else(|| {
        OverlayError::Corrupt(format!("{key} is not in the origin: writes of the volume are lost"))
    })
}

fn seal_object(volume: DiskId, epoch: u32, slot: u64) -> Vec<Bytes> {
    ObjectBody::default().finish(&LogObjectInfo {
        volume,
        epoch,
        sequence: slot,
        is_seal: true,
        has_more: false,
        is_preempting: false,
        record_count: 0,
        log_id: [0; 16],
        through: 0,
        created_ms: 0,
        body_bytes: 0,
    })
}

/// Returns the digest of an object given in parts.
pub(crate) fn digest_of(parts: &[Bytes]) -> Digest {
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    Digest::of_parts(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::memory_origin::MemoryOrigin;

    const VOLUME: DiskId = DiskId::from_bytes([5; 16]);

    #[test]
    fn slot_that_was_collected_is_never_the_next_one() {
        let origin = MemoryOrigin::default();
        let next = |first| first_free(&origin, VOLUME, 1, first).unwrap();
        assert_eq!((next(50), next(57)), (50, 57));
        for slot in 50..56 {
            let key = log_key(VOLUME, 1, slot);
            origin.put_if_absent(&key, &seal_object(VOLUME, 1, slot)).unwrap();
        }
        assert_eq!((next(50), next(56), next(60)), (56, 56, 60));
        // A fold ended at 53: what lies before its successor is nobody's any more.
        for slot in 50..54 {
            origin.remove(&log_key(VOLUME, 1, slot));
        }
        assert_eq!((next(50), next(54)), (56, 56));
    }
}

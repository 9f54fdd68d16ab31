//! Bringing closed ranges of logs from the origin into a new local log.

use acstor_types::DiskId;
use serde::{Deserialize, Serialize};

use crate::log::LocalLog;
use crate::push::fetch_ahead::visit_objects;
use crate::push::origin_log::{LogObject, LogRecord, log_key};
use crate::push::seal::open_batches;
use crate::segments::record::SECTOR;
use crate::segments::record_log::append_error;
use crate::{OriginSink, OverlayError};

/// A closed range of log objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRange {
    /// The volume that wrote it; another one where the disk was cloned.
    #[serde(with = "disk_id_text")]
    pub volume: DiskId,
    /// The owner's epoch.
    pub epoch: u32,
    /// Sequence number of the first object.
    pub first: u64,
    /// Sequence number of the last object.
    pub last: u64,
}

mod disk_id_text {
    use acstor_types::DiskId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(id: &DiskId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DiskId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Calls `visit` with every record of the ranges, in order, as long as its batch is complete.
pub(crate) fn read_ranges(
    sink: &dyn OriginSink,
    ranges: &[LogRange],
    mut visit: impl FnMut(LogRecord) -> Result<(), OverlayError>,
) -> Result<u64, OverlayError> {
    let mut bytes = 0;
    for range in ranges {
        let end = range.last.checked_add(1);
        let end = end.ok_or_else(|| OverlayError::Invalid("a range without an end".into()))?;
        let open = open_batches(sink, range.volume, range.epoch, range.first, end)?;
        let key_of = |sequence| log_key(range.volume, range.epoch, sequence);
        visit_objects(sink, (range.first, range.last), &key_of, |sequence, object| {
            let key = key_of(sequence);
            bytes += object.len() as u64;
            let corrupt = |error| OverlayError::Corrupt(format!("{key} in the origin: {error}"));
            let object = LogObject::parse(&object).map_err(corrupt)?;
            let info = &object.info;
            if (info.volume, info.epoch, info.sequence) != (range.volume, range.epoch, sequence) {
                return Err(OverlayError::Corrupt(format!("{key} is another object")));
            }
            if info.has_more && sequence == range.last {
                return Err(OverlayError::Corrupt(format!("{key}: the range ends in a batch")));
            }
            if open.main.contains(&sequence) {
                return Ok(());
            }
            let mut outcome = Ok(());
            object
                .records(|record| {
                    if outcome.is_ok() {
                        outcome = visit(record);
                    }
                    Ok::<_, crate::LogObjectError>(())
                })
                .map_err(corrupt)?;
            outcome
        })?;
    }
    Ok(bytes)
}

/// Applies the ranges to a local log that has nothing else; what comes from the origin is not
/// dirty. Returns how many bytes the objects have.
pub(crate) fn replay(
    sink: &dyn OriginSink,
    ranges: &[LogRange],
    size_bytes: u64,
    log: &LocalLog,
) -> Result<u64, OverlayError> {
    read_ranges(sink, ranges, |record| {
        // A volume that was made smaller by a revert may have writes past its end.
        let end = (record.offset + record.len).min(size_bytes);
        if record.offset >= end {
            return Ok(());
        }
        let (first, len) = (record.offset / SECTOR, end - record.offset);
        log.make_room_unsaved()?;
        match record.content {
            Some(content) => log.restore(first, &content[..len as usize]),
            None => log.restore_zeroes(first, len / SECTOR),
        }
        .map_err(append_error)
    })
}

//! The content of closed ranges of logs in a file, for whoever reads a volume's disk without opening it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::push::replay::{LogRange, read_ranges};
use crate::segments::range_set::RangeSet;
use crate::segments::record::SECTOR;
use crate::{OriginSink, OverlayError};

/// Most parts that logs may have: whoever reads them keeps all in memory. Folds take many more.
const RUNS_MAX: usize = 1 << 20;

/// A part of a disk that its log objects have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpooledRun {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// True if it is zeros, of which the file has none.
    pub is_zero: bool,
}

/// Writes what the log objects of `ranges` have to `file`, each byte at its place on the disk; returns the
/// parts that they have, ascending. Of what was written several times the last counts.
///
/// # Errors
/// [`OverlayError`]; the file then has any content.
pub fn spool_log(
    sink: &dyn OriginSink,
    ranges: &[LogRange],
    size_bytes: u64,
    file: &File,
) -> Result<Vec<SpooledRun>, OverlayError> {
    let (mut data, mut zeros) = (RangeSet::default(), RangeSet::default());
    read_ranges(sink, ranges, |record| {
        // As in a replay: a volume that was made smaller by a revert may have writes past its end.
        let end = (record.offset + record.len).min(size_bytes);
        if record.offset >= end {
            return Ok(());
        }
        let (first, last) = (record.offset / SECTOR, end / SECTOR);
        match record.content {
            Some(content) => {
                let content = &content[..(end - record.offset) as usize];
                let written = file.write_all_at(content, record.offset);
                written.map_err(|error| OverlayError::io("write the copy of a log", error))?;
                zeros.remove(first, last);
                data.insert(first, last);
            }
            None => {
                data.remove(first, last);
                zeros.insert(first, last);
            }
        }
        if data.len() + zeros.len() > RUNS_MAX {
            let what =
                format!("the logs have more than {RUNS_MAX} parts of the disk: fold the volume");
            return Err(OverlayError::Invalid(what));
        }
        Ok(())
    })?;
    let runs_of = |set: &RangeSet, is_zero| -> Vec<SpooledRun> {
        let run = |(start, end)| SpooledRun { start: start * SECTOR, end: end * SECTOR, is_zero };
        set.iter().map(run).collect()
    };
    let mut runs = runs_of(&data, false);
    runs.extend(runs_of(&zeros, true));
    runs.sort_unstable_by_key(|run| run.start);
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use acstor_types::DiskId;

    use super::*;
    use crate::push::origin_log::{LogObjectInfo, ObjectBody, log_key};
    use crate::scenarios::memory_origin::MemoryOrigin;

    const VOLUME: DiskId = DiskId::from_bytes([7; 16]);
    const EPOCH: u32 = 2;

    fn store(origin: &MemoryOrigin, sequence: u64, has_more: bool, body: ObjectBody) {
        let info = LogObjectInfo {
            volume: VOLUME,
            epoch: EPOCH,
            sequence,
            is_seal: false,
            has_more,
            is_preempting: false,
            record_count: 0,
            log_id: [1; 16],
            through: sequence,
            created_ms: 0,
            body_bytes: 0,
        };
        let parts = body.finish(&info);
        assert!(origin.put_if_absent(&log_key(VOLUME, EPOCH, sequence), &parts).unwrap());
    }

    fn data(offset: u64, byte: u8, len: usize) -> ObjectBody {
        let mut body = ObjectBody::default();
        body.push_data(offset, &vec![byte; len]);
        body
    }

    fn zeroes(offset: u64, len: u64) -> ObjectBody {
        let mut body = ObjectBody::default();
        body.push_zeroes(offset, len);
        body
    }

    fn range(first: u64, last: u64) -> LogRange {
        LogRange { volume: VOLUME, epoch: EPOCH, first, last }
    }

    fn content(file: &File, run: &SpooledRun) -> Vec<u8> {
        let mut bytes = vec![0; (run.end - run.start) as usize];
        file.read_exact_at(&mut bytes, run.start).unwrap();
        bytes
    }

    #[test]
    fn last_writing_of_each_sector_counts() {
        let origin = MemoryOrigin::default();
        store(&origin, 1, false, data(0, 1, 4096));
        store(&origin, 2, false, zeroes(1024, 8192));
        store(&origin, 3, false, data(2048, 3, 512));
        store(&origin, 4, false, data(16384, 4, 4096));
        let file = tempfile::tempfile().unwrap();
        let runs = spool_log(&origin, &[range(1, 3), range(4, 4)], 18432, &file).unwrap();
        let run = |start, end, is_zero| SpooledRun { start, end, is_zero };
        assert_eq!(
            runs,
            [
                run(0, 1024, false),
                run(1024, 2048, true),
                run(2048, 2560, false),
                run(2560, 9216, true),
                run(16384, 18432, false),
            ]
        );
        assert_eq!(content(&file, &runs[0]), [1; 1024]);
        assert_eq!(content(&file, &runs[2]), [3; 512]);
        assert_eq!(content(&file, &runs[4]), [4; 2048]);
    }

    #[test]
    fn range_that_ends_in_a_batch_is_refused() {
        let origin = MemoryOrigin::default();
        store(&origin, 1, true, data(0, 1, 512));
        let file = tempfile::tempfile().unwrap();
        let error = spool_log(&origin, &[range(1, 1)], 4096, &file).unwrap_err();
        assert!(matches!(error, OverlayError::Corrupt(_)), "{error}");
    }

    #[test]
    fn object_that_is_gone_is_an_error() {
        let origin = MemoryOrigin::default();
        store(&origin, 1, false, data(0, 1, 512));
        let file = tempfile::tempfile().unwrap();
        assert!(spool_log(&origin, &[range(1, 2)], 4096, &file).is_err());
    }
}

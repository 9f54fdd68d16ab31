//! Writing back what was inserted, in steps, and hearing how it went.

use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use crate::disk::SlotFile;
use crate::limits;

/// Bytes that were written and are not known to be on the disk.
///
/// Left alone, the kernel keeps up to a tenth of memory dirty and then makes every writer on the
/// host wait, guests included. Asking after each insert is as bad: a 64 KiB request to the disk
/// costs its submitter more than the insert does. So inserts are counted, and the one that
/// completes a step asks for all of them. It then waits for the step before, whose outcome the
/// kernel tells once: a page that the disk refused is clean afterwards, and what comes back when
/// memory was short is whatever the disk has there.
#[derive(Debug, Default)]
pub(crate) struct Writeback(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    bytes: u64,
    start: u64,
    end: u64,
    /// The step that the kernel was asked to write last.
    under_way: Option<Range<u64>>,
}

impl Writeback {
    /// Counts a write. Where it completes a step, starts writing that back and waits for the step
    /// before.
    ///
    /// # Errors
    /// The kernel's error of any write of the file that it had taken before.
    pub(crate) fn note_write(&self, file: &dyn SlotFile, offset: u64, len: u64) -> io::Result<()> {
        let mut pending = self.0.lock();
        if pending.bytes == 0 {
            (pending.start, pending.end) = (offset, offset + len);
        }
        pending.bytes += len;
        // The hull of scattered writes: only pages that are dirty are written.
        pending.start = pending.start.min(offset);
        pending.end = pending.end.max(offset + len);
        if pending.bytes < limits::WRITEBACK_BYTES {
            return Ok(());
        }
        let step = pending.start..pending.end;
        let before = pending.under_way.replace(step.clone());
        pending.bytes = 0;
        drop(pending);
        file.start_writeback(step.start, step.end - step.start);
        before.map_or(Ok(()), |step| file.finish_writeback(step.start, step.end - step.start))
    }

    /// Writes back all that was noted and waits for it; without a system call where that is nothing.
    ///
    /// # Errors
    /// As [`Writeback::note_write`].
    pub(crate) fn finish(&self, file: &dyn SlotFile) -> io::Result<()> {
        let Pending { bytes, start, end, under_way } = std::mem::take(&mut *self.0.lock());
        let last = (bytes > 0).then_some(start..end);
        // The kernel tells an error at one of them: both are asked.
        let outcomes = [under_way, last]
            .map(|step| step.map(|step| file.finish_writeback(step.start, step.end - step.start)));
        outcomes.into_iter().flatten().collect()
    }
}

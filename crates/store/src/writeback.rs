//! Keeps dirty pages from piling up: what was written is sent to the disk in steps.

use parking_lot::Mutex;

use crate::disk::SlotFile;
use crate::limits;

/// The range written since the kernel was last asked to start writing back.
///
/// Left alone, the kernel keeps up to a tenth of memory dirty and then makes every writer on the
/// host wait, guests included. Asking after each insert is as bad: a 64 KiB request to the disk
/// costs its submitter more than the insert does. So inserts are counted, and the one that
/// completes a step asks for all of them.
#[derive(Debug, Default)]
pub(crate) struct Writeback(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    bytes: u64,
    start: u64,
    end: u64,
}

impl Writeback {
    /// Counts a write; starts writing back when a step is complete.
    pub(crate) fn note_write(&self, file: &dyn SlotFile, offset: u64, len: u64) {
        let mut pending = self.0.lock();
        if pending.bytes == 0 {
            (pending.start, pending.end) = (offset, offset + len);
        }
        pending.bytes += len;
        // The hull of scattered writes: only pages that are dirty are written.
        pending.start = pending.start.min(offset);
        pending.end = pending.end.max(offset + len);
        if pending.bytes >= limits::WRITEBACK_BYTES {
            let done = std::mem::take(&mut *pending);
            drop(pending);
            file.start_writeback(done.start, done.end - done.start);
        }
    }
}

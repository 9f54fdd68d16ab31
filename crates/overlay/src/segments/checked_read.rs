//! Content of extents, compared with the checksums of the records that it is a part of.

use std::collections::VecDeque;
use std::io;

use crate::segments::extent_map::{Extent, Place};
use crate::segments::map_state::Segments;

/// Records that are kept: parts of one follow each other with parts of what has overwritten it between.
const KEPT_MAX: usize = 8;

/// Reads extents in the order of the disk; a record of which parts are asked for is read once.
#[derive(Debug, Default)]
pub(crate) struct CheckedReader {
    /// Segment, offset of the payload, payload; the newest first.
    kept: VecDeque<(u32, u64, Vec<u8>)>,
}

impl CheckedReader {
    /// Fills `buffer` with the content of an extent.
    ///
    /// # Errors
    /// `InvalidData` when it is not what was written, else the kernel's error.
    pub(crate) fn read(
        &mut self,
        segments: &Segments,
        extent: &Extent,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let Place::Log { segment: number, offset } = extent.place else {
            buffer.fill(0);
            return Ok(());
        };
        let segment = segments.get(&number).ok_or(io::ErrorKind::NotFound)?;
        let has = |(of, from, payload): &&(u32, u64, Vec<u8>)| {
            *of == number && *from <= offset && offset < *from + payload.len() as u64
        };
        if let Some((_, from, payload)) = self.kept.iter().find(has) {
            return copy_part(payload, (offset - from) as usize, buffer);
        }
        if segment.is_record(offset, buffer.len()) {
            return segment.read_checked(offset, buffer);
        }
        let (from, payload) = segment.read_record(offset)?;
        let outcome = copy_part(&payload, (offset - from) as usize, buffer);
        self.kept.truncate(KEPT_MAX - 1);
        self.kept.push_front((number, from, payload));
        outcome
    }
}

fn copy_part(payload: &[u8], at: usize, buffer: &mut [u8]) -> io::Result<()> {
    let part = payload.get(at..at + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
    buffer.copy_from_slice(part);
    Ok(())
}

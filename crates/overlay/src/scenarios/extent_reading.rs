//! Content of an extent, for tests that look into a log.

use std::io;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::segments::extent_map::{Extent, Place};
use crate::segments::segment::Segment;

/// Reads the content of an extent.
pub(crate) fn read_extent(
    segments: &HashMap<u32, Arc<Segment>>,
    extent: &Extent,
    buffer: &mut [u8],
) -> io::Result<()> {
    match extent.place {
        Place::Zero => {
            buffer.fill(0);
            Ok(())
        }
        Place::Log { segment, offset } => {
            let segment = segments.get(&segment).ok_or(io::ErrorKind::NotFound)?;
            segment.read_checked(offset, buffer)
        }
    }
}

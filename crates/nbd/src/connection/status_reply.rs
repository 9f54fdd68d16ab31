//! The answer to a question about the status of a range.

use acstor_overlay::{BlockDevice, DeviceExtent};

use crate::handshake::Context;
use crate::protocol::Extent;
use crate::protocol::constants::{STATE_DIRTY, STATE_HOLE, STATE_ZERO};

/// Most extents of one context in one answer.
const EXTENTS_MAX: usize = 4096;
/// Extents that are looked at where one is wanted: neighbours of the same status become one.
const LOOKED_AT_FOR_ONE: usize = 64;
/// Bytes of an answer at most.
pub(super) const MEMORY: u64 = (Context::ALL.len() * (EXTENTS_MAX * 16 + 64)) as u64;
/// Longest extent that 32 bits hold, a multiple of every block size.
const COMPACT_LEN_MAX: u64 = (1 << 32) - (1 << 16);

/// A range whose status is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) is_one: bool,
    /// True if lengths have 64 bits.
    pub(super) is_extended: bool,
}

/// Extents that are looked at for an answer.
pub(super) fn extents_max(is_one: bool) -> usize {
    if is_one { LOOKED_AT_FOR_ONE } else { EXTENTS_MAX }
}

/// Returns the extents of `context` from the begin of the range on: at least one, none empty, together
/// not longer than the range.
pub(super) fn extents(device: &dyn BlockDevice, what: Question, context: Context) -> Vec<Extent> {
    let max = extents_max(what.is_one);
    let found = device.extents(what.offset, what.len, context.query(), max);
    let mut extents: Vec<Extent> = Vec::with_capacity(found.len().min(max));
    let mut left = what.len;
    for extent in found.iter().take(max) {
        let len = extent.len.min(left);
        if len == 0 {
            break;
        }
        left -= len;
        let flags = flags_of(context, extent);
        match extents.last_mut() {
            Some(last) if last.flags == flags => last.len += len,
            _ => extents.push(Extent { len, flags }),
        }
    }
    if extents.is_empty() {
        // A device that does not know: allocated, not known to be zero, dirty.
        let flags = if context == Context::Dirty { STATE_DIRTY } else { 0 };
        extents.push(Extent { len: what.len, flags });
    }
    if what.is_one {
        extents.truncate(1);
    }
    if !what.is_extended {
        cut_to_32_bits(&mut extents);
    }
    extents
}

/// Ends the answer with the first extent that is too long; the client asks on from there.
fn cut_to_32_bits(extents: &mut Vec<Extent>) {
    if let Some(long) = extents.iter().position(|extent| extent.len > COMPACT_LEN_MAX) {
        extents.truncate(long + 1);
        extents[long].len = COMPACT_LEN_MAX;
    }
}

fn flags_of(context: Context, extent: &DeviceExtent) -> u32 {
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    match context {
        Context::Allocation => flag(extent.is_hole, STATE_HOLE) | flag(extent.is_zero, STATE_ZERO),
        Context::Dirty => flag(extent.is_dirty, STATE_DIRTY),
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPACT_LEN_MAX, Extent, cut_to_32_bits};

    #[test]
    fn test_cut_to_32_bits_ends_with_the_long_extent() {
        let extent = |len, flags| Extent { len, flags };
        let mut extents = vec![extent(512, 0), extent(1 << 40, 3), extent(512, 0)];
        cut_to_32_bits(&mut extents);
        assert_eq!(extents, [extent(512, 0), extent(COMPACT_LEN_MAX, 3)]);
        let mut extents = vec![extent(COMPACT_LEN_MAX, 0), extent(512, 1)];
        cut_to_32_bits(&mut extents);
        assert_eq!(extents.len(), 2);
    }
}

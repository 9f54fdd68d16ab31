//! The end of a local log: where its next record goes.

use std::sync::Arc;
use std::time::Instant;

use crate::segments::record::RECORDS_OFFSET;
use crate::segments::segment::Segment;

/// Position of the next record.
#[derive(Debug)]
pub(crate) struct Head {
    pub segment: Arc<Segment>,
    pub offset: u64,
    pub next_sequence: u64,
    pub next_number: u32,
    /// Prepared for when the head is full.
    pub spare: Option<Arc<Segment>>,
    /// Full segments with records that no sync has covered.
    pub unsynced: Vec<Arc<Segment>>,
    /// Bytes appended since the newest checkpoint.
    pub since_checkpoint: u64,
    /// Length of the newest checkpoint.
    pub checkpoint_bytes: u64,
    /// Time at which it was begun.
    pub checkpoint_at: Instant,
    /// Bytes that it calls dirty, and the last sequence number before it.
    pub checkpoint_dirty: (u64, u64),
    /// It is the one that the log was opened with.
    pub is_as_opened: bool,
    /// No guest may write.
    pub is_frozen: bool,
    /// Nothing is written any more: another one may have the directory.
    pub is_closed: bool,
    /// A write at `offset` failed: what is there may be a whole record all the same.
    pub is_torn: bool,
    /// Offset at which the last sync found the head.
    pub synced_offset: u64,
    /// Zeros lie ahead of the records, up to there.
    pub zeros_until: u64,
}

impl Head {
    /// The beginning of an empty segment.
    pub(crate) fn new(segment: Arc<Segment>, next_sequence: u64) -> Head {
        Head {
            next_number: segment.number + 1,
            segment,
            offset: RECORDS_OFFSET,
            next_sequence,
            spare: None,
            unsynced: Vec::new(),
            since_checkpoint: 0,
            checkpoint_bytes: 0,
            checkpoint_at: Instant::now(),
            checkpoint_dirty: (0, 0),
            is_as_opened: true,
            is_frozen: false,
            is_closed: false,
            is_torn: false,
            synced_offset: 0,
            zeros_until: 0,
        }
    }
}

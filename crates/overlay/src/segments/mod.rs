//! Segments of records, the map over them, checkpoints, room.

pub(crate) mod adoption;
pub(crate) mod checked_read;
pub(crate) mod checkpoint;
pub(crate) mod checkpoints;
pub(crate) mod disk;
pub(crate) mod extent_map;
pub(crate) mod file_budget;
pub(crate) mod flusher;
pub(crate) mod head;
pub(crate) mod hold_back;
pub(crate) mod map_state;
pub(crate) mod quota;
pub(crate) mod range_set;
pub(crate) mod reclaim;
pub(crate) mod record;
pub(crate) mod record_index;
pub(crate) mod record_log;
pub(crate) mod recovery;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod segment_files;
pub(crate) mod slot_floor;
pub(crate) mod upkeep;
pub(crate) mod writeback;

//! Writing: a manifest from chunks in the order of the disk, and deltas merged.

pub(crate) mod builder;
pub(crate) mod built;
pub(crate) mod entry_spool;
pub(crate) mod levels;
pub(crate) mod merge;
pub(crate) mod pack_table;
pub(crate) mod span_list;

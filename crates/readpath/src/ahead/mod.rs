//! Reads before they are asked for, and what boots have read.

pub(crate) mod ahead_memory;
pub(crate) mod ahead_room;
pub(crate) mod boot_order;
pub(crate) mod boot_profiles;
pub(crate) mod boot_recorder;
pub(crate) mod chunk_spans;
pub(crate) mod disk_boots;
pub(crate) mod finished_boots;
pub(crate) mod inherited_orders;
pub(crate) mod prefetch;
pub(crate) mod rank_list;
pub(crate) mod read_ahead;
pub(crate) mod read_aheads;
pub(crate) mod read_trace;
pub(crate) mod streams;
pub(crate) mod working_sets;

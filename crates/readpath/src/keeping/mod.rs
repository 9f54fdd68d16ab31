//! The chunk store of this host: what is kept, pinned and read in the background.

pub(crate) mod claims;
pub(crate) mod ghost;
pub(crate) mod held_chunks;
pub(crate) mod host_chunks;
pub(crate) mod inserter;
pub(crate) mod pin_table;
pub(crate) mod pins;
pub(crate) mod recent;
pub(crate) mod store_health;
pub(crate) mod store_reader;

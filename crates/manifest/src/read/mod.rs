//! Reading: one manifest, a stack of them, runs of data, entries in the order of the disk.

pub(crate) mod check;
pub(crate) mod content_name;
pub(crate) mod entries;
pub(crate) mod extents;
pub(crate) mod reader;
pub(crate) mod span_view;
pub(crate) mod stack;

//! Byte layouts, and what a page must look like.

pub mod header;
pub mod layout;

pub(crate) mod directory;
pub(crate) mod entry;
pub(crate) mod form;
pub(crate) mod index;
pub(crate) mod map;
pub(crate) mod summary;

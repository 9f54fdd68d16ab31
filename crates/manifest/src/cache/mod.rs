//! Pages in memory: one bounded cache for all manifests, and sources that use it.

pub(crate) mod cached_pages;
pub(crate) mod page_cache;
pub(crate) mod verified_pages;

//! Pages of manifests that are not on this host, or damaged here: fetched from the origin, verified,
//! and put into the manifest's file.
//!
//! A look-up that meets such a page ends with the page's name, and whoever made it has the page
//! brought and looks up again: while the origin is away nobody holds a permit of those who read the
//! local disk.

pub(crate) mod completion;
pub(crate) mod page_failure;
pub(crate) mod page_fetches;
pub(crate) mod page_turns;
pub(crate) mod page_window;

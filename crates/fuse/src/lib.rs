//! Read-only low-level FUSE server for registered images.

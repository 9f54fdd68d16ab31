//! librados' C interface, as far as it is needed here, and safe types around it.
//!
//! The only place of this crate where something is `unsafe`. What the types guarantee: a handle is
//! used between its making and its end only, a connection outlives everything that was opened on it,
//! and memory that librados may still write to belongs to the read that is under way.

mod connection;
mod functions;
mod namespace;
mod pending_read;
mod write_operation;

pub(crate) use connection::Connection;
#[cfg(test)]
pub(crate) use functions::{Callback, Handle};
pub(crate) use functions::{Functions, load};
pub(crate) use namespace::Namespace;

/// Error of a call: a number of the system's, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The outcome of a call that returns a negative number when it fails.
fn checked(code: i32) -> Result<u32, Errno> {
    u32::try_from(code).map_err(|_| Errno(code.saturating_neg()))
}

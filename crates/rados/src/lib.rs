//! The origin in Ceph RADOS, through librados without Python.
//!
//! A [`RadosPackReader`] is to the read path what the reader of a directory is. Layout of the objects:
//! `doc/source/reference/formats/rados.rst`. Everything but these reads, and the writes of volumes' logs
//! ([`RadosLogWriter`]), is Python's (`acstor/origin/rados`): other writes, listings, refs, the doorbell.
//!
//! One read: `pack_reader` names the object, `object_reader` finds its head (remembered in
//! `known_heads`) and cuts the range into pieces (`layout`), `client` has the connection, and `binding`
//! reads each piece into memory that `destination` lends.
//!
//! Must never: wait for a cluster longer than the options that it was given say, let librados write to
//! memory that somebody else has, or take a pool that was deleted for an empty one.

mod binding;
mod client;
mod destination;
mod error;
#[cfg(test)]
mod fake;
mod head;
mod known_heads;
mod layout;
mod log_writer;
mod object_reader;
mod pack_reader;
mod settings;

pub use error::RadosError;
pub use head::{HEAD_LEN, HEAD_VERSION, Head, HeadKind, Nonce};
pub use log_writer::RadosLogWriter;
pub use pack_reader::RadosPackReader;
pub use settings::RadosSettings;

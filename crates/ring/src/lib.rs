//! The ring: weighted consistent hashing of OIDs onto hosts, numbered by generation.
//!
//! The 64-bit circle is cut into 2^k equal arcs (v-nodes), each assigned to one host; the upper k
//! bits of an OID select its arc, so that a lookup is one load from a table. How many arcs a host
//! has follows its weight. A [`Ring`] never changes: a [`RingBuilder`] makes the next generation
//! from it and moves no more arcs than the new weights force; a [`RingHandle`] holds the one in
//! use and refuses older ones.
//!
//! Source: ACStor §3.4.1, §3.4.2, §3.6 (Equation 1, Algorithm 1). Differs: v-nodes are equal arcs
//! of a fixed number instead of pseudo-random points of a varying number, so that the balance is
//! exact and a lookup needs no search; see RFD 2.
//!
//! Nothing here does I/O, reads a clock or starts a thread.

mod analysis;
mod apportion;
mod assignment;
mod builder;
mod candidates;
mod codec;
mod error;
mod handle;
mod host;
pub mod limits;
mod ring;
mod scatter;
mod text;
mod topology;

pub use analysis::{Analysis, HostShare, Moved, analyze, least_moved_share, moved_share};
pub use builder::{RingBuilder, Similarity, recommended_vnodes};
pub use candidates::Candidates;
pub use codec::RING_VERSION;
pub use error::RingError;
pub use handle::{RingHandle, RingSet, RingView};
pub use host::{Host, HostId};
pub use ring::Ring;
pub use text::Detail;
pub use topology::{Threshold, Topology};

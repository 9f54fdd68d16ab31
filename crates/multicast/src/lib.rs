//! Multicast preload: one host sends the chunks of an image once, and every host of a group hears them.
//!
//! Best effort, and nothing is sent twice: what a host misses it fetches as any preload does. Plain data and
//! arithmetic but for [`shell`]: no I/O, no lock, no clock; time comes in as a [`std::time::Duration`] since a
//! zero of the caller's choice, content through the caller.
//!
//! * [`wire`]: packets, encrypted each for itself with the key of the session; requests and answers that go
//!   over the peers' own connections.
//! * [`sender`]: the packets of a session at a rate that the reports of the receivers decide
//!   ([`sender::RateLaw`]), and the end of it where multicast does not work ([`sender::Judge`]).
//! * [`receiver`]: chunks put together in bounded memory, each compared with its digest before anybody sees it.
//! * [`shell`]: a socket and two loops around the rest.
//!
//! Source: Capo (Shamma et al., FAST 2011), section 4.2.1. Differs: packets are encrypted, each chunk has parity
//! packets, a drawn part of the receivers reports and the slowest tenth of it is left out, and a group that does
//! not hear is noticed. `doc/source/reference/protocols/multicast.rst` has the bytes, RFD 33 the reasons.
//!
//! Must never: keep a chunk that was not verified, allocate by a number that came over the network, send above
//! the rate, or send when a guest waits for this host.

pub mod limits;
pub mod receiver;
pub mod sender;
mod shard_layout;
pub mod shell;
pub mod wire;

pub use shard_layout::{ParityError, ShardLayout};

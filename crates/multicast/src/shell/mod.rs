//! A socket, and two loops around the pure parts.

mod group_socket;
mod receiving;
mod sending;

pub use group_socket::{Datagrams, GroupConfig, GroupError, UdpGroup};
pub use receiving::{Finish, Membership, ReportFuture, receive};
pub use sending::{ChunkSource, LoadFuture, SharedSender, send};

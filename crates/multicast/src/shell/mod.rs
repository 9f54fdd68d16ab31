//! A socket, two loops around the pure parts, and the sessions of a host.

mod group_socket;
mod hub;
mod joining;
mod network;
mod receiving;
mod sending;
mod totals;

pub use group_socket::{Datagrams, GroupConfig, GroupError, UdpGroup};
pub use hub::{Disks, Hub, HubConfig, OpenFuture, Refusal};
pub use joining::{AnswerFuture, HeardChunk, ListenRequest, SenderLink, listen};
pub use network::{Network, UdpNetwork};
pub use receiving::{Finish, Membership, ReportFuture, receive};
pub use sending::{ChunkSource, LoadFuture, SharedSender, send};
pub use totals::Totals;

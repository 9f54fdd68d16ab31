//! Bytes of multicast: packets to the group, and messages over the peers' connections.

mod message;
mod packet;
mod session_key;

pub(crate) use message::is_local_group;
pub use message::{Grant, Message, MessageError, SessionNews};
pub use packet::{
    BEACON_LEN, Content, HEADER_LEN, PACKET_LEN_MAX, PREFIX_LEN, Packet, PacketError, PacketHeader,
    TAG_LEN,
};
pub use session_key::{KEY_LEN, KeyUsedUp, SALT_LEN, SessionKey};

/// Version of packets and messages; both say it in their first byte.
pub const VERSION: u8 = 1;

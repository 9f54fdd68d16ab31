//! Messages between a receiver and the sender, over the peers' own connections: little-endian, one kind a length.
//!
//! ```text
//!   JOIN    client   version u8 = 1, kind u8 = 1, what u8, 0 u8, chunk size u32, disk 16 B                (24 B)
//!   GRANT   server   version, kind = 2, family u8 (4, 6), flags u8 (1: parity), chunk size u32, session u64,
//!                    key 16 B, salt 12 B, port u16, 0 u16, group 16 B, starts in ms u32, member u32       (72 B)
//!   REPORT  client   version, kind = 3, link used u16 (65,535ths; 0: not known), epoch u32, session u64,
//!                    packets u32, member u32                                                             (24 B)
//!   NEWS    server   version, kind = 4, state u8, 0 u8, epoch u32                                         (8 B)
//!   LEAVE   client   version, kind = 5, 0 u16, member u32, session u64                                         (16 B)
//! ```
//!
//! GRANT has a key: it goes over TLS, or where the operator has turned TLS off for all chunks. Golden file
//! `tests/golden/multicast-messages-v1.bin`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use acstor_types::bytes_le::{array_at, u32_at, u64_at};
use acstor_types::{ChunkSize, DiskId};

use super::VERSION;
use super::session_key::SessionKey;
use crate::limits::MESSAGE_LEN_MAX;

const JOIN: u8 = 1;
const GRANT: u8 = 2;
const REPORT: u8 = 3;
const NEWS: u8 = 4;
const LEAVE: u8 = 5;
const FLAG_PARITY: u8 = 1;

/// Reason why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Of another version or kind, or of a length that its kind does not have.
    #[error("of a version, kind or length that this release does not know")]
    Unknown,
    /// Values that no such message can have.
    #[error("its values are impossible")]
    Invalid,
}

/// State of a session as its sender tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionNews {
    /// It goes on.
    Going,
    /// Everything was sent.
    Done,
    /// It ended before: the rest is fetched.
    Ended,
}

/// Grant of the membership of a session.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The session.
    pub session: u64,
    /// The number of the receiver among its members; by it a report is drawn.
    pub member: u32,
    /// Its key.
    pub key: SessionKey,
    /// The group, and the port on which it is heard.
    pub group: SocketAddr,
    /// Size of the chunks.
    pub chunk_size: ChunkSize,
    /// True if chunks have parity.
    pub has_parity: bool,
    /// Time until the first packet.
    pub starts_in: Duration,
}

/// A message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Client: let me hear what is preloaded of a disk.
    Join {
        /// The disk.
        disk: DiskId,
        /// The code of the part that is preloaded; the sender has a session for each.
        what: u8,
        /// Size of the client's chunks.
        chunk_size: ChunkSize,
    },
    /// Server: the session to listen to.
    Grant(Box<Grant>),
    /// Client: the packets of an epoch that came.
    Report {
        /// The session.
        session: u64,
        /// The receiver.
        member: u32,
        /// The epoch.
        epoch: u32,
        /// Different packets of it.
        packets: u32,
        /// Share of the client's link in use; `None` where it is not known.
        link_used: Option<f64>,
    },
    /// Server: the state of the session.
    News {
        /// Its state.
        news: SessionNews,
        /// Its epoch.
        epoch: u32,
    },
    /// Client: I listen no more.
    Leave {
        /// The session.
        session: u64,
        /// The receiver.
        member: u32,
    },
}

impl Message {
    /// Writes the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Message::Join { disk, what, chunk_size } => {
                let mut bytes = vec![VERSION, JOIN, *what, 0];
                bytes.extend(chunk_size.as_u32().to_le_bytes());
                bytes.extend(disk.as_bytes());
                bytes
            }
            Message::Grant(grant) => grant.encode(),
            Message::Report { session, member, epoch, packets, link_used } => {
                let used =
                    link_used.map_or(0, |used| (used.clamp(0.0, 1.0) * 65_535.0).round() as u16);
                let mut bytes = vec![VERSION, REPORT];
                bytes.extend(used.max(u16::from(link_used.is_some())).to_le_bytes());
                bytes.extend(epoch.to_le_bytes());
                bytes.extend(session.to_le_bytes());
                bytes.extend(packets.to_le_bytes());
                bytes.extend(member.to_le_bytes());
                bytes
            }
            Message::News { news, epoch } => {
                let mut bytes = vec![VERSION, NEWS, *news as u8, 0];
                bytes.extend(epoch.to_le_bytes());
                bytes
            }
            Message::Leave { session, member } => {
                let mut bytes = vec![VERSION, LEAVE, 0, 0];
                bytes.extend(member.to_le_bytes());
                bytes.extend(session.to_le_bytes());
                bytes
            }
        }
    }

    /// Writes the message with zeros after it, as a frame of the peer protocol carries it.
    pub fn encode_filled(&self) -> [u8; MESSAGE_LEN_MAX] {
        let (mut filled, message) = ([0; MESSAGE_LEN_MAX], self.encode());
        filled[..message.len()].copy_from_slice(&message);
        filled
    }

    /// Reads a message that zeros fill up.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode_filled(bytes: &[u8; MESSAGE_LEN_MAX]) -> Result<Message, MessageError> {
        let len = match bytes[1] {
            JOIN | REPORT => 24,
            GRANT => 72,
            NEWS => 8,
            LEAVE => 16,
            _ => return Err(MessageError::Unknown),
        };
        let (message, rest) = bytes.split_at(len);
        if rest.iter().any(|byte| *byte != 0) {
            return Err(MessageError::Invalid);
        }
        Message::decode(message)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        let [VERSION, kind, ..] = *bytes else { return Err(MessageError::Unknown) };
        match (kind, bytes.len()) {
            (JOIN, 24) => Ok(Message::Join {
                disk: DiskId::from_bytes(array_at(bytes, 8)),
                what: bytes[2],
                chunk_size: chunk_size(bytes)?,
            }),
            (GRANT, 72) => Ok(Message::Grant(Box::new(Grant::decode(bytes)?))),
            (REPORT, 24) => {
                let used = u16::from_le_bytes(array_at(bytes, 2));
                Ok(Message::Report {
                    session: u64_at(bytes, 8),
                    member: u32_at(bytes, 20),
                    epoch: u32_at(bytes, 4),
                    packets: u32_at(bytes, 16),
                    link_used: (used > 0).then(|| f64::from(used) / 65_535.0),
                })
            }
            (NEWS, 8) => {
                let news = [SessionNews::Going, SessionNews::Done, SessionNews::Ended];
                let news = news.get(usize::from(bytes[2])).ok_or(MessageError::Invalid)?;
                Ok(Message::News { news: *news, epoch: u32_at(bytes, 4) })
            }
            (LEAVE, 16) => {
                Ok(Message::Leave { session: u64_at(bytes, 8), member: u32_at(bytes, 4) })
            }
            _ => Err(MessageError::Unknown),
        }
    }
}

fn chunk_size(bytes: &[u8]) -> Result<ChunkSize, MessageError> {
    ChunkSize::new(u32_at(bytes, 4)).ok_or(MessageError::Invalid)
}

impl Grant {
    fn encode(&self) -> Vec<u8> {
        let (key, salt) = self.key.secret();
        let (family, group) = match self.group.ip() {
            IpAddr::V4(group) => (4, group.to_ipv6_mapped().octets()),
            IpAddr::V6(group) => (6, group.octets()),
        };
        let starts_in = u32::try_from(self.starts_in.as_millis()).unwrap_or(u32::MAX);
        let mut bytes = vec![VERSION, GRANT, family, u8::from(self.has_parity) * FLAG_PARITY];
        bytes.extend(self.chunk_size.as_u32().to_le_bytes());
        bytes.extend(self.session.to_le_bytes());
        bytes.extend(key);
        bytes.extend(salt);
        bytes.extend(self.group.port().to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(group);
        bytes.extend(starts_in.to_le_bytes());
        bytes.extend(self.member.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Grant, MessageError> {
        let group = Ipv6Addr::from(array_at::<16>(bytes, 48));
        let group = match (bytes[2], group.to_ipv4_mapped()) {
            (4, Some(group)) => IpAddr::V4(group),
            (6, None) => IpAddr::V6(group),
            _ => return Err(MessageError::Invalid),
        };
        let port = u16::from_le_bytes(array_at(bytes, 44));
        if !group.is_multicast() || port == 0 || bytes[3] & !FLAG_PARITY != 0 {
            return Err(MessageError::Invalid);
        }
        let key = SessionKey::new(array_at(bytes, 16), array_at(bytes, 32));
        Ok(Grant {
            session: u64_at(bytes, 8),
            member: u32_at(bytes, 68),
            key: key.ok_or(MessageError::Invalid)?,
            group: SocketAddr::new(group, port),
            chunk_size: chunk_size(bytes)?,
            has_parity: bytes[3] & FLAG_PARITY != 0,
            starts_in: Duration::from_millis(u32_at(bytes, 64).into()),
        })
    }
}

/// Returns whether a host can send to an address as a group that stays in its own network segment: IPv4's
/// 239.0.0.0/8 (RFC 2365), IPv6's interface-local and link-local scope (RFC 4291).
pub(crate) fn is_local_group(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[0] == 239,
        IpAddr::V6(group) => matches!(group.octets(), [0xff, 0x02, ..]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grant(group: &str) -> Message {
        Message::Grant(Box::new(Grant {
            session: 0x1122_3344_5566_7788,
            member: 77,
            key: SessionKey::new([7; 16], [9; 12]).unwrap(),
            group: group.parse().unwrap(),
            chunk_size: ChunkSize::new(65_536).unwrap(),
            has_parity: true,
            starts_in: Duration::from_millis(1_500),
        }))
    }

    fn examples() -> Vec<Message> {
        let (session, member, epoch) = (0x1122_3344_5566_7788, 77, 9);
        let chunk_size = ChunkSize::new(65_536).unwrap();
        vec![
            Message::Join { disk: DiskId::from_bytes([5; 16]), what: 1, chunk_size },
            grant("239.255.70.15:7070"),
            grant("[ff02::1234]:7070"),
            Message::Report { session, member, epoch, packets: 86, link_used: Some(0.25) },
            Message::Report { session, member, epoch, packets: 0, link_used: None },
            Message::News { news: SessionNews::Going, epoch },
            Message::News { news: SessionNews::Ended, epoch },
            Message::Leave { session, member },
        ]
    }

    #[test]
    fn test_multicast_messages_version_requires_update() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/multicast-messages-v1.bin");
        let golden = examples().iter().fold(Vec::new(), |mut file, message| {
            let bytes = message.encode();
            file.extend((bytes.len() as u16).to_le_bytes());
            file.extend(bytes);
            file
        });
        let file = std::fs::read(path).unwrap();
        assert!(file == golden, "messages have changed: give them a new version and golden file");
    }

    #[test]
    fn test_decode_is_what_was_encoded() {
        for message in examples() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes).unwrap().encode(), bytes, "{message:?}");
            let filled = message.encode_filled();
            assert_eq!(Message::decode_filled(&filled).unwrap().encode(), bytes, "{message:?}");
        }
    }

    #[test]
    fn test_decode_refuses_a_group_that_is_none() {
        let mut bytes = grant("239.255.70.15:7070").encode();
        bytes[60] = 10;
        assert_eq!(Message::decode(&bytes).unwrap_err(), MessageError::Invalid);
        bytes[60] = 239;
        bytes[4] = 3;
        assert_eq!(Message::decode(&bytes).unwrap_err(), MessageError::Invalid);
    }

    #[test]
    fn test_is_local_group_keeps_to_administrative_scopes() {
        for (group, is_local) in
            [("239.1.2.3", true), ("224.0.0.1", false), ("ff02::9", true), ("ff0e::9", false)]
        {
            assert_eq!(is_local_group(group.parse().unwrap()), is_local, "{group}");
        }
    }

    proptest! {
        #[test]
        fn test_decode_any_bytes_is_refused_or_means_the_same_again(
            mut bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0_u8..7,
        ) {
            if let [version, second, ..] = &mut bytes[..] {
                (*version, *second) = (VERSION, kind);
            }
            if let Ok(message) = Message::decode(&bytes) {
                let again = message.encode();
                prop_assert_eq!(Message::decode(&again).unwrap().encode(), again);
            }
        }
    }
}

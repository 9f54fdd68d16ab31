//! Packets: a header in clear, and a part of a chunk encrypted; all integers little-endian.
//!
//! ```text
//!   0         1      2        4       8         16              24
//!   +---------+------+--------+-------+---------+---------------+------------------+------+
//!   | version | kind | drawn  | epoch | session | packet number | content          | tag  |
//!   | u8      | u8   | u16    | u32   | u64     | u64           | encrypted        | 16 B |
//!   +---------+------+--------+-------+---------+---------------+------------------+------+
//!                                       content of a shard:     0           8       10        12
//!                                                               +-----------+-------+---------+-------------+
//!                                                               | chunk     | shard | 0       | 1,400 bytes |
//!                                                               | u64       | u16   | u16     |             |
//!                                                               +-----------+-------+---------+-------------+
//! ```
//!
//! A beacon has no content: it tells a silent sender from a group that is not heard. Nor has the end, which
//! comes after everything was sent. Golden file
//! `tests/golden/multicast-packets-v1.bin`.

use acstor_types::bytes_le::{array_at, u32_at, u64_at};
use bytes::Bytes;

use super::VERSION;
use super::session_key::{KeyUsedUp, SessionKey};
use crate::limits::SHARD_LEN;

/// Bytes of a header.
pub const HEADER_LEN: usize = 24;
/// Bytes in front of the shard in a packet's content.
pub const PREFIX_LEN: usize = 12;
/// Bytes of the tag that authenticates a packet.
pub const TAG_LEN: usize = 16;
/// Bytes of a packet with a shard, the longest there is.
pub const PACKET_LEN_MAX: usize = HEADER_LEN + PREFIX_LEN + SHARD_LEN + TAG_LEN;
/// Bytes of a packet without content.
pub const BEACON_LEN: usize = HEADER_LEN + TAG_LEN;

const KIND_SHARD: u8 = 1;
const KIND_BEACON: u8 = 2;
const KIND_END: u8 = 3;

/// Reason why a datagram is no packet of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PacketError {
    /// Of no length that a packet has.
    #[error("of no length that a packet has")]
    Length,
    /// Of another version, or of no kind that there is.
    #[error("of another version or kind")]
    Unknown,
    /// Of another session.
    #[error("of another session")]
    Session,
    /// Not by a member, or damaged.
    #[error("not encrypted with the key of the session")]
    Forged,
    /// By a member, and what it carries does not exist.
    #[error("its content is impossible")]
    Content,
}

impl PacketError {
    /// Every error.
    pub const ALL: [PacketError; 5] = [
        PacketError::Length,
        PacketError::Unknown,
        PacketError::Session,
        PacketError::Forged,
        PacketError::Content,
    ];

    /// The label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            PacketError::Length => "length",
            PacketError::Unknown => "unknown",
            PacketError::Session => "session",
            PacketError::Forged => "forged",
            PacketError::Content => "content",
        }
    }
}

/// Header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Share of the members that report this epoch, in 65,535ths; see [`crate::sender::is_drawn`].
    pub drawn: u16,
    /// Epoch in which it was sent, from 0.
    pub epoch: u32,
    /// The session.
    pub session: u64,
    /// Number of the packet in its session, from 0; never twice.
    pub number: u64,
}

/// Content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A part of a chunk.
    Shard {
        /// Index of the chunk on its disk.
        chunk: u64,
        /// Place of the shard; see [`crate::ShardLayout`].
        shard: u16,
        /// [`SHARD_LEN`] bytes.
        bytes: Bytes,
    },
    /// Nothing: a sign of life.
    Beacon,
    /// Nothing: everything was sent.
    End,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its header.
    pub header: PacketHeader,
    /// Its content.
    pub content: Content,
}

impl Packet {
    /// Writes and encrypts the packet.
    ///
    /// # Errors
    /// [`KeyUsedUp`].
    pub fn seal(&self, key: &SessionKey) -> Result<Vec<u8>, KeyUsedUp> {
        let PacketHeader { drawn, epoch, session, number } = self.header;
        let kind = match self.content {
            Content::Shard { .. } => KIND_SHARD,
            Content::Beacon => KIND_BEACON,
            Content::End => KIND_END,
        };
        let mut packet = Vec::with_capacity(PACKET_LEN_MAX);
        packet.extend([VERSION, kind]);
        packet.extend(drawn.to_le_bytes());
        packet.extend(epoch.to_le_bytes());
        packet.extend(session.to_le_bytes());
        packet.extend(number.to_le_bytes());
        if let Content::Shard { chunk, shard, bytes } = &self.content {
            packet.extend(chunk.to_le_bytes());
            packet.extend(shard.to_le_bytes());
            packet.extend([0, 0]);
            packet.extend_from_slice(bytes);
        }
        key.seal(number, &mut packet, HEADER_LEN)?;
        Ok(packet)
    }

    /// Returns the session that a datagram claims to be of, before anything is decrypted.
    pub fn session_of(datagram: &[u8]) -> Option<u64> {
        let is_possible = matches!(datagram.len(), PACKET_LEN_MAX | BEACON_LEN);
        (is_possible && datagram[0] == VERSION).then(|| u64_at(datagram, 8))
    }

    /// Decrypts and reads a datagram of `session`; it is overwritten.
    ///
    /// # Errors
    /// [`PacketError`]; nothing is allocated before it is known to be a member's.
    pub fn open(
        datagram: &mut [u8],
        session: u64,
        key: &SessionKey,
    ) -> Result<Packet, PacketError> {
        if !matches!(datagram.len(), PACKET_LEN_MAX | BEACON_LEN) {
            return Err(PacketError::Length);
        }
        let kind = datagram[1];
        let is_known = match datagram.len() {
            BEACON_LEN => matches!(kind, KIND_BEACON | KIND_END),
            _ => kind == KIND_SHARD,
        };
        if datagram[0] != VERSION || !is_known {
            return Err(PacketError::Unknown);
        }
        let header = PacketHeader {
            drawn: u16::from_le_bytes(array_at(datagram, 2)),
            epoch: u32_at(datagram, 4),
            session: u64_at(datagram, 8),
            number: u64_at(datagram, 16),
        };
        if header.session != session {
            return Err(PacketError::Session);
        }
        let plain = key.open(header.number, datagram, HEADER_LEN).ok_or(PacketError::Forged)?;
        match kind {
            KIND_BEACON => return Ok(Packet { header, content: Content::Beacon }),
            KIND_END => return Ok(Packet { header, content: Content::End }),
            _ => {}
        }
        if plain[10..PREFIX_LEN] != [0, 0] {
            return Err(PacketError::Content);
        }
        let content = Content::Shard {
            chunk: u64_at(plain, 0),
            shard: u16::from_le_bytes(array_at(plain, 8)),
            bytes: Bytes::copy_from_slice(&plain[PREFIX_LEN..]),
        };
        Ok(Packet { header, content })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> SessionKey {
        SessionKey::new([7; 16], [9; 12]).unwrap()
    }

    fn packet(number: u64, content: Content) -> Packet {
        let header = PacketHeader { drawn: 0x0102, epoch: 0x0304_0506, session: 0x0708, number };
        Packet { header, content }
    }

    fn shard(chunk: u64, shard: u16) -> Content {
        let bytes = (0..SHARD_LEN).map(|i| (i % 253) as u8).collect::<Vec<_>>().into();
        Content::Shard { chunk, shard, bytes }
    }

    /// The packets of the golden file, each after its length as a little-endian u16.
    fn golden() -> Vec<u8> {
        let packets = [
            packet(0, Content::Beacon),
            packet(1, shard(3, 0)),
            packet(1 << 22, shard(1 << 40, 49)),
            packet((1 << 22) + 1, Content::End),
        ];
        packets.iter().fold(Vec::new(), |mut file, packet| {
            let sealed = packet.seal(&key()).unwrap();
            file.extend((sealed.len() as u16).to_le_bytes());
            file.extend(sealed);
            file
        })
    }

    #[test]
    fn test_multicast_packets_version_requires_update() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/multicast-packets-v1.bin");
        let file = std::fs::read(path).unwrap();
        assert!(file == golden(), "packets have changed: give them a new version and golden file");
    }

    #[test]
    fn test_open_refuses_each_kind_of_stranger() {
        let sealed = packet(5, shard(1, 2)).seal(&key()).unwrap();
        let open = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut datagram = sealed.clone();
            change(&mut datagram);
            Packet::open(&mut datagram, 0x0708, &key())
        };
        assert_eq!(open(&|_| ()), Ok(packet(5, shard(1, 2))));
        assert_eq!(open(&|d| d.truncate(99)), Err(PacketError::Length));
        assert_eq!(open(&|d| d[0] = 2), Err(PacketError::Unknown));
        assert_eq!(open(&|d| d[1] = KIND_BEACON), Err(PacketError::Unknown));
        assert_eq!(open(&|d| d[8] ^= 1), Err(PacketError::Session));
        for place in [2, 4, 16, 30, 700, PACKET_LEN_MAX - 1] {
            assert_eq!(open(&|d| d[place] ^= 1), Err(PacketError::Forged), "{place}");
        }
        let other = SessionKey::new([8; 16], [9; 12]).unwrap();
        let theirs = Packet::open(&mut sealed.clone(), 0x0708, &other);
        assert_eq!(theirs, Err(PacketError::Forged));
    }

    #[test]
    fn test_session_of_needs_no_key() {
        let sealed = packet(5, Content::Beacon).seal(&key()).unwrap();
        assert_eq!(Packet::session_of(&sealed), Some(0x0708));
        assert_eq!(Packet::session_of(&sealed[1..]), None);
        assert_eq!(Packet::session_of(&[]), None);
    }

    proptest! {
        #[test]
        fn test_open_any_bytes_is_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..1_600)) {
            prop_assert!(Packet::open(&mut bytes, 0x0708, &key()).is_err());
        }

        #[test]
        fn test_open_what_was_sealed_is_what_was_meant(
            number in 0_u64..1 << 23, chunk: u64, place in 0_u16..3_188,
        ) {
            let meant = packet(number, shard(chunk, place));
            let mut sealed = meant.seal(&key()).unwrap();
            prop_assert_eq!(sealed.len(), PACKET_LEN_MAX);
            prop_assert_eq!(Packet::open(&mut sealed, 0x0708, &key()), Ok(meant));
        }
    }
}

//! The binary form of a ring: what is published in the origin and given to the data plane.
//!
//! Layout (all integers little-endian), described in `reference/formats/ring`:
//!
//! ```text
//! 0      magic "ACSTRING"                      8
//! 8      version                               u32
//! 12     host count                            u32
//! 16     generation, at least 1                u64
//! 24     seed                                  u64
//! 32     k, for 2^k v-nodes                    u32
//! 36     length of the host table, bytes       u32
//! 40     zero                                  16
//! 56     CRC-32 of everything from byte 64 on  u32
//! 60     CRC-32 of bytes 0..60                 u32
//! 64     host table, hosts in ascending order of name:
//!          weight                              u32
//!          lengths of name, address, topology  3 x u16
//!          name, address, topology             ASCII
//! then   owner of each v-node, as a host's number in the table   2^k x u16
//! ```

use acstor_types::bytes_le::{u32_at, u64_at};

use crate::{Host, Ring, RingError, Topology, limits};

/// Version that this build writes; it reads this one only.
pub const RING_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"ACSTRING";
const RESERVED: std::ops::Range<usize> = 40..56;
const BODY_CRC_OFFSET: usize = 56;
const HEADER_CRC_OFFSET: usize = 60;
const BODY_OFFSET: usize = 64;
const HOST_HEADER_LEN: usize = 10;

impl Ring {
    /// Returns the binary form. Equal rings have equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for host in self.hosts() {
            let topology = host.topology.to_string();
            table.extend_from_slice(&host.weight.to_le_bytes());
            for text in [&host.name, &host.address, &topology] {
                table.extend_from_slice(&(text.len() as u16).to_le_bytes());
            }
            for text in [&host.name, &host.address, &topology] {
                table.extend_from_slice(text.as_bytes());
            }
        }
        let mut bytes = Vec::with_capacity(BODY_OFFSET + table.len() + 2 * self.vnodes().len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&RING_VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.hosts().len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.generation().to_le_bytes());
        bytes.extend_from_slice(&self.seed().to_le_bytes());
        bytes.extend_from_slice(&self.vnode_count().trailing_zeros().to_le_bytes());
        bytes.extend_from_slice(&(table.len() as u32).to_le_bytes());
        bytes.resize(BODY_OFFSET, 0);
        bytes.extend_from_slice(&table);
        for owner in self.vnodes() {
            bytes.extend_from_slice(&owner.to_le_bytes());
        }
        let body_crc = crc32fast::hash(&bytes[BODY_OFFSET..]);
        bytes[BODY_CRC_OFFSET..HEADER_CRC_OFFSET].copy_from_slice(&body_crc.to_le_bytes());
        let header_crc = crc32fast::hash(&bytes[..HEADER_CRC_OFFSET]);
        bytes[HEADER_CRC_OFFSET..BODY_OFFSET].copy_from_slice(&header_crc.to_le_bytes());
        bytes
    }

    /// Reads and validates a binary form. Never panics; allocates no more than a small multiple
    /// of the length of `bytes`.
    ///
    /// # Errors
    /// [`RingError`] when anything is out of order.
    pub fn decode(bytes: &[u8]) -> Result<Ring, RingError> {
        let header = Header::decode(bytes)?;
        let (table, vnodes) = bytes[BODY_OFFSET..].split_at(header.table_len);
        let hosts = decode_hosts(table, header.host_count)?;
        let vnodes = vnodes.chunks_exact(2).map(|owner| u16::from_le_bytes([owner[0], owner[1]]));
        Ring::from_parts(header.generation, header.seed, hosts, vnodes.collect())
    }
}

struct Header {
    host_count: usize,
    generation: u64,
    seed: u64,
    table_len: usize,
}

impl Header {
    /// Checks both checksums and that the lengths add up to the length of `bytes`.
    fn decode(bytes: &[u8]) -> Result<Header, RingError> {
        let actual = bytes.len() as u64;
        if bytes.len() < BODY_OFFSET {
            return Err(RingError::Length { actual, expected: BODY_OFFSET as u64 });
        }
        if &bytes[..8] != MAGIC {
            return Err(RingError::Magic);
        }
        let version = u32_at(bytes, 8);
        if version != RING_VERSION {
            return Err(RingError::Version(version));
        }
        if crc32fast::hash(&bytes[..HEADER_CRC_OFFSET]) != u32_at(bytes, HEADER_CRC_OFFSET) {
            return Err(RingError::Corrupt("header checksum"));
        }
        let (host_count, bits, table_len) =
            (u32_at(bytes, 12) as usize, u32_at(bytes, 32), u32_at(bytes, 36) as usize);
        if host_count == 0 || host_count > limits::HOSTS_MAX {
            return Err(RingError::Range("host count (1 to 16384)"));
        }
        let bits_range = u32::from(limits::VNODE_BITS_MIN)..=u32::from(limits::VNODE_BITS_MAX);
        if !bits_range.contains(&bits) {
            return Err(RingError::Range("v-node count (a power of two from 2^4 to 2^22)"));
        }
        if bytes[RESERVED].iter().any(|byte| *byte != 0) {
            return Err(RingError::Range("reserved bytes"));
        }
        let expected = BODY_OFFSET as u64 + table_len as u64 + (2 << bits);
        if actual != expected {
            return Err(RingError::Length { actual, expected });
        }
        if crc32fast::hash(&bytes[BODY_OFFSET..]) != u32_at(bytes, BODY_CRC_OFFSET) {
            return Err(RingError::Corrupt("body checksum"));
        }
        Ok(Header { host_count, generation: u64_at(bytes, 16), seed: u64_at(bytes, 24), table_len })
    }
}

fn decode_hosts(mut table: &[u8], host_count: usize) -> Result<Vec<Host>, RingError> {
    const SHORT: RingError = RingError::Range("host table is shorter than its hosts");
    if host_count * HOST_HEADER_LEN > table.len() {
        return Err(SHORT);
    }
    let mut hosts = Vec::with_capacity(host_count);
    for _ in 0..host_count {
        let (header, rest) = table.split_at_checked(HOST_HEADER_LEN).ok_or(SHORT)?;
        table = rest;
        let mut text = |field: usize| {
            let len = usize::from(u16::from_le_bytes([header[field], header[field + 1]]));
            let (text, rest) = table.split_at_checked(len).ok_or(SHORT)?;
            table = rest;
            std::str::from_utf8(text).map_err(|_| RingError::Range("text that is not UTF-8"))
        };
        let (name, address, topology) = (text(4)?, text(6)?, text(8)?);
        hosts.push(Host {
            name: name.to_owned(),
            address: address.to_owned(),
            weight: u32_at(header, 0),
            topology: topology.parse::<Topology>()?,
        });
    }
    if !table.is_empty() {
        return Err(RingError::Range("host table is longer than its hosts"));
    }
    Ok(hosts)
}

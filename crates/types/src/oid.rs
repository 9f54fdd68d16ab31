//! The OID that places a chunk on the ring.

use twox_hash::XxHash3_64;

use crate::DiskId;

/// 64-bit xxh3 of (disk id, chunk index): the position of a chunk on the ring.
///
/// Source: ACStor §3.4.1 (object ID). Differs: the paper splits the OID into a prefix that
/// selects the host and a suffix that selects the chunk; here the manifest selects the chunk and
/// the whole OID selects the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Oid(pub u64);

impl Oid {
    /// Returns the OID whose owner on the ring is the rendezvous host of a disk: that of an index which no
    /// manifest has a chunk of, so that under either rule of placement it is nobody's chunk.
    pub fn rendezvous(disk: &DiskId) -> Oid {
        Oid::of(disk, u64::MAX)
    }

    /// Returns the number of a host: xxh3-64, seed 0, of its name in the ring.
    /// `tests/golden/rendezvous.json` holds Rust and Python together.
    pub fn host_number(name: &str) -> u64 {
        XxHash3_64::oneshot(name.as_bytes())
    }

    /// Returns the OID of chunk `index` of disk `disk`: xxh3-64, seed 0, over the 16 bytes of the
    /// id followed by the index as 8 little-endian bytes. Python's `xxhash.xxh3_64_intdigest`
    /// gives the same; `tests/golden/oid.json` holds the two together.
    pub fn of(disk: &DiskId, index: u64) -> Oid {
        let mut key = [0; 24];
        key[..16].copy_from_slice(disk.as_bytes());
        key[16..].copy_from_slice(&index.to_le_bytes());
        Oid(XxHash3_64::oneshot(&key))
    }
}

//! The head of an object: what says whether it is there, and where its bytes are.
//!
//! Layout, history and rules: `doc/source/reference/formats/rados.rst`. Heads are written by Python
//! (`acstor/origin/rados/head.py`), those of log objects by [`crate::RadosLogWriter`].

use std::fmt;

use crate::RadosError;

/// Version of the heads that this build reads; any other one is refused.
pub const HEAD_VERSION: u8 = 1;
/// Length of a head, bytes; those of a whole object follow it.
pub const HEAD_LEN: usize = 40;
/// Most stripes of an object.
const STRIPES_MAX: u64 = 1 << 16;

const MAGIC: &[u8; 4] = b"ACSO";
const VERSION_AT: usize = 4;
const KIND_AT: usize = 5;
const SIZE_AT: usize = 8;
const STRIPE_SIZE_AT: usize = 16;
const NONCE_AT: usize = 20;
const CRC_AT: usize = 36;

/// State of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// It is there, and its bytes follow the head.
    Whole,
    /// It is not there: somebody writes stripes.
    Pending,
    /// It is there, in stripes.
    Striped,
    /// It is not there: stripes are being removed.
    Dead,
}

/// Part of the names of an object's stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; 16]);

impl fmt::Display for Nonce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// State and size of an object, and what its stripes are named by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// State.
    pub kind: HeadKind,
    /// Size of the object, bytes.
    pub size: u64,
    /// Size of each stripe but the last, bytes; never 0.
    pub stripe_size: u32,
    /// Name of the stripes.
    pub nonce: Nonce,
}

impl Head {
    /// Reads the first bytes of the RADOS object of `key`.
    ///
    /// # Errors
    /// [`RadosError::HeadVersion`] when a newer release wrote it, [`RadosError::Damaged`] when it is no
    /// head.
    pub fn parse(stored: &[u8], key: &str) -> Result<Head, RadosError> {
        if stored.starts_with(MAGIC)
            && let Some(&version) = stored.get(VERSION_AT)
            && version != HEAD_VERSION
        {
            return Err(RadosError::HeadVersion { key: key.to_owned(), version });
        }
        let damaged = |cause| RadosError::Damaged { key: key.to_owned(), cause };
        let head = stored.first_chunk::<HEAD_LEN>();
        let head = head.filter(|head| is_sound(head)).and_then(decode);
        let head = head.ok_or_else(|| damaged("it has no head: is the pool another one's?"))?;
        if head.stripe_count() > STRIPES_MAX {
            return Err(damaged("it has more stripes than any object"));
        }
        Ok(head)
    }

    /// Returns whether the object is there.
    pub fn is_there(&self) -> bool {
        matches!(self.kind, HeadKind::Whole | HeadKind::Striped)
    }

    /// Number of stripes; of a whole object none.
    pub fn stripe_count(&self) -> u64 {
        match self.kind {
            HeadKind::Whole => 0,
            _ => self.size.div_ceil(u64::from(self.stripe_size)),
        }
    }

    /// The bytes, of whatever is written.
    pub fn encode(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..VERSION_AT].copy_from_slice(MAGIC);
        bytes[VERSION_AT] = HEAD_VERSION;
        bytes[KIND_AT] = match self.kind {
            HeadKind::Whole => 0,
            HeadKind::Pending => 1,
            HeadKind::Striped => 2,
            HeadKind::Dead => 3,
        };
        bytes[SIZE_AT..STRIPE_SIZE_AT].copy_from_slice(&self.size.to_le_bytes());
        bytes[STRIPE_SIZE_AT..NONCE_AT].copy_from_slice(&self.stripe_size.to_le_bytes());
        bytes[NONCE_AT..CRC_AT].copy_from_slice(&self.nonce.0);
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn is_sound(head: &[u8; HEAD_LEN]) -> bool {
    let crc = field::<4>(head, CRC_AT).map(u32::from_le_bytes);
    head.starts_with(MAGIC) && crc == Some(crc32fast::hash(&head[..CRC_AT]))
}

fn decode(head: &[u8; HEAD_LEN]) -> Option<Head> {
    let kind = match head[KIND_AT] {
        0 => HeadKind::Whole,
        1 => HeadKind::Pending,
        2 => HeadKind::Striped,
        3 => HeadKind::Dead,
        _ => return None,
    };
    let stripe_size = u32::from_le_bytes(field(head, STRIPE_SIZE_AT)?);
    let size = u64::from_le_bytes(field(head, SIZE_AT)?);
    let nonce = Nonce(field(head, NONCE_AT)?);
    (stripe_size > 0).then_some(Head { kind, size, stripe_size, nonce })
}

fn field<const LEN: usize>(head: &[u8; HEAD_LEN], at: usize) -> Option<[u8; LEN]> {
    head.get(at..)?.first_chunk::<LEN>().copied()
}

#[cfg(test)]
mod tests {
    use acstor_types::ErrorKind;

    use super::*;

    const GOLDEN: &[u8] = include_bytes!("../../../tests/golden/rados-head-v1.bin");

    fn whole() -> Head {
        Head { kind: HeadKind::Whole, size: 5, stripe_size: 4096, nonce: Nonce([7; 16]) }
    }

    /// Gives bytes the checksum that they need.
    fn repaired(mut bytes: [u8; HEAD_LEN]) -> [u8; HEAD_LEN] {
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn test_golden_head_requires_a_new_version() {
        let nonce = Nonce(std::array::from_fn(|at| at as u8 + 1));
        let expected = Head { kind: HeadKind::Striped, size: 9 << 20, stripe_size: 4 << 20, nonce };
        assert_eq!(HEAD_VERSION, 1);
        assert_eq!(Head::parse(GOLDEN, "golden").unwrap(), expected);
        assert_eq!(expected.stripe_count(), 3);
        assert_eq!(expected.encode(), GOLDEN, "bump HEAD_VERSION");
        assert_eq!(nonce.to_string(), "0102030405060708090a0b0c0d0e0f10");
    }

    #[test]
    fn test_damaged_head_is_refused() {
        let stored = whole().encode();
        for at in 0..stored.len() {
            let mut damaged = stored;
            damaged[at] ^= 1;
            let error = Head::parse(&damaged, "x").unwrap_err();
            let expected =
                if at == VERSION_AT { ErrorKind::Unsupported } else { ErrorKind::Corrupt };
            assert_eq!(error.kind(), expected, "byte {at}");
        }
        for len in 0..stored.len() {
            assert_eq!(Head::parse(&stored[..len], "x").unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn test_head_of_a_later_version_is_refused_whatever_follows() {
        let error = Head::parse(b"ACSO\x02", "packs/aa/x").unwrap_err();
        assert_eq!(error, RadosError::HeadVersion { key: "packs/aa/x".into(), version: 2 });
    }

    #[test]
    fn test_head_without_meaning_is_refused() {
        for (at, value) in [(KIND_AT, 4), (KIND_AT, 255)] {
            let mut bytes = whole().encode();
            bytes[at] = value;
            assert!(Head::parse(&repaired(bytes), "x").is_err());
        }
        let no_stripes = Head { stripe_size: 0, ..whole() };
        assert!(Head::parse(&no_stripes.encode(), "x").is_err());
        let many = Head { kind: HeadKind::Striped, size: u64::MAX, stripe_size: 1, ..whole() };
        assert!(Head::parse(&many.encode(), "x").is_err());
        let one_more = Head { size: 4096 * STRIPES_MAX + 1, ..many };
        assert!(Head::parse(&Head { stripe_size: 4096, ..one_more }.encode(), "x").is_err());
        let most = Head { size: 4096 * STRIPES_MAX, stripe_size: 4096, ..many };
        assert_eq!(Head::parse(&most.encode(), "x").unwrap(), most);
    }
}

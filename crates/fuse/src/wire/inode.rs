//! The numbers under which the kernel knows a file, derived from its disk id.
//!
//! A process that takes the connection over must give every file the number it had: the kernel
//! goes on with its inodes. So nothing is counted up; all numbers are parts of one keyed hash of
//! the disk id. Image ids can be chosen by tenants, so the hash is a cryptographic one; should two
//! ids still share an inode number, the second is refused, and the other parts of the hash
//! (`generation` for cached names and pages, `handle` for open files) keep a file of the first
//! from ever being answered with bytes of the second.

use acstor_types::DiskId;

/// Inode number of the root directory, fixed by the protocol.
pub(crate) const ROOT_INODE: u64 = 1;
/// Inode numbers below this one are never given to a file.
const INODE_MIN: u64 = 1 << 16;
const CONTEXT: &str = "acstor 2026-11 FUSE inode, generation and handle of a disk id, version 1";

/// The kernel's names for one file. The same disk id gives the same key for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Inode number (`st_ino`, node id): 65,536 to 2^63 - 1.
    pub inode: u64,
    /// Generation of the inode, never 0; 32 bits, since the kernel keeps no more.
    pub generation: u32,
    /// File handle of every open of the file.
    pub handle: u64,
}

impl FileKey {
    /// Derives the key of a disk.
    pub fn of(disk: DiskId) -> FileKey {
        let hash = blake3::Hasher::new_derive_key(CONTEXT).update(disk.as_bytes()).finalize();
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(hash.as_bytes().chunks_exact(8)) {
            let mut field = [0; 8];
            field.copy_from_slice(bytes);
            *word = u64::from_le_bytes(field);
        }
        let inode = words[0] & (u64::MAX >> 1);
        FileKey {
            inode: if inode < INODE_MIN { inode + INODE_MIN } else { inode },
            generation: (words[1] as u32).max(1),
            handle: words[2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FileKey, INODE_MIN};
    use acstor_types::DiskId;
    use proptest::prelude::*;

    #[test]
    fn keys_version_requires_update() {
        let id: DiskId = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0".parse().unwrap();
        let key = FileKey::of(id);
        assert_eq!(
            (key.inode, key.generation, key.handle),
            GOLDEN,
            "a change of these numbers makes every running guest read from the wrong file after \
             an upgrade: do not change them without a new session file version"
        );
    }

    const GOLDEN: (u64, u32, u64) =
        (3_279_771_352_173_990_289, 1_989_659_388, 9_918_985_664_570_290_287);

    proptest! {
        #[test]
        fn numbers_are_in_range(bytes: [u8; 16]) {
            let key = FileKey::of(DiskId::from_bytes(bytes));
            prop_assert!(key.inode >= INODE_MIN && key.inode < 1 << 63);
            prop_assert!(key.generation != 0);
        }
    }
}

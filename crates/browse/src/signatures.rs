//! Signatures of file systems and containers, and the places where they have them.

use crate::disk::Disk;
use crate::error::BrowseError;

/// Content of a part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext2, ext3 or ext4: the one kind whose files are shown.
    Ext,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// NTFS.
    Ntfs,
    /// exFAT.
    ExFat,
    /// FAT of 12, 16 or 32 bits.
    Fat,
    /// A physical volume of LVM.
    Lvm,
    /// A container of LUKS.
    Luks,
    /// Swap space.
    Swap,
    /// ISO 9660.
    Iso9660,
    /// Nothing that is known.
    Unknown,
}

impl FileSystem {
    /// Returns its name, as `blkid` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext => "ext",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ntfs => "ntfs",
            Self::ExFat => "exfat",
            Self::Fat => "vfat",
            Self::Lvm => "LVM2_member",
            Self::Luks => "crypto_LUKS",
            Self::Swap => "swap",
            Self::Iso9660 => "iso9660",
            Self::Unknown => "unknown",
        }
    }
}

/// Signatures: where, and of what. The first that is found counts.
const SIGNATURES: [(u64, &[u8], FileSystem); 14] = [
    (0, b"LUKS\xba\xbe", FileSystem::Luks),
    (0, b"XFSB", FileSystem::Xfs),
    (3, b"NTFS    ", FileSystem::Ntfs),
    (3, b"EXFAT   ", FileSystem::ExFat),
    (54, b"FAT1", FileSystem::Fat),
    (82, b"FAT32   ", FileSystem::Fat),
    (512, b"LABELONE", FileSystem::Lvm),
    (0, b"LABELONE", FileSystem::Lvm),
    (1080, b"\x53\xef", FileSystem::Ext),
    (4086, b"SWAPSPACE2", FileSystem::Swap),
    (4086, b"SWAP-SPACE", FileSystem::Swap),
    (0x10040, b"_BHRfS_M", FileSystem::Btrfs),
    (0x8001, b"CD001", FileSystem::Iso9660),
    (1024, b"LABELONE", FileSystem::Lvm),
];

/// Returns what begins at the start of a disk.
///
/// # Errors
///
/// [`BrowseError::Io`] when its bytes cannot be had.
pub fn file_system(disk: &dyn Disk) -> Result<FileSystem, BrowseError> {
    for (offset, signature, found) in SIGNATURES {
        if disk.size_bytes() < offset + signature.len() as u64 {
            continue;
        }
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..signature.len()];
        disk.read_at(offset, bytes)?;
        if bytes == signature {
            return Ok(found);
        }
    }
    Ok(FileSystem::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_each_signature_is_found_and_a_short_disk_has_none() {
        for (offset, signature, found) in SIGNATURES {
            let mut disk = vec![0; 70 << 10];
            disk[offset as usize..][..signature.len()].copy_from_slice(signature);
            assert_eq!(file_system(&disk).unwrap(), found);
        }
        assert_eq!(file_system(&vec![0; 70 << 10]).unwrap(), FileSystem::Unknown);
        assert_eq!(file_system(&Vec::new()).unwrap(), FileSystem::Unknown);
    }
}

//! The outcome of INIT on disk, for the process that takes the connection over.
//!
//! The kernel never repeats INIT, so without this a newer or older version could not know what
//! its predecessor agreed on. Layout in `doc/source/reference/formats/fuse-session.rst`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::SESSION_FILE_MAX;
use crate::{FuseError, Negotiated};

/// Version of the session file.
pub const SESSION_FILE_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"ACFUSESN";

#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
struct Record {
    magic: [u8; 8],
    version: U32,
    minor: U32,
    flags: U64,
    max_pages: U16,
    reserved: [u8; 2],
    crc: U32,
}

/// Bytes that the checksum covers: all before it.
const CHECKED_BYTES: usize = size_of::<Record>() - size_of::<U32>();

fn encode(negotiated: &Negotiated) -> [u8; size_of::<Record>()] {
    let mut record = Record {
        magic: MAGIC,
        version: U32::new(SESSION_FILE_VERSION),
        minor: U32::new(negotiated.minor),
        flags: U64::new(negotiated.flags),
        max_pages: U16::new(negotiated.max_pages),
        reserved: [0; 2],
        crc: U32::new(0),
    };
    record.crc = U32::new(crc32fast::hash(&record.as_bytes()[..CHECKED_BYTES]));
    zerocopy::transmute!(record)
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Negotiated, FuseError> {
    let damaged = |what: &str| FuseError::SessionFile { path: path.into(), what: what.to_owned() };
    let (record, rest) =
        Record::read_from_prefix(bytes).map_err(|_| damaged("shorter than a record"))?;
    if record.magic != MAGIC {
        return Err(damaged("not a session file"));
    }
    // Before the checksum: another version may keep it elsewhere.
    if record.version.get() != SESSION_FILE_VERSION {
        let what = format!("session file version {}", record.version);
        return Err(FuseError::SessionTooNew { what });
    }
    if !rest.is_empty() {
        return Err(damaged("longer than a record"));
    }
    if record.crc.get() != crc32fast::hash(&bytes[..CHECKED_BYTES]) {
        return Err(damaged("checksum"));
    }
    Ok(Negotiated {
        minor: record.minor.get(),
        flags: record.flags.get(),
        max_pages: record.max_pages.get(),
    })
}

/// Replaces the file atomically.
pub(crate) fn save(path: &Path, negotiated: &Negotiated) -> Result<(), FuseError> {
    let failed = |source: io::Error| FuseError::Io { path: path.into(), source };
    let next = path.with_extension("next");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)
        .map_err(failed)?;
    file.write_all(&encode(negotiated)).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&next, path).map_err(failed)
}

/// Reads the file; `None` when there is none (the connection ended up with the defaults).
pub(crate) fn load(path: &Path) -> Result<Option<Negotiated>, FuseError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FuseError::Io { path: path.into(), source }),
    };
    let mut bytes = Vec::new();
    file.take(SESSION_FILE_MAX as u64)
        .read_to_end(&mut bytes)
        .map_err(|source| FuseError::Io { path: path.into(), source })?;
    decode(path, &bytes).map(Some)
}

/// Forgets the session, since a new connection begins.
pub(crate) fn remove(path: &Path) -> Result<(), FuseError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FuseError::Io { path: path.into(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, load, save};
    use crate::{FuseError, Negotiated};
    use proptest::prelude::*;
    use std::path::Path;

    const SESSION: Negotiated = Negotiated { minor: 45, flags: 0x80_4260_e001, max_pages: 256 };

    #[test]
    fn session_file_version_requires_update() {
        let golden: &[u8] = include_bytes!("../../../../tests/golden/fuse-session-v1.bin");
        assert_eq!(encode(&SESSION), golden, "bump SESSION_FILE_VERSION and add a golden file");
        assert_eq!(decode(Path::new("golden"), golden).unwrap(), SESSION);
    }

    #[test]
    fn saved_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session");
        assert_eq!(load(&path).unwrap(), None);
        save(&path, &SESSION).unwrap();
        save(&path, &SESSION).unwrap();
        assert_eq!(load(&path).unwrap(), Some(SESSION));
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = encode(&SESSION);
        bytes[8] = 2;
        let error = decode(Path::new("file"), &bytes).unwrap_err();
        assert!(matches!(error, FuseError::SessionTooNew { .. }), "{error}");
        bytes[0] = b'x';
        let error = decode(Path::new("file"), &bytes).unwrap_err();
        assert!(matches!(error, FuseError::SessionFile { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(decode(Path::new("file"), &bytes).is_err());
        }

        #[test]
        fn a_damaged_file_is_refused(position in 0usize..32, bit in 0u8..8, cut in 0usize..32) {
            let mut bytes = encode(&SESSION);
            bytes[position] ^= 1 << bit;
            prop_assert!(decode(Path::new("file"), &bytes).is_err());
            prop_assert!(decode(Path::new("file"), &encode(&SESSION)[..cut]).is_err());
        }
    }
}

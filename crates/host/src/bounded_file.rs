//! Reading a file that somebody else names: never more than it may have.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::HostError;

/// Returns the content of a file of at most `max` bytes.
///
/// # Errors
/// [`HostError::File`], [`HostError::TooLong`].
pub(super) fn read(path: &Path, max: u64) -> Result<Vec<u8>, HostError> {
    let failed = |source| HostError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    // Its length may change, and a device has none: what counts is what is read.
    File::open(path)
        .and_then(|file| file.take(max.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > max {
        return Err(HostError::TooLong { path: path.to_owned(), max });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn test_read_takes_files_up_to_the_bound_and_no_endless_ones() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"12345").unwrap();
        assert_eq!(read(file.path(), 5).unwrap(), b"12345");
        assert!(matches!(read(file.path(), 4), Err(HostError::TooLong { max: 4, .. })));
        let endless = read(Path::new("/dev/zero"), 1 << 16);
        assert!(matches!(endless, Err(HostError::TooLong { .. })));
        assert!(matches!(read(Path::new("/no such file"), 1), Err(HostError::File { .. })));
    }
}
